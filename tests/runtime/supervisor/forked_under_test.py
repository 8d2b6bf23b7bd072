"""Programs of forked processes: `main` does what its first argument says."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

import numpy as np
import polars as pl
import pyarrow as pa

from runtime.processes import own_server
from runtime.processes.worker import warm_up
from runtime.supervisor.forked import start_detached


def main() -> int:
    """One of the programs below; the exit code."""
    return int(globals()[sys.argv[1]](*sys.argv[2:]) or 0)


def tell(file: str) -> None:
    """Write the facts of the process, in JSON, to a file that it inherits."""
    before = os.umask(0)
    facts = {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "folder": os.getcwd(),
        "umask": before,
        "variables": {name: os.environ.get(name) for name in ("ONE", "TWO", "POLARS_MAX_THREADS")},
        "module": sys.argv[0],
        "files": sorted(int(each) for each in os.listdir("/proc/self/fd")),
        "input": sys.stdin.read(),
        "chance": [random.random(), float(np.random.rand())],
    }
    os.write(int(file), json.dumps(facts).encode())
    print("said", flush=True)


def ask(file: str) -> None:
    """Has another process forked, alone, that tells a file what it has; it waits for nothing."""
    assert own_server.sock is not None
    with open(os.devnull) as nothing:
        other = start_detached(
            "tests.runtime.supervisor.alone_under_test", (nothing.fileno(), int(file), 2), os.environ
        )
    assert other is not None
    print(other.pid, flush=True)


def compute() -> int:
    """All that has threads of its own."""
    warm_up()
    frame = pl.DataFrame({"k": np.arange(50_000) % 100, "v": np.ones(50_000)})
    sums = frame.lazy().group_by("k").agg(pl.col("v").sum())
    both = frame.lazy().join(sums, on="k").filter(pl.col("k") < 10).collect(engine="streaming")
    table = pa.table({"a": np.arange(100_000) % 7}).group_by("a").aggregate([("a", "count")])
    threads = int(os.environ["POLARS_MAX_THREADS"])
    return 0 if (both.height, table.num_rows, pl.thread_pool_size()) == (5_000, 7, threads) else 3


def fail() -> int:
    """An error that nobody has caught."""
    raise ValueError("as told")


def leave(code: str) -> int:
    """Another exit code."""
    return int(code)


def wait() -> None:
    """For a signal."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    raise SystemExit(main())
