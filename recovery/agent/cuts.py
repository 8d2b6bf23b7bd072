"""Cuts of a worker's groups, piece by piece, or at once in eager groups."""

from __future__ import annotations

from recovery.agent.effects import AskPositions
from recovery.agent.reports import Reports
from recovery.agent.state import AgentState, WorkerPhase
from recovery.checkpoint.checkpoints import Draft, Positions
from recovery.protocol import Cut, Durable
from timely.state.interface import State


class WorkerCuts:
    """Pending cuts of a worker, and the one in the making."""

    def __init__(self, own: AgentState, reports: Reports) -> None:
        self._own = own
        self._reports = reports
        self.due: list[Cut] = []
        """Cuts requested and not begun."""
        self.draft: Draft | None = None
        """Cut in the making."""
        self._asked: dict[int, float] = {}
        """Time of each group's requested cut."""

    @property
    def pending(self) -> bool:
        """True if a piece of a cut can be made now."""
        return self.draft is not None or bool(self.due)

    @property
    def every(self) -> float | None:
        """Seconds between cuts wanted for the pending ones; None if unspecified."""
        numbers = [cut.group for cut in self.due] + ([self.draft.group] if self.draft is not None else [])
        groups = self._own.layout.groups
        return min((every for n in numbers if (every := groups[n].seconds) is not None), default=None)

    @property
    def unwritten(self) -> int:
        """Bytes of the made parts of the cut in the making."""
        return sum(saved.size for _, saved, _ in self.draft.states) if self.draft is not None else 0

    def ask(self, cut: Cut) -> None:
        """Take a requested cut; those of other generations are void."""
        if cut.generation == self._own.worker.generation and self._own.phase == WorkerPhase.RUNNING:
            self.due.append(cut)
            self._asked.setdefault(cut.group, self._own.now)

    def commit(self) -> None:
        """Cut eager groups at their completed bounds, in one segment.

        If a segment is being written, the cuts wait for the next one.
        """
        own = self._own
        if own.eager and not self.pending and not self._reports.waits_for_store():
            assert own.completion.reported is not None
            for number in own.eager:
                at = own.completion.reported[number]
                if at > own.checkpoints.last_cut(number):
                    self.due.append(Cut(own.worker.generation, number, at))
            self.make_piece()

    def make_piece(self) -> None:
        """Make the next piece of the pending cuts.

        Cuts without pieces, and those of eager groups, are made whole.
        """
        own = self._own
        while self.draft is not None or self.due:
            if self.draft is None:
                sources = own.checkpoints.sources(self.due[0].group, self.due[0].at)
                if sources:
                    own.effects.append(AskPositions(sources))
                    return
                self.begin({})
            assert self.draft is not None
            eager = self.draft.group in own.eager
            while not own.checkpoints.advance(self.draft):
                if not eager:
                    return
            self._end(self.draft)

    def begin(self, positions: Positions) -> None:
        """Begin the next pending cut, with the positions of its sources."""
        own = self._own
        cut = self.due.pop(0)
        own.attributes.check(cut.group, cut.at)
        self.draft = draft = own.checkpoints.cut(cut.group, cut.at, self.state, positions)
        draft.began, draft.waited = own.now, own.now - self._asked.pop(cut.group, own.now)

    def finish(self) -> None:
        """Finish the cut in the making at once."""
        if self.draft is not None:
            while not self._own.checkpoints.advance(self.draft):
                pass
            self._end(self.draft)

    def drop(self) -> None:
        """Drop cuts not begun: a decision makes them void."""
        self.due.clear()
        self._asked.clear()

    def state(self, p: int) -> State | None:
        """State of the operator of local processor `p`."""
        return self._own.worker.runtimes[p].operator.state

    def _end(self, draft: Draft) -> None:
        own = self._own
        self.draft = None
        taken = draft.waited, own.now - draft.began
        self._reports.gather(Durable(own.index, own.worker.generation, draft.group, draft.at, tuple(draft.xis), *taken))
