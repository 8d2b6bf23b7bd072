"""When a worker's driver makes the pieces of a cut, and how large: so that nothing else has to wait for long.

The core has no clock, so the driver measures. It makes at most one piece a turn. A piece that would not be over by the
time at which a source has its next input is put off until that input was handled, once.
"""

from __future__ import annotations

from recovery.checkpoints import PIECE_ROWS

SHORTEST, LONGEST = 0.0005, 0.002
"""A piece should take half of what a turn of the worker takes, but no fewer and no more seconds than these."""

_FEWEST, _MOST = 16, 1 << 17


class Pace:
    """What one worker's driver has learnt of its pieces and turns, all in seconds."""

    def __init__(self) -> None:
        self.rows = PIECE_ROWS
        """How many rows the next piece should have."""
        self._per_row: float | None = None
        self._longest = 0.0
        """What a piece may take: the longest of late. Memory that was never used before can make one ten times as long."""
        self._turn = 0.0
        self._put_off = False

    def worked(self, seconds: float) -> None:
        """A turn in which there was something to do took so long, pieces apart."""
        self._turn += (seconds - self._turn) / 16

    def saved(self, rows: int, seconds: float, spent: float) -> None:
        """A piece had so many rows and took so long, of which so much was this thread's: the rest, others had the core.

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
        self.rows = min(max(int(min(max(SHORTEST, self._turn / 2), LONGEST) / self._per_row), _FEWEST), _MOST)

    def puts_off(self, left: float | None) -> bool:
        """Whether the next piece should wait, if input comes in `left` seconds (None: nobody knows when)."""
        self._put_off = not self._put_off and left is not None and left < self._longest
        return self._put_off
