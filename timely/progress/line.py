"""Fast progress tracker for graphs with epochs as times and identity summaries.

Most dataflows are like that: no loop, or a loop within one worker that needs no place. Each place then has one least
epoch, computed on demand. A change marks everything downstream of it as stale and stops at what is stale already, so
operators whose frontiers nobody reads cost nothing. The answers equal those of `timely.progress.tracker.Tracker`,
many times faster; property tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from timely.progress.tracker import Antichain, Pointstamps, ProgressGraph, ProgressTracker, Tracker
from timely.time import INF, Summary, Time

_NEVER = INF + 1
"""Least epoch of a place with nothing outstanding upstream: above every epoch.

`INF` itself is the epoch of records sent after the end of all input.
"""


def tracker_for(topology: ProgressGraph) -> ProgressTracker:
    """Fastest tracker able to handle `topology`."""
    return LineTracker(topology) if is_line(topology) else Tracker(topology)


def is_line(topology: ProgressGraph) -> bool:
    """True if all times are epochs and all summaries are the identity."""
    same = Summary.identity(1)
    return (
        all(depth == 1 for depth in topology.depths)
        and all(arc.summary == same for arc in topology.arcs)
        and all(summary == same for watch in topology.watches for _, summary in watch)
    )


class LineTracker(Pointstamps):
    """Tracker for topologies accepted by `is_line`; implements `ProgressTracker`."""

    def __init__(self, topology: ProgressGraph) -> None:
        super().__init__(len(topology.depths))
        places = range(len(topology.depths))
        self._least: list[int | None] = [None] * len(places)
        """Least possible epoch at each place; None if stale.

        All places downstream of a stale place are stale.
        """
        self._before: list[list[int]] = [[] for _ in places]
        self._after: list[list[int]] = [[] for _ in places]
        for arc in topology.arcs:
            source, target = arc.source, arc.target
            self._before[target].append(source)
            self._after[source].append(target)
        self._watches = [[place for place, _ in watch] for watch in topology.watches]
        self._watched_by: list[list[int]] = [[] for _ in places]
        for watch, sources in enumerate(self._watches):
            for source in set(sources):
                self._watched_by[source].append(watch)
        self._frontiers: list[Antichain | None] = [None] * len(topology.watches)
        self._stale: set[int] = set()
        self._isolated = [self._watches_if_isolated(place) for place in places]
        """Watches of each isolated place; None if the place is not isolated.

        An isolated place has no arcs, and its watches see no other place, so their frontier is the place's own. The
        inputs of a one-worker program are isolated.
        """

    def _watches_if_isolated(self, place: int) -> list[int] | None:
        touched = self._before[place] or self._after[place]
        watches = self._watched_by[place]
        return None if touched or any(self._watches[watch] != [place] for watch in watches) else watches

    def update(self, place: int, time: Time, diff: int) -> None:
        if self._add(place, time, diff):
            least = self._least[place]
            if least is not None and time[0] <= least:
                self._invalidate(place)

    def move(self, place: int, before: Time, after: Time) -> None:
        own = self._own[place]
        if own.get(before) != 1 or after in own:
            self.update(place, after, +1)
            self.update(place, before, -1)
            return
        del own[before]
        own[after] = 1
        least = self._least[place]
        watches = self._isolated[place]
        if watches is not None and len(own) == 1:  # nothing becomes stale, since what is true now is known
            self.touched += 1
            self._least[place] = after[0]
            if watches:
                frontier = (after,)
                for watch in watches:
                    self._frontiers[watch] = frontier
                self._stale.update(watches)
                self.dirty = True
        elif least is not None and (before[0] <= least or after[0] <= least):
            self._invalidate(place)

    def propagate(self) -> list[int]:
        stale = list(self._stale)
        self._stale.clear()
        self.dirty = False
        return stale

    def frontier(self, watch: int) -> Antichain:
        known = self._frontiers[watch]
        if known is None:
            places = self._watches[watch]
            now = self._find(places[0]) if len(places) == 1 else min(map(self._find, places), default=_NEVER)
            known = self._frontiers[watch] = () if now == _NEVER else ((now,),)
        return known

    def reaches(self, watch: int, time: Time) -> bool:
        frontier = self._frontiers[watch]
        if frontier is None:
            frontier = self.frontier(watch)
        return bool(frontier) and frontier[0] <= time

    def leaving(self, place: int) -> Sequence[Time]:
        least = self._find(place)
        return () if least == _NEVER else ((least,),)

    def _invalidate(self, at: int) -> None:
        least, frontiers = self._least, self._frontiers
        todo = [at]
        while todo:
            at = todo.pop()
            if least[at] is None:
                continue
            least[at] = None
            self.touched += 1
            for watch in self._watched_by[at]:
                if frontiers[watch] is not None:
                    frontiers[watch] = None
                    self._stale.add(watch)
                    self.dirty = True
            todo += self._after[at]

    def _find(self, at: int) -> int:
        """Least epoch still able to leave a place; computes upstream places first."""
        known = self._least[at]
        if known is not None:
            return known
        todo = [at]
        while todo:
            at = todo[-1]
            if self._before[at]:
                missing = [before for before in self._before[at] if self._least[before] is None]
                if missing:
                    todo += missing
                    continue
            todo.pop()
            now = _NEVER
            for time, count in self._own[at].items():
                if count > 0 and time[0] < now:
                    now = time[0]
            for before in self._before[at]:
                least = self._least[before]
                if least is not None and least < now:
                    now = least
            self._least[at] = now
            self.touched += 1
        return now
