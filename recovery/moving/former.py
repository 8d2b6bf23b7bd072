"""Worker of the former layout, brought back from its journal at the common bounds.

It comes back as after any failure, by the same code, and does nothing further: its outputs are published under its own name,
and what it has is handed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.agent.agent import Agent
from recovery.checkpoint.records import Checkpoint
from recovery.layout import Layout
from recovery.memory.records import LogEntry
from recovery.metadata import Bound, holds, to_frontier
from recovery.place import Place
from recovery.protocol import Decision
from recovery.rollback.carry_out import carry_out
from recovery.rollback.orders import RollbackPlanner
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta
from timely.data.messages import Effect
from timely.dataflow.plan import Plan
from timely.operators.base import Operator
from timely.state.interface import Run
from timely.time import Frontier
from timely.worker.worker import Worker


class FormerWorker:
    """Worker `index` of the former layout, at `bounds` of its processors.

    Args:
        journal: fenced, with the `segments` that it needs.
        generation: number of the move, above all generations so far.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        index: int,
        incarnation: int,
        journal: Journal,
        segments: Iterable[tuple[SegmentMeta, list[Section]]],
        bounds: Sequence[Bound],
        generation: int,
    ) -> None:
        self.index = index
        self.layout = layout
        self.bounds = tuple(bounds)
        self._agent = agent = Agent(plan, layout, Place(index), incarnation, journal, segments)
        everyone = (self.bounds,) * layout.workers
        decision = Decision(generation, everyone, tuple(range(layout.workers)), everyone)
        parts = agent.worker, agent.recorder, agent.checkpoints, agent.attributes, agent.operator_memory
        carry_out(RollbackPlanner(plan, layout, *parts, remembers=False).orders(decision), *parts)

    @property
    def worker(self) -> Worker:
        """Engine of this worker, at rest."""
        return self._agent.worker

    def outputs(self) -> list[Effect]:
        """Outputs within the bounds, published or not."""
        for p, info in enumerate(self.layout.processors):
            if info.role in ("sink", "capture"):
                self.operator(p).on_watermark(to_frontier(self.bounds[p]))
        return self.worker.take_effects()

    def operator(self, p: int) -> Operator:
        """Operator of processor `p`."""
        return self.worker.runtimes[p].operator

    def checkpoint(self, p: int) -> Checkpoint | None:
        """Checkpoint of processor `p` at its bound; None for ∅."""
        return self._agent.checkpoints.at(p, self.bounds[p])

    def runs(self, p: int) -> list[Run]:
        """All state of processor `p`, anew."""
        state, info = self.operator(p).state, self.layout.processors[p]
        return [] if state is None else state.snapshot(to_frontier(self.bounds[p]), Frontier.empty(info.depth))

    def has_more_than_state(self, p: int) -> bool:
        """True if a replayed operator keeps anything beside its `state`."""
        agent, info = self._agent, self.layout.processors[p]
        watched = info.history and p in agent.operator_memory.of
        return watched and not agent.recorder.only_state(p, self.bounds[p])

    def messages(self) -> list[LogEntry]:
        """Messages sent ahead: by events within the bounds, for later times.

        Those lie outside the bounds of their receivers."""
        targets = {edge.edge: edge.target for edge in self.layout.edges}
        return [
            entry
            for (edge, _), entries in sorted(self._agent.recorder.logs.items())
            for entry in entries
            if not holds(self.bounds[targets[edge]], entry.time)
        ]
