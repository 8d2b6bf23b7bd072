"""Options of every processor at moments of a minute, as bytes. Pure.

Most processors are in the same case as many others, relative to the newest epoch, and those that are alike stay so. So a
moment has a table of different cases, and for each processor its row; where rows are those of a moment before, their number
is enough.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from monitor.coordination.options import OptionsRecord
from recovery.metadata import Bound
from timely.data.codec.typed import Typed
from timely.errors import ProtocolError
from timely.time import FINITE

Case: TypeAlias = tuple[Bound, Bound, tuple[tuple[Bound, tuple[Bound, ...]], ...]]
"""Low-watermark, completed bound and chain of a processor."""

_MOST_BYTES = 1 << 28


class _Moment(msgspec.Struct, frozen=True, array_like=True):
    at: int
    base: int
    """Newest epoch; others are differences from it."""
    cases: tuple[Case, ...]
    rows: int
    """Index in `_Pack.rows`."""
    upto: tuple[tuple[Bound, ...] | None, ...]


class _Pack(msgspec.Struct, frozen=True, array_like=True):
    moments: tuple[_Moment, ...]
    rows: tuple[bytes, ...]
    """For each processor its row in `cases`, 32 bits each."""


_PACK: Typed[_Pack] = Typed("options of the past", _Pack)


def pack_options(moments: Sequence[tuple[int, OptionsRecord]], level: int = 6) -> bytes:
    """Options at several moments, each with its time in milliseconds since 1970."""
    patterns: dict[bytes, int] = {}
    made = []
    for at, record in moments:
        cases: dict[Case, int] = {}
        rows = [cases.setdefault(case, len(cases)) for case in zip(record.low, record.completed, record.chains)]
        pattern = np.array(rows, dtype=np.uint32).tobytes()
        epochs = (bound[0] for bound in _bounds(cases, record.upto) if bound and bound[0] < FINITE)
        base = max(epochs, default=0)
        known = patterns.setdefault(pattern, len(patterns))
        upto = tuple(None if each is None else tuple(_away(bound, base) for bound in each) for each in record.upto)
        made.append(_Moment(at, base, tuple(_moved(case, base, _away) for case in cases), known, upto))
    return zlib.compress(msgspec.msgpack.encode(_Pack(tuple(made), tuple(patterns))), level)


def unpack_options(data: bytes | memoryview) -> list[tuple[int, OptionsRecord]]:
    """Options at several moments, with their times.

    Raises ProtocolError for anything else.
    """
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(data, _MOST_BYTES)
        if not unpacker.eof:
            raise ProtocolError("options of the past have no end")
    except zlib.error as error:
        raise ProtocolError(f"options of the past cannot be read: {error}") from None
    pack = _PACK.decode(plain)
    found = []
    for moment in pack.moments:
        cases = [_moved(case, moment.base, _back) for case in moment.cases]
        try:
            rows = np.frombuffer(pack.rows[moment.rows], dtype=np.uint32).tolist()
            of = [cases[row] for row in rows]
        except (IndexError, ValueError):
            raise ProtocolError("options of the past: a case that is not there") from None
        upto = tuple(
            None if each is None else tuple(_back(bound, moment.base) for bound in each) for each in moment.upto
        )
        low, completed, chains = zip(*of) if of else ((), (), ())
        found.append((moment.at, OptionsRecord(low, completed, chains, upto)))
    return found


def _bounds(cases: Iterable[Case], upto: Iterable[tuple[Bound, ...] | None]) -> Iterator[Bound]:
    for low, completed, chain in cases:
        yield from (low, completed)
        for bound, discards in chain:
            yield from (bound, *discards)
    for each in upto:
        yield from each or ()


def _moved(case: Case, base: int, move: Callable[[Bound, int], Bound]) -> Case:
    low, completed, chain = case
    return (
        move(low, base),
        move(completed, base),
        tuple((move(bound, base), tuple(move(each, base) for each in discards)) for bound, discards in chain),
    )


def _away(bound: Bound, base: int) -> Bound:
    """Bound with its epoch as a distance from `base`: 0 stays, what has no end stays.

    >>> _away((7, 3), 9), _back((-3, 3), 9), _away((0,), 9)
    ((-3, 3), (7, 3), (0,))
    """
    if not bound or bound[0] == 0 or bound[0] >= FINITE:
        return bound
    return (bound[0] - base - 1, *bound[1:])


def _back(bound: Bound, base: int) -> Bound:
    return (bound[0] + base + 1, *bound[1:]) if bound and bound[0] < 0 else bound
