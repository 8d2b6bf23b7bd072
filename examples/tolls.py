"""Tolls of ships at locks: totals, windows and a join over columns, on Falkirk's workers or on Spark alone.

    falkirk run examples/tolls.py                   # on workers; with -w 2 --store DIR it survives them
    falkirk run examples/tolls.py --engine spark    # the same answers, epoch by epoch, from Spark

`falkirk run examples/tolls.py --arg ships=1000000` has more to do.
"""

from __future__ import annotations

import polars as pl

import falkirk
from falkirk import agg

DAYS, SHIPS = 5, 20_000


def day(number: int, ships: int) -> pl.DataFrame:
    """The ships of a day: a few of them are written down late."""
    count = pl.int_range(ships, eager=True)
    return pl.DataFrame(
        {
            "lock": "lock-" + (count * 7 % 12).cast(pl.String),
            "at": number * 1440 + count * 13 % 1440 - (count % 97 == 0).cast(pl.Int64) * 2000,
            "tons": (count * 31 + number) % 400,
        }
    )


def build(days: int = DAYS, ships: int = SHIPS) -> falkirk.Dataflow:
    """The dataflow."""
    flow = falkirk.Dataflow("tolls")
    passing = flow.columns("ships", falkirk.Batches([day(number, ships) for number in range(days)]))
    rates = flow.columns(
        "rates", falkirk.Batches([pl.DataFrame({"lock": [f"lock-{n}" for n in range(10)], "rate": list(range(3, 13))})])
    )
    paid = passing.filter(pl.col("tons") > 5).join(rates, on="lock", how="lookup")
    tolls = paid.with_columns(toll=pl.col("tons") * pl.col("rate").fill_null(1))
    tolls.group_by("lock").agg(ships=agg.count(), paid=agg.sum("toll"), most=agg.max("tons")).capture("totals")
    hours = tolls.window(falkirk.Tumbling(240), time="at", lateness=60)
    hours.group_by("lock").agg(tons=agg.sum("tons"), mean=agg.mean("toll")).capture("windows")
    hours.late().agg(late=agg.count(), over="time").capture("late")
    return flow


def main() -> None:
    """Print the last totals."""
    last: dict[str, tuple[object, ...]] = {}
    for _, batch in falkirk.run(build).captured("totals"):
        last |= {row[0]: row[1:] for row in pl.DataFrame(batch).rows()}
    for lock, totals in sorted(last.items()):
        print(lock, *totals)


if __name__ == "__main__":
    main()
