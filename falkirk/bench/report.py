"""Figures as a table, for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from falkirk.bench.harness import NOT_INSTALLED, Row
from falkirk.bench.registry import Bench


def figure(value: float, unit: str) -> str:
    """A value in a form that can be compared at a glance."""
    if unit == "records/s":
        return f"{value / 1e6:.2f} M/s"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def relative(row: Row, first: Row | None, higher_is_better: bool) -> str:
    """How many times as good the first system (Falkirk) is as this one."""
    if first is None or row is first or not row.value or first.value is None or first.unit != row.unit:
        return ""
    ratio = first.value / row.value if higher_is_better else row.value / first.value
    return f"{ratio:.2f}"


def show(console: Console, bench: Bench, rows: list[Row]) -> None:
    """Print the figures of one benchmark."""
    table = Table(title=f"{bench.name}: {bench.what}", title_justify="left")
    table.add_column("system", no_wrap=True)
    for column in ("workers", "median", "min", "max", "p99", "runs", "falkirk is × as good"):
        table.add_column(column, justify="right")
    for row in sorted(rows, key=lambda row: row.workers):
        first = next((r for r in rows if r.system == "falkirk" and r.workers == row.workers), None)
        if row.value is None:
            table.add_row(row.system, str(row.workers), "-")
            continue
        cells = [figure(x, row.unit) if x is not None else "" for x in (row.value, row.min, row.max, row.p99)]
        ratio = relative(row, first, bench.higher_is_better)
        table.add_row(row.system, str(row.workers), *cells, str(row.runs), ratio)
    console.print(table)
    for row in rows:
        if row.note:
            style = None if row.note == NOT_INSTALLED else "red"
            console.print(f"{row.system}, workers={row.workers}: {row.note}", style=style, markup=False)
