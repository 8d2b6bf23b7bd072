"""The cost of recovery to a worker: its CPU seconds from the first read to the end, on word counts.

`--part` says which: running counts without a store ("no_recovery"), and saved every second ("lazy_1s"); counts of each epoch
alone without a store ("no_recovery_epochs"), and in an Ephemeral or Batch region ("ephemeral", "batch"); running counts in an
eager region, whose words are in another one ("eager"); and the segments of a
"lazy_1s" job written once more by a bare loop, each a file that is synced and renamed ("bare_durable_write"). With a store the
sink hears of an epoch when its low-watermark has passed, and a monitor runs beside; what that does is not the worker's time and
is not counted. With a store and without, each worker is a process of its own: in the caller's process memory, threads and the
collection of garbage are others.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from common import arguments, report
from tally import Tally, Timed, read_tally

import falkirk
from falkirk import Batch, Dataflow, Eager, Ephemeral, Lazy, Parquet, agg
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from timely.io import Partition

PASSES = 12
"""The number of partitions that read the same words: enough for a run of several seconds."""


MEET = "FALKIRK_BENCH_MEET"
"""Names a folder in which two workers meet that are to be compared (`recovery_ratio.py`)."""


_EXCHANGE_SECONDS = 0.1
"""The seconds for which each of two workers has a core, until they exchange them."""


def meet() -> None:
    """If this worker is one of two that are to be compared, wait for the other, and exchange cores with it from then on.

    Each has a core of its own at full speed, and both have the same share of each core.
    """
    folder = os.environ.get(MEET)
    if folder is None:
        return
    mine = str(os.getpid())
    Path(folder, mine).touch()
    while len(there := sorted(os.listdir(folder))) < 2:
        time.sleep(0.001)
    cores, number = sorted(os.sched_getaffinity(0))[:2], there.index(mine)
    if len(cores) < 2:
        raise SystemExit("two workers that are to be compared need two cores")

    def exchange() -> None:
        while True:
            turn, into = divmod(time.monotonic(), _EXCHANGE_SECONDS)
            for thread in os.listdir("/proc/self/task"):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), {cores[(int(turn) + number) % 2]})
            time.sleep(_EXCHANGE_SECONDS - into)

    threading.Thread(target=exchange, daemon=True).start()


@dataclass(frozen=True)
class _Clocked:
    """`PASSES` times `source`, with a note of the CPU seconds that this worker had used when it was opened."""

    source: Timed
    folder: Path

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Those of the source, several times."""
        inner: list[Partition] = []
        meet()
        for copy in range(PASSES):
            for partition in self.source.partitions(worker, workers):
                partition.name += f" for the {copy + 1}. time"
                inner.append(partition)
        (self.folder / f"cpu-{worker}").write_text(repr(time.process_time()))
        return inner


@dataclass(frozen=True)
class _ClockedTally:
    """A tally that also notes the CPU seconds that this worker has used at its end."""

    tally: Tally

    def open(self, worker: int, workers: int) -> _ClockedWriter:
        """This worker's."""
        return _ClockedWriter(self.tally, worker, workers)


class _ClockedWriter:
    def __init__(self, tally: Tally, worker: int, workers: int) -> None:
        inner = tally.open(worker, workers)
        self.write, self.commit, self.abort, self._inner = inner.write, inner.commit, inner.abort, inner
        self._file = tally.folder / f"used-{worker}"

    def close(self) -> None:
        self._inner.close()
        self._file.write_text(repr(time.process_time()))


def build(data: Path, folder: Path, part: str) -> Dataflow:
    """The program of a part."""
    about = json.loads((data / "about.json").read_text())
    words = Parquet(
        data / "whole.parquet",
        epoch=about["records_per_epoch"],
        read_dictionary=["word"],
        split="epochs",
        use_threads=False,
    )
    running = part in ("no_recovery", "lazy_1s", "eager")
    policy = {"ephemeral": Ephemeral(), "batch": Batch(), "eager": Eager()}.get(part, Lazy(every=1.0))
    flow = Dataflow("wordcount")
    with flow.region("all", policy=policy):
        source = flow.columns("words", _Clocked(Timed(words, folder), folder))
        counts = source.group_by("word").agg(over="scope" if running else "time", n=agg.count())
    counts.to(_ClockedTally(Tally(folder, ("n",))), name="counts")
    return flow


class _Segments:
    """Looks into a store while a job runs, and notes how large the segments of its workers are."""

    def __init__(self, store: Path) -> None:
        self.sizes: dict[Path, int] = {}
        self._store = store
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Segments:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            for file in self._store.glob("worker-*/segment-*"):
                if file not in self.sizes:
                    with suppress(FileNotFoundError):
                        self.sizes[file] = file.stat().st_size


def write_bare(sizes: list[int]) -> float:
    """CPU seconds of writing files of these sizes, each durable before the next one is begun."""
    with tempfile.TemporaryDirectory() as name:
        folder = os.open(name, os.O_RDONLY)
        content = memoryview(os.urandom(max(sizes)))
        began = time.process_time()
        for number, size in enumerate(sizes):
            with open(f"{name}/writing", "wb", buffering=0) as file:
                file.write(content[:size])
                os.fsync(file.fileno())
            os.rename(f"{name}/writing", f"{name}/{number}")
            os.fsync(folder)
        used = time.process_time() - began
        os.close(folder)
        return used


def main() -> None:
    args = arguments()
    if args.part == "bare_durable_write":
        with (
            tempfile.TemporaryDirectory() as folder,
            tempfile.TemporaryDirectory() as store,
            _Segments(Path(store)) as segments,
        ):
            falkirk.run(build(args.data, Path(folder), "lazy_1s"), workers=args.workers, store=store)
        sizes = list(segments.sizes.values())
        report(write_bare(sizes), segments=len(sizes), megabytes=sum(sizes) / 1e6)
        return
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as store:
        flow = build(args.data, Path(folder), args.part)
        if args.part.startswith("no_recovery"):
            Job(Program(flow=flow), args.workers).run()
        else:
            falkirk.run(flow, workers=args.workers, store=store)
        seconds, rows, _ = read_tally(Path(folder))
        used = sum(
            float((Path(folder) / f"used-{w}").read_text()) - float((Path(folder) / f"cpu-{w}").read_text())
            for w in range(args.workers)
        )
    report(used, check={"rows": rows}, wall_seconds=seconds)


if __name__ == "__main__":
    main()
