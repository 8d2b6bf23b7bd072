"""Share of the history's writer in the processor time of a busy job.

Counts of numbers on `--workers` workers with a store, as fast as they go. After a warm-up the processor time of all processes
of the job is read at the beginning and at the end of `--size` seconds, and that of the thread of the monitor that writes the
history. What workers spend on samples for it is in the whole, and at most a thousandth of their time.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from common import arguments, report

import falkirk
from runtime.page.recorder import THREAD
from runtime.program import Program
from runtime.supervisor.processes import MONITOR
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from runtime.supervisor.supervisor import Job

WARM_UP = 5.0


def build() -> falkirk.Dataflow:
    """Counts of many keys, without an end."""
    flow = falkirk.Dataflow("busy")
    numbers = flow.source("numbers", falkirk.Iterable(range(1 << 40), batch=2_000, epoch_every=10_000))
    numbers.key_by(_key).count(name="counts").records().filter(_rare).capture("out")
    return flow


def _key(number: int) -> int:
    return number % 9973


def _rare(_: object) -> bool:
    return False


def thread_seconds(pid: int, name: str) -> float:
    """Processor time of the threads of a process with that name."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    named = [task for task in tasks if (task / "comm").read_text().strip() == name]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in named) / 1e9


def seconds_of(pids: list[int]) -> float:
    """Processor time of all threads of some processes."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as there:
        job = Job(Program(flow=build), args.workers, Path(there) / "store", on_note=lambda _: None)

        def run() -> None:
            with suppress(JobStopped):
                job.run()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            monitor = None
            while monitor is None or not thread_seconds(monitor, THREAD):
                time.sleep(0.2)
                monitor = next((child.pid for child in list(job.children.all) if child.module == MONITOR), None)
            time.sleep(WARM_UP)
            pids = [monitor, *(job.pids[worker] for worker in range(args.workers))]
            before = thread_seconds(monitor, THREAD), seconds_of([monitor]), seconds_of(pids)
            time.sleep(args.size)
            after = thread_seconds(monitor, THREAD), seconds_of([monitor]), seconds_of(pids)
        finally:
            stop_job(Path(there) / "store")
            thread.join()
    history, of_monitor, whole = (now - then for now, then in zip(after, before))
    report(
        100 * history / whole,
        unit="%",
        monitor=100 * of_monitor / whole,
        ms_a_second=1e3 * history / args.size,
        cores=whole / args.size,
    )


if __name__ == "__main__":
    main()
