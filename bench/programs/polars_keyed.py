"""Sum, count and maximum of each key and epoch, as a hand-written loop over Polars."""

from __future__ import annotations

import os
import time

from common import arguments, epoch_files, records_in, report

args = arguments()
os.environ["POLARS_MAX_THREADS"] = str(args.workers)

import polars as pl  # noqa: E402

files = epoch_files(args.data, args.size)
rows = count = 0
total = maxima = 0.0

start = time.perf_counter()
for file in files:
    out = (
        pl.scan_parquet(file)
        .group_by("key")
        .agg(total=pl.col("value").sum(), n=pl.len(), top=pl.col("value").max())
        .collect()
    )
    rows += len(out)
    count += int(out["n"].sum())
    total += float(out["total"].sum())
    maxima += float(out["top"].sum())
seconds = time.perf_counter() - start

check = {"rows": rows, "count": count, "total": total, "maxima": maxima}
report(records_in(args.data, files) / seconds, check=check)
