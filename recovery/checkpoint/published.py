"""Published bounds of a worker's sinks and captures, saved with each segment.

Their output is staged until the low-watermark contains it, and is published then. The journal does not record that
a section is dead, so after a restart published output is read again if its segment is still needed for other
sections, and it would be published again: harmlessly, as that has no effect, but for many epochs. One small record
in each segment prevents that.
"""

from __future__ import annotations

from recovery.checkpoint.records import PUBLISHED, Published, section
from recovery.metadata import Bound, holds, union
from recovery.store.journal import Journal
from timely.time import Time


class PublishedBounds:
    """Published bounds, by processor, added to `journal` with its next segment."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._bounds: dict[int, Bound] = {}
        self._saved: dict[int, Bound] = {}

    def rise(self, p: int, bound: Bound) -> None:
        """Raise the published bound of processor `p` to include `bound`.

        All of it must be outside before the next segment is sealed.
        """
        self._bounds[p] = union(bound, self._bounds.get(p, bound))

    def holds(self, p: int, time: Time) -> bool:
        """True if `time` of processor `p` was published."""
        return p in self._bounds and holds(self._bounds[p], time)

    def bounds(self) -> dict[int, Bound]:
        """Published bounds of the processors with published output."""
        return dict(self._bounds)

    def load(self, record: Published) -> None:
        """Restore bounds written by an earlier incarnation."""
        for p, bound in record.bounds:
            self.rise(p, bound)
        self._saved = dict(self._bounds)

    def save(self, again: bool = False) -> None:
        """Add the bounds to the next segment if they changed, or in any case if `again`."""
        if again or self._saved != self._bounds:
            self._saved = dict(self._bounds)
            self._journal.add(PUBLISHED, section(Published(tuple(sorted(self._bounds.items())))))
