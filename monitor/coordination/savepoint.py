"""Savepoint: a stop of the job with all read input complete, saved and published.

Workers are asked how far their sources have begun; the furthest of them, and of all cuts, says the epoch. Sources read up to
that, each group is cut there, and each worker reports when what it has before it is safe. A rollback in the midst of it
begins the part anew that it has undone: the epoch stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from monitor.coordination.options import Options
from monitor.coordination.records import Value
from recovery.layout import Layout
from recovery.metadata import Bound, at_epoch, nothing, within
from recovery.protocol import ReadUntil


@dataclass(slots=True)
class Savepoint:
    """Savepoint under way.

    Attributes:
        by: who asked for it, in words.
        since, due: when it was asked for, and until when it has to be there, in seconds.
        epoch: all before it is to be saved; None: not known yet.
    """

    by: str
    since: float
    due: float
    epoch: int | None = None
    over: bool = False
    """True once its end is on its way to the journal."""
    _begun: dict[int, int] = field(default_factory=dict)
    _settled: set[int] = field(default_factory=set)

    def hold(self, furthest: int) -> None:
        """Raise a known epoch to the furthest bound of survivors of a rollback."""
        if self.epoch is not None:
            self.epoch = max(self.epoch, furthest)

    def order(self, generation: int) -> ReadUntil:
        """Order for all workers of this generation; their earlier reports are void."""
        self._begun.clear()
        self._settled.clear()
        return ReadUntil(generation, self.epoch)

    def begun(self, worker: int, epoch: int, workers: int, furthest: int) -> bool:
        """Take a worker's answer; True if the epoch is known by it.

        Args:
            furthest: first epoch that nothing was saved of yet.
        """
        if self.epoch is not None:
            return False
        self._begun[worker] = epoch
        if len(self._begun) < workers:
            return False
        self.epoch = max(furthest, *self._begun.values())
        return True

    def settled(self, worker: int, epoch: int, workers: int) -> bool:
        """Take a worker's report; True if all have settled."""
        if epoch == self.epoch:
            self._settled.add(worker)
        return len(self._settled) == workers and not self.over

    def end(self) -> dict[str, Value]:
        """Data of the event of its end."""
        assert self.epoch is not None
        return {"by": self.by, "epoch": self.epoch, "savepoint": True}

    def missing(self, layout: Layout, options: Options, now: float) -> str:
        """Reason for there being no savepoint yet, in words."""
        after = f"there is no savepoint after {now - self.since:.0f} s"
        if self.epoch is None:
            silent = sorted({*range(layout.workers)} - self._begun.keys())
            return f"{after}: {_workers(silent)} did not say how far the sources are"
        late = [
            (number, worker)
            for worker, upto in enumerate(options.upto)
            for number, group in enumerate(layout.groups)
            if not within(at_epoch(self.epoch, group.depth), (upto or _nothing(layout))[number])
        ]
        if not late:
            return f"{after}: not all state before epoch {self.epoch} is saved and published yet"
        groups = {number for number, _ in late}
        sources = [info for info in layout.processors if info.role == "source" and info.group in groups]
        concerned = sources or [info for info in layout.processors if info.group in groups]
        names = ", ".join(f"{info.kind} {info.name!r} ({info.site})" for info in concerned[:3])
        who = _workers(sorted({worker for _, worker in late}))
        return f"{after}: epoch {self.epoch - 1} is not complete on {who}. Its end is missing from {names}, or work behind it"


def _nothing(layout: Layout) -> Sequence[Bound]:
    return [nothing(group.depth) for group in layout.groups]


def _workers(numbers: Iterable[int]) -> str:
    found = [str(number) for number in numbers]
    return f"worker{'s' if len(found) > 1 else ''} {', '.join(found)}"
