"""Throughput over a store in a bucket that takes 30 ms a call, beside a local one: `python -m tests.soak.buckets`.

Pairs of the same job, with cuts of a second, one after the other. Printed are ratios of throughput, calls and cuts. The server
is a process of its own, behind a proxy that delays each request.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import falkirk
from falkirk import Dataflow, Lazy, agg
from runtime.program import Program
from tests.support.buckets import Proxy, serving, use

ROWS = 5_000
"""Rows of an epoch on each worker."""
DELAY = 0.03
SHORT = 300
"""Epochs of the short job of each pair; what its start and end take does not count."""
KEYS = 20_000


class Rows:
    """Epochs of random keys, as fast as they are taken."""

    repeats = True

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def partitions(self, worker: int, workers: int) -> list[_Part]:
        return [_Part(worker, self.epochs)]


class _Part:
    def __init__(self, worker: int, epochs: int) -> None:
        self.name, self._worker, self._epochs, self._next = f"part-{worker}", worker, epochs, 0

    def read(self) -> falkirk.Chunk | falkirk.End:
        if self._next == self._epochs:
            return falkirk.End()
        keys = np.random.default_rng((self._worker, self._next)).integers(0, KEYS, ROWS)
        self._next += 1
        return falkirk.Chunk(self._next - 1, pa.table({"key": keys}), self._next, closes=True)

    def seek(self, position: falkirk.Position) -> None:
        self._next = position if isinstance(position, int) else 0

    def ack(self, position: falkirk.Position) -> None:
        return

    def close(self) -> None:
        return


def build(epochs: int) -> Dataflow:
    """Running counts by key, saved every second."""
    flow = Dataflow("buckets")
    with flow.region("all", policy=Lazy(every="1s")):
        counts = flow.columns("rows", Rows(epochs)).group_by("key").agg(over="scope", n=agg.count())
        counts.to(falkirk.Callback(lambda time, rows: None), name="out")
    return flow


def seconds(store: str | Path, epochs: int, log: Path) -> float:
    """Seconds of a run of the job; a run of few epochs has loaded all before."""
    began = time.perf_counter()
    falkirk.run(Program(flow=build, args={"epochs": epochs}), workers=2, store=store, events=log)
    return time.perf_counter() - began


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2_500)
    options = parser.parse_args()
    with serving() as port, tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setenv("XDG_STATE_HOME", name)
        proxy = Proxy(port, DELAY)
        use(proxy.port, patch)
        log = folder / "events"
        seconds(folder / "warm", 50, log)
        ratios, starts, calls, cuts = [], [], 0, 0
        for number in range(options.pairs):
            took = {}
            for epochs in (SHORT, SHORT + options.epochs):
                for kind in ("local", "bucket"):
                    store = folder / f"{number}-{epochs}" if kind == "local" else f"s3://jobs/{number}-{epochs}"
                    log.unlink(missing_ok=True)
                    before = proxy.calls.total()
                    took[kind, epochs] = seconds(store, epochs, log)
            calls += proxy.calls.total() - before
            cuts += log.read_text().count('"durable"')
            local, there = (took[kind, SHORT + options.epochs] - took[kind, SHORT] for kind in ("local", "bucket"))
            ratios.append(local / there)
            starts.append(took["bucket", SHORT] - took["local", SHORT])
            print(
                f"local {local:.2f} s, bucket {there:.2f} s, ratio {ratios[-1]:.3f}, start {starts[-1]:+.2f} s",
                flush=True,
            )
        proxy.close()
    print(
        f"throughput {statistics.median(ratios):.3f} of the local one, start and end {statistics.median(starts):.2f} s longer; "
        f"{calls} calls, {cuts} durable cuts of workers in the long jobs"
    )


if __name__ == "__main__":
    main()
