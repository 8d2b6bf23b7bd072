"""The targets of fuzzing: each reads bytes in one way, and may refuse them with errors of the project's own alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, TypeAlias

import msgspec

from tests.fuzz.mutate import mutate, mutate_value, noise, packed
from timely.errors import FalkirkError

Read: TypeAlias = Callable[[bytes], object]
Change: TypeAlias = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """One way to read bytes.

    Args:
        samples: what its real writers give.
        reader: a context in which the function that reads stays ready.
        msgpack: whether samples are MessagePack, so that values are changed as well as bytes.
        change: damage that keeps lengths and checksums right, for what lies behind these.
        seconds: of processor time that a case may take; the longest needs a few milliseconds.
    """

    name: str
    samples: Callable[[], Sequence[bytes]]
    reader: Callable[[], Any]
    msgpack: bool = False
    change: Change | None = None
    seconds: float = 2.0
    allowed: tuple[type[BaseException], ...] = field(default=(FalkirkError,))

    def case(self, seed: int, index: int) -> bytes:
        """The bytes of one case; always the same for the same numbers."""
        random = Random(f"{self.name}/{seed}/{index}")
        samples = _samples(self)
        which = random.random()
        if which < 0.03:
            return noise(random)
        sample = random.randrange(len(samples))
        if self.change is not None and which < 0.65:
            return self.change(random, samples[sample])
        if self.msgpack and which < 0.65:
            value = _decoded(self)[sample]
            for _ in range(random.choice((1, 1, 2, 4))):
                value = mutate_value(random, value)
            return packed(value)
        return mutate(random, samples[sample], samples)


@cache
def _samples(target: Target) -> list[bytes]:
    return list(target.samples())


@cache
def _decoded(target: Target) -> list[Any]:
    return [msgspec.msgpack.decode(sample) for sample in _samples(target)]


def plain(read: Read) -> Callable[[], Any]:
    """A reader that keeps nothing."""

    @contextmanager
    def reader() -> Iterator[Read]:
        yield read

    return reader
