"""Ends of epochs cut by a clock, for reading a source again into the same epochs.

A source that counts its records repeats by itself. A source that ends epochs by a clock repeats only if the ends of
its epochs are known outside its worker. So its worker sends them to all others before these learn by progress that
an epoch is over: a worker that has completed an epoch knows its ends. After a failure the survivors report the ends
that they know, the decision contains them, and the source is read again up to there with the same epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from recovery.metadata import Bound
from timely.data.codec.typed import Typed

Key: TypeAlias = tuple[int, int]
"""Worker and source, as a processor of its layout."""


class EpochEnds(msgspec.Struct, frozen=True, array_like=True):
    """Ends of the epochs from `begin` to before `upto`, in each partition of a source.

    Epochs that are not named have no records. `local_only`: only the process that has read them can read them again.

    >>> first = EpochEnds(0, 0, 0, 2, (("a", ((0, 5), (1, 8))),))
    >>> first.joined(EpochEnds(0, 0, 2, 4, (("a", ((3, 9),)),))).since(1)
    EpochEnds(worker=0, processor=0, begin=1, upto=4, partitions=(('a', ((1, 8), (3, 9))),), local_only=False)
    """

    worker: int
    processor: int
    begin: int
    upto: int
    partitions: tuple[tuple[str, tuple[tuple[int, Any], ...]], ...] = ()
    local_only: bool = False

    @property
    def key(self) -> Key:
        return self.worker, self.processor

    def joined(self, other: EpochEnds) -> EpochEnds:
        """Union of two entries; only the later one if an epoch between them is missing."""
        if other.begin > self.upto or self.begin > other.upto:
            return max(self, other, key=lambda each: each.begin)
        ends: dict[str, dict[int, Any]] = {}
        for name, found in (*self.partitions, *other.partitions):
            ends.setdefault(name, {}).update(found)
        return EpochEnds(
            *self.key,
            min(self.begin, other.begin),
            max(self.upto, other.upto),
            tuple((name, tuple(sorted(found.items(), key=lambda each: each[0]))) for name, found in ends.items()),
            self.local_only or other.local_only,
        )

    def since(self, epoch: int) -> EpochEnds:
        """Ends without the epochs before `epoch`."""
        if epoch <= self.begin:
            return self
        partitions = tuple((name, tuple(each for each in ends if each[0] >= epoch)) for name, ends in self.partitions)
        return EpochEnds(*self.key, min(epoch, self.upto), self.upto, partitions, self.local_only)


class KnownEnds:
    """Known ends of epochs, of sources on any worker."""

    def __init__(self, told: Iterable[EpochEnds] = ()) -> None:
        self._known: dict[Key, EpochEnds] = {}
        for each in told:
            self.hear(each)

    def hear(self, told: EpochEnds) -> None:
        """Add ends of epochs."""
        known = self._known.get(told.key)
        self._known[told.key] = told if known is None else known.joined(told)

    def of(self, key: Key) -> EpochEnds | None:
        """Known ends of a source, or None."""
        return self._known.get(key)

    def all(self) -> tuple[EpochEnds, ...]:
        """All known ends of epochs, by worker and source."""
        return tuple(self._known[key] for key in sorted(self._known))

    def collect(self, key: Key, epoch: int) -> None:
        """Drop ends before `epoch`: the source is never read again from there."""
        known = self._known.get(key)
        if known is not None:
            self._known[key] = known.since(epoch)

    def repeats(self, key: Key, low: int, gone: bool) -> int:
        """End of a source's repeatable epochs if read again from `low` on; 0 for none.

        `low` is a lower limit: the source is never read again from before it.

        `gone`: the process that has read it is no more.
        """
        known = self._known.get(key)
        return known.upto if known is not None and known.begin <= low and not (gone and known.local_only) else 0

    def decided(self, bounds: Sequence[Sequence[Bound | None]]) -> None:
        """Drop ends made void by a decision `bounds[worker][processor]`.

        They are void where a source is read again from before what is known.
        """
        for (worker, processor), known in list(self._known.items()):
            bound = bounds[worker][processor]
            if bound is not None and known.begin > bound[0]:
                del self._known[worker, processor]


_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[tuple[EpochEnds, ...]] = Typed("the ends of epochs in a frame", tuple[EpochEnds, ...])


def encode_ends(ends: Iterable[EpochEnds]) -> bytes:
    """Encode ends, for a frame."""
    return _encoder.encode(tuple(ends))


def decode_ends(data: bytes) -> tuple[EpochEnds, ...]:
    """Decode ends; raise ProtocolError for anything else."""
    return _decoder.decode(data)
