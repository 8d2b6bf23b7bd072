"""Progress tracker: frontiers computed from pointstamp counts.

A *pointstamp* is (place, time): something outstanding at a place of the graph that may still cause events. The tracker
keeps a signed count of each, and for every place the *implied frontier*: the minimal times at which anything may still
leave it, its own pointstamps and those of all places before it taken together. An update changes the frontiers it
must and touches nothing else; when frontiers stand still, it stops.

Places are the few points of the graph that can hold something between turns of a worker: sources, exchange inputs,
operators with pending notifications or capabilities (`timely.dataflow.plan` contracts the rest away). *Watches* are where
frontiers are read: inputs of operators that ask for notifications, probes, sinks.

>>> line = ProgressGraph(depths=[1, 1], ranks=[(0,), (1,)],
...                      arcs=[Arc(0, 1, Summary.identity(1))], watches=[[(1, Summary.identity(1))]])
>>> tracker = Tracker(line)
>>> tracker.update(0, (5,), +1)
>>> tracker.propagate()
[0]
>>> tracker.frontier(0)
((5,),)

The method is that of timely dataflow's reachability tracking: changes are worked off least time first, and in the order
of the graph within a time, so that a retraction and what replaces it meet before they travel on. Counts may be
negative for a while: the update that says a message was consumed may arrive before the one that says it was sent.
Safety rests on two properties of the senders (Naiad, section 3.3): each worker's updates are applied in its own order,
and each group of updates that belongs to one event is applied at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from timely.time import Summary, Time, leq, minimal

Antichain = tuple[Time, ...]
"""Minimal times, sorted; empty if nothing can arrive any more."""

Rank = tuple[int, ...]
"""Position in the order of the graph: one number per enclosing scope, root first."""


Reach = Sequence[tuple[int, Summary]]
"""Places upstream of one point of the graph, with path summaries."""


@dataclass(frozen=True, slots=True)
class Arc:
    """Arc between places: time t at `source` can lead to `summary(t)` at `target`."""

    source: int
    target: int
    summary: Summary


@dataclass(frozen=True, slots=True)
class ProgressGraph:
    """Contracted dataflow graph for progress tracking.

    Every cycle of arcs advances time.

    `depths[p]` is the number of coordinates of times at place p, `ranks[p]` its position (`len(ranks[p]) == depths[p]`).
    `watches[w]` are the places, with summaries, whose frontiers together are watch w's.
    """

    depths: list[int]
    ranks: list[Rank]
    arcs: list[Arc]
    watches: list[list[tuple[int, Summary]]]


def order_key(time: Time, rank: Rank) -> tuple[int, ...]:
    """Sort key of a pointstamp: a total order consistent with could-result-in.

    Coordinates and positions alternate, scope by scope.

    If (t, p) can lead to (u, q) then `order_key(t, rank(p)) < order_key(u, rank(q))`, because a path within a scope
    either goes forward in that scope's order or advances its coordinate.
    """
    if len(time) == 1:
        return (time[0], rank[0])
    if len(time) == 2:
        return (time[0], rank[0], time[1], rank[1])
    return tuple(part for pair in zip(time, rank) for part in pair)


def reaches(frontier: Antichain, time: Time) -> bool:
    """True if `time` may still arrive at a point with this progress frontier.

    >>> reaches(((3,),), (3,)), reaches((), (3,)), reaches(((0, 2), (1, 0)), (0, 1))
    (True, False, False)
    """
    if len(time) == 1:  # then it has one time at most
        return bool(frontier) and frontier[0] <= time
    for least in frontier:  # noqa: SIM110 - a generator costs more than the comparison
        if leq(least, time):
            return True
    return False


class MutableAntichain:
    """Multiset of times with its minimal elements kept up to date.

    >>> times = MutableAntichain()
    >>> times.update((3,), 1), times.update((5,), 2)
    (True, False)
    >>> times.update((3,), -1), times.frontier
    (True, [(5,)])
    """

    __slots__ = ("counts", "frontier")

    def __init__(self) -> None:
        self.counts: dict[Time, int] = {}
        self.frontier: list[Time] = []

    def update(self, time: Time, diff: int) -> bool:
        """Change the count of `time`; True if the minimal elements may have changed.

        O(1) when a time that is not minimal is touched; a removed minimal element costs a scan of the times held.
        """
        before = self.counts.get(time, 0)
        after = before + diff
        if after:
            self.counts[time] = after
        else:
            self.counts.pop(time, None)
        if (before > 0) == (after > 0):
            return False
        frontier = self.frontier
        if after > 0:
            if any(leq(least, time) for least in frontier):
                return False
            self.frontier = [least for least in frontier if not leq(time, least)]
            self.frontier.append(time)
            return True
        if time not in frontier:
            return False
        rest = [least for least in frontier if least != time]
        freed = [
            other
            for other, count in self.counts.items()
            if count > 0 and leq(time, other) and not any(leq(least, other) for least in rest)
        ]
        self.frontier = rest + list(minimal(freed)) if freed else rest
        return True


class ProgressTracker(Protocol):
    """Interface of progress trackers: `Tracker` and the faster `LineTracker`."""

    active: int
    """Number of pointstamps with a nonzero count; 0 means nothing is outstanding."""
    touched: int
    """Number of place updates processed: the measure of a tracker's work."""

    dirty: bool
    """True if updates may wait for `propagate`.

    An attribute rather than a method because the worker reads it before each event.
    """

    def update(self, place: int, time: Time, diff: int) -> None:
        """Add `diff` to the count of the pointstamp (place, time).

        Call `propagate` before reading frontiers.
        """

    def move(self, place: int, before: Time, after: Time) -> None:
        """Move one count from `before` to `after`: an update of -1 and one of +1.

        Fast where nothing else is at the place.
        """

    def propagate(self) -> list[int]:
        """Apply all updates; returns the watches with possibly changed frontiers."""

    def frontier(self, watch: int) -> Antichain:
        """Minimal times still able to arrive at `watch`, as of the last `propagate`."""

    def reaches(self, watch: int, time: Time) -> bool:
        """True if `time` may still arrive at `watch`, as of the last `propagate`."""

    def leaving(self, place: int) -> Sequence[Time]:
        """Minimal times still able to leave `place`, as of the last `propagate`."""

    def outstanding(self, place: int) -> dict[Time, int]:
        """Counts of the pointstamps at `place` itself, by time."""


