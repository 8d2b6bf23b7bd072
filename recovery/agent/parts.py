"""Parts of a worker's agent, put together: what its invariants look at."""

from __future__ import annotations

from recovery.agent.backpressure import Backpressure
from recovery.agent.collection import Collection
from recovery.agent.cuts import WorkerCuts
from recovery.agent.reports import Reports
from recovery.agent.rounds import Rounds
from recovery.agent.savepoint import WorkerSavepoint
from recovery.agent.state import AgentState
from recovery.layout import Layout
from recovery.place import Place
from recovery.store.journal import Journal
from timely.dataflow.plan import Plan


class AgentParts(AgentState):
    """Shared state and the parts on it, each knowing those before it.

    `most`: bytes that may wait for the monitor; half as many of what was sent are kept. `patience`: seconds for which it may
    be silent.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        place: Place,
        incarnation: int,
        journal: Journal,
        most: int,
        patience: float,
        copies: int,
    ) -> None:
        super().__init__(plan, layout, place, incarnation, journal, copies)
        self.recorder.shipments.budget = most // 2
        self.reports = Reports(self)
        self.cuts = WorkerCuts(self, self.reports)
        self.collection = Collection(self)
        self.rounds = Rounds(self, self.reports, self.cuts, self.collection)
        self.savepoint = WorkerSavepoint(self, self.reports)
        self.backpressure = Backpressure(self, self.reports, self.cuts, most, patience)
