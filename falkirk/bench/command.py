"""The command `falkirk bench`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from falkirk.bench import data as data_sets
from falkirk.bench import harness
from falkirk.bench.harness import NOT_INSTALLED, Row
from falkirk.bench.registry import BENCHES, Bench
from falkirk.tables import print_table
from timely.errors import FalkirkError, shown

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


PEERS_PYTHON = "FALKIRK_PEERS_PYTHON"
"""Environment variable with the path of the interpreter for peers."""


def main(
    name: str,
    workers: int | None = None,
    peers: bool = False,
    json: bool = False,
    size: int | None = None,
    runs: int = 3,
    peers_python: Path | None = None,
    data: Path | None = None,
    only: Sequence[str] = (),
) -> list[harness.Row]:
    """Measure the benchmark `name`, print its figures, and return them.

    Without `workers`, 1 and 2 are measured; with `only`, these systems alone. With `json` each figure is a line of JSON on
    standard output, and nothing else is printed there. Raises FalkirkError for an unknown name or a senseless number.
    """
    if name not in BENCHES:
        raise FalkirkError(f"there is no benchmark {shown(name, 80)}; there are: {', '.join(BENCHES)}")
    bench = BENCHES[name]
    if only:
        known = [variant.system for variant in bench.variants]
        for system in only:
            if system not in known:
                raise FalkirkError(f"--only {shown(system, 80)}: {name} measures {', '.join(known)}")
        bench = replace(bench, variants=tuple(each for each in bench.variants if each.system in only))
    for what, number in (("--workers", workers), ("--size", size), ("--runs", runs)):
        if number is not None and number < 1:
            raise FalkirkError(f"{what} {number}: must be 1 or more")
    default_data = harness.programs_folder().parent / "data"
    python = peers_python or Path(os.environ.get(PEERS_PYTHON) or harness.current_python())
    notes = Console(stderr=True)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=notes, transient=True
    ) as progress:
        line = progress.add_task(f"{name}: input")
        folder = None
        if bench.data is not None:
            folder = data_sets.ensure(
                bench.data,
                size or bench.size,
                data or default_data,
                lambda epoch, epochs: progress.update(line, description=f"{name}: input, epoch {epoch} of {epochs}"),
            )
            data_sets.warm(folder)
        tasks, rows = _plan(bench, workers, peers, size or bench.size, python, folder)
        total = runs * len(tasks)
        started = 0

        def on_run(task: harness.BenchTask) -> None:
            nonlocal started
            started += 1
            what = f"{name}: {task.variant.system}, {task.workers} worker{'s' if task.workers > 1 else ''}"
            progress.update(line, description=f"{what} (run {started} of {total})")
            if not notes.is_terminal:
                notes.print(f"{what} (run {started} of {total})", highlight=False)

        rows = harness.measure(bench, tasks, runs, on_run) + rows
    if json:
        for row in rows:
            print(row.as_json(), flush=True)
    else:
        show(Console(), bench, rows)
    return rows


def _plan(
    bench: Bench, workers: int | None, peers: bool, size: int, python: Path, folder: Path | None
) -> tuple[list[harness.BenchTask], list[harness.Row]]:
    """The tasks to run, and the rows of those that cannot be."""
    tasks: list[harness.BenchTask] = []
    absent: list[harness.Row] = []
    if folder is not None:
        size = data_sets.records_of(folder)
    found: dict[str, bool] = {}
    usual = {1, 2}
    own = {count for variant in bench.variants for count in variant.workers or ()}
    counts = (workers,) if workers is not None else tuple(sorted(usual | own))
    for count in counts:
        for variant in bench.variants:
            if variant.once and count != counts[0]:
                continue
            if variant.package is not None and not peers:
                continue
            if count not in (variant.workers or (usual if workers is None else counts)):
                continue
            if variant.package is None:
                tasks.append(harness.BenchTask(variant, count, size, folder, harness.current_python()))
                continue
            if variant.package not in found:
                found[variant.package] = harness.installed(variant.package, python)
            if not found[variant.package]:
                absent.append(harness.missing(bench, variant, count, harness.NOT_INSTALLED))
                continue
            smaller = min(size, variant.at_most or size)
            tasks.append(harness.BenchTask(variant, count, smaller, folder, python))
    return tasks, absent


def bench_command(
    name: Annotated[list[str], typer.Argument(help=f"One of: {', '.join(BENCHES)}.")],
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="Worker processes; 1 and 2 if not given.")
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Measure other systems too, where they are installed.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
    size: Annotated[int | None, typer.Option("--size", help="Records, epochs, iterations or operators.")] = None,
    runs: Annotated[int, typer.Option("--runs", help="Runs of each system; the median counts.")] = 3,
    peers_python: Annotated[
        Path | None,
        typer.Option("--peers-python", envvar=PEERS_PYTHON, help="The interpreter that has the other systems."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Measure this system, or part, alone. May be given several times."),
    ] = None,
) -> None:
    """Measure Falkirk beside its alternatives, on the same input, for the same output."""
    try:
        rows = main(" ".join(name), workers, peers, json, size, runs, peers_python, only=only or ())
    except FalkirkError as error:
        typer.secho(str(error), err=True, fg=typer.colors.RED)
        raise typer.Exit(2) from None
    if any(row.note not in (None, harness.NOT_INSTALLED) for row in rows):
        raise typer.Exit(1)
