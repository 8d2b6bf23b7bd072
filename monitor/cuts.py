"""When each group is checkpointed, and at which epoch.

One cut a group is outstanding: a worker that is slow to persist holds the next one back, and the interval stretches.
After a failure behind local edges, workers may have got differently far; those that have a checkpoint at a later epoch
already are left out of a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.layout import GroupInfo
from recovery.metadata import NEVER


@dataclass(slots=True)
class _Group:
    info: GroupInfo
    last: list[int]
    """For each worker, no cut at or below this epoch is of use any more."""
    at: float
    """When the last cut was announced."""
    epoch: int
    """That of the outstanding cut."""
    missing: set[int]
    """The workers that have not persisted it yet."""


class Cuts:
    """Chooses cuts. Knows nothing of generations: there is a new one with each.

    Args:
        groups: how often.
        last: `last[group][worker]`, the highest epoch at which a processor of the group has a checkpoint there.
        now: the time in seconds.
    """

    def __init__(self, groups: Sequence[GroupInfo], last: Sequence[Sequence[int]], now: float) -> None:
        self._groups = [_Group(info, list(epochs), now, 0, set()) for info, epochs in zip(groups, last)]

    def due(self, minimum: Sequence[int], now: float) -> list[tuple[int, int, list[int]]]:
        """(group, epoch, workers) of the cuts to announce now. `minimum[group]`: complete before it on every worker."""
        found = []
        for number, (group, epoch) in enumerate(zip(self._groups, minimum)):
            last = min(group.last)
            if group.missing or epoch <= last:
                continue
            info = group.info
            if (
                epoch == NEVER
                or (info.seconds is not None and now - group.at >= info.seconds)
                or (info.epochs is not None and epoch - last >= info.epochs)
            ):
                workers = [worker for worker, there in enumerate(group.last) if there < epoch]
                group.epoch, group.at, group.missing = epoch, now, set(workers)
                found.append((number, epoch, workers))
        return found

    def durable(self, number: int, worker: int, epoch: int) -> float | None:
        """This worker has persisted the cut. When it was announced, if now all have; otherwise None."""
        group = self._groups[number]
        group.last[worker] = max(group.last[worker], epoch)
        if epoch != group.epoch or worker not in group.missing:
            return None
        group.missing.discard(worker)
        return None if group.missing else group.at
