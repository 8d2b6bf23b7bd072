"""Benchmark figures as tables."""

from __future__ import annotations

from rich.console import Console

from falkirk.bench.harness import NOT_INSTALLED, Row
from falkirk.bench.registry import Bench
from falkirk.tables import print_table

HEADERS = ("system", "workers", "median", "min", "max", "p99", "unit", "runs", "falkirk is × as good")
SECONDS = ("CPU s", "× one worker's")
"""Column headings for processor time, absolute and relative to one worker."""


def figure(value: float | None, unit: str) -> str:
    """Formatted value; empty for None."""
    if value is None:
        return ""
    if unit == "records/s":
        return f"{value / 1e6:.2f}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def relative(row: Row, first: Row | None, higher_is_better: bool) -> str:
    """Ratio of the first system's (Falkirk's) figure to this one's; above 1 is better."""
    if first is None or row is first or not row.value or first.value is None or first.unit != row.unit:
        return ""
    ratio = first.value / row.value if higher_is_better else row.value / first.value
    return f"{ratio:.2f}"


def show(console: Console, bench: Bench, rows: list[Row]) -> None:
    """Print the figures of one benchmark."""
    console.print(f"{bench.name}: {bench.what}", style="italic", markup=False, highlight=False)
    headers = HEADERS + SECONDS if any(row.cpu_ratio is not None for row in rows) else HEADERS
    cells: list[list[str]] = []
    for row in sorted(rows, key=lambda row: row.workers):
        first = next((r for r in rows if r.system == "falkirk" and r.workers == row.workers), None)
        if row.value is None:
            cells.append([row.system, str(row.workers), "-", *[""] * (len(headers) - 3)])
            continue
        figures = [figure(x, row.unit) for x in (row.value, row.min, row.max, row.p99)]
        unit = "M/s" if row.unit == "records/s" else row.unit
        ratio = relative(row, first, bench.higher_is_better)
        seconds = [figure(x, "") for x in (row.cpu_seconds, row.cpu_ratio)] if headers is not HEADERS else []
        cells.append([row.system, str(row.workers), *figures, unit, str(row.runs), ratio, *seconds])
    print_table(console, headers, cells, right=[header for header in headers if header not in ("system", "unit")])
    for row in rows:
        if row.note:
            style = None if row.note == NOT_INSTALLED else "red"
            console.print(f"{row.system}, workers={row.workers}: {row.note}", style=style, markup=False)
