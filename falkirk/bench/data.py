"""Input of the benchmarks, generated from seed 7 and kept in `bench/data`.

A data set is a folder with `whole.parquet` (a row group an epoch), `epochs/epoch-0000.parquet`, ... (the same rows, one
file and row group an epoch, for systems that read files), and `about.json`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from falkirk.bench.registry import DataKind

SEED = 7
DISTINCT = 100_000
"""Distinct words, and distinct keys."""
RECORDS_PER_EPOCH = 100_000

Progress = Callable[[int, int], None]
"""Progress callback: (epochs written, epochs in all)."""


def ensure(kind: DataKind, size: int, folder: Path, progress: Progress | None = None) -> Path:
    """Path of the data set of `size` records, generated if missing.

    `size` is cut to whole epochs: of 100,000 records, or of a tenth of the whole if that is less.
    """
    per_epoch = max(2, min(RECORDS_PER_EPOCH, size // 10))
    epochs = max(1, size // per_epoch)
    target = folder / f"{kind}-{epochs}x{per_epoch}"
    if (target / "about.json").exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    make = {"pairs": _pairs, "clicks": _clicks}.get(kind, _words)
    table = make(epochs * per_epoch, rng)
    # Written beside, then renamed: what is interrupted is made again, never used.
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
    try:
        _write(table, building, per_epoch, dictionary=kind != "words_plain", progress=progress)
        try:
            building.rename(target)
        except OSError:
            # Somebody else was quicker, which is as good.
            if not (target / "about.json").exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def records_of(data: Path) -> int:
    """Number of records in a data set."""
    return int(json.loads((data / "about.json").read_text())["records"])


def warm(data: Path) -> None:
    """Bring the files into the page cache."""
    for file in sorted(data.rglob("*.parquet")):
        with file.open("rb", buffering=0) as opened:
            while opened.read(1 << 24):
                pass


def _write(table: pa.Table, folder: Path, per_epoch: int, dictionary: bool, progress: Progress | None) -> None:
    epochs = len(table) // per_epoch
    (folder / "epochs").mkdir()
    with pq.ParquetWriter(folder / "whole.parquet", table.schema, use_dictionary=dictionary) as whole:
        for epoch in range(epochs):
            part = table.slice(epoch * per_epoch, per_epoch)
            whole.write_table(part, row_group_size=per_epoch)
            pq.write_table(part, folder / "epochs" / f"epoch-{epoch:04d}.parquet", use_dictionary=dictionary)
            if progress is not None:
                progress(epoch + 1, epochs)
    about = {"records": len(table), "records_per_epoch": per_epoch, "dictionary": dictionary}
    (folder / "about.json").write_text(json.dumps(about))


def _words(records: int, rng: np.random.Generator) -> pa.Table:
    """Words drawn by a truncated Zipf law with exponent 1.

    The n-th of 100,000 is drawn with a weight of 1/n.
    """
    weights = 1 / np.arange(1, DISTINCT + 1)
    cumulated = np.cumsum(weights / weights.sum())
    ids = np.minimum(np.searchsorted(cumulated, rng.random(records)), DISTINCT - 1).astype(np.int32)
    alphabet = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words: dict[str, None] = {}
    while len(words) < DISTINCT:
        words["".join(rng.choice(alphabet, rng.integers(3, 13)))] = None
    column = pa.DictionaryArray.from_arrays(pa.array(ids), pa.array(words))
    return pa.table({"word": column.cast(pa.string())})


def _pairs(records: int, rng: np.random.Generator) -> pa.Table:
    """Pairs of a uniform key and a uniform value."""
    return pa.table({"key": rng.integers(0, DISTINCT, records), "value": rng.random(records)})


def _clicks(records: int, rng: np.random.Generator) -> pa.Table:
    """Clicks on 1,000 pages with event times in seconds, up to 2 s out of order.

    A thousand a second.
    """
    second = np.arange(records) // 1_000 - rng.integers(0, 3, records)
    return pa.table({"page": rng.integers(0, 1_000, records), "at": np.maximum(second, 0)})
