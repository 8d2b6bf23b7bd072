"""State of the coordinator under its decisions, read by its invariants."""

from __future__ import annotations

from monitor.coordination.commit import GroupCommit
from monitor.coordination.cuts import Cuts
from monitor.coordination.options import Options
from monitor.coordination.records import SavedJob
from monitor.coordination.workers import JobPhase, WorkerTable
from recovery.layout import Layout
from recovery.place import Place, places


class JobState:
    """Phase, decision, workers, options and low-watermarks of a job.

    Args:
        layout: of the program that is run now.
        saved: what the monitor's own journal holds.
        copies: processes of each worker.
        awaited: places with a process already.
        now: the time, in seconds.
    """

    def __init__(self, layout: Layout, saved: SavedJob, copies: int, awaited: tuple[Place, ...], now: float) -> None:
        self.layout = layout
        self.phase = JobPhase.ASSEMBLING
        self.decision = saved.decision
        """Last durable decision."""
        self.generation = saved.decision.generation if saved.decision else 0
        self.round = max(saved.rounds, self.generation)
        """Newest round in use, above all rounds of earlier monitors."""
        self.reserved = self.round
        """Last reserved round: no later monitor uses numbers up to this one."""
        self.workers = WorkerTable(places(layout.workers, copies), awaited, now)
        self.options = Options(layout, saved.watermarks, saved.decision.bounds if saved.decision else None)
        """Options of every processor."""
        self.low_watermarks = self.options.watermarks
        """Durable W, `[worker][processor]`, announced or about to be."""
        self.cuts = Cuts(layout.groups, self.options.last_cuts(), now)
        self.commit = GroupCommit()