def frontier_at(tracker: ProgressTracker, reach: Reach) -> Antichain:
    """Minimal times still able to arrive at a point, for points without a watch.

    `reach`: the places upstream of the point, with path summaries.
    """
    return minimal(
        summary(time) for place, summary in reach for time in tracker.leaving(place) if summary.carries(time)
    )


def culprits(tracker: ProgressTracker, topology: ProgressGraph, reach: Reach) -> Iterator[tuple[int, Time, int]]:
    """Pointstamps holding back the frontier of a point: (place, time, count)."""
    seen: set[tuple[int, Time]] = set()
    todo = [
        (place, time)
        for least in frontier_at(tracker, reach)
        for place, summary in reach
        for time in tracker.leaving(place)
        if summary(time) == least and summary.carries(time)
    ]
    while todo:
        place, time = todo.pop()
        if (place, time) in seen:
            continue
        seen.add((place, time))
        if (count := tracker.outstanding(place).get(time, 0)) > 0:
            yield place, time, count
        todo += [
            (arc.source, earlier)
            for arc in topology.arcs
            if arc.target == place
            for earlier in tracker.leaving(arc.source)
            if arc.summary(earlier) == time and arc.summary.carries(earlier)
        ]


class Pointstamps:
    """Pointstamp counts by place."""

    def __init__(self, places: int) -> None:
        self._own: list[dict[Time, int]] = [{} for _ in range(places)]
        self.active = 0
        self.touched = 0
        self.dirty = False

    def _add(self, place: int, time: Time, diff: int) -> int:
        """Change a pointstamp's count; +1 if it became positive, -1 if it ceased to be."""
        own = self._own[place]
        before = own.get(time, 0)
        after = before + diff
        if after:
            own[time] = after
            if not before:
                self.active += 1
        else:
            own.pop(time, None)
            if before:
                self.active -= 1
        return (after > 0) - (before > 0)

    def outstanding(self, place: int) -> dict[Time, int]:
        return self._own[place]


