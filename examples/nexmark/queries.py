"""Eleven queries of Nexmark over the stream of an auction house, as Falkirk says them.

    falkirk run examples/nexmark/queries.py --arg query=q5 --arg events=1000000
    falkirk run examples/nexmark/queries.py --arg query=q7 -w 2 --store DIR      # survives kill -9

A winning bid is taken back when a higher one comes: q4 is totals of totals that change, and q6 of the last few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
from events import Events
from house import WINDOW, House

import falkirk
from falkirk import Columns, Dataflow, Epochs, SessionWindow, Sliding, Tumbling, agg


@dataclass(frozen=True)
class Streams:
    """The streams of a house, of which a query reads those that it needs."""

    flow: Dataflow
    source: Callable[[str], falkirk.Source]
    """Of the persons, the auctions or the bids."""

    def _columns(self, kind: str) -> Columns:
        return self.flow.columns(kind, self.source(kind))

    @property
    def persons(self) -> Columns:
        """id, name, email, city, state, at."""
        return self._columns("persons")

    @property
    def auctions(self) -> Columns:
        """id, item, initial_bid, reserve, at, expires, seller, category."""
        return self._columns("auctions")

    @property
    def bids(self) -> Columns:
        """auction, bidder, price, channel, at."""
        return self._columns("bids")


def q0(house: Streams) -> Columns:
    """All bids as they are: what moving them costs."""
    return house.bids


def q1(house: Streams) -> Columns:
    """All bids in another currency."""
    return house.bids.with_columns(price=pl.col("price") * 908 // 1000)


def q2(house: Streams) -> Columns:
    """The bids for some auctions."""
    return house.bids.filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q3(house: Streams) -> Columns:
    """Sellers of things of a category in some states: a join of all auctions with all persons, whichever comes first."""
    sellers = house.persons.filter(pl.col("state").is_in(["OR", "ID", "CA"])).select(
        "name", "city", "state", seller="id"
    )
    things = house.auctions.filter(pl.col("category") == 10).select("seller", auction="id")
    return things.join(sellers, on="seller").select("name", "city", "state", "auction")


def offers(house: Streams) -> Columns:
    """The bids for each auction while it lasts."""
    auctions = house.auctions.select("category", "expires", "seller", auction="id", begins="at")
    offered = house.bids.select("auction", "price", "at").join(auctions, on="auction")
    return offered.filter(pl.col("at").is_between(pl.col("begins"), pl.col("expires")))


def mean(prices: Columns, key: str) -> Columns:
    """The mean price of each key, in whole cents."""
    means = prices.group_by(key).agg(total=agg.sum("price"), n=agg.count())
    return means.select(key, price=pl.col("total") // pl.col("n"))


def q4(house: Streams) -> Columns:
    """The mean winning bid of each category, as it stands: a winner is taken back when there is a higher bid."""
    winning = offers(house).group_by("auction", "category").agg(price=agg.max("price"), changes=True)
    return mean(winning, "category")


def q5(house: Streams) -> Columns:
    """The auctions with the most bids in each ten seconds, every two."""
    counts = house.bids.window(Sliding(WINDOW, every=WINDOW // 5), time="at").group_by("auction").agg(n=agg.count())
    most = counts.group_by("start").agg(n=agg.max("n"), over="time")
    return counts.join(most, on=["start", "n"], over="time").select("start", "auction", "n")


def q6(house: Streams) -> Columns:
    """The mean winning bid of each seller's ten auctions that end last, as it stands."""
    winning = offers(house).group_by("auction", "seller", "expires").agg(price=agg.max("price"), changes=True)
    last = winning.group_by("seller").top_k(10, by=["expires", "auction"])
    return mean(last, "seller")


def q7(house: Streams) -> Columns:
    """The highest bids of each ten seconds."""
    bids = house.bids.with_columns(start=pl.col("at") // WINDOW * WINDOW)
    most = bids.window(Tumbling(WINDOW), time="at").agg(price=agg.max("price")).select("start", "price")
    return bids.join(most, on=["start", "price"]).select("start", "auction", "bidder", "price")


def q8(house: Streams) -> Columns:
    """People who have joined and begun to sell within the same ten seconds."""
    start = pl.col("at") // WINDOW * WINDOW
    joined = house.persons.select("id", "name", start=start)
    selling = house.auctions.select(id="seller", start=start).distinct("id", "start")
    return joined.join(selling, on=["id", "start"])


def q11(house: Streams) -> Columns:
    """The bids of each bidder in a session, which ends with ten seconds of silence."""
    return house.bids.window(SessionWindow(WINDOW), time="at").group_by("bidder").agg(n=agg.count())


def q12(house: Streams) -> Columns:
    """The bids of each bidder in each ten epochs: Nexmark asks for ten seconds of the clock, which nobody could check."""
    return house.bids.window(Epochs(10)).group_by("bidder").agg(n=agg.count())


QUERIES: dict[str, Callable[[Streams], Columns]] = {
    query.__name__: query for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q11, q12)
}


def build(
    query: str = "q5", events: int = 100_000, per_epoch: int = 1_000, per_second: int = 1_000, seed: int = 7
) -> Dataflow:
    """The dataflow of one query; what it gives is captured as `out`."""
    flow, house = Dataflow(query), House(events, per_epoch, per_second, seed)
    QUERIES[query](Streams(flow, lambda kind: Events(house, kind))).capture("out")
    return flow


if __name__ == "__main__":
    result = falkirk.run(build)
    rows = sum(len(batch) for _, batch in result.captured("out"))
    print(f"{result.records} events, {rows} rows")
