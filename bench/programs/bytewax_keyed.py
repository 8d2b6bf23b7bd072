"""Sum, count and maximum of each key and epoch on Bytewax in its fastest form: an epoch's pairs are one batch of items.

Combining them by Arrow first is slower here, as most keys of an epoch come once or twice. Each worker reads every W-th
epoch; Bytewax may merge epochs that are read at the same time.
"""

from __future__ import annotations

import time
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from common import arguments, epoch_files, records_in, report

args = arguments()
files = epoch_files(args.data, args.size)
started: list[float] = []
ended: list[float] = []
rows = 0

Row = tuple[float, int, float]


class Epochs(StatefulSourcePartition):
    def __init__(self, first: int) -> None:
        self.next = first

    def next_batch(self) -> list[tuple[str, float]]:
        if not started:
            started.append(time.perf_counter())
        if self.next >= len(files):
            raise StopIteration
        table = pq.ParquetFile(files[self.next]).read_row_group(0, use_threads=False)
        self.next += args.workers
        return list(zip(map(str, table["key"].to_pylist()), table["value"].to_pylist()))

    def snapshot(self) -> int:
        return self.next


class Pairs(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return [str(i) for i in range(args.workers)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Epochs:
        return Epochs(int(for_part))


class Aggregate(op.StatefulBatchLogic):
    def on_batch(self, values: list[float]) -> tuple[list[Row], bool]:
        return [(sum(values), len(values), max(values))], True  # of this epoch alone: the state is discarded

    def snapshot(self) -> None:
        return None


class Tally(StatelessSinkPartition):
    def write_batch(self, items: list[tuple[str, Row]]) -> None:
        global rows
        rows += len(items)
        ended[:] = [time.perf_counter()]


class Output(DynamicSink):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Tally:
        return Tally()


flow: Any = Dataflow("keyed")
stream = op.stateful_batch("aggregate", op.input("pairs", flow, Pairs()), lambda state: Aggregate())
op.output("out", stream, Output())
cli_main(flow, workers_per_process=args.workers)

check = {"rows": rows} if args.workers == 1 else None
report(records_in(args.data, files) / (ended[0] - started[0]), check=check)