class Tracker(Pointstamps):
    """Progress tracker for any graph: keeps the frontiers of all watches up to date."""

    def __init__(self, topology: ProgressGraph) -> None:
        super().__init__(len(topology.depths))
        self._topology = topology
        places = range(len(topology.depths))
        self._times = [MutableAntichain() for _ in places]
        self._sent: list[list[Time]] = [[] for _ in places]
        self._arcs: list[list[tuple[int, Summary | None]]] = [[] for _ in places]
        for arc in topology.arcs:
            plain = arc.summary == Summary.identity(topology.depths[arc.source])
            self._arcs[arc.source].append((arc.target, None if plain else arc.summary))
        self._watched_by: list[list[int]] = [[] for _ in places]
        for watch, sources in enumerate(topology.watches):
            for place in {place for place, _ in sources}:
                self._watched_by[place].append(watch)
        self._frontiers: list[Antichain] = [() for _ in topology.watches]
        self._plain = [
            sources[0][0]
            if len(sources) == 1 and sources[0][1] == Summary.identity(topology.depths[sources[0][0]])
            else None
            for sources in topology.watches
        ]
        """For each watch: its place, if it sees a single one unchanged; else None."""
        self._work: list[tuple[tuple[int, ...], int, Time]] = []
        self._diffs: dict[tuple[int, Time], int] = {}
        self._changed: set[int] = set()

    def update(self, place: int, time: Time, diff: int) -> None:
        if change := self._add(place, time, diff):
            self._support(place, time, change)

    def move(self, place: int, before: Time, after: Time) -> None:
        own, times = self._own[place], self._times[place]
        if not self._arcs[place] and own.get(before) == 1 and len(own) == 1 and len(times.counts) == 1:
            del own[before]
            own[after] = 1
            times.counts = {after: 1}
            times.frontier = [after]
            self.touched += 1
            self._changed.update(self._watched_by[place])
            self.dirty = True
        else:
            self.update(place, after, +1)
            self.update(place, before, -1)

    def _support(self, place: int, time: Time, diff: int) -> None:
        if self._arcs[place]:
            self._push(place, time, diff)
            return
        # Nothing lies behind this place, so the order of changes does not matter and nothing needs to wait.
        self.touched += 1
        if self._times[place].update(time, diff):
            self._changed.update(self._watched_by[place])
            self.dirty = True

    def propagate(self) -> list[int]:
        work, diffs, changed = self._work, self._diffs, self._changed
        while work:
            _, place, time = heappop(work)
            diff = diffs.pop((place, time), 0)
            if not diff:
                continue
            self.touched += 1
            times = self._times[place]
            if times.update(time, diff):
                self._spread(place, times.frontier)
                changed.update(self._watched_by[place])
        moved = [watch for watch in sorted(changed) if self._refresh(watch)]
        changed.clear()
        self.dirty = False
        return moved

    def frontier(self, watch: int) -> Antichain:
        return self._frontiers[watch]

    def reaches(self, watch: int, time: Time) -> bool:
        return reaches(self._frontiers[watch], time)

    def leaving(self, place: int) -> Sequence[Time]:
        return self._times[place].frontier

    def _spread(self, place: int, frontier: list[Time]) -> None:
        arcs = self._arcs[place]
        if not arcs:
            return
        sent = self._sent[place]
        gone = [time for time in sent if time not in frontier]
        come = [time for time in frontier if time not in sent]
        self._sent[place] = list(frontier)
        for target, summary in arcs:
            for times, diff in ((come, +1), (gone, -1)):
                for time in times:
                    if summary is None:
                        self._push(target, time, diff)
                    elif summary.carries(time):
                        self._push(target, summary(time), diff)

    def _push(self, place: int, time: Time, diff: int) -> None:
        diffs = self._diffs
        slot = (place, time)
        if slot in diffs:
            diffs[slot] += diff
        else:
            diffs[slot] = diff
            self.dirty = True
            heappush(self._work, (order_key(time, self._topology.ranks[place]), place, time))

    def _refresh(self, watch: int) -> bool:
        place = self._plain[watch]
        if place is not None:
            frontier = self._times[place].frontier
            after: Antichain = tuple(frontier) if len(frontier) == 1 else tuple(sorted(frontier))
        else:
            after = frontier_at(self, self._topology.watches[watch])
        if after == self._frontiers[watch]:
            return False
        self._frontiers[watch] = after
        return True
