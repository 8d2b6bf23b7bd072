"""State of a worker's agent, shared by its parts."""

from __future__ import annotations

from enum import Enum

from recovery.agent.completion import Completion
from recovery.agent.effects import Effect, Perform, Report, Run
from recovery.checkpoint.attributes import Attributes
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.operator_memory import OperatorMemory
from recovery.epoch_ends import KnownEnds
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound
from recovery.place import Place, places
from recovery.policy.chosen import policy_of
from recovery.protocol import ToMonitor
from recovery.store.journal import Journal
from timely.dataflow.plan import Plan
from timely.worker.worker import Worker


class WorkerPhase(Enum):
    """Phase of a worker in the rounds of rollback."""

    JOINING = "waits for the first decision"
    RUNNING = "runs"
    DRAINING = "empties its links"
    DRAINED = "waits for the decision"
    RELEASED = "is done for good"


AGENT = -1
"""Agent's place among the workers awaited before a generation begins."""


def staged_nodes(layout: Layout, plan: Plan) -> frozenset[int]:
    """Sinks and captures with output staged until the low-watermark, by node."""
    return frozenset(
        plan.processors[p].node.index for p, info in enumerate(layout.processors) if info.role in ("sink", "capture")
    )


class AgentState:
    """Worker of the process at `place`, with recorder, checkpoints and journal.

    `copies`: processes of each worker.
    """

    def __init__(
        self, plan: Plan, layout: Layout, place: Place, incarnation: int, journal: Journal, copies: int = 1
    ) -> None:
        self.plan = plan
        self.layout = layout
        self.place = place
        self.others = tuple(each for each in places(layout.workers, copies) if each != place)
        """Places of all other processes of the job."""
        self.index = index = place.worker
        self.incarnation = incarnation
        self.recorder = WorkerRecorder(layout, index)
        self.worker = Worker(plan, index, self.recorder, staged=staged_nodes(layout, plan))
        self.worker.awaited = {AGENT}
        for runtime, processor in zip(self.worker.runtimes, plan.processors):
            if policy_of(processor.node).by_time:
                runtime.take_spans_back()
        self.checkpoints = Checkpoints(layout, self.recorder, journal)
        self.journal = journal
        self.completion = Completion(plan, layout, self.worker)
        self.attributes = Attributes(layout, self.worker, self.recorder)
        self.operator_memory = OperatorMemory(layout, self.worker)
        self.recorder.beside = self.operator_memory.watched()
        self.phase = WorkerPhase.JOINING
        self.round = 0
        """Newest round received from the monitor."""
        self.cutting = False
        """True while a cut is being made, piece by piece."""
        self.alive = False
        """True since the first decision carried out: the process has memory."""
        self.noted = 0
        """Newest decision in the store, so known to this worker's next process."""
        self.low: list[list[Bound]] = [[info.nothing for info in layout.processors] for _ in range(layout.workers)]
        """Low-watermarks W of all processors: `low[worker][processor]`."""
        self.known_ends = KnownEnds()
        """Ends of epochs cut by a clock, on any worker."""
        self.eager = tuple(number for number, group in enumerate(layout.groups) if group.eager)
        """Groups cut by this worker on its own."""
        self.effects: list[Effect] = []
        """Effects of the present step."""
        self.now = float("-inf")
        """Time of the present step."""
        self.worked = 0.0
        """Seconds of work in all turns so far."""

    @property
    def running(self) -> bool:
        """True if sources may be read and the worker run.

        Not before it has reported that it is restored: its first turn may be long, and the monitor waits for that report.
        """
        return (
            self.phase == WorkerPhase.RUNNING
            and self.noted == self.worker.generation
            and self.worker.awaited <= {AGENT}
        )

    @property
    def begins(self) -> bool:
        """True in a new generation until the engine begins it.

        Its driver resumes it before its first turn, and takes `AGENT` from those that it awaits.
        """
        return AGENT in self.worker.awaited

    def run(self) -> None:
        """Let the worker begin its generation, once `Restored` is sent."""
        if self.phase == WorkerPhase.RUNNING and self.begins and self.noted == self.worker.generation:
            self.effects.append(Run(self.noted))

    def report(self, message: ToMonitor) -> None:
        """Send a message to the monitor."""
        self.effects.append(Report(message))

    def perform(self) -> None:
        """Emit operators' effects before writing the segment that records them as done.

        Above all they release output.
        """
        if self.worker.effects:
            self.effects.append(Perform(self.worker.take_effects()))
