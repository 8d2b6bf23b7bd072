"""The size of a day of history: `python -m tests.soak.history_day --operators 1000 --workers 8`.

The recorder of the monitor writes the seconds of a made-up job, whose clock goes as fast as the recorder can write. Loads of
operators wander, and W rises every two seconds. What the folder has is measured after each minute, with the minutes in full.
`--hours` shortens the day; what a full one would take is then said as well, from what each minute adds to the ring.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from monitor.coordination.options import OptionsRecord
from monitor.coordination.supervision import TimelineEvent
from monitor.history.archive import Archive
from monitor.web.view import Observation, WorkerView
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import ROWS, Observed
from runtime.page.recorder import HistoryRecorder
from tests.monitor.history.drawn import START, layout_of, options_at

MOST_MEGABYTES = 200.0
"""Promise for a day of 1,000 operators."""

_AT = {name: number for number, name in enumerate(ROWS)}


class Day:
    """Made-up job: a second at a time, as its monitor would see it."""

    def __init__(self, operators: int, workers: int, seed: int = 1) -> None:
        self.layout: Layout = layout_of(operators, workers)
        self._rng = np.random.default_rng(seed)
        self._second = 0
        self._usual = self._rng.lognormal(6, 2, operators)
        self._states = self._rng.lognormal(10, 3, operators)
        self._tables = np.zeros((workers, len(ROWS), operators), np.int64)
        self._read = [0] * workers

    def second(self) -> tuple[Observation, OptionsRecord | None]:
        """The next second, and options if W has risen in it."""
        self._second += 1
        now, rng = START / 1000 + self._second, self._rng
        workers, _, operators = self._tables.shape
        load = 1 + 0.4 * np.sin(self._second / 13_000)
        epoch = 2 * self._second
        taken = rng.poisson(self._usual * load / workers, (workers, operators))
        self._states *= 1 + rng.normal(0, 0.0002, operators)
        table = self._tables
        table[:, _AT["epoch"]] = epoch - rng.poisson(0.3, (workers, operators))
        table[:, _AT["pending"]] = rng.poisson(0.2, (workers, operators))
        table[:, _AT["bytes"]] = self._states / workers
        table[:, _AT["taken"]] += taken
        table[:, _AT["sent"]] += taken
        table[:, _AT["busy"]] += taken // 2
        told = {}
        for worker in range(workers):
            self._read[worker] += int(taken[worker].sum())
            report = Observed(Place(worker), 1, table[worker].tobytes(), self._read[worker], 0, epoch, (0.02, 0.05))
            told[worker] = now, report
        record = options_at(self.layout, max(0, epoch - 4)) if self._second % 2 else None
        if record is not None:
            flat = range(operators)
            self._low = tuple(tuple(record.low[p * workers + w] for p in flat) for w in range(workers))
        views = tuple(WorkerView("alive", 1, 0) for _ in range(workers))
        completed = tuple((epoch,) * len(self.layout.groups) for _ in range(workers))
        return Observation(now, "running", 1, self._low, completed, views, told), record


def megabytes(folder: Path) -> dict[str, float]:
    """Size of the files of a history, by what they are."""
    sizes = {"ring": 0, "full": 0, "facts": 0, "now": 0}
    for path in folder.iterdir():
        kind = {"past": "ring"}.get(path.name.split("-")[0], path.name.split("-")[0])
        sizes[kind] += path.stat().st_size
    return {kind: size / 1e6 for kind, size in sizes.items()}


def recorded(folder: Path, operators: int, workers: int, hours: float, notes: list[str]) -> Iterator[dict[str, float]]:
    """Sizes of the history of a day after each of its minutes."""
    day = Day(operators, workers)
    recorder = HistoryRecorder(folder, day.layout, {"falkirk": "1"}, notes.append)
    recorder.happened(TimelineEvent("began", START / 1000, {"workers": workers}))
    for minute in range(round(60 * hours)):
        for _ in range(60):
            recorder.second(*day.second())
        if minute % 120 == 119:  # a rollback now and then
            at = START / 1000 + 60 * minute
            recorder.happened(TimelineEvent("failure", at, {"worker": 1, "incarnation": 1, "reason": "was killed"}))
        recorder.wait()
        yield megabytes(folder)
    recorder.close(60.0)


def main() -> int:
    """Entry point; 1 if a day takes more than is promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--hours", type=float, default=24.0)
    args = parser.parse_args()
    notes: list[str] = []
    began, spent = time.monotonic(), time.process_time()
    most, sizes, ring = 0.0, {"ring": 0.0}, []
    with tempfile.TemporaryDirectory(prefix="falkirk-day-") as there:
        folder = Path(there) / "history"
        for sizes in recorded(folder, args.operators, args.workers, args.hours, notes):
            most = max(most, sum(sizes.values()))
            ring.append(sizes["ring"])
        archive = Archive()
        for path in sorted(folder.iterdir()):
            archive.take(path.name, path.read_bytes())
        span = archive.span or (0, 0)
    a_day = ring[-1] / len(ring) * 1440
    found = {
        "operators": args.operators,
        "workers": args.workers,
        "hours": args.hours,
        "kept_hours": round((span[1] - span[0]) / 3.6e6, 2),
        "megabytes": {kind: round(size, 2) for kind, size in sizes.items()},
        "most_megabytes": round(most, 1),
        "day_of_minutes": round(a_day, 1),
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(time.process_time() - spent),
        "notes": notes,
    }
    print(json.dumps(found))
    wrong = most > MOST_MEGABYTES or a_day + most - ring[-1] > MOST_MEGABYTES or notes
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
