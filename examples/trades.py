"""The three trades of each minute that overpaid most, by the last quote before each, while quotes and trades are corrected.

    falkirk run examples/trades.py
    falkirk run examples/trades.py -w 2 --store DIR --arg trades=2000

An as-of join is a group of both by symbol, gone through in order of time; the top of each window is the top of a group by
minute. They are collections, so a quote that comes late, or is taken back, changes the trades that followed it and no others: a
line with +1 or -1 is what has become true, or is true no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import falkirk
from falkirk import Console, Dataflow, Iterable, differential
from falkirk.differential import Collection

QUOTE, TRADE = 0, 1
"""At one second quotes come first."""
Event = tuple[str, tuple[int, int, int, int]]
"""(symbol, (second, QUOTE or TRADE, number, price))"""


def overpaid(events: Collection) -> Collection:
    """Pairs (symbol, (second, number, price paid beyond that of the last quote)) of trades that a quote precedes."""

    def walk(symbol: str, group: list[tuple[tuple[int, int, int, int], int]]) -> Iterator[tuple[int, int, int]]:
        asked = None
        for second, kind, number, price in sorted(event for event, _ in group):
            if kind == QUOTE:
                asked = price
            elif asked is not None:
                yield second, number, price - asked

    return events.reduce(walk)


def worst(trades: Collection, count: int = 3, seconds: int = 60) -> Collection:
    """Pairs (window, (beyond, symbol, number)) of the `count` trades of each window of so many seconds that overpaid most."""
    return trades.map(lambda trade: (trade[1][0] // seconds, (trade[1][2], trade[0], trade[1][1]))).top(count)


def market(trades: int, corrections: int, seed: int) -> list[list[tuple[Event, int]]]:
    """Events and how often more they are there, epoch by epoch: a session first, then in each epoch one event for another."""
    random = Random(seed)

    def event(number: int) -> Event:
        kind = random.choice((QUOTE, TRADE))
        return random.choice(("AAA", "BBB", "CCC")), (random.randrange(300), kind, number, random.randrange(900, 1100))

    held = [event(number) for number in range(2 * trades)]
    epochs = [[(each, 1) for each in held]]
    for _ in range(corrections):
        place = random.randrange(len(held))
        before, held[place] = held[place], event(place)
        epochs.append([(before, -1), (held[place], 1)])
    return epochs


def build(trades: int = 100, corrections: int = 5, seed: int = 1) -> Dataflow:
    """The program."""
    flow = Dataflow("trades")
    events = flow.source("events", Iterable(market(trades, corrections, seed), batch=1, epoch_every=1))
    found = worst(overpaid(differential.from_changes(events.flat_map(lambda epoch: epoch))))
    found.changes().map(line).to(Console())
    return flow


def line(change: tuple[tuple[int, tuple[int, str, int]], int]) -> str:
    """The line that is shown of a change."""
    (minute, (beyond, symbol, number)), by = change
    return f"{by:+d} minute {minute}: trade {number} of {symbol} paid {beyond:+d}"


if __name__ == "__main__":
    falkirk.run(build())
