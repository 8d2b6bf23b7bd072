"""A year of flights out of New York: who comes late, and what made them late?

336,776 real flights stream by; an epoch is an hour of scheduled departures. Delay statistics run along, one for each
carrier and each route. And when an aircraft is late that was late the flight before on the same day, a loop follows its
delays back, flight by flight, to the first late flight of the day: the cause.

    falkirk demo                             run it, look at what comes out, and check that it is right
    falkirk run examples/flights.py -w 2     run the dataflow alone
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import flights_check
import flights_data
import flights_report
import polars as pl

import falkirk
from falkirk import Context, Dataflow, Operator, agg
from timely.columns import Columns
from timely.keyed import Keyed
from timely.state import KeyedState, Parts, TimedBatches
from timely.stream import Stream

STATISTICS = {
    "flights": agg.count(),
    "late": agg.sum("late"),
    "minutes": agg.sum("arr_delay"),
    "worst": agg.max("arr_delay"),
}


BROKEN: tuple[int, tuple[int, ...]] = (0, ())
"""No chain: the aircraft's last flight came in time."""


def build(file: str | Path | None = None) -> Dataflow:
    """The dataflow, over all flights or over those of `file` (see `flights_data.write`)."""
    flow = Dataflow("flights")
    source = falkirk.Parquet(file or flights_data.prepare(), epoch="hour", split="row_groups")
    arrived, stranded = flow.columns("flights", source).branch(pl.col("arr_delay").is_not_null(), name="arrived")

    arrived.group_by("carrier").agg(over="scope", name="by-carrier", **STATISTICS).capture("carriers")
    arrived.group_by("route").agg(over="scope", name="by-route", **STATISTICS).capture("routes")
    stranded.key_by("carrier").count().capture("stranded")

    causes = find_causes(late_chains(arrived)).filter(lambda found: found[3] is not None, name="only-new")
    causes.map(lambda found: (found[0], found[1:3]), name="cause").capture("causes")
    causes.map(lambda found: (found[1], (1, found[3])), name="account").keyed().reduce(add, name="by-cause").capture(
        "knock-on"
    )
    return flow


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


def main(workers: int = 2, quiet: bool = False, file: Path | None = None) -> int:
    """Run the dataflow on `workers` processes, show what it found, and check all of it. The exit code: 0 if it is right."""
    file = file or flights_data.prepare()
    with flights_report.Progress(file, workers, quiet) as progress:
        result = falkirk.run(partial(build, file), workers, falkirk.Limits(epochs=48), on_stats=progress)
    found = flights_check.Findings.of(result)
    if not quiet:
        flights_report.show(found, file, result)
    return flights_report.verdict(flights_check.compare(found, file), found)


if __name__ == "__main__":
    sys.exit(main())
