"""The events of an auction house as a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from house import House

from falkirk import Chunk, End, Position


class Events:
    """A source of the persons, auctions or bids of a house: each worker reads its share of each epoch."""

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(self, house: House, kind: str) -> None:
        self._house = house
        self._kind = kind

    def partitions(self, worker: int, workers: int) -> Sequence[_Share]:
        """This worker's."""
        return [_Share(self._house, self._kind, worker, workers)]


class _Share:
    """The rows of one worker; the position is the epoch that comes next."""

    def __init__(self, house: House, kind: str, worker: int, workers: int) -> None:
        self.name = f"{kind}-{worker}-of-{workers}"
        self._house = house
        self._kind = kind
        self._worker, self._workers = worker, workers
        self._next = 0

    def read(self) -> Chunk | End:
        """An epoch."""
        epoch = self._next
        if epoch == self._house.epochs:
            return End()
        self._next += 1
        frame = self._house.frame(self._kind, epoch)
        return Chunk(epoch, frame.gather_every(self._workers, self._worker), self._next, closes=True)

    def seek(self, position: Position) -> None:
        """Read on from an epoch."""
        self._next = 0 if position is None else int(position)

    def ack(self, position: Position) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""
