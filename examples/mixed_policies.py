"""One program, four ways to survive: whose circle is the largest, day by day?

A telephone exchange sends a line for each call; an epoch is a day. People who talked for long are friends for that day, and
friends of friends make a circle. Each part of the dataflow has the fault-tolerance policy that suits it:

    front     Ephemeral()              parses and drops most lines. Nothing is kept: what is lost is read again
    friends   Batch(log_outputs=True)  a day's pairs, each once. What leaves it is logged, so nothing behind it can ever
                                       make the front work again
    circles   Lazy(every="500ms")      a loop, and a tally that runs on from day to day: saved while it goes on
    streaks   LogHistory()             an operator without a line of checkpoint code: it comes back by replay

    falkirk run examples/mixed_policies.py
    falkirk run examples/mixed_policies.py -w 2 --store job --arg days=2000

With a store, kill any of its processes with `kill -9`, or all of them and run it again: the tally in `circles/` holds the
same rows. The console is told at least once, so some days may be printed again. Without a store policies have no effect.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import falkirk
from falkirk import Batch, Context, Dataflow, Ephemeral, Keyed, Lazy, LogHistory, Operator, Sink, Stream

PEOPLE = 40
LONG = 18
"""Minutes."""


def build(
    days: int = 40,
    calls: int = 500,
    per_second: float = 20_000,
    folder: str | Path = "circles",
    console: Sink | None = None,
) -> Dataflow:
    """`calls` a day, `per_second` of them a second of ours; the tally goes to `folder`, the news of the day to `console`."""
    flow = Dataflow("mixed-policies")
    with flow.region("front", policy=Ephemeral()):
        lines = flow.source("lines", falkirk.Rate(line, per_second, days * calls, epoch_every=calls))
        talks = lines.flat_map(friends, name="parse")
    with flow.region("friends", policy=Batch(log_outputs=True)):
        pairs = talks.distinct(over="time", name="pairs")
    with flow.region("circles", policy=Lazy(every="500ms")):
        sizes = find_circles(pairs).count(over="time", name="sizes")
        tally = sizes.map_values(lambda size: 1, name="a-day").sum(name="days-at-the-head")
        by_size = sizes.records().key_by(lambda _: "largest", name="to-one-place")
        largest = by_size.map_values(lambda circle: (circle[1], circle[0])).max(over="time", name="largest").values()
    news = largest.unary("streaks", Streaks).policy(LogHistory())

    tally.records().map(lambda pair: {"person": pair[0], "days": pair[1]}).to(falkirk.FileSink(folder), name="tally")
    news.to(console or falkirk.Console("day "), name="news")
    return flow


def line(number: int) -> str:
    """A line of the exchange: made up, and always the same for the same number."""
    random = Random(number)
    caller, callee = random.sample(range(PEOPLE), 2)
    return f"p{caller:02};p{callee:02};{random.expovariate(1 / 6):.0f}"


def friends(text: str) -> list[tuple[str, str]]:
    """The two who talked for long, in order; nothing of a shorter call."""
    caller, callee, minutes = text.split(";")
    return [(min(caller, callee), max(caller, callee))] if int(minutes) >= LONG else []


def find_circles(pairs: Stream) -> Keyed:
    """(first of the circle, person) for everybody who talked today: the least name goes from friend to friend in a loop."""
    both_ways = pairs.flat_map(lambda pair: [pair, pair[::-1]], name="both-ways").keyed()

    def tell(names: Keyed) -> tuple[Keyed, Keyed]:
        """Spreads names: who hears of a lesser name tells it to all friends; the names that people have heard leave."""
        news = names.min(name="least-name")
        told = news.join(both_ways.enter(names.scope), name="meet-friends")
        return told.values().map(lambda met: (met[1], met[0]), name="told").keyed(), news

    own = both_ways.records().map(lambda pair: (pair[0], pair[0]), name="own-name").keyed()
    heard = own.iterate(tell, name="circle").min(over="time", name="first-of-circle")
    return heard.records().map(lambda pair: pair[::-1], name="by-circle").keyed()


class Streaks(Operator):
    """Counts the days in a row on which one circle was the largest, in plain attributes.

    It does not say how that is saved, so LogHistory saves what it was given, and gives it that again. It acts when a day is
    complete: then the same history always leads to the same attributes.
    """

    repeats_over = "time"

    def __init__(self) -> None:
        self._today = dict[tuple[int, ...], tuple[int, str]]()
        self._first = ""
        self._days = 0

    def on_batch(self, ctx: Context, port: int, time: tuple[int, ...], batch: Any) -> None:
        (self._today[time],) = batch
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: tuple[int, ...]) -> None:
        size, first = self._today.pop(time)
        self._days = self._days + 1 if first == self._first else 1
        self._first = first
        row = f", for {self._days} days in a row" if self._days > 1 else ""
        ctx.send([f"{size} people are in the circle of {first}{row}"])
