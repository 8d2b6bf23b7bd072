"""Benchmark runs: each variant in its own process, interleaved, with summaries.

Variants are interleaved (A B C A B C ...), so that a noisy minute hits all alike; the median is the figure, and the spread
is kept beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from falkirk.bench.registry import Bench, Variant
from timely.errors import FalkirkError

TIMEOUT_SECONDS = 600.0

NOT_INSTALLED = "not installed"
"""Note for a peer missing in the interpreter for peers."""


@dataclass(slots=True)
class Row:
    """Figure of one system.

    `value` is None, and `note` says why, when there is none.
    """

    bench: str
    system: str
    workers: int
    value: float | None
    unit: str
    runs: int
    min: float | None = None
    max: float | None = None
    p99: float | None = None
    cpu_seconds: float | None = None
    """Processor seconds, user and system, of all workers together (median)."""
    cpu_ratio: float | None = None
    """Processor seconds relative to those of one worker.

    Each run is compared to that of the same round; the median counts.
    """
    size: int | None = None
    note: str | None = None

    def as_json(self) -> str:
        """One line of JSON; the fields after `runs` only where they say something."""
        fields = asdict(self)
        always = ("bench", "system", "workers", "value", "unit", "runs")
        return json.dumps({name: x for name, x in fields.items() if name in always or x is not None})


@dataclass(frozen=True, slots=True)
class BenchTask:
    """Run of a variant with a number of workers and a size."""

    variant: Variant
    workers: int
    size: int
    data: Path | None
    python: Path


@dataclass(slots=True)
class _Found:
    """The results of one task's runs for one system."""

    unit: str
    workers: int
    values: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    checks: list[dict[str, float] | None] = field(default_factory=list)


def programs_folder() -> Path:
    """Folder of the benchmark programs.

    Raises FalkirkError outside a checkout of the repository.
    """
    folder = Path(__file__).resolve().parents[2] / "bench" / "programs"
    if not folder.is_dir():
        raise FalkirkError(
            f"the benchmark programs are not in {folder}: they are part of the repository, not of the installed package. "
            "Run `falkirk bench` from a checkout that is installed with `pip install -e .`"
        )
    return folder


def installed(package: str, python: Path) -> bool:
    """True if `python` can find `package`."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def measure(bench: Bench, tasks: list[BenchTask], runs: int, on_run: Callable[[BenchTask], None]) -> list[Row]:
    """Run all tasks `runs` times, interleaved.

    A task that fails once is not run again; its row says why it failed.
    """
    found: dict[int, dict[tuple[str, int], _Found]] = {index: {} for index in range(len(tasks))}
    failed: dict[int, str] = {}
    for _ in range(runs):
        for index, task in enumerate(tasks):
            if index in failed:
                continue
            on_run(task)
            try:
                results = run_once(task)
            except FalkirkError as error:
                failed[index] = str(error)
                continue
            for result in results:
                system = str(result.get("system", task.variant.system))
                workers = int(result.get("workers", task.workers))
                entry = found[index].setdefault((system, workers), _Found(str(result.get("unit", bench.unit)), workers))
                entry.values.append(float(result["value"]))
                entry.checks.append(result.get("check"))
                if "p99" in result:
                    entry.p99.append(float(result["p99"]))
                if "cpu_seconds" in result:
                    entry.cpu_seconds.append(float(result["cpu_seconds"]))
    rows: list[Row] = []
    for index, task in enumerate(tasks):
        if index in failed:
            rows.append(missing(bench, task.variant, task.workers, failed[index], task.size))
            continue
        rows += [_row(bench, task, system, entry) for (system, _), entry in found[index].items()]
    _compare_outputs(tasks, found, rows)
    _compare_seconds([entry for entries in found.values() for entry in entries.items()], rows)
    return rows


def missing(bench: Bench, variant: Variant, workers: int, note: str, size: int | None = None) -> Row:
    """Row for a system without a measurement, with the reason as `note`."""
    return Row(bench.name, variant.system, workers, None, bench.unit, 0, size=size, note=note)


def run_once(task: BenchTask) -> list[dict[str, Any]]:
    """Figures printed by one run of the program.

    Raises FalkirkError, with the end of its output, if it failed.
    """
    command: list[str | os.PathLike[str]] = [task.python, programs_folder() / task.variant.program]
    command += ["--workers", str(task.workers), "--size", str(task.size)]
    if task.data is not None:
        command += ["--data", task.data]
    if task.variant.part:
        command += ["--part", task.variant.part]
    env = dict(os.environ)
    if task.variant.package is None:
        # Worker processes are started by module name: they must find this package as this process does.
        env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[2]), env.get("PYTHONPATH", "")])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            env=env,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise FalkirkError(f"took more than {TIMEOUT_SECONDS:.0f} s") from error
    except OSError as error:
        raise FalkirkError(f"could not be started: {error}") from error
    results = list(_figures(done.stdout))
    if done.returncode != 0 or not results:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise FalkirkError(f"failed with exit code {done.returncode}: {last}")
    return results


def _figures(output: str) -> Iterable[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _row(bench: Bench, task: BenchTask, system: str, entry: _Found) -> Row:
    return Row(
        bench.name,
        system,
        entry.workers,
        statistics.median(entry.values),
        entry.unit,
        len(entry.values),
        min(entry.values),
        max(entry.values),
        statistics.median(entry.p99) if entry.p99 else None,
        statistics.median(entry.cpu_seconds) if entry.cpu_seconds else None,
        size=task.size,
    )


def _compare_seconds(found: list[tuple[tuple[str, int], _Found]], rows: list[Row]) -> None:
    """Set the ratio of several workers' processor seconds to those of one worker.

    The one worker is of the same system, or of Falkirk where this system is measured with several workers only.
    """
    single = {system: entry.cpu_seconds for (system, workers), entry in found if workers == 1}
    for (system, workers), entry in found:
        of_one = single.get(system, single.get("falkirk", []))
        if workers > 1 and entry.cpu_seconds and len(of_one) == len(entry.cpu_seconds):
            ratio = statistics.median(several / one for several, one in zip(entry.cpu_seconds, of_one, strict=True))
            for row in rows:
                if (row.system, row.workers) == (system, workers):
                    row.cpu_ratio = ratio


def _compare_outputs(tasks: list[BenchTask], found: dict[int, dict[tuple[str, int], _Found]], rows: list[Row]) -> None:
    """Note output digests differing from those of the first system on the same input."""
    expected: dict[tuple[int, str], tuple[str, dict[str, float]]] = {}
    for index, task in enumerate(tasks):
        for (system, workers), entry in found[index].items():
            for check in entry.checks:
                if check is None:
                    continue
                first, digest = expected.setdefault((task.size, task.variant.question), (system, check))
                if not _equal(digest, check):
                    for row in rows:
                        if (row.system, row.workers) == (system, workers):
                            row.note = f"its output differs from that of {first}: {check} instead of {digest}"


def _equal(a: dict[str, float], b: dict[str, float]) -> bool:
    """Compare digests by their common entries, up to rounding of float sums.

    Some systems leave sums out, as they would slow them.
    """
    both = a.keys() & b.keys()
    return bool(both) and all(abs(a[k] - b[k]) <= 1e-9 * max(abs(a[k]), abs(b[k]), 1.0) for k in both)


def current_python() -> Path:
    """Path of the running Python interpreter."""
    return Path(sys.executable)
