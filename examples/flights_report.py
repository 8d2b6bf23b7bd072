"""The demo's output: progress while it runs, tables of what it found, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import polars as pl
import pyarrow.parquet as pq
from flights_check import Findings, Table
from flights_data import LATE, day_of, names
from rich import box, progress
from rich import table as rich_table
from rich.console import Console

from timely.drivers.control import Stats
from timely.drivers.job import Result

ROWS = 8
"""Rows of each table."""

FEWEST = 100
"""Flights that a route must have to be ranked."""

console = Console(highlight=False)


class Progress:
    """A bar that shows how many flights were read, how fast, and which day it is. Given to `run` as `on_stats`."""

    def __init__(self, file: Path, workers: int, quiet: bool) -> None:
        self._rows = pq.read_metadata(file).num_rows
        self._days = pl.read_parquet(file, columns=["hour", "day"]).group_by("hour").agg(pl.min("day"))
        self._day_of_hour = dict(self._days.iter_rows())
        self._bar = progress.Progress(
            progress.TextColumn(f"[bold]{self._rows:,} flights, {workers} worker{'s' * (workers != 1)}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[day]}"),
            progress.TextColumn("{task.fields[speed]}"),
            progress.TimeElapsedColumn(),
            console=console,
            disable=quiet,
        )
        self._task = self._bar.add_task("flights", total=self._rows, day="starting", speed="")

    def __call__(self, stats: Mapping[int, Stats]) -> None:
        records = sum(each.records for each in stats.values())
        reached = [each.epoch for each in stats.values() if each.epoch is not None]
        day = self._day_of_hour.get(min(reached)) if reached else None
        task = self._bar.tasks[self._task]
        speed = f"{records / task.elapsed:,.0f} flights/s" if task.elapsed else ""
        reading = f"{day_of(day):%b %d}" if day else task.fields["day"]
        self._bar.update(self._task, completed=records, speed=speed, day=reading)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()


def show(found: Findings, file: Path, result: Result) -> None:
    """Print the tables."""
    airlines, airports = names("airlines"), names("airports")
    show_delays("Airlines that come late most often", "airline", found.carriers, airlines)
    busy = {key: totals for key, totals in found.routes.items() if totals[0] >= FEWEST}
    show_delays(
        f"Routes that come late most often (of those with {FEWEST} flights or more)",
        "route",
        busy,
        {route: _between(route, airports) for route in busy},
    )
    show_chains(found, file, airlines)
    late, caused = len(found.causes), len(found.causes) - len(found.knock_on)
    lost = sum(found.stranded.values())
    console.print(
        f"\n{late:,} flights came {LATE} minutes late or more; {caused:,} of them after the same aircraft's flight before "
        f"had been late as well. {lost:,} never arrived."
        f"\n{result.records:,} flights in {result.seconds:.1f} s: {result.records / result.seconds:,.0f} flights/s."
    )


def show_delays(title: str, what: str, totals: Table, labels: Mapping[str, str]) -> None:
    """A table of the keys with the largest share of late flights."""
    table = _table(title, what, "flights", "late", "mean delay", "worst delay")
    worst = sorted(totals.items(), key=lambda item: (-item[1][1] / item[1][0], item[0]))
    for key, (flights, late, minutes, most) in worst[:ROWS]:
        table.add_row(labels[key], f"{flights:,}", f"{late / flights:.0%}", f"{minutes / flights:.0f} min", _span(most))
    console.print("\n", table)


def show_chains(found: Findings, file: Path, airlines: Mapping[str, str]) -> None:
    """A table of the first causes that made most flights late."""
    table = _table(
        "The longest chains of delays", "aircraft", "airline", "it began with", "late by", "then late", "in all"
    )
    worst = sorted(found.knock_on.items(), key=lambda item: (*(-total for total in item[1]), item[0]))[:ROWS]
    first = pl.scan_parquet(file).filter(pl.col("flight").is_in([cause for cause, _ in worst])).collect()
    flights = {row["flight"]: row for row in first.to_dicts()}
    for cause, (count, minutes) in worst:
        row = flights[cause]
        due = f"{day_of(row['day']):%b %d}, {row['due'] // 60:02}:{row['due'] % 60:02}"
        table.add_row(
            row["tailnum"],
            airlines[row["carrier"]],
            f"{due}, {row['route'].replace('-', ' → ')}",
            _span(row["arr_delay"]),
            f"{count - 1} more",
            _span(minutes),
        )
    console.print("\n", table)


def verdict(differences: list[str], found: Findings) -> int:
    """Print whether all is right; the exit code."""
    if not differences:
        console.print(
            f"[bold green]✓[/] {len(found.carriers)} carriers, {len(found.routes)} routes and {len(found.causes):,} late "
            "flights are exactly as Polars and networkx have them."
        )
        return 0
    console.print(f"[bold red]✗[/] {len(differences):,} differences from what Polars and networkx find:")
    for line in differences[:10]:
        console.print(f"  {line}", markup=False)
    return 1


def _table(title: str, *columns: str) -> rich_table.Table:
    table = rich_table.Table(title=title, box=box.SIMPLE_HEAD, title_style="bold", title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in _WORDS else "right", no_wrap=True)
    return table


_WORDS = {"airline", "route", "aircraft", "it began with"}


def _between(route: str, airports: Mapping[str, str]) -> str:
    origin, destination = route.split("-")
    return f"{origin} → {destination} {airports.get(destination, '')}"


def _span(minutes: int) -> str:
    """Hours and minutes."""
    return f"{minutes // 60}:{minutes % 60:02} h"
