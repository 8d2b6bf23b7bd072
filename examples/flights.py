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

    chains = late_chains(arrived)
    links, new = chains.output(0), chains.output(1).keyed()
    causes = find_causes(links).join(new, over="time", name="only-new")
    causes.map_values(lambda found: found[0], name="cause").capture("causes")
    causes.records().map(account, name="account").keyed().reduce(add, name="by-cause").capture("knock-on")
    return flow


def late_chains(arrived: Columns) -> Stream:
    """For every aircraft with a new late flight: output 0 its chain, as links, and output 1 the new flights alone."""
    flights = (
        arrived.select("tailnum", "flight", "day", "late", "arr_delay").to_records().map(lambda row: (*row.values(),))
    )
    return flights.exchange(by=lambda flight: flight[0]).unary("late-chains", LateChains, outputs=2)


class LateChains(Operator):
    """Keeps, for each aircraft, the chain of its late flights up to now: one after the other, on one day.

    Takes (tailnum, flight, day, late, minutes). When an hour is complete it sends on port 0 every link
    (flight, the flight before or None) of the chains that have grown, and on port 1 (flight, minutes) for what is new.
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
        grown, new = dict[int, tuple[int, ...]](), []
        for tailnum, flight, day, late, minutes in sorted(row for batch in self._hour.pop(time) for row in batch):
            if not late:
                chains[tailnum] = BROKEN
                continue
            last_day, flights = chains.get(tailnum) or before.get(tailnum, BROKEN)
            flights = (*flights, flight) if last_day == day else (flight,)
            chains[tailnum] = (day, flights)
            grown[flights[0]] = flights
            new.append((flight, minutes))
        self._chains.write(time, {tailnum: chain for tailnum, chain in chains.items() if chain is not BROKEN})
        self._chains.remove(time, [tailnum for tailnum, chain in chains.items() if chain is BROKEN])
        ctx.send([link for flights in grown.values() for link in zip(flights, (None, *flights))], port=0)
        ctx.send(new, port=1)


def find_causes(links: Stream) -> Keyed:
    """(flight, (cause, hops)) for every flight of every chain, by handing the label of the first flight on in a loop."""
    first, later = links.branch(lambda link: link[1] is None, name="is-first")
    successors = later.map(lambda link: (link[1], link[0]), name="successor").keyed()

    def hand_on(labels: Keyed) -> tuple[Keyed, Keyed]:
        met = labels.join(successors.enter(labels.scope), name="meet-next")
        return met.records().map(inherit, name="inherit").keyed(), labels

    return first.map(lambda link: (link[0], (link[0], 0)), name="own-cause").keyed().iterate(hand_on, name="hand-on")


def inherit(met: Any) -> Any:
    """A labelled flight has met the next one of its aircraft: that one's label."""
    _, ((cause, hops), after) = met
    return after, (cause, hops + 1)


def account(found: Any) -> Any:
    """What a flight adds to the account of its cause."""
    _, ((cause, _), minutes) = found
    return cause, (1, minutes)


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
