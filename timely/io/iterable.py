"""Source of Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Iterable as AnyIterable
from itertools import islice
from typing import Any, ClassVar, Literal

from timely.errors import SourceError, at_line
from timely.io.arguments import whole
from timely.io.counting import EpochEvery, count_of
from timely.io.interface import Chunk, End, Partition, Position

Items = AnyIterable[Any] | Callable[[], AnyIterable[Any]]


class Iterable:
    """Items of an iterable, or of a function's result, `batch` records a chunk.

    `epoch_every=n` makes every n records an epoch, "batch" every chunk, None all of them one epoch. Worker 0
    reads `items`; `partitioned=[items, ...]` instead gives iterable i to worker i mod W, each counting its
    own epochs. The position is the number of items read. Going back needs a sequence or a function, which can
    be read from the start again; the items must then be the same ones. An iterator can only go on.

    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("in", falkirk.Iterable([1, 2, 3], epoch_every=2)).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [1, 2]), ((1,), [3])]
    """

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True
    layout_free: ClassVar[bool] = True

    def __init__(
        self,
        items: Items | None = None,
        *,
        partitioned: Sequence[Items] | None = None,
        batch: int = 1024,
        epoch_every: int | Literal["batch"] | None = None,
    ) -> None:
        if (items is None) == (partitioned is None):
            raise SourceError(at_line("Iterable: give either items or partitioned=[items, ...]."))
        self._parts = [items] if items is not None else list(partitioned or ())
        for part in self._parts:
            if not callable(part) and not hasattr(part, "__iter__"):
                raise SourceError(
                    at_line(
                        f"Iterable takes something that can be iterated, or a function that returns it, not {part!r} "
                        f"({type(part).__name__})."
                    )
                )
        self._batch = whole(batch, "batch")
        self._every = EpochEvery(self._batch if epoch_every == "batch" else epoch_every)
        self.one_epoch = self._every.n is None
        self.whole_epochs = len(self._parts) == 1 and self._every.n is not None and self._every.n <= self._batch

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Iterables of this worker."""
        mine = ((i, part) for i, part in enumerate(self._parts) if i % workers == worker)
        return [IterablePartition(f"items-{i}", part, self._batch, self._every) for i, part in mine if part is not None]


class IterablePartition:
    """Partition over one iterable."""

    def __init__(self, name: str, items: Items, batch: int, every: EpochEvery) -> None:
        self.name = name
        self._items = items
        self._batch = batch
        self._every = every
        self._iterator: Iterator[Any] | None = None
        self._count = 0

    def read(self) -> Chunk | End:
        """Next records: at most a batch, never of two epochs."""
        room = self._every.room(self._count)
        size = self._batch if room is None else min(self._batch, room)
        try:
            if self._iterator is None:
                self._iterator = self._begin()
            records = list(islice(self._iterator, size))
        except Exception as error:
            raise SourceError(
                f"{self.name}: the iterable raised {type(error).__name__} after item {self._count}: {error}. "
                "Correct it and run again."
            ) from error
        if not records:
            return End()
        epoch = self._every.epoch(self._count)
        self._count += len(records)
        return Chunk(epoch, records, self._count, self._every.closes(self._count))

    def _begin(self) -> Iterator[Any]:
        return iter(self._items() if callable(self._items) else self._items)

    def seek(self, position: Position) -> None:
        """Go to an item by number.

        Raises SourceError if that is behind an iterator, or past the end.
        """
        count = count_of(position, self.name)
        if count == self._count:
            return
        taken = self._count
        if not isinstance(self._items, Iterator):
            self._iterator = self._begin()
            taken = 0
        elif count < self._count:
            raise SourceError(
                f"{self.name}: an iterator cannot go back to item {count}. Give a sequence, or a function "
                "that returns the iterator from the start."
            )
        elif self._iterator is None:
            self._iterator = self._begin()
        assert self._iterator is not None
        skipped = sum(1 for _ in islice(self._iterator, count - taken))
        if skipped < count - taken:
            raise SourceError(
                f"{self.name}: there are only {taken + skipped} items now, but {count} were read before. The "
                "items must be the same ones each time."
            )
        self._count = count

    def ack(self, position: Position) -> None:
        """No-op: the user keeps the items."""

    def close(self) -> None:
        """No-op: there is nothing to release."""
