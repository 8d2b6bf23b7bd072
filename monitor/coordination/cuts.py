"""Choice of cuts for each group: between epochs, or iterations of a long one.

One cut a group is outstanding: a worker that is slow to persist holds the next one back, and the interval stretches.
After a failure behind local edges, workers may have got differently far; those that have a checkpoint at a later epoch
already are left out of a cut. Each cut holds what any processor has persisted, or lies within: one that cannot waits. A
survivor that went back to a bound beyond its last checkpoint may hold all up to there as one run: the first cut holds it.

After a failure or a restart the first cut comes early, and the intervals double until they are what was asked for. Otherwise a
job that fails more often than it is cut would do the same work for ever.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

from monitor.coordination.records import Value
from recovery.layout import GroupInfo
from recovery.metadata import MORE, NEVER, Bound, at_cut, at_epoch, meet, nothing, steps, union, within
from timely.time import FINITE


@dataclass(slots=True)
class _Group:
    info: GroupInfo
    last: list[Bound]
    """Limit by worker: cuts at or below it are of no use."""
    at: float
    """Time of the last cut's announcement."""
    cut: Bound
    """Outstanding cut."""
    missing: set[int]
    """Workers without the outstanding cut."""
    upto: Bound
    """Bound completed everywhere when the cut was announced."""
    saved: list[Bound]
    """Last cuts of processors in its loop.

    One may have stayed as it is where another went back.
    """
    most: float
    """Upper limit of the interval, in seconds or epochs, after a restart."""
    beyond: Collection[tuple[int, Bound]]
    """Bounds of survivors, with their depths: all within the first cut."""
    hurried: bool = False
    """True if the next cut comes as soon as there is something new."""


class Cuts:
    """Chooser of cuts for one generation.

    Args:
        groups: how often.
        last: `last[group][worker]`, the last cut of the group that is persisted there.
        now: the time in seconds.
        saved: `saved[group]`, the last cuts that any of its processors has persisted; none beyond `last` without.
        early: the first cut of a group comes after a second, or an epoch, if that is less than its interval; the next after
            two, four, eight.
        beyond: `beyond[group]`, bounds of survivors with their depths: no cut of the group leaves one of them out.
    """

    def __init__(
        self,
        groups: Sequence[GroupInfo],
        last: Sequence[Sequence[Bound]],
        now: float,
        saved: Sequence[Sequence[Bound]] = (),
        early: bool = False,
        beyond: Sequence[Collection[tuple[int, Bound]]] = (),
    ) -> None:
        self.until = NEVER
        """Epoch of a savepoint: each complete group is cut there, and not beyond."""
        most = 1.0 if early else math.inf
        self._groups = [
            _Group(info, list(there), now, nothing(info.depth), set(), nothing(info.depth), list(more), most, ahead)
            for info, there, more, ahead in zip(groups, last, saved or [()] * len(groups), beyond or [()] * len(groups))
        ]

    def due(self, minimum: Sequence[Bound], now: float) -> list[tuple[int, Bound, list[int]]]:
        """Cuts to announce now, as (group, cut, workers).

        `minimum[group]`: complete before it on every worker.
        """
        found = []
        for number, (group, upto) in enumerate(zip(self._groups, minimum)):
            last = reduce(meet, group.last)
            end = at_epoch(self.until, group.info.depth) if self.until < NEVER else None
            upto = upto if end is None else meet(upto, end)
            if group.missing or within(upto, last):
                continue
            info = group.info
            # What a loop holds is gone when its epoch is over. So a cut is at the end of the last one that is over, unless
            # some of what it would leave out had been done an interval ago.
            over = at_epoch(upto[0], info.depth)
            chosen = [over, upto] if over != last and within(union(group.upto, last), over) else [upto]
            cut = next(
                (
                    cut
                    for cut in chosen
                    if all(within(x, cut) or within(cut, x) for x in [*group.last, *group.saved])
                    and all(within(bound, at_cut(cut, depth)) for depth, bound in group.beyond)
                ),
                None,
            )
            if cut is None:
                continue
            if (
                upto[0] == NEVER
                or group.hurried
                or (upto == end and not group.info.eager)
                or (info.seconds is not None and now - group.at >= min(info.seconds, group.most))
                or (info.epochs is not None and upto[0] - last[0] >= min(info.epochs, group.most))
            ):
                group.most *= 2
                group.hurried = False
                group.beyond = ()
                workers = [worker for worker, there in enumerate(group.last) if there != cut and within(there, cut)]
                group.cut, group.at, group.missing, group.upto = cut, now, set(workers), upto
                found.append((number, cut, workers))
        return found

    def hurry(self) -> None:
        """Have every group cut as soon as there is something new, once."""
        for group in self._groups:
            group.hurried = True

    def furthest(self) -> int:
        """First epoch after all saved ones and all announced cuts."""
        return max(
            at_cut(bound, 1)[0]
            for group in self._groups
            for bound in [*group.last, *group.saved, group.cut, *(bound for _, bound in group.beyond)]
        )

    @property
    def outstanding(self) -> list[tuple[int, Bound]]:
        """Announced cuts still missing on some worker, as (group, cut)."""
        return [(number, group.cut) for number, group in enumerate(self._groups) if group.missing]

    def durable(self, number: int, worker: int, cut: Bound) -> float | None:
        """Record a cut as durable on a worker; return its start time if now on all.

        That is the time of its announcement. Otherwise None.

        None if it is not the last one.
        """
        group = self._groups[number]
        group.last[worker] = union(group.last[worker], cut)
        if cut != group.cut or worker not in group.missing:
            return None
        group.missing.discard(worker)
        return None if group.missing else group.at


def cut_event(group: int, cut: Bound) -> dict[str, Value]:
    """Cut as timeline data: `epoch`, and `iteration` if within one.

    `epoch` is -1 at the end of all input.

    `iterations` has those of the epochs from this one on, where several are kept in part.
    """
    epoch = -1 if cut[0] >= FINITE else cut[0]
    ahead: dict[str, Value] = {"iterations": [step[1] for step in steps(cut)]} if MORE in cut else {}
    return {"group": group, "epoch": epoch, **({"iteration": cut[1]} if any(cut[1:]) else {}), **ahead}
