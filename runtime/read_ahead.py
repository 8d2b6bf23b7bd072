"""Reading ahead by the work that it leaves open: a failure makes survivors do again what is behind an exchange of epochs
that are not complete.

So as many epochs are open as take some milliseconds of this worker's processor time: two where an epoch takes long, many where
epochs are tiny. Processor time, and not how long epochs are under way: while they wait for others, for a job on Spark or for a
message to go round a loop, more of them cost nothing to do again, and keep the job busy.

Where epochs are dealt out, so that a worker reads one in four or fewer, one is enough: those of others are worked on meanwhile.
"""

from __future__ import annotations

from collections import deque
from math import inf

FEWEST = 2
"""Epochs that may be open however long they take: one is read while another is worked on."""

FEWEST_DEALT = 1
"""The same where others read most epochs."""

_DEALT = 4
"""Others read most epochs where those of a worker are so far apart, or further."""

_RECENT = 16
"""Of so many epochs that were read last the numbers are known: to tell those of others from them."""

_LEAST = 1e-6
"""Seconds that an epoch is taken to cost at least."""

_WEIGHT = 0.3
"""The share of the last measurement in what an epoch is taken to cost."""


class ReadAhead:
    """The epochs that one worker has read from a source and that are not complete. No clock: its caller has one.

    >>> ahead = ReadAhead()
    >>> for epoch in range(4): ahead.read(epoch)
    >>> ahead.measure(0.0, oldest=0); ahead.measure(0.02, oldest=4)
    >>> ahead.may_be_open(seconds=0.02, most=16)
    4
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._each: float | None = None
        """Processor seconds of an epoch; None: not measured yet."""
        self._since: float | None = None
        """Processor seconds that had been spent at the last measurement."""
        self._over = 0
        """Epochs that have become complete since."""
        self._recent: deque[int] = deque(maxlen=_RECENT)
        """The epochs that were read last."""
        self._others = 0
        """For so many epochs more that are read here, others are taken to read some that this worker does not."""

    def read(self, epoch: int) -> None:
        """Something of an epoch was read."""
        if epoch not in self._open:
            self._open.add(epoch)
            self._recent.append(epoch)
            self._others = max(self._others - 1, 0)

    def begin(self) -> None:
        """The source goes on elsewhere: nothing is open, and what was spent until now says nothing."""
        self._open.clear()
        self._recent.clear()
        self._since = None

    def measure(self, spent: float, oldest: int) -> None:
        """To be called now and then.

        Args:
            spent: processor seconds that this worker has used so far.
            oldest: the epochs before it are complete.
        """
        recent = self._recent
        # A source that has read an epoch is there, or before the next number. Elsewhere is one that reads others.
        if recent and oldest > min(recent) and oldest not in recent and oldest - 1 not in recent:
            self._others = _RECENT
        self._close(oldest)
        if self._since is None:
            self._since, self._over = spent, 0
        elif self._over:
            each = (spent - self._since) / self._over
            self._each = each if self._each is None else self._each + _WEIGHT * (each - self._each)
            self._since, self._over = spent, 0

    def may_be_open(self, seconds: float, most: int) -> int:
        """The number of epochs that may be open: as many as take `seconds`, at least `FEWEST`, at most `most`."""
        if self._each is None and seconds < inf:
            return min(FEWEST, most)
        affordable = seconds / max(self._each or 0.0, _LEAST)
        fewest = FEWEST_DEALT if self._are_dealt() else FEWEST
        return most if affordable >= most else min(max(int(affordable), fewest), most)

    def bound(self, oldest: int, seconds: float, most: int) -> int:
        """The first epoch of which nothing may be read yet. Epochs that are begun may always be read to their end."""
        if len(self._open) >= (may := self.may_be_open(seconds, most)):
            self._close(oldest)
            if len(self._open) >= may:
                return min(max(self._open) + 1, oldest + most)
        return oldest + most

    def _are_dealt(self) -> bool:
        """True if others read most epochs: not if there are just no epochs of most numbers."""
        recent = self._recent
        return self._others > 0 and len(recent) > 1 and max(recent) - min(recent) >= _DEALT * (len(recent) - 1)

    def _close(self, oldest: int) -> None:
        count = len(self._open)
        self._open = {epoch for epoch in self._open if epoch >= oldest}
        self._over += count - len(self._open)
