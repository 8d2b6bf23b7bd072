"""The same queries over the whole input at once, in Polars: what to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import polars as pl
from house import WINDOW

Frames: TypeAlias = dict[str, pl.DataFrame]
"""All persons, auctions and bids; bids with their `epoch`."""


def started(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(start=pl.col("at") // WINDOW * WINDOW)


def winners(house: Frames) -> pl.DataFrame:
    offers = house["bids"].join(house["auctions"], left_on="auction", right_on="id", suffix="_of")
    offers = offers.filter(pl.col("at").is_between(pl.col("at_of"), pl.col("expires")))
    return offers.group_by("auction", "seller", "category", "expires").agg(pl.col("price").max())


MEAN = pl.col("price").sum() // pl.len()


def q3(house: Frames) -> pl.DataFrame:
    sellers = house["persons"].filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    things = house["auctions"].filter(category=10).rename({"id": "auction"})
    return things.join(sellers, left_on="seller", right_on="id").select("name", "city", "state", "auction")


def q5(house: Frames) -> pl.DataFrame:
    step = WINDOW // 5
    every = pl.concat(house["bids"].with_columns(start=(pl.col("at") // step - k) * step) for k in range(5))
    counts = every.group_by("start", "auction").agg(n=pl.len())
    return counts.filter(pl.col("n") == pl.col("n").max().over("start")).select("start", "auction", "n")


def q6(house: Frames) -> pl.DataFrame:
    last = pl.all().top_k_by(["expires", "auction", "price"], 10)
    return (
        winners(house)
        .select("seller", "expires", "auction", "price")
        .group_by("seller")
        .agg(last)
        .explode("expires", "auction", "price")
        .group_by("seller")
        .agg(MEAN)
    )


def q7(house: Frames) -> pl.DataFrame:
    bids = started(house["bids"])
    return bids.filter(pl.col("price") == pl.col("price").max().over("start")).select(
        "start", "auction", "bidder", "price"
    )


def q8(house: Frames) -> pl.DataFrame:
    selling = started(house["auctions"]).select("start", id="seller").unique()
    return started(house["persons"]).join(selling, on=["id", "start"]).select("id", "name", "start")


def q11(house: Frames) -> pl.DataFrame:
    bids = house["bids"].sort("bidder", "at")
    new = (pl.col("at").diff().over("bidder") >= WINDOW).fill_null(True)
    sessions = bids.with_columns(session=new.cum_sum().over("bidder")).group_by("bidder", "session")
    return sessions.agg(start=pl.col("at").min(), end=pl.col("at").max() + WINDOW, n=pl.len()).drop("session")


def q12(house: Frames) -> pl.DataFrame:
    start = pl.col("epoch") // 10 * 10
    return house["bids"].group_by("bidder", start=start, end=start + 10).agg(n=pl.len())


QUERIES: dict[str, Callable[[Frames], pl.DataFrame]] = {
    "q0": lambda house: house["bids"].drop("epoch"),
    "q1": lambda house: house["bids"].drop("epoch").with_columns(pl.col("price") * 908 // 1000),
    "q2": lambda house: house["bids"].filter(pl.col("auction") % 123 == 0).select("auction", "price"),
    "q3": q3,
    "q4": lambda house: winners(house).group_by("category").agg(MEAN),
    "q5": q5,
    "q6": q6,
    "q7": q7,
    "q8": q8,
    "q11": q11,
    "q12": q12,
}
