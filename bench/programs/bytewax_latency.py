"""One record an epoch through a keyed count on Bytewax, from the source to the sink, in µs.

`--part closed`: the source waits until the sink has the last record. Otherwise it never waits, and the figure is the time
of all epochs divided by their number.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from common import arguments, percentile, report

args = arguments()
warm_up = args.size // 10
sent: list[float] = []
arrived: list[float] = []
closed = args.part == "closed"


class Records(StatefulSourcePartition):
    def next_batch(self) -> list[tuple[str, int]]:
        if closed and len(arrived) < len(sent):
            return []
        if len(sent) >= warm_up + args.size:
            raise StopIteration
        sent.append(time.perf_counter())
        return [(str(len(sent) % 64), 1)]

    def snapshot(self) -> int:
        return len(sent)


class Source(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return ["0"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Records:
        return Records()


class Arrivals(StatelessSinkPartition):
    def write_batch(self, items: list[Any]) -> None:
        arrived.extend([time.perf_counter()] * len(items))


class Output(DynamicSink):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Arrivals:
        return Arrivals()


flow: Any = Dataflow("latency")
stream = op.input("records", flow, Source())
stream = op.stateful_map("count", stream, lambda state, value: ((state or 0) + value,) * 2)
op.output("out", stream, Output())
cli_main(flow, workers_per_process=args.workers, epoch_interval=timedelta(0))

if closed:
    latencies = sorted((b - a) * 1e6 for a, b in zip(sent[warm_up:], arrived[warm_up:]))
    report(percentile(latencies, 0.5), p99=percentile(latencies, 0.99))
else:
    report((arrived[-1] - sent[warm_up]) / args.size * 1e6)
