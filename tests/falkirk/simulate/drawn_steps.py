"""Steps of drawn programs: each takes pairs of small integers to pairs of small integers, by verbs of every library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import polars as pl

from falkirk import differential, lindi, sql
from libraries.columns import agg
from libraries.columns.verbs.columns import Columns, Stream
from recovery.policy import Batch, Eager, Ephemeral, Lazy, LogHistory, Policy, Snapshot
from tests.falkirk.simulate import drawn_divisions
from tests.falkirk.simulate.programs import Gathering, Holds
from timely.dataflow.graph import Region
from timely.operators.base import Context, Operator
from timely.operators.window_shapes import Epochs, Session, Sliding, Tumbling
from timely.time import INF, Time

Step: TypeAlias = Callable[[Stream, int], Stream]
"""Takes a number from 0 to 9, too, which makes it another one each."""

EVERY = (1, 2, 4, 0.1, 0.3)
"""Intervals between cuts: epochs, and seconds."""


class Ranked(Gathering):
    """Gives each record of an epoch a rank among all that its key has had, in the order of the records."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        before = self._kept.read(time)
        ranks: dict[int, int] = {}
        out = []
        for key, value in sorted(self.gathered(time)):
            ranks[key] = ranks.get(key, before.get(key, 0)) + 1
            out.append((key, (value + ranks[key]) % 50))
        self._kept.write(time, ranks)
        ctx.send(out)


class Ahead(Operator):
    """Sends some records into later epochs, or into later iterations of a loop."""

    repeats_over = "time"

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for later in (1, 3) if time[-1] < INF else ():
            ctx.send_at((*time[:-1], time[-1] + later), [record for record in batch if sum(record) % 4 == later])
        ctx.send([record for record in batch if sum(record) % 2 == 0])


class Asked(Operator):
    """Has each record looked at by a job outside of the worker."""

    repeats_over = "time"

    repeats = True

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for record in batch:
            ctx.start(lambda record=record: (record[1] % 11, (record[0] + record[1]) % 50))

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        ctx.send([result])


def _columns(stream: Stream, n: int) -> Stream:
    rows = stream.to_columns({"k": pl.Int64, "v": pl.Int64})
    over = "scope" if n % 2 else "time"
    totals = rows.group_by("k").agg(over=over, v=agg.sum("v"), most=agg.max("v"))
    return totals.to_records().map(lambda row: (row["k"], (row["v"] + row["most"]) % 50))


def _loop(stream: Stream, n: int, skips: bool = False) -> Stream:
    step = 7 + n

    def rounds(inner: Stream) -> Stream:
        less = inner.map(lambda pair: (pair[0], pair[1] - step)).filter(lambda pair: pair[1] > 0)
        spread = less.exchange(by=lambda pair: pair[1]) if n % 2 else less
        late = spread.unary("skip", Ahead, notifies=False) if skips else spread
        return late.distinct() if n % 3 else late

    return stream.iterate(rounds, limit=30)


def _history(stream: Stream, n: int) -> Stream:
    return stream.keyed().max().policy(LogHistory(EVERY[n % len(EVERY)], log_outputs=n % 2 == 0)).records()


def _joined(stream: Stream, n: int) -> Stream:
    few = stream.filter(lambda pair: pair[1] % 4 == n % 4).distinct().keyed()
    pairs = stream.distinct().keyed().join(few).records()
    return pairs.map(lambda found: (found[0], (found[1][0] + found[1][1]) % 50))


def _nested_loops(stream: Stream, n: int) -> Stream:
    def rounds(outer: Stream) -> Stream:
        inner = outer.iterate(lambda pairs: _less(pairs, 9).exchange(by=lambda pair: pair[1]), limit=3)
        return _less(inner if n % 2 else inner.concat(outer), 11 + n).distinct()

    return stream.iterate(rounds, limit=6)


def _less(stream: Stream, by: int) -> Stream:
    return stream.map(lambda pair: (pair[0], pair[1] - by)).filter(lambda pair: pair[1] > 0)


def _loop_of_policies(stream: Stream, n: int) -> Stream:
    """A loop whose operators have policies of their own."""
    policies = (
        Batch(log_outputs=True),
        LogHistory(EVERY[n % len(EVERY)], log_outputs=True),
        Lazy(2, log_outputs=n % 2 == 0),
    )

    def rounds(inner: Stream) -> Stream:
        most = _less(inner, 5 + n).keyed().max(over=("scope", "time")[n % 2]).policy(policies[1 + n % 2]).records()
        return most.map(lambda pair: ((pair[0] + 1) % 11, pair[1])).policy(policies[0]) if n % 3 else most

    return stream.iterate(rounds, limit=20)


