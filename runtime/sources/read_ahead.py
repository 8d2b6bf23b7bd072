"""Limit on reading ahead, by the work of open epochs.

After a failure survivors do again what is behind an exchange of epochs that are not complete.

So as many epochs are open as take some milliseconds of this worker's processor time: two where an epoch takes long, many where
epochs are tiny. Processor time, and not how long epochs are under way: while they wait for others, for a job on Spark or for a
message to go round a loop, more of them cost nothing to do again, and keep the job busy.

Where epochs are dealt out, so that a worker reads one in four or fewer, one is enough: those of others are worked on meanwhile.
"""

from __future__ import annotations

from collections import deque
from math import inf

FEWEST = 2
"""Minimum number of open epochs: one is read while another is worked on."""

FEWEST_DEALT = 1
"""Minimum number of open epochs if other workers read most epochs."""

_DEALT = 4
"""Average distance of a worker's epochs from which on others read most epochs."""

_RECENT = 16
"""Number of recently read epochs remembered, to detect those of other workers."""

_LEAST = 1e-6
"""Minimum cost of an epoch, in seconds."""

_WEIGHT = 0.3
"""Weight of the last measurement in the average cost of an epoch."""


class ReadAhead:
    """Limit on the open epochs of one source, by their measured cost.

    An epoch is open from its first read until it is complete. No clock: its caller has one.

    >>> ahead = ReadAhead()
    >>> for epoch in range(4): ahead.read(epoch)
    >>> ahead.measure(0.0, oldest=0); ahead.measure(0.02, oldest=4)
    >>> ahead.may_be_open(seconds=0.02, most=16)
    4
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._each: float | None = None
        """Processor seconds per epoch; None before the first measurement."""
        self._since: float | None = None
        """Processor seconds used up to the last measurement."""
        self._over = 0
        """Number of epochs completed since the last measurement."""
        self._recent: deque[int] = deque(maxlen=_RECENT)
        """Epochs read last."""
        self._others = 0
        """Countdown of epochs read, while other workers are taken to read some as well."""

    def read(self, epoch: int) -> None:
        """Note a read from an epoch."""
        if epoch not in self._open:
            self._open.add(epoch)
            self._recent.append(epoch)
            self._others = max(self._others - 1, 0)

    def begin(self) -> None:
        """Reset for another position of the source: no open epochs, no measurement."""
        self._open.clear()
        self._recent.clear()
        self._since = None

    def measure(self, spent: float, oldest: int) -> None:
        """Measure the cost of an epoch; to be called now and then.

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
        """Number of epochs allowed open: as many as take `seconds`, within bounds.

        At least `FEWEST`, or `FEWEST_DEALT` where others read most epochs; at most `most`.
        """
        if self._each is None and seconds < inf:
            return min(FEWEST, most)
        affordable = seconds / max(self._each or 0.0, _LEAST)
        fewest = FEWEST_DEALT if self._are_dealt() else FEWEST
        return most if affordable >= most else min(max(int(affordable), fewest), most)

    def bound(self, oldest: int, seconds: float, most: int) -> int:
        """First epoch not to be read yet.

        Epochs that are begun may always be read to their end.
        """
        if len(self._open) >= (may := self.may_be_open(seconds, most)):
            self._close(oldest)
            if len(self._open) >= may:
                return min(max(self._open) + 1, oldest + most)
        return oldest + most

    def _are_dealt(self) -> bool:
        """True if other workers read most epochs, not if most numbers are unused."""
        recent = self._recent
        return self._others > 0 and len(recent) > 1 and max(recent) - min(recent) >= _DEALT * (len(recent) - 1)

    def _close(self, oldest: int) -> None:
        count = len(self._open)
        self._open = {epoch for epoch in self._open if epoch >= oldest}
        self._over += count - len(self._open)
