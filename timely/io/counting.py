"""Epochs by record count, for sources with a count as position."""

from __future__ import annotations

from dataclasses import dataclass

from timely.errors import SourceError
from timely.io.arguments import whole
from timely.io.interface import Position


@dataclass(frozen=True, slots=True)
class EpochEvery:
    """Epoch size in records: record c belongs to epoch c // n.

    None: everything is epoch 0.
    """

    n: int | None
    called: str = "epoch_every"

    def __post_init__(self) -> None:
        if self.n is not None:
            whole(self.n, self.called)

    def epoch(self, count: int) -> int:
        """Epoch of record number `count`."""
        return 0 if self.n is None else count // self.n

    def room(self, count: int) -> int | None:
        """Records left in the epoch of record number `count`; None: unbounded."""
        return None if self.n is None else self.n - count % self.n

    def closes(self, count: int) -> bool:
        """True if an epoch ends after `count` records."""
        return self.n is not None and count > 0 and count % self.n == 0


def count_of(position: Position, name: str) -> int:
    """Position as a record count.

    Raises SourceError for a position of another kind of source.
    """
    if position is None:
        return 0
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise SourceError(f"{name}: {position!r} is not a position of this source. Was the source changed?")
    return position
