"""The cost of each policy on one workload: paced readings, parsed, and a running total of each of a thousand keys.

The policy is that of the whole program, or, where it allows no state (`Ephemeral`, `Batch`, `AtLeastOnce`), of the part in
front of the totals, which are `Lazy(every="1s")` then. A hundred epochs a second. Of each policy a row: the median time from
the reading of an epoch's last record until a sink hears of it that is told at once (`p99` beside it), until an exactly-once
sink publishes it (`exact_p50`, `exact_p99`), all in milliseconds, the CPU time of the worker for a record in microseconds
(`cpu`), and the bytes that it wrote for one (`written`). "no_store" has neither store nor monitor.

`--part table`: the table of docs/choosing_a_policy.md. Every policy in turn, and that five times, each time the other way
round, so that whatever else the machine does meets all of them; then medians, with the least and the greatest beside them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from common import arguments, percentile, report
from tally import Noted

import falkirk
from falkirk import Amnesia, AtLeastOnce, Batch, Dataflow, Eager, Ephemeral, Lazy, LogHistory, Rate, Snapshot

PER_SECOND, PER_EPOCH, KEYS = 5_000, 50, 1_000
WARM = 100
"""Epochs that are not counted."""

POLICIES: dict[str, tuple[object, object]] = {
    "no_store": (Lazy(), Lazy()),
    "ephemeral": (Ephemeral(), Lazy(every="1s")),
    "at_least_once": (AtLeastOnce(), Lazy(every="1s")),
    "batch": (Batch(), Lazy(every="1s")),
    "batch_with_logs": (Batch(log_outputs=True), Lazy(every="1s")),
    "lazy_1s": (Lazy(every="1s"), Lazy(every="1s")),
    "snapshot_1s": (Snapshot(every="1s"), Snapshot(every="1s")),
    "log_history_1s": (LogHistory(every="1s"), LogHistory(every="1s")),
    "amnesia": (Amnesia(), Amnesia()),
    "eager": (Eager(), Eager()),
}
"""By row: the policy in front, and that of the totals."""


@dataclass
class _Notes:
    """Notes taken within the one worker, and written down at its end."""

    folder: Path
    read: dict[int, float] = field(default_factory=dict)
    told: dict[int, float] = field(default_factory=dict)
    exact: dict[int, float] = field(default_factory=dict)
    used: float = 0.0
    written: int = 0

    def begin(self) -> Callable[[int], None]:
        """Begin to count; the function that notes the read of an epoch's last record so far."""
        self.used, self.written = time.process_time(), _written()
        return self._on_read

    def _on_read(self, epoch: int) -> None:
        self.read[epoch] = time.perf_counter()

    def end(self) -> None:
        later = {
            name: [at[n] - self.read[n] for n in at if n >= WARM] for name, at in vars(self).items() if name in OUT
        }
        used = {"cpu": time.process_time() - self.used, "written": _written() - self.written}
        (self.folder / "notes").write_text(json.dumps({**later, **used}))


OUT = ("told", "exact")


def _written() -> int:
    """The bytes that this process has written to files."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"])


@dataclass
class _Sink:
    """Notes when each epoch is out."""

    notes: _Notes
    exactly_once: bool

    def open(self, worker: int, workers: int) -> _Sink:
        return self

    def write(self, epoch: int, batch: object) -> None:
        return

    def commit(self, epoch: int) -> None:
        (self.notes.exact if self.exactly_once else self.notes.told)[epoch] = time.perf_counter()

    def abort(self) -> None:
        return

    def close(self) -> None:
        self.notes.end()


def reading(number: int) -> str:
    """A line, always the same for the same number."""
    return f"{number * 7919 % KEYS};{number % 100}"


def parse(line: str) -> tuple[int, int]:
    """Of a line the key and the value."""
    key, value = line.split(";")
    return int(key), int(value)


def build(part: str, size: int, folder: Path) -> Dataflow:
    """The program under one policy."""
    front, behind = POLICIES[part]
    notes = _Notes(folder)
    flow = Dataflow("policies")
    with flow.region("all" if front == behind else "front", policy=front):
        source = Noted(Rate(reading, PER_SECOND, size, epoch_every=PER_EPOCH), notes.begin)
        pairs = flow.source("readings", source).map(parse, name="parse")
        if front == behind:
            totals = pairs.keyed().sum(name="totals").records()
            if not isinstance(front, Eager):
                totals.to(_Sink(notes, exactly_once=False), name="told")
            totals.to(_Sink(notes, exactly_once=True), name="exact")
    if front != behind:
        with flow.region("totals", policy=behind):
            totals = pairs.keyed().sum(name="totals").records()
            totals.to(_Sink(notes, exactly_once=False), name="told")
            totals.to(_Sink(notes, exactly_once=True), name="exact")
    elif isinstance(front, Eager):  # who is told at once has to be outside
        totals.to(_Sink(notes, exactly_once=False), name="told")
    return flow


def measure(part: str, size: int) -> dict[str, float]:
    """The figures of one policy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        falkirk.run(build(part, size, folder), store=None if part == "no_store" else folder / "store")
        found = json.loads((folder / "notes").read_text())
    figures: dict[str, float] = {}
    for out, short in (("told", ""), ("exact", "exact_")):
        times = sorted(each * 1e3 for each in found[out])
        figures[f"{short}p50"], figures[f"{short}p99"] = percentile(times, 0.5), percentile(times, 0.99)
    return {**figures, "cpu": found["cpu"] / size * 1e6, "written": found["written"] / size}


ROUNDS = 5
COLUMNS = {
    "told: median (ms)": ("p50", 1),
    "told: p99 (ms)": ("p99", 1),
    "exactly once: median (ms)": ("exact_p50", 0),
    "exactly once: p99 (ms)": ("exact_p99", 0),
    "CPU (µs a record)": ("cpu", 0),
    "written (bytes a record)": ("written", 0),
}
"""By heading: the figure, and its decimal places."""


def table(size: int) -> Iterator[str]:
    """The lines of the table."""
    found: dict[str, list[dict[str, float]]] = {part: [] for part in POLICIES}
    for number in range(ROUNDS):
        for part in list(POLICIES)[:: -1 if number % 2 else 1]:
            found[part].append(measure(part, size))
            print(f"round {number + 1} of {ROUNDS}: {part}", file=sys.stderr, flush=True)
    yield f"| policy | {' | '.join(COLUMNS)} |"
    yield f"|---{'|---' * len(COLUMNS)}|"
    for part, runs in found.items():
        cells = [_cell([run[figure] for run in runs], places) for figure, places in COLUMNS.values()]
        yield f"| `{part}` | {' | '.join(cells)} |"


def _cell(values: list[float], places: int) -> str:
    middle, least, most = (f"{each:.{places}f}" for each in (median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def main() -> None:
    args = arguments()
    if args.part == "table":
        for line in table(args.size):
            print(line, flush=True)
        return
    for part in POLICIES:
        found = measure(part, args.size)
        value = found.pop("p50")
        report(value, system=part, unit="ms", **found)


if __name__ == "__main__":
    main()
