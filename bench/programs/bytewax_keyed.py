"""Sum, count and maximum of each key and epoch on Bytewax in its fastest form: aggregated by Arrow, then merged by key.

Each worker reads every W-th epoch. Aggregates of epochs that are read at the same time may be merged by Bytewax.
"""

from __future__ import annotations

import time
from typing import Any

import bytewax.operators as op
import pyarrow as pa
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

    def next_batch(self) -> list[pa.Table]:
        if not started:
            started.append(time.perf_counter())
        if self.next >= len(files):
            raise StopIteration
        table = pq.ParquetFile(files[self.next]).read_row_group(0, use_threads=False)
        self.next += args.workers
        return [table]

    def snapshot(self) -> int:
        return self.next


class Pairs(FixedPartitionedSource):
    def list_parts(self) -> list[str]:
        return [str(i) for i in range(args.workers)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Epochs:
        return Epochs(int(for_part))


class Merge(op.StatefulBatchLogic):
    def on_batch(self, values: list[Row]) -> tuple[list[Row], bool]:
        merged = (sum(v[0] for v in values), sum(v[1] for v in values), max(v[2] for v in values))
        return [merged], True  # an aggregate of this epoch alone: the state is discarded

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


def combine(table: pa.Table) -> list[tuple[str, Row]]:
    grouped = table.group_by("key", use_threads=False).aggregate(
        [("value", "sum"), ("value", "count"), ("value", "max")]
    )
    keys = map(str, grouped["key"].to_pylist())
    values = (grouped[name].to_pylist() for name in ("value_sum", "value_count", "value_max"))
    return list(zip(keys, zip(*values)))


flow: Any = Dataflow("keyed")
stream = op.flat_map("combine", op.input("pairs", flow, Pairs()), combine)
op.output("out", op.stateful_batch("merge", stream, lambda state: Merge()), Output())
cli_main(flow, workers_per_process=args.workers)

check = {"rows": rows} if args.workers == 1 else None
report(records_in(args.data, files) / (ended[0] - started[0]), check=check)
