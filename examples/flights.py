"""A year of flights out of New York: who comes late, and what made them late?

336,776 real flights stream by; an epoch is an hour of scheduled departures. Each part of the dataflow is a region with the
fault-tolerance policy that suits it:

    front       Ephemeral()              reads and splits. Nothing is kept: what is lost is read again
    statistics  Lazy()                   delays of each carrier and each route, as they stand after each hour
    causes      Lazy(every="500ms")      an aircraft is late that was late the flight before on the same day: a loop follows
                                         its delays back, flight by flight, to the first late one of the day, the cause
    history     Batch(log_outputs=True)  once a simulated week Spark computes the quartiles of each route's delays anew, over
                                         all flights so far. What it found is logged, and never computed again

    falkirk demo                             run it with a page, kill a worker midway, and check that nobody can tell
    falkirk demo --no-kill                   run it undisturbed
    falkirk run examples/flights.py -w 2     run the dataflow alone
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flights_data
import polars as pl

import falkirk
from falkirk import (
    Batch,
    Columns,
    Context,
    Dataflow,
    Ephemeral,
    Epochs,
    Keyed,
    KeyedState,
    Lazy,
    Operator,
    Parts,
    Stream,
    TimedBatches,
    agg,
    spark,
)

STATISTICS = {
    "flights": agg.count(),
    "late": agg.sum("late"),
    "minutes": agg.sum("arr_delay"),
    "worst": agg.max("arr_delay"),
}

BROKEN: tuple[int, tuple[int, ...]] = (0, ())
"""No chain: the aircraft's last flight came in time."""

QUARTILES = """
    select route, count(*) as flights, sum(late) as late,
           cast(percentile_disc(0.5) within group (order by arr_delay) as bigint) as median,
           cast(percentile_disc(0.75) within group (order by arr_delay) as bigint) as upper
    from input group by route
"""
"""No running total gives a median: it takes all there ever was."""

SPARK = spark.SparkOptions(
    memory="1g",
    config=(
        # Java that lives for a minute: its second compiler would cost more than it gives.
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.codegen.wholeStage", "false"),
        # There are more routes than the 128 groups from which on Spark sorts all rows rather than hash them.
        ("spark.sql.objectHashAggregate.sortBased.fallbackThreshold", "1024"),
        ("spark.sql.shuffle.partitions", "1"),
    ),
)
"""Small data: a small heap, one part, and no effort that pays only in long runs."""


def build(file: str | Path | None = None) -> Dataflow:
    """The dataflow, over all flights or over those of `file` (see `flights_data.write`)."""
    flow = Dataflow("flights")
    with flow.region("front", policy=Ephemeral()):
        source = falkirk.Parquet(file or flights_data.prepare(), epoch="hour", split="row_groups")
        arrived, stranded = flow.columns("flights", source).branch(pl.col("arr_delay").is_not_null(), name="arrived")
    with flow.region("statistics", policy=Lazy()):
        arrived.group_by("carrier").agg(over="scope", name="by-carrier", **STATISTICS).capture("carriers")
        arrived.group_by("route").agg(over="scope", name="by-route", **STATISTICS).capture("routes")
        stranded.key_by("carrier").count(name="by-airline").capture("stranded")
    with flow.region("causes", policy=Lazy(every="500ms")):
        causes = find_causes(late_chains(arrived)).filter(lambda found: found[3] is not None, name="only-new")
        causes.map(lambda found: (found[0], found[1:3]), name="cause").capture("causes")
        accounts = causes.map(lambda found: (found[1], (1, found[3])), name="account").keyed()
        accounts.reduce(add, name="by-cause", any_order=True).capture("knock-on")
    with flow.region("history", policy=Batch(log_outputs=True)):
        weeks = by_week(arrived)
        history = spark.batch(weeks, QUARTILES, every=flights_data.WEEK, over="all", options=SPARK, name="quartiles")
        history.capture("history")
    return flow


