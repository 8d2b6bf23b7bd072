"""One record an epoch on Pathway: from `next` and `commit` to the callback with the changed count, in µs.

Closed loop: the next record is sent once the last one's change has been seen.
"""

from __future__ import annotations

import os
import threading
import time

from common import arguments, percentile, report

args = arguments()
os.environ["PATHWAY_THREADS"] = str(args.workers)

import pathway as pw  # noqa: E402

seen = threading.Semaphore(0)
latencies: list[float] = []
warm_up = args.size // 10


class Record(pw.Schema):
    key: int


class Records(pw.io.python.ConnectorSubject):
    def run(self) -> None:
        for i in range(warm_up + args.size):
            start = time.perf_counter()
            self.next(key=i % 64)
            self.commit()
            seen.acquire()
            latencies.append((time.perf_counter() - start) * 1e6)


def change(key: object, row: object, time: int, is_addition: bool) -> None:
    if is_addition:
        seen.release()


records = pw.io.python.read(Records(), schema=Record, autocommit_duration_ms=None)
pw.io.subscribe(records.groupby(records.key).reduce(records.key, n=pw.reducers.count()), on_change=change)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)

latencies = sorted(latencies[warm_up:])
report(percentile(latencies, 0.5), p99=percentile(latencies, 0.99))
