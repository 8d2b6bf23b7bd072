"""Space-time picture: rows of operators, their frontiers and cuts. Pure.

The monitor says what is kept (`kept_times`): most processors are in the same case as many others, so it is a table of
cases, and a number for each processor. The page's own process adds progress, and folds all of it to rows and *lanes*: a lane
of a row is a worker, or several of them. What stands in a lane is the least of what its processors have; checkpoints are
those of any of them. What column of the picture a frontier reaches is found in the browser (`page/cells.js`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

import msgspec

from monitor.coordination.options import Options
from monitor.coordination.supervision import TimelineEvent
from monitor.explain.why import plain, plain_bound
from monitor.web.fold import FoldGroup, Folding
from monitor.web.view import UNKNOWN, View
from recovery.errors import NoSolutionError
from recovery.layout import Layout
from recovery.metadata import MORE, NEVER, Bound, at_cut, everything, meet, union, within
from recovery.protocol import END
from timely.time import Time

MOST_CHECKPOINTS = 40
"""Most checkpoints of a lane, the newest ones."""
MOST_LANES = 8
"""Most lanes of a row; more workers share them."""

Cut: TypeAlias = tuple[int, Bound]
"""Cut of a group, by its number."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """Case of a processor: W, completed bound, checkpoints.

    `done` is None as long as its worker has not said it.
    """

    low: Bound
    done: Bound | None
    saved: tuple[Bound, ...]


class KeptTimes(msgspec.Struct, frozen=True, array_like=True):
    """Cases, and the case of each processor by flat index."""

    cases: tuple[Kept, ...]
    of: tuple[int, ...]


class Restart(msgspec.Struct, frozen=True, array_like=True):
    """Rollback frontiers if all processes died now.

    They are different bounds, and which of them each processor has, by flat index; empty if there is no solution now.
    """

    bounds: tuple[Bound, ...] = ()
    of: tuple[int, ...] = ()


def kept_times(options: Options) -> KeptTimes:
    """Cases of all processors at this moment."""
    layout, topology = options.layout, options.topology
    cuts: dict[tuple[int, int, int], Bound] = {}
    cases: dict[tuple[Bound, Bound | None, tuple[Bound, ...]], int] = {}
    of = []
    flat = 0
    for info in layout.processors:
        for worker in range(topology.workers):
            upto = options.upto[worker]
            done = None
            if upto is not None:
                key = worker, info.group, info.depth
                done = cuts.get(key)
                if done is None:
                    done = cuts[key] = at_cut(upto[info.group], info.depth)
            saved = tuple([bound for bound, _ in options.chains[flat][-MOST_CHECKPOINTS:]]) if info.chain else ()
            of.append(cases.setdefault((options.low(flat), done, saved), len(cases)))
            flat += 1
    return KeptTimes(tuple(Kept(*case) for case in cases), tuple(of))


def restart_now(options: Options) -> Restart:
    """Rollback frontiers of all processors if no process were left."""
    try:
        decided = options.decide({})
    except NoSolutionError:
        return Restart()
    known: dict[Bound, int] = {}
    of = [known.setdefault(bound or (), len(known)) for of_worker in zip(*decided) for bound in of_worker]
    return Restart(tuple(known), tuple(of))


class OpenCuts:
    """Cuts under way: announced, and not durable on all workers, from the timeline."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Bound, set[int]]] = {}

    def happened(self, event: TimelineEvent) -> None:
        """Take an event; a failure ends all cuts under way."""
        if event.kind in ("cut", "durable") and not {"group", "epoch"} <= event.data.keys():
            return  # of an earlier version, from a journal
        if event.kind == "cut":
            self._open[int(event.data["group"])] = _cut_of(event.data), set()
        elif event.kind == "durable":
            at, done = self._open.get(int(event.data["group"]), ((), set()))
            if at == _cut_of(event.data):
                done.add(int(event.data["worker"]))
        elif event.kind in ("failure", "decided", "restored", "finished"):
            self._open.clear()

    def of(self, group: int, worker: int) -> Bound | None:
        """Cut of a group not yet durable on a worker."""
        at, done = self._open.get(group, ((), set()))
        return at if at and worker not in done else None


