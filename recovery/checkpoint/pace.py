"""Pace of a cut: time and size of pieces between a worker's turns.

The core has no clock, so the driver measures. After each turn it makes pieces for as long as half a turn takes, within limits.
The longer a cut lasts, the more: one that takes as long as the interval that was asked for gets half of the worker's time, and
a source that gives more than can be saved is slowed down by that. A piece that would not be over by the time at which a
source has its next input is put off until that input was handled, once.
"""

from __future__ import annotations

from collections.abc import Callable

from recovery.checkpoint.checkpoints import PIECE_ROWS

SHORTEST, LONGEST = 0.0005, 0.002
"""Limits of the seconds for a piece, and for the pieces of a turn.

Within them, both take half of a turn.
"""

LATEST = 0.05
"""Most seconds for the pieces of a turn when a cut is late, or a turn's own."""

_FEWEST, _MOST = 16, 1 << 17

_IN_TIME = 0.25
"""Share of the interval counted as in time."""


class Pace:
    """Measured seconds of one worker's pieces and turns, and the pace from them."""

    def __init__(self) -> None:
        self.rows = PIECE_ROWS
        """Rows wanted in the next piece."""
        self._per_row: float | None = None
        self._longest = 0.0
        """Expected seconds of a piece: the longest of late.

        Memory never used before can make one ten times as long.
        """
        self._turn = 0.0
        self._put_off = False
        self._cut_since: float | None = None

    def worked(self, seconds: float) -> None:
        """Record the seconds of a turn with work in it, without its pieces."""
        self._turn += (seconds - self._turn) / 16

    def saved(self, rows: int, seconds: float, spent: float) -> None:
        """Record a piece: its rows, seconds, and processor time of this thread.

        Its size follows from what it costs. By how long it took, pieces would get smaller on a machine that others use, and so
        dearer for each row, for nothing.
        """
        self._longest = max(seconds, self._longest * 0.9)
        if spent <= 0.0 or rows < self.rows // 4:  # what a smaller one costs says nothing of what a full one does
            return
        each = spent / rows
        if self._per_row is None:
            self._per_row = each
        else:  # a piece in which the machine did something else must not count for much
            self._per_row += (min(each, 4 * self._per_row) - self._per_row) / 8
        self.rows = min(max(int(self.usual / self._per_row), _FEWEST), _MOST)

    @property
    def usual(self) -> float:
        """Usual seconds for the pieces after a turn."""
        return min(max(SHORTEST, self._turn / 2), LONGEST)

    def budget(self, now: float, every: float) -> float:
        """Seconds for the pieces of this turn; `every` is the wanted interval of cuts."""
        if self._cut_since is None:
            self._cut_since = now
        late = (now - self._cut_since) / max(every, LATEST)
        return self.usual if late < _IN_TIME else min(max(self.usual, self._turn * late), max(LATEST, self._turn))

    def make(
        self,
        began: float,
        every: float,
        more: Callable[[], bool],
        piece: Callable[[int], int],
        clock: Callable[[], float],
        spent: Callable[[], float],
    ) -> float:
        """Make pieces within the budget of this turn; return the time afterwards.

        Args:
            began: the time now.
            every: seconds that should be between two cuts.
            more: whether there is something to make.
            piece: makes a piece of about so many rows, and returns how many there were.
            clock, spent: the time, and the seconds of processor time that this thread has used.
        """
        budget, now, first = self.budget(began, every), began, True
        late = budget > self.usual
        while more():
            start, used = now, spent()
            rows = piece(self.rows)
            now = clock()
            if not (late and first):  # the first one looks through what the turn has written, however few rows it has
                self.saved(rows, now - start, spent() - used)
            # Another one that takes as long would not be over in time; by a clock that stands still nobody can tell.
            if now == start or (2 * now - start - began > budget and not (late and first)):
                break
            first = False
        return now

    def over(self) -> None:
        """Record the completion of all requested cuts."""
        self._cut_since = None

    def puts_off(self, left: float | None) -> bool:
        """True if the next piece should wait for input due in `left` seconds.

        None: that time is unknown. A piece is put off once only.
        """
        self._put_off = not self._put_off and left is not None and left < self._longest
        return self._put_off
