"""Epochs of a running job while its page is attacked, or has twenty readers, beside the same job at rest.

Two workers with a store, 40 epochs a second of keyed sums. Periods of `--size` seconds with and without load alternate in
one run, and an epoch is of the period in which its last record is read: its time is from there until the sinks of all
workers have it. `--part hostile`: 2,000 connections are held open at the page, a quarter each idle, sending a byte now and
then, asking for the stream and reading nothing, and sending garbage; whichever the page closes is opened anew. In the other
periods the same is done to a server that accepts, and answers nothing: so what the load itself takes of the machine is on both
sides, and the ratio is the page's part. `--part tabs`: twenty readers of the stream of events, as twenty tabs are; beside it
how old what they read last is. The load comes from a process of its own with a lower priority than the job's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from clocked import Clock, ClockWriter
from common import arguments, percentile, report
from history import seconds_of
from policies import parse, reading
from tally import Noted

from falkirk import Dataflow, Lazy, Rate
from runtime.page.address import open_page
from runtime.program import Program
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job

WORKERS, PER_SECOND, PER_EPOCH = 2, 2_000, 50
WARM_UP = 10.0
ROUNDS = 8
SETTLING = 1.0
"""Seconds at the begin of each period that belong to neither."""


def _notes_of_reads(folder: str) -> Callable[[int], None]:
    return ClockWriter(Path(folder) / f"read-{os.getpid()}").commit


def build(folder: str) -> Dataflow:
    """Running totals of paced readings, by key."""
    flow = Dataflow("paced")
    source = Noted(Rate(reading, PER_SECOND, 10**9, epoch_every=PER_EPOCH), partial(_notes_of_reads, folder))
    with flow.region("all", policy=Lazy(every="1s")):
        totals = flow.source("readings", source).map(parse, name="parse").keyed().sum(name="totals")
        totals.records().to(Clock(Path(folder)), name="out")
    return flow


def epochs_in(folder: Path) -> list[tuple[float, float]]:
    """Finished epochs: time of the last read record, and seconds from there."""
    read: dict[int, float] = {}
    done: dict[int, list[float]] = defaultdict(list)
    for file in (*folder.glob("read-*"), *folder.glob("out-*")):
        for line in file.read_text().splitlines():
            with suppress(ValueError):  # the last line may be cut off
                epoch, at = line.split()
                if file.name.startswith("read-"):
                    read[int(epoch)] = max(read.get(int(epoch), 0.0), float(at))
                else:
                    done[int(epoch)].append(float(at))
    return [(read[each], max(at) - read[each]) for each, at in done.items() if len(at) == WORKERS and each in read]


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as there:
        notes = Path(there) / "notes"
        notes.mkdir()
        page = open_page("paced", port=0)
        program = Program(flow=build, args={"folder": str(notes)})
        job = Job(program, WORKERS, Path(there) / "store", on_note=lambda _: None, page=page)

        def run() -> None:
            with suppress(JobStopped):
                job.run()

        thread = threading.Thread(target=run)
        thread.start()
        periods: list[tuple[bool, float, float]] = []
        said: list[dict[str, float]] = []
        spent: dict[bool, float] = defaultdict(float)
        measured: dict[bool, float] = defaultdict(float)
        try:
            while len(epochs_in(notes)) < 200:
                time.sleep(0.5)
            time.sleep(WARM_UP)
            process = page_of(job)
            for number in range(2 * ROUNDS):
                loaded = number % 2 == 1
                begin, cpu = time.time(), seconds_of([process])
                if loaded:
                    said.append(load(args.part, page.url, args.size))
                elif args.part == "hostile":
                    with Silent() as url:
                        load(args.part, url, args.size)
                else:
                    time.sleep(args.size)
                measured[loaded] += time.time() - begin
                spent[loaded] += seconds_of([process]) - cpu
                periods.append((loaded, begin + SETTLING, time.time()))
        finally:
            stop_job(Path(there) / "store")
            thread.join()
            page.close()
        found = epochs_in(notes)
    times = {
        each: sorted(
            took for at, took in found if any(begin <= at < end for loaded, begin, end in periods if loaded is each)
        )
        for each in (False, True)
    }
    ratios = [
        percentile(sorted(t for at, t in found if b[1] <= at < b[2]), 0.99)
        / percentile(sorted(t for at, t in found if a[1] <= at < a[2]), 0.99)
        for a, b in zip(periods[::2], periods[1::2])
    ]
    report(
        percentile(times[True], 0.99) / percentile(times[False], 0.99),
        unit="ratio of p99",
        system=args.part,
        median_ratio_of_periods=median(ratios),
        ratio_of_medians=percentile(times[True], 0.5) / percentile(times[False], 0.5),
        p99_ms=1e3 * percentile(times[False], 0.99),
        p99_loaded_ms=1e3 * percentile(times[True], 0.99),
        epochs=[len(times[False]), len(times[True])],
        page_cpu=[spent[each] / measured[each] for each in (False, True)],
        load=os.getloadavg()[0],
        **{name: max(each[name] for each in said) for name in said[0]},
    )


class Silent:
    """Server without answers: it only accepts connections."""

    def __enter__(self) -> str:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        return "http://127.0.0.1:{1}".format(*self._server.getsockname())

    def _accept(self) -> None:
        with suppress(OSError):  # it is shut down
            while True:
                self._open.append(self._server.accept()[0])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._server, *self._open):
            each.close()


def page_of(job: Job) -> int:
    """Process of the page of a job, once it runs."""
    while True:
        found = getattr(getattr(job, "_lead", None), "page", None)
        if found is not None and found.pid is not None:
            return int(found.pid)
        time.sleep(0.1)


def load(part: str, url: str, seconds: float) -> dict[str, float]:
    """Load the page for a time, from another process."""
    command = [
        "nice",
        "-n",
        "10",
        sys.executable,
        __file__.replace("page_under_load", "page_load"),
        part,
        url,
        str(seconds),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
