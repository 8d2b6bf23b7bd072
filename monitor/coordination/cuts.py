"""The choice of cuts for each group: between epochs, or between iterations of a loop when an epoch lasts too long.

One cut a group is outstanding: a worker that is slow to persist holds the next one back, and the interval stretches.
After a failure behind local edges, workers may have got differently far; those that have a checkpoint at a later epoch
already are left out of a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.coordination.records import Value
from recovery.layout import GroupInfo
from recovery.metadata import NEVER, Bound, at_epoch, nothing
from timely.time import FINITE


@dataclass(slots=True)
class _Group:
    info: GroupInfo
    last: list[Bound]
    """For each worker, no cut at or below this one is of use any more."""
    at: float
    """The time at which the last cut was announced."""
    cut: Bound
    """The outstanding one."""
    missing: set[int]
    """The workers that have not persisted it yet."""


class Cuts:
    """Chooses cuts. Knows nothing of generations: there is a new one with each.

    Args:
        groups: how often.
        last: `last[group][worker]`, the last cut of the group that is persisted there.
        now: the time in seconds.
    """

    def __init__(self, groups: Sequence[GroupInfo], last: Sequence[Sequence[Bound]], now: float) -> None:
        self._groups = [_Group(info, list(there), now, nothing(info.depth), set()) for info, there in zip(groups, last)]

    def due(self, minimum: Sequence[Bound], now: float) -> list[tuple[int, Bound, list[int]]]:
        """(group, cut, workers) of the cuts to announce now. `minimum[group]`: complete before it on every worker."""
        found = []
        for number, (group, upto) in enumerate(zip(self._groups, minimum)):
            last = min(group.last)
            if group.missing or upto <= last:
                continue
            info = group.info
            # What a loop holds is gone when its epoch is over, so if one has just ended, it is cut there.
            cut = upto if upto[0] == last[0] else at_epoch(upto[0], info.depth)
            if (
                upto[0] == NEVER
                or (info.seconds is not None and now - group.at >= info.seconds)
                or (info.epochs is not None and upto[0] - last[0] >= info.epochs)
            ):
                workers = [worker for worker, there in enumerate(group.last) if there < cut]
                group.cut, group.at, group.missing = cut, now, set(workers)
                found.append((number, cut, workers))
        return found

    @property
    def outstanding(self) -> list[tuple[int, Bound]]:
        """(group, cut) of the cuts that were announced and that some worker has not persisted yet."""
        return [(number, group.cut) for number, group in enumerate(self._groups) if group.missing]

    def durable(self, number: int, worker: int, cut: Bound) -> float | None:
        """This worker has persisted the cut. When it was announced, if now all have; otherwise None."""
        group = self._groups[number]
        group.last[worker] = max(group.last[worker], cut)
        if cut != group.cut or worker not in group.missing:
            return None
        group.missing.discard(worker)
        return None if group.missing else group.at


def cut_event(group: int, cut: Bound) -> dict[str, Value]:
    """A cut as the timeline has it: `epoch` -1 at the end of all input, `iteration` only where it lies within the epoch."""
    epoch = -1 if cut[0] >= FINITE else cut[0]
    return {"group": group, "epoch": epoch, **({"iteration": cut[1]} if any(cut[1:]) else {})}