def _cut_of(data: Mapping[str, Any]) -> Bound:
    """Inverse of `monitor.coordination.cuts.cut_event`.

    >>> _cut_of({"epoch": 3}), _cut_of({"epoch": 3, "iteration": 7, "iterations": [7, 5]})
    ((3,), (3, 7, -1, 5))
    """
    if data["epoch"] < 0:
        return everything(1)
    steps = data.get("iterations") or ([data["iteration"]] if "iteration" in data else [])
    bound: Bound = (data["epoch"], *steps[:1])
    for step in steps[1:]:
        bound += (MORE, step)
    return bound


# ---------------------------------------------------------------------------------------------- rows


class RowPlace(msgspec.Struct, frozen=True, array_like=True):
    """Row of the picture: a node, or the head of an open group (`node` -1)."""

    node: int
    key: str
    label: str
    kind: str
    depth: int
    """Number of open groups around it."""


def row_places(layout: Layout, folding: Folding) -> list[RowPlace]:
    """Rows in topological order, open groups together.

    Edges that lead back are left out; where a folded group makes another circle, the earliest operator comes first.
    """
    found: list[RowPlace] = []
    forward = [(edge.source, edge.target) for edge in layout.edges if not edge.feedback]

    def visit(group: FoldGroup, depth: int, edges: Sequence[tuple[int, int]]) -> None:
        if depth:
            found.append(RowPlace(-1, group.key, group.label, group.kind, depth - 1))
        members = [[child] if isinstance(child, int) else child.members() for child in group.children]
        unit = {member: at for at, inside in enumerate(members) for member in inside}
        here = [(a, b) for a, b in edges if a in unit and b in unit]
        for at in sorted_units([each[0] for each in members], {(unit[a], unit[b]) for a, b in here}):
            child = group.children[at]
            if isinstance(child, FoldGroup) and child.key in folding.open:
                visit(child, depth + 1, here)
            else:
                first = members[at][0]
                label = layout.processors[first].name if isinstance(child, int) else child.label
                key = layout.processors[first].name if isinstance(child, int) else child.key
                kind = layout.processors[first].kind if isinstance(child, int) else child.kind
                found.append(RowPlace(folding.of[first], key, label, kind, depth))

    visit(folding.root, 0, forward)
    return found