INNER: tuple[Policy, ...] = (
    Lazy(2),
    LogHistory(0.3),
    Batch(log_outputs=True),
    Eager(),
    Snapshot(2),
    Ephemeral(),
    Lazy(0.1, log_outputs=True),
)


def _inner_region(stream: Stream, n: int) -> Stream:
    """A stream meets again what a region of its own has made of it."""
    policy = INNER[n % len(INNER)]
    graph = stream.graph
    graph.enter_region(Region(graph.fresh_name("inner"), policy, gated=isinstance(policy, Eager)))
    inside = stream.exchange(by=lambda pair: pair[0]).map(lambda pair: (pair[0], (pair[1] * 3) % 50))
    if not isinstance(policy, Batch | Ephemeral):
        inside = inside.keyed().max().records()
    graph.leave_region()
    return stream.concat(inside)


def _rows(stream: Stream) -> Columns:
    return stream.to_columns({"k": pl.Int64, "v": pl.Int64})


def _records(columns: Columns) -> Stream:
    """A pair of small integers of each row, whatever its columns are."""
    return columns.to_records().map(lambda row: _small([_whole(value) for value in row.values()]))


def _whole(value: Any) -> Any:
    return 49 if value is None else round(value) if isinstance(value, float) else value


def _event_windows(stream: Stream, n: int) -> Stream:
    shape = (Tumbling(10), Sliding(12, 6), Session(4))[n % 3]
    windows = stream.keyed().window(shape, time=lambda value: value, lateness=5 * n)
    found = windows.collect().records().map(lambda found: (found[0][0], sum(found[1]) + found[0][1].start))
    return found.map(_small).concat(windows.late().records())


def _column_windows(stream: Stream, n: int) -> Stream:
    shape = (Tumbling(10), Sliding(12, 6), Session(4))[n % 3]
    windows = _rows(stream).window(shape, time="v", lateness=5 * n)
    totals = windows.group_by("k").agg(n=agg.count(), total=agg.sum("v"), low=agg.min("v"), kinds=agg.n_unique("v"))
    return _records(totals).concat(_records(windows.late()))


def _for_a_time(stream: Stream, n: int) -> Stream:
    """Totals, and pairs, of rows that are forgotten."""
    rows = _rows(stream)
    alive = rows.group_by("k").agg(n=agg.count(), kinds=agg.n_unique("v"), ttl=Epochs(1 + n % 3))
    if n % 2:
        alive = rows.group_by("k").agg(n=agg.count(), total=agg.sum("v"), kinds=agg.n_unique("v"), ttl=8 + n, time="v")
    near = rows.select("k", w=pl.col("v") % 7).distinct("k", "w", ttl=Epochs(2))
    return _records(alive).concat(
        _records(rows.join(near, on="k", ttl=Epochs(1), how=("inner", "semi", "lookup")[n % 3]))
    )


def _taken_back(stream: Stream, n: int) -> Stream:
    """Totals of rows that come and go."""
    rows = _rows(stream)
    few = rows.filter(pl.col("v") % 3 == n % 3).select("k", w=pl.col("v") % 7).distinct("k", "w")
    if n > 7:
        most = rows.group_by("k").agg(most=agg.max("v"), changes=True)
        low = few.group_by("k").agg(low=agg.min("w"), changes=True)
        return _records(most.join(low, on="k").group_by("low").agg(n=agg.count(), most=agg.max("most")))
    joined = rows.join(few, on="k", how=("left", "full", "anti", "right")[n % 4], changes=True)
    if n % 4 == 2:
        return _records(joined.group_by("k").agg(n=agg.count(), most=agg.max("v")))
    return _records(
        joined.group_by("k").agg(n=agg.count(), most=agg.max("v"), kinds=agg.n_unique("w"), low=agg.min("w"))
    )


