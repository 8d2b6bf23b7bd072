"""Sum, count and maximum of each key and epoch on Pathway in its fastest form: it reads CSV files by itself.

Aggregating each epoch by Arrow and sending the rows through a Python connector took twice as long.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from common import arguments, epoch_files, records_in, report

args = arguments()
os.environ["PATHWAY_THREADS"] = str(args.workers)

import pathway as pw  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.csv as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

files = epoch_files(args.data, args.size)


class Pair(pw.Schema):
    epoch: int
    key: int
    value: float


with tempfile.TemporaryDirectory() as folder:
    for epoch, file in enumerate(files):
        table = pq.read_table(file)
        table = table.add_column(0, "epoch", pa.repeat(epoch, len(table)))
        pc.write_csv(table, Path(folder) / f"epoch-{epoch:04d}.csv")
    pairs = pw.io.csv.read(folder, schema=Pair, mode="static")
    out = pairs.groupby(pairs.epoch, pairs.key).reduce(
        pairs.epoch,
        pairs.key,
        total=pw.reducers.sum(pairs.value),
        n=pw.reducers.count(),
        top=pw.reducers.max(pairs.value),
    )
    pw.io.null.write(out)
    start = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - start

report(records_in(args.data, files) / seconds)
