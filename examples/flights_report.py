"""The demo's output: progress while it runs, tables of what it found and of the failure, the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import polars as pl
import pyarrow.parquet as pq
from flights_check import Findings, Table, outputs
from flights_data import LATE, WEEK, day_of, names
from flights_failure import Recovery
from rich import box, progress
from rich import table as rich_table
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.text import Text

from runtime.control import Stats
from runtime.session.job import Result

ROWS = 8
"""Rows of each table."""

FEWEST = 100
"""Flights that a route must have to be ranked."""

console = Console(highlight=False)


class Progress:
    """A bar that shows how many hours of the year are through, and what Spark is at. Given to `run` as `on_stats`.

    It goes back when the job does.
    """

    def __init__(self, file: Path, title: str, quiet: bool) -> None:
        days = pl.read_parquet(file, columns=["hour", "day"]).group_by("hour").agg(pl.min("day")).sort("hour")
        self._place = {hour: (number, day) for number, (hour, day) in enumerate(days.iter_rows())}
        self._bar = progress.Progress(
            progress.TextColumn(f"[bold]{pq.read_metadata(file).num_rows:,} flights, {title}"),
            progress.BarColumn(bar_width=14),  # all of it has room in 80 columns
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[day]}"),
            progress.TextColumn("{task.fields[spark]}"),
            progress.TimeElapsedColumn(),
            console=console,
            disable=quiet,
        )
        self._task = self._bar.add_task("flights", total=days.height, day="starting", spark="")

    def __call__(self, stats: Mapping[int, Stats]) -> None:
        weeks = [job.epoch // WEEK + 1 for each in stats.values() for job in each.jobs]
        spark = f"Spark: week {max(weeks)}" if weeks else ""
        reached = [each.epoch for each in stats.values() if each.epoch is not None]
        if any(each.records for each in stats.values()) and not reached:
            self._bar.update(self._task, completed=len(self._place), day="", spark=spark)
        elif reached and (place := self._place.get(min(reached))):
            self._bar.update(self._task, completed=place[0], day=f"{day_of(place[1]):%b %d}", spark=spark)
        else:  # an hour without flights
            self._bar.update(self._task, spark=spark)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()


def speaker(quiet: bool) -> Callable[[str], None]:
    """Prints what happens, above the bar; nothing if `quiet`."""
    return (lambda text: None) if quiet else (lambda text: console.print(Padding(text, (0, 2))))


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
        f"\nThe year took {result.seconds:.1f} s, with the start of Spark."
    )


def show_delays(title: str, what: str, totals: Table, labels: Mapping[str, str]) -> None:
    """A table of the keys with the largest share of late flights."""
    table = _table(title, what, "flights", "late", "mean delay", "worst delay")
    worst = sorted(totals.items(), key=lambda item: (-item[1][1] / item[1][0], item[0]))
    for key, (flights, late, minutes, most) in worst[:ROWS]:
        table.add_row(
            _words(labels[key]), f"{flights:,}", f"{late / flights:.0%}", f"{minutes / flights:.0f} min", _span(most)
        )
    console.print("\n", table)


def show_chains(found: Findings, file: Path, airlines: Mapping[str, str]) -> None:
    """A table of the first causes that made most flights late."""
    table = _table("The longest chains of delays", "aircraft", "airline", "it began with", "late by", "then", "in all")
    worst = sorted(found.knock_on.items(), key=lambda item: (*(-total for total in item[1]), item[0]))[:ROWS]
    first = pl.scan_parquet(file).filter(pl.col("flight").is_in([cause for cause, _ in worst])).collect()
    flights = {row["flight"]: row for row in first.to_dicts()}
    for cause, (count, minutes) in worst:
        row = flights[cause]
        due = f"{day_of(row['day']):%b %d} {row['due'] // 60:02}:{row['due'] % 60:02}"
        table.add_row(
            row["tailnum"],
            _words(airlines[row["carrier"]]),
            _words(f"{due} {row['route'].replace('-', ' → ')}"),
            _span(row["arr_delay"]),
            f"{count - 1} more",
            _span(minutes),
        )
    console.print("\n", table)


def show_recovery(recovery: Recovery, policies: Mapping[str, str], workers: int) -> None:
    """A table of the regions: what the kill was said to cost, and what it did."""
    columns = [f"worker {worker}" + "\n(killed)" * (worker == recovery.victim) for worker in range(workers)]
    table = _table("Where the work went on (rollback frontiers)", "region", "policy", *columns, "predicted")
    decided, predicted = recovery.decided or {}, recovery.predicted
    for region, policy in policies.items():
        places = [(region, worker) for worker in range(workers)]
        said = {_where(predicted.get(place)): None for place in places} if predicted is not None else ["-"]
        table.add_row(region, _words(policy), *(_where(decided.get(place)) for place in places), " / ".join(said))
    caught_up = f", and was as far as before after {recovery.caught_up:.1f} s" if recovery.caught_up is not None else ""
    console.print("\n", table)
    console.print(
        f"When worker {recovery.victim} was killed, all before hour {recovery.reached:,} was complete. The job had recovered "
        f"after {recovery.restored or 0:.1f} s{caught_up}. Predicted: by falkirk whatif, a moment before."
    )


def _where(bound: tuple[int, ...] | None) -> str:
    if bound is None:
        return "keeps all"
    return "its end" if bound[0] == -1 else f"hour {bound[0]:,}"


def right(found: Findings) -> str:
    """Compares with Polars and networkx."""
    weeks = len({week for week, _ in found.history})
    return (
        f"{len(found.carriers)} carriers, {len(found.routes)} routes, {len(found.causes):,} late flights and {weeks} weeks of "
        "Spark are exactly as Polars and networkx have them."
    )


def equal(result: Result) -> str:
    """Compares with the run without a failure."""
    times = [rows for of in outputs(result).values() for rows in of.values()]
    rows = sum(each.total() for each in times)
    return (
        f"All {rows:,} rows that came out, at each hour, are those of a run on one worker without a failure: none lost, "
        "none twice."
    )


def verdict(differences: list[str], good: str, reference: str) -> None:
    """Print whether all is right."""
    if not differences:
        console.print(f"[bold green]✓[/] {good}")
        return
    console.print(f"[bold red]✗[/] {len(differences):,} differences from {reference}:")
    for line in differences[:10]:
        console.print(f"  {line}", markup=False)


def _table(title: str, *columns: str) -> rich_table.Table:
    table = rich_table.Table(
        title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_style="bold", title_justify="left"
    )
    for column in columns:
        justify: JustifyMethod = "left" if column in _NAMES or column in _WORDS else "right"
        table.add_column(column, justify=justify, no_wrap=column not in _WORDS)
    return table


_NAMES = {"region", "aircraft"}
_WORDS = {"policy", "airline", "route", "it began with"}
"""Columns that are cut where a line is too short; all others stay whole."""


def _words(text: str) -> Text:
    """The text of a column that may be cut."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _between(route: str, airports: Mapping[str, str]) -> str:
    origin, destination = route.split("-")
    return f"{origin} → {destination} {airports.get(destination, '')}"


def _span(minutes: int) -> str:
    """Hours and minutes."""
    return f"{minutes // 60}:{minutes % 60:02} h"
