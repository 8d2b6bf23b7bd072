"""Steps whose inside depends on batches, or on the order of records, and whose output does not.

A step by the batch gives each record a tag that follows from its batch, sends it to another worker by that, and takes the tag
off. So a job that takes one division of a time for another loses records or gives them twice, and any other gives what went in.
Other steps meet values that are equal and not the same, and sums that are rounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl

from falkirk import lindi
from libraries.columns.verbs.columns import Columns, Stream
from recovery.policy import Batch
from timely.io import Chunk, End, Partition
from timely.io.interface import Position
from timely.operators.base import Context, Operator
from timely.time import Time

Pair = tuple[int, int]

TAGS: tuple[Callable[[Sequence[Pair]], list[int]], ...] = (
    lambda batch: [len(batch)] * len(batch),
    lambda batch: list(range(len(batch))),
    lambda batch: list(accumulate(value for _, value in batch)),
    lambda batch: [batch[0][1]] * len(batch),
    lambda batch: [sum(value for _, value in batch)] * len(batch),
)
"""By the number of a function of a batch: a tag for each of its records."""

EXPRESSIONS: tuple[pl.Expr, ...] = (
    pl.len().cast(pl.Int64),
    pl.col("v").cum_sum(),
    pl.col("v").mean().round().cast(pl.Int64),
    pl.col("v").first(),
    pl.col("v") - pl.col("v").shift(1, fill_value=0),
)
"""The same of columns: for each row a tag."""


def _tagged(stream: Stream, n: int) -> Stream:
    tags = TAGS[n % len(TAGS)]
    return stream.map_batches(lambda batch: list(zip(batch, tags(batch))))


def sent(stream: Stream, n: int) -> Stream:
    """Records find their worker by the batch."""
    return _tagged(stream, n).exchange(by=lambda pair: pair[1]).map(lambda pair: pair[0])


def gathered(stream: Stream, n: int) -> Stream:
    """The same; they are handed on when their time is complete."""
    groups = _tagged(stream, n).key_by(lambda pair: pair[1]).fold(tuple, lambda all, one: (*all, one[0]), over="time")
    return groups.records().flat_map(lambda group: group[1])


def counted(stream: Stream, n: int) -> Stream:
    """The number of records of a time, by way of one for each tag."""
    counts = _tagged(stream, n).key_by(lambda pair: pair[1]).count(over="time").records()
    totals = counts.map(lambda count: (n, count[1])).keyed().sum(over="time").records()
    return totals.map(lambda total: (total[0] % 11, total[1] % 50))


def of_frames(stream: Stream, n: int) -> Stream:
    """Rows find their worker by a function of the frame."""
    rows = _rows(stream).map_batches(
        lambda frame: pl.DataFrame(frame).with_columns(tag=EXPRESSIONS[n % len(EXPRESSIONS)])
    )
    return _pairs(rows.exchange("tag"))


def typed(stream: Stream, n: int) -> Stream:
    """Records find their worker by the type of their column, which follows from the batch."""
    rows = stream.map(lambda pair: {"k": pair[0], "v": pair[1] if pair[1] % (n + 2) else pair[1] + 0.5}).to_columns()
    told = rows.to_records().exchange(by=lambda row: type(row["v"]).__name__)
    return told.map(lambda row: (row["k"], int(row["v"])))


class Undeclared(Operator):
    """Tags records by their batch, and does not say what it repeats over."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.send([(pair, len(batch) + at // 2) for at, pair in enumerate(batch)])


def undeclared(stream: Stream, n: int) -> Stream:
    """An operator that declares nothing decides where records go."""
    tagged = stream.unary("undeclared", Undeclared, stateful=False, notifies=False)
    return tagged.exchange(by=lambda pair: pair[1] + n).map(lambda pair: pair[0])


def logged(stream: Stream, n: int) -> Stream:
    """A log in front of what follows."""
    return stream.filter(lambda pair: pair[1] % 10 != n).policy(Batch(log_outputs=True))


def in_order(stream: Stream, n: int) -> Stream:
    """One batch a time; by the first number of it, records find a worker."""
    rows = _rows(stream).sort("v", "k", over="time", descending=n % 2 == 0)
    return _pairs(rows.with_columns(tag=EXPRESSIONS[n % len(EXPRESSIONS)]).exchange("tag"))


def two_ways(stream: Stream, n: int) -> Stream:
    """A stream that is parted, and comes together again."""
    one, other = stream.branch(lambda pair: pair[1] % 3 != n % 3)
    return one.exchange(by=lambda pair: pair[0]).concat(other) if n % 2 else one.map(lambda pair: pair).concat(other)