def sorted_units(ranks: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """Units in topological order; ties by rank.

    A unit of a circle comes when nothing else can: that of the least rank.

    >>> sorted_units([0, 1, 2], [(2, 1), (1, 1)]), sorted_units([5, 3], [(0, 1), (1, 0)])
    ([0, 2, 1], [1, 0])
    """
    after: list[set[int]] = [set() for _ in ranks]
    waits = [0] * len(ranks)
    for a, b in edges:
        if a != b and b not in after[a]:
            after[a].add(b)
            waits[b] += 1
    left = dict.fromkeys(sorted(range(len(ranks)), key=lambda at: ranks[at]))
    ready = [(ranks[at], at) for at in left if not waits[at]]
    heapify(ready)
    found: list[int] = []
    while left:
        at = heappop(ready)[1] if ready else next(iter(left))
        if at not in left:
            continue
        del left[at]
        found.append(at)
        for other in after[at]:
            waits[other] -= 1
            if not waits[other] and other in left:
                heappush(ready, (ranks[other], other))
    return found


# ---------------------------------------------------------------------------------------------- cases of lanes


class LaneCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """Contents of a lane, in plain bounds; None: unknown.

    As `monitor.explain.why.plain_bound` makes them.
    """

    depth: int
    progress: list[int] | None
    low: list[int]
    restored: list[int] | None = None
    frontier: list[list[int]] | None = None
    """Minimal times still to come; None if not observed closely."""
    kept: list[list[int]] = []
    gone: list[list[int]] = []
    """Checkpoints below W: nothing needs them any more."""
    cut: list[int] | None = None
    """Checkpoint under way."""


class _Case(msgspec.Struct, frozen=True, eq=True):
    depth: int
    progress: Bound | None
    low: Bound
    restored: Bound | None
    frontier: tuple[Time, ...] | None
    saved: tuple[Bound, ...]
    cut: Bound | None

    def plain(self) -> LaneCase:
        gone = [within(bound, self.low) and bound != self.low for bound in self.saved]
        return LaneCase(
            self.depth,
            _plain(self.progress),
            plain_bound(self.low),
            _plain(self.restored),
            None if self.frontier is None else [[plain(at) for at in time] for time in self.frontier],
            [plain_bound(bound) for bound, old in zip(self.saved, gone) if not old],
            [plain_bound(bound) for bound, old in zip(self.saved, gone) if old],
            _plain(self.cut),
        )


def lanes_of(workers: int, most: int = MOST_LANES) -> list[tuple[int, int]]:
    """Ranges of workers, ends included, as even as can be.

    >>> lanes_of(3), lanes_of(10, 4)
    ([(0, 0), (1, 1), (2, 2)], [(0, 1), (2, 4), (5, 6), (7, 9)])
    """
    lanes = max(1, min(workers, most))
    return [(at * workers // lanes, (at + 1) * workers // lanes - 1) for at in range(lanes)]


def space_time(
    view: View, folding: Folding, places: Sequence[RowPlace], kept: KeptTimes, restart: Restart, cuts: OpenCuts
) -> dict[str, Any]:
    """Picture as data: rows, lanes, and different cases."""
    layout = view.layout
    lanes = lanes_of(layout.workers)
    reported = view.reported()
    cases: dict[_Case, int] = {}
    rows = []
    made: dict[tuple[Any, ...], _Case] = {}

    def case(p: int, w: int) -> _Case:
        flat, info = p * layout.workers + w, layout.processors[p]
        cut = cuts.of(info.group, w) if info.chain else None
        key = info.depth, reported[p][w], kept.of[flat], restart.of[flat] if restart.of else -1, cut
        if key not in made:
            made[key] = _processor_case(info.depth, reported[p][w], kept.cases[key[2]], restart, key[3], cut)
        return made[key]

    for place in places:
        members = folding.nodes[place.node] if place.node >= 0 else ()
        found = []
        for first, last in lanes if members else ():
            alike = dict.fromkeys(case(p, w) for p in members for w in range(first, last + 1))
            found.append(cases.setdefault(_together(list(alike), len(members) > 1), len(cases)))
        rows.append([*msgspec.structs.astuple(place), found])
    seen = view.observation
    return {
        "at": round(seen.at, 3) if seen is not None else None,
        "newest": view.newest(),
        "lanes": lanes,
        "rows": rows,
        "cases": [each.plain() for each in cases],
    }


ReportedProgress: TypeAlias = tuple[int, int, tuple[Time, ...] | None]
"""Epoch and next coordinate of the least time to come, and the known frontier."""


def _processor_case(
    depth: int, reported: ReportedProgress, known: Kept, restart: Restart, row: int, cut: Bound | None
) -> _Case:
    epoch, inner, frontier = reported
    progress = known.done
    if epoch >= END:
        progress = everything(depth)
    elif epoch != UNKNOWN:
        least = (epoch, inner, *(0,) * (depth - 2))[:depth]
        progress = least if progress is None else union(progress, least)
    restored = restart.bounds[row] if row >= 0 else None
    if cut is not None:
        cut = everything(depth) if cut[0] >= NEVER else at_cut(cut, depth)
        if known.saved and within(cut, known.saved[-1]):
            cut = None  # of a loop, whose iterations are one epoch to what is in front of it
    return _Case(depth, progress, known.low, restored or None, frontier or None, known.saved, cut)


def _together(cases: Sequence[_Case], several: bool) -> _Case:
    """Least of several cases; of several operators by whole epochs."""
    if several:
        cases = list(dict.fromkeys(map(_by_epochs, cases)))
    if len(cases) == 1:
        return cases[0]
    saved = sorted({bound for case in cases for bound in case.saved})[-MOST_CHECKPOINTS:]
    announced = [case.cut for case in cases if case.cut is not None]
    return _Case(
        cases[0].depth,
        _least([case.progress for case in cases]),
        reduce(meet, [case.low for case in cases]),
        _least([case.restored for case in cases]),
        None,
        tuple(saved),
        reduce(meet, announced) if announced else None,
    )


def _by_epochs(case: _Case) -> _Case:
    def whole(bound: Bound | None) -> Bound | None:
        return None if bound is None else bound[:1]

    saved = tuple(dict.fromkeys(bound[:1] for bound in case.saved if bound[0]))
    return _Case(1, whole(case.progress), case.low[:1], whole(case.restored), None, saved, whole(case.cut))


def _least(bounds: Sequence[Bound | None]) -> Bound | None:
    """Meet of bounds; None if one of them is unknown."""
    known = [bound for bound in bounds if bound is not None]
    return reduce(meet, known) if len(known) == len(bounds) else None


def _plain(bound: Bound | None) -> list[int] | None:
    return None if bound is None else plain_bound(bound)
