"""Cuts of a worker's groups, piece by piece, or at once in eager groups."""

from __future__ import annotations

from collections.abc import Mapping

from recovery.agent.effects import Save, Saved
from recovery.agent.reports import Reports
from recovery.agent.state import AgentState, WorkerPhase
from recovery.checkpoint.checkpoints import Draft
from recovery.checkpoint.records import SourcePosition
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
        self._positions: dict[tuple[int, int], tuple[SourcePosition, ...]] = {}
        """Known positions for the cuts not begun, by (processor, epoch)."""
        self._wanted: Save | None = None
        """Last word to the driver on these cuts; None: there are none."""

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
            self._want()

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
            if self._unknown():
                self._want(at_once=True)
            elif self.due:
                self.make_piece({})

    def make_piece(self, positions: Mapping[tuple[int, int], tuple[SourcePosition, ...]]) -> None:
        """Make the next piece of the pending cuts, given positions of their sources.

        Cuts without pieces, and those of eager groups, are made whole.
        """
        self._positions.update(positions)
        before = self._own.checkpoints.saved_rows
        self._advance()
        self._own.effects.append(Saved(self._own.checkpoints.saved_rows - before, over=not self.pending))
        self._want()

    def _advance(self) -> None:
        own = self._own
        while self.pending:
            if self.draft is None:
                self._begin()
            assert self.draft is not None
            eager = self.draft.group in own.eager
            while not own.checkpoints.advance(self.draft):
                if not eager:
                    return
            self._end(self.draft)

    def _begin(self) -> None:
        """Begin the next pending cut."""
        own = self._own
        cut = self.due.pop(0)
        own.attributes.check(cut.group, cut.at)
        positions = {p: self._positions[p, epoch] for p, epoch in own.checkpoints.sources(cut.group, cut.at)}
        own.cutting = True
        self.draft = draft = own.checkpoints.cut(cut.group, cut.at, self.state, positions)
        draft.began, draft.waited = own.now, own.now - self._asked.pop(cut.group, own.now)

    def finish(self) -> None:
        """Finish the cut in the making at once, and drop those not begun."""
        if self.draft is not None:
            while not self._own.checkpoints.advance(self.draft):
                pass
            self._end(self.draft)
        self.drop()

    def drop(self) -> None:
        """Drop cuts not begun: a decision makes them void."""
        self.due.clear()
        self._asked.clear()
        if self._wanted is not None:
            self._own.effects.append(Saved(0, over=True))
        self._want()

    def _unknown(self) -> tuple[tuple[int, int], ...]:
        """Sources of cuts not begun, with positions still to come."""
        sources = (each for cut in self.due for each in self._own.checkpoints.sources(cut.group, cut.at))
        return tuple(dict.fromkeys(each for each in sources if each not in self._positions))

    def _want(self, at_once: bool = False) -> None:
        """Tell the driver of changed wishes for pieces."""
        wanted = Save(self.every, self._unknown(), at_once) if self.pending else None
        if wanted is None:
            self._positions.clear()
        elif wanted != self._wanted:
            self._own.effects.append(wanted)
        self._wanted = wanted

    def state(self, p: int) -> State | None:
        """State of the operator of local processor `p`."""
        return self._own.worker.runtimes[p].operator.state

    def _end(self, draft: Draft) -> None:
        own = self._own
        self.draft, own.cutting = None, False
        taken = draft.waited, own.now - draft.began
        self._reports.gather(Durable(own.place, own.worker.generation, draft.group, draft.at, tuple(draft.xis), *taken))