def by_week(arrived: Columns) -> Columns:
    """The flights of each week together, when it is over: few large epochs suit Spark better than many small ones."""
    delays = arrived.select("carrier", "route", "late", "arr_delay").to_records(name="delays")
    weeks = (
        delays.map(lambda row: (row["carrier"], (row["route"], row["late"], row["arr_delay"])), name="delay")
        .keyed()
        .window(Epochs(flights_data.WEEK))
        .collect(name="weeks")
        .policy(Lazy())  # its state lives for a week of epochs
    )
    rows = weeks.records().flat_map(lambda pair: pair[1], name="of-week")
    return rows.to_columns({"route": pl.String, "late": pl.Int64, "arr_delay": pl.Int64}, name="week")


def late_chains(arrived: Columns) -> Stream:
    """Links (flight, the flight before or None, minutes) of the chains of late flights that have grown this hour.

    `minutes` is how late the flight was if it is new, and None if it came up before.
    """
    flights = arrived.select("tailnum", "flight", "day", "late", "arr_delay").to_records()
    return (
        flights.map(lambda row: (*row.values(),), name="as-tuple")
        .exchange(by=lambda flight: flight[0], name="by-aircraft")
        .unary("late-chains", LateChains)
    )


class LateChains(Operator):
    """Keeps, for each aircraft, the chain of its late flights up to now: one after the other, on one day.

    Takes (tailnum, flight, day, late, minutes), and acts when an hour is complete, since only then their order is known.
    """

    repeats_over = "time"

    def __init__(self) -> None:
        self._hour = TimedBatches()
        self._chains = KeyedState()
        self.state = Parts(self._hour, self._chains)

    def on_batch(self, ctx: Context, port: int, time: tuple[int, ...], batch: Any) -> None:
        self._hour.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: tuple[int, ...]) -> None:
        before = self._chains.read(time)
        chains = dict[str, tuple[int, tuple[int, ...]]]()
        grown, new = dict[int, tuple[int, ...]](), dict[int, int]()
        for tailnum, flight, day, late, minutes in sorted(row for batch in self._hour.pop(time) for row in batch):
            if not late:
                chains[tailnum] = BROKEN
                continue
            last_day, flights = chains.get(tailnum) or before.get(tailnum, BROKEN)
            flights = (*flights, flight) if last_day == day else (flight,)
            chains[tailnum] = (day, flights)
            grown[flights[0]] = flights
            new[flight] = minutes
        self._chains.write(time, {tailnum: chain for tailnum, chain in chains.items() if chain is not BROKEN})
        self._chains.remove(time, [tailnum for tailnum, chain in chains.items() if chain is BROKEN])
        ctx.send(
            [
                (flight, previous, new.get(flight))
                for flights in grown.values()
                for flight, previous in zip(flights, (None, *flights))
            ]
        )


def find_causes(links: Stream) -> Stream:
    """(flight, cause, hops, minutes) for every link: the label of a chain's first flight goes from hand to hand in a loop.

    The flights that have a label, at first those that nothing comes before, hand it on to the flight after them: one hop
    an iteration, until nobody is left to take it.
    """
    first, later = links.branch(lambda link: link[1] is None, name="is-first")
    labels = first.map(lambda link: (link[0], (link[0], 0, link[2])), name="own-cause").keyed()
    followers = later.map(lambda link: (link[1], (link[0], link[2])), name="follower").keyed()

    def hand_on(labels: Keyed) -> tuple[Keyed, Keyed]:
        met = labels.join(followers.enter(labels.scope), name="meet-follower")
        return met.records().map(inherit, name="inherit").keyed(), labels

    return labels.iterate(hand_on, name="hand-on").records().map(lambda pair: (pair[0], *pair[1]), name="found")


def inherit(met: Any) -> Any:
    """A labelled flight has met its follower: the follower's label."""
    _, ((cause, hops, _), (follower, minutes)) = met
    return follower, (cause, hops + 1, minutes)


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The sum of two accounts: flights, minutes."""
    return a[0] + b[0], a[1] + b[1]