def _rows(stream: Stream) -> Columns:
    return stream.to_columns({"k": pl.Int64, "v": pl.Int64})


def _pairs(rows: Columns) -> Stream:
    return rows.to_records().map(lambda row: (row["k"], row["v"]))


# Values that are equal and not the same; sums that are rounded


def _alike(key: int) -> tuple[Any, ...]:
    """Keys that are equal to `key`, which is 0, 1 or 2; or all NaN."""
    if key == 2:
        return float("nan"), np.float32("nan"), Decimal("2.0"), 2.0, 2
    return key, float(key), Decimal(key), Decimal(f"{key}.00"), bool(key), -0.0 if key == 0 else 1.0


def equal_keys(stream: Stream, n: int) -> Stream:
    """Which of equal keys comes out counts, and decides where it goes."""
    mixed = stream.map(lambda pair: (_mixed(pair, n), pair[1]))
    match n % 4:
        case 0:
            found = mixed.map(lambda pair: (pair[0], 0)).distinct(over="time")
        case 1:
            found = mixed.keyed().count(over="time").records()
        case 2:
            found = mixed.keyed().max(over="time").records()
        case _:
            found = lindi.Query(mixed).group_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).stream
    told = found.exchange(by=lambda pair: repr(pair[0]))
    return told.map(lambda pair: (_number(repr(pair[0])) % 11, pair[1] % 50))


def _mixed(pair: Pair, n: int) -> Any:
    alike = _alike(pair[0] % 3)
    return alike[(pair[1] + n) % len(alike)]


def _number(text: str) -> int:
    return sum(map(ord, text))


TERMS: tuple[tuple[Any, ...], ...] = (
    (0.1, 0.2, 0.3, 1e16, -1e16, 0.7),
    (np.float32(16777216.0), np.float32(1), np.float32(0.1)),
    (0.1 + 0j, 0.2 + 0j, 0.3 + 0.7j, 1 + 1j),
    (Decimal("1e28"), Decimal("0.3"), Decimal("-1e28"), Decimal("0.7"), 1),
    (1, 0.1, 3, 1e16, True, -0.0, -1e16),
)
"""Values whose sum is rounded in the order of adding, if nobody takes care."""


def rounded(stream: Stream, n: int) -> Stream:
    """The last digit of a sum decides where it goes."""
    terms = TERMS[n % len(TERMS)]
    values = stream.map(lambda pair: (pair[0] % 3, terms[pair[1] % len(terms)])).keyed()
    found = values.sum(over="time").records()
    told = found.exchange(by=lambda pair: repr(pair[1]))
    return told.map(lambda pair: (pair[0], _number(repr(pair[1])) % 50))


def reduced(stream: Stream, n: int) -> Stream:
    """A function for which order and grouping count decides where its result goes."""
    pairs = stream.map(lambda pair: (pair[0] % 3, pair[1])).keyed()
    found = pairs.reduce(lambda a, b: (a * (7 + n) + b) % 50, over="time").records()
    return found.exchange(by=lambda pair: pair[1]).map(lambda pair: pair)


# Sources


class Dealt:
    """Rows of which each worker reads its share of each epoch in one batch: nothing divides them."""

    rereadable = True
    repeats = True
    whole_epochs = True

    def __init__(self, rows: Sequence[Pair], size: int, pause: float = 0.0) -> None:
        self._pause = pause
        self._epochs = [rows[at : at + size] for at in range(0, len(rows), size)]

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """One at each worker."""
        return [_DealtPart(f"share-{worker}", [list(epoch[worker::workers]) for epoch in self._epochs], self._pause)]


class _DealtPart:
    def __init__(self, name: str, epochs: list[list[Pair]], pause: float) -> None:
        self.name = name
        self._pause = pause
        self._epochs = epochs
        self._at = 0

    def read(self) -> Chunk | End:
        """The next epoch."""
        if self._at == len(self._epochs):
            return End()
        time.sleep(self._pause)
        self._at += 1
        return Chunk(self._at - 1, self._epochs[self._at - 1], self._at, True)

    def seek(self, position: Position) -> None:
        """Go on with an epoch, by number."""
        self._at = int(position) if isinstance(position, int) else 0

    def ack(self, position: Position) -> None:
        """Rows are kept."""

    def close(self) -> None:
        """Nothing is open."""