def _nearest(stream: Stream, n: int) -> Stream:
    rows = _rows(stream)
    marks = rows.select("k", "v", w=pl.col("v") % 7).distinct("k", "v", "w")
    if n % 3 == 0:
        pairs, late, late_marks = rows.join_interval(marks, on="v", lower=-2, upper=n, by="k", lateness=20)
        return _records(pairs).concat(_records(late), _records(late_marks))
    strategy: Any = ("backward", "forward", "nearest")[n // 3 % 3]
    if n % 3 == 1:
        joined = rows.join_asof(marks, on="v", by="k", strategy=strategy, tolerance=5 + n, changes=True)
        return _records(joined.group_by("k").agg(n=agg.count(), total=agg.sum("w"), low=agg.min("w")))
    return _records(
        rows.join_asof(marks, on="v", by="k", strategy=strategy, tolerance=5 + n, ttl=4 * n if n % 2 else None)
    )


def _looked_up(stream: Stream, n: int) -> Stream:
    """Rows with what has come by then, or those of which something has."""
    rows = _rows(stream)
    few = rows.filter(pl.col("v") % 4 == n % 4).select("k", w=pl.col("v") % 7).distinct("k", "w")
    return _records(rows.join(few, on="k", how=("lookup", "semi", "inner")[n % 3]))


def _rows_of_an_epoch(stream: Stream, n: int) -> Stream:
    rows = _rows(stream)
    if n < 4:
        return _records(rows.group_by("k").agg(n=agg.count(), most=pl.col("v").max(), over="time"))
    if n < 6:
        return _records((rows.group_by("k") if n % 2 else rows).top_k(2, by=["v", "k"], over="time"))
    few = rows.filter(pl.col("v") % 3 == n % 3).select(k=pl.col("v") % 11, w="k")
    hows: tuple[Any, ...] = ("left", "right", "full", "anti")
    return _records(rows.join(few, on="k", how=hows[n - 6], over="time"))


def _queried(stream: Stream, n: int) -> Stream:
    query = (
        "select k, count(*) as n, sum(v) as total from s where v > 3 group by k",
        "select distinct v % 5 as w from s",
        "select k, count(distinct v) as kinds, max(v) filter (where v % 2 = 0) as even from s group by k",
        "select k, max(n) as n from (select k, v % 4 as w, count(*) as n from s group by k, v % 4) as t group by k",
    )[n % 4]
    return _records(sql(query, s=_rows(stream)))


def _attempted(stream: Stream, n: int) -> Stream:
    good, bad = stream.attempt(lambda pair: (pair[0], 40 // (pair[1] % (n + 1))))
    return good.concat(bad.map(lambda letter: letter[0]))


def _each_time(stream: Stream, n: int) -> Stream:
    query = lindi.Query(stream).where(lambda pair: pair[1] > n)
    best = query.group_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).top(3, key=lambda pair: (pair[1], pair[0]))
    return best.join(query, lambda pair: pair[0], lambda pair: pair[0], lambda a, b: _small((a, b))).stream


def _split_late(stream: Stream, n: int) -> Stream:
    on_time, late, marks = stream.keyed().split_late(lambda value: value, lateness=4 * n)
    return on_time.records().concat(late.records(), marks.distinct(over="time").map(lambda mark: _small((n, mark))))


def _changes(found: differential.Collection) -> Stream:
    return found.changes().map(_small)


def _collection(stream: Stream, n: int) -> Stream:
    given = differential.from_records(stream)
    few = given.filter(lambda pair: pair[1] % 3 == n % 3)
    if n % 3 == 0:
        return _changes(given.left_join(few, lambda key, a, b: (key, -1 if b is None else b)).count())
    if n % 3 == 1:
        return _changes(given.top(2).concat(few.negate()).threshold(lambda times: max(times, 0)))
    return _changes(
        given.antijoin(few.map(lambda pair: (pair[0] + 1) % 11).distinct()).reduce(lambda _, values: [(len(values), 1)])
    )


def _components(stream: Stream, n: int) -> Stream:
    edges = differential.from_records(stream.map(lambda pair: (pair[0], pair[1] % 11)))
    both = edges.concat(edges.map(lambda edge: (edge[1], edge[0])))
    nodes = both.map(lambda edge: (edge[0], edge[0])).distinct()
    if n % 2:
        both, nodes = both.arrange(), nodes.arrange()
    return _changes(
        nodes.iterate(lambda inner: both.join(inner, lambda node, other, label: (other, label)).concat(nodes).min())
    )


def _batched(stream: Stream, n: int) -> Stream:
    """A function of the batch, over records and over columns that were gathered."""
    if n % 2:
        return stream.map_batches(lambda batch: [(key, (value + len(batch)) % 50) for key, value in batch])
    rows = stream.to_columns({"k": pl.Int64, "v": pl.Int64}).filter(pl.col("v") != n)
    counted = rows.map_batches(lambda frame: pl.DataFrame(frame).with_columns(v=(pl.col("v") + len(frame)) % 50))
    return counted.to_records().map(lambda row: (row["k"], row["v"]))


DIVIDING: dict[str, Step] = {
    "logged": drawn_divisions.logged,
    "everywhere": lambda stream, n: stream.broadcast().distinct(over="time"),
    "exchange": lambda stream, n: stream.exchange(by=lambda pair: pair[n % 2]),
    "in order": drawn_divisions.in_order,
    "two ways": drawn_divisions.two_ways,
}
"""Steps that divide batches otherwise when a time is done again, or make one batch of a time."""
UNDONE: dict[str, Step] = {
    "sent by the batch": drawn_divisions.sent,
    "gathered by the batch": drawn_divisions.gathered,
    "counted by the batch": drawn_divisions.counted,
    "of frames by the batch": drawn_divisions.of_frames,
    "typed by the batch": drawn_divisions.typed,
    "undeclared by the batch": drawn_divisions.undeclared,
}
"""Steps whose inside depends on the division into batches, and whose output does not."""
ORDERED: dict[str, Step] = {
    "equal keys": drawn_divisions.equal_keys,
    "rounded sums": drawn_divisions.rounded,
    "reduced": drawn_divisions.reduced,
}
"""Steps that give the same in whatever order records come, because somebody sees to that."""
STATELESS: dict[str, Step] = {
    "by the batch": _batched,
    "map": lambda stream, n: stream.map(lambda pair: ((pair[0] * 3 + n) % 11, (pair[1] + n) % 50)),
    "filter": lambda stream, n: stream.filter(lambda pair: (pair[0] + pair[1]) % 5 != n % 5),
    "twice": lambda stream, n: stream.flat_map(
        lambda pair: [pair, (pair[1] % 11, pair[0])] if pair[1] % 3 == 0 else []
    ),
}
PER_TIME: dict[str, Step] = {
    **DIVIDING,
    **UNDONE,
    **ORDERED,
    "sums of an epoch": lambda stream, n: stream.keyed().sum(over="time").records(),
    "distinct in an epoch": lambda stream, n: stream.distinct(over="time"),
    "attempted": _attempted,
    "lindi": _each_time,
    "rows of an epoch": _rows_of_an_epoch,
}
KEEPING: dict[str, Step] = {
    "sums": lambda stream, n: stream.keyed().sum().records().map(lambda pair: (pair[0], pair[1] % 50)),
    "most": lambda stream, n: stream.keyed().max().records(),
    "counts": lambda stream, n: stream.key_by(lambda pair: pair[1] % (n + 2)).count().records(),
    "distinct": lambda stream, n: stream.distinct(),
    "ranked": lambda stream, n: stream.exchange(by=lambda pair: pair[0]).unary("ranked", Ranked),
    "windows": lambda stream, n: (
        stream.key_by(lambda pair: pair[0]).window(Epochs(1 + n % 4)).count().records().map(_small)
    ),
    "columns": _columns,
    "joined": _joined,
    "ahead": lambda stream, n: stream.unary("ahead", Ahead, notifies=False),
    "windows of event time": _event_windows,
    "windows of columns": _column_windows,
    "for a time": _for_a_time,
    "taken back": _taken_back,
    "nearest": _nearest,
    "looked up": _looked_up,
    "SQL": _queried,
    "late": _split_late,
    "collection": _collection,
    "inner region": _inner_region,
}
OWN: dict[str, Step] = {
    "loop": _loop,
    "history": _history,
    "held": lambda stream, n: stream.unary("held", Holds, holds=True),
    "asked": lambda stream, n: stream.exchange(by=lambda pair: pair[n % 2]).unary("asked", Asked, holds=True),
    "components": _components,
    "nested loops": _nested_loops,
    "loop of policies": _loop_of_policies,
}
"""Steps that cannot be in some regions that are saved as one."""
SKIPPING: dict[str, Step] = {"skipping loop": lambda stream, n: _loop(stream, n, skips=True)}


def _small(found: Any) -> tuple[int, int]:
    """A pair of small integers, whatever a window gives."""
    numbers = [n for n in _flat(found) if isinstance(n, int)]
    return numbers[0] % 11, sum(numbers) % 50


def _flat(found: Any) -> list[Any]:
    return [n for each in found for n in _flat(each)] if isinstance(found, tuple | list) else [found]


BY_BATCH = {"by the batch"}
"""Steps whose output depends on the division into batches."""

STEPS = {**STATELESS, **PER_TIME, **KEEPING, **OWN, **SKIPPING}
