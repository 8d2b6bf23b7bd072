"""W, the low-watermarks: journaled first, announced then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from monitor.coordination.commit import GroupCommit
from monitor.coordination.options import Options
from monitor.coordination.records import KeptWatermarks
from recovery.metadata import Bound

Watermark: TypeAlias = tuple[tuple[Bound, ...], ...]
"""`[worker][processor]`."""
Changes: TypeAlias = tuple[tuple[int, int, Bound], ...]
"""(processor, worker, bound)."""


class LowWatermarks:
    """W as far as it is durable, and on its way there.

    Args:
        available: what it follows from.
        commit: the journal.
        announce: is called with what has risen, when that is durable.
    """

    def __init__(self, available: Options, commit: GroupCommit, announce: Callable[[Changes], None]) -> None:
        self._available = available
        self._commit = commit
        self._announce = announce
        self.durable: Watermark = available.watermarks

    def update(self) -> None:
        """Take what has been reported into account."""
        if self._available.raise_watermarks():
            risen = self._available.watermarks
            self._commit.add(KeptWatermarks(risen), lambda: self._stored(risen))

    def all(self) -> Changes:
        """All of W that is durable, for workers of whom it is not known what they have heard."""
        return tuple((p, w, bound) for w, bounds in enumerate(self.durable) for p, bound in enumerate(bounds))

    def _stored(self, risen: Watermark) -> None:
        before = self.durable
        self.durable = risen
        self._announce(tuple(change for change in self.all() if before[change[1]][change[0]] != change[2]))
