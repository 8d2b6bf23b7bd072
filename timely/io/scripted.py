"""Test source with scripted pauses, failures and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from timely.errors import FalkirkError
from timely.io.arguments import whole
from timely.io.counting import EpochEvery, count_of
from timely.io.interface import Chunk, End, Partition, Position, Wait


class ScriptedAbort(FalkirkError):
    """Failure requested by the script of a `Scripted` source."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Script entry: one read finds nothing; retry after `seconds`.

    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("in", falkirk.Scripted([1, falkirk.Pause(seconds=0.01), 2])).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [1]), ((1,), [2])]
    """

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Abort:
    """Script entry: the read raises ScriptedAbort.

    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("in", falkirk.Scripted([1, falkirk.Abort("the disk is gone")])).capture("out")
    >>> try:
    ...     falkirk.run(flow)
    ... except falkirk.FalkirkError as error:
    ...     print("the disk is gone" in str(error))
    True
    """

    why: str = "the script said so"


@dataclass(frozen=True, slots=True)
class Eof:
    """Script entry: the input ends here for this run.

    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("in", falkirk.Scripted([1, falkirk.Eof(), 2])).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [1])]
    """


class Scripted:
    """Records of `script` at worker 0, with `Pause()`, `Abort("why")` and `Eof()`.

    A chunk holds at most `batch` records, all of one epoch, and never reaches over an instruction.
    `epoch_every=n` makes n records an epoch. Abort and Eof work once in the life of this object: a later run
    that reads past the same place (the restart after the failure, the next session on a longer input) carries
    on there. Positions count entries of the script, so a partition can be re-read from any chunk.

    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("in", falkirk.Scripted(["a", falkirk.Pause(), "b", falkirk.Eof(), "c"])).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), ['a']), ((1,), ['b'])]
    """

    rereadable: ClassVar[bool] = True
    layout_free: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(self, script: Sequence[Any], *, batch: int = 1, epoch_every: int | None = 1) -> None:
        self._script = tuple(script)
        self._batch = whole(batch, "batch")
        self._every = EpochEvery(epoch_every)
        self._used: set[int] = set()

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """The script, at worker 0."""
        return [ScriptedPartition(self._script, self._batch, self._every, self._used)] if worker == 0 else []


class ScriptedPartition:
    """One run through a script.

    `used` holds the places of one-time instructions that have worked already.
    """

    name = "script"

    def __init__(self, script: tuple[Any, ...], batch: int, every: EpochEvery, used: set[int]) -> None:
        self._script = script
        self._batch = batch
        self._every = every
        self._used = used
        self._ended = False
        self._at = 0
        self._records = 0

    def read(self) -> Chunk | Wait | End:
        """Follow the script.

        Raises ScriptedAbort where it says so.
        """
        while not self._ended and self._at < len(self._script):
            entry = self._script[self._at]
            if not isinstance(entry, Pause | Abort | Eof):
                return self._chunk()
            place, self._at = self._at, self._at + 1
            if isinstance(entry, Pause):
                return Wait(entry.seconds)
            if place in self._used:
                continue
            self._used.add(place)
            if isinstance(entry, Abort):
                raise ScriptedAbort(f"{self.name}, entry {place}: {entry.why}. Run again to go on.")
            self._ended = True
        return End()

    def _chunk(self) -> Chunk:
        room = self._every.room(self._records)
        size = self._batch if room is None else min(self._batch, room)
        records: list[Any] = []
        for entry in self._script[self._at : self._at + size]:
            if isinstance(entry, Pause | Abort | Eof):
                break
            records.append(entry)
        epoch = self._every.epoch(self._records)
        self._at += len(records)
        self._records += len(records)
        return Chunk(epoch, records, self._at, self._every.closes(self._records))

    def seek(self, position: Position) -> None:
        """Go to an entry of the script by number."""
        self._at = min(count_of(position, self.name), len(self._script))
        self._records = sum(not isinstance(e, Pause | Abort | Eof) for e in self._script[: self._at])
        self._ended = False

    def ack(self, position: Position) -> None:
        """No-op: the script stays."""

    def close(self) -> None:
        """No-op: there is nothing to release."""
