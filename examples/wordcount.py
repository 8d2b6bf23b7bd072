"""Counts words in columns, running along from epoch to epoch.

    falkirk run examples/wordcount.py                                          two poems that come with it
    falkirk run examples/wordcount.py -w 2 --arg path="notes/*.txt" --arg least=100
    falkirk run examples/wordcount.py --arg path=corpus.parquet --arg column=text

A text file is read in blocks of some megabytes, a Parquet file by row groups; each block is an epoch. When an epoch is
complete, the words that occurred in it come out with their counts so far.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

import falkirk
from falkirk import Dataflow, agg

POEMS = Path(__file__).parent / "data" / "*.txt"


def build(path: str | Path = POEMS, column: str = "line", least: int = 8) -> Dataflow:
    """Prints the words that occurred at least `least` times in the files of `path` (in their `column`, if Parquet)."""
    flow = Dataflow("wordcount")
    lines = flow.columns("lines", files(str(path), column))
    words = lines.select(pl.col(column).str.to_lowercase().str.extract_all(r"\w[\w'’]*").alias("word"), name="split")
    counts = (
        words.map_batches(lambda rows: rows.explode("word").drop_nulls(), name="words", repeats_over="record")
        .group_by("word")
        .agg(over="scope", name="count", n=agg.count())
    )
    often = counts.filter(pl.col("n") >= least, name="often").to_records()
    often.map(lambda row: f"{row['n']:7,} {row['word']}", name="line").to(falkirk.Console())
    return flow


def files(path: str, column: str) -> Any:
    """The source that reads `path`. Text is CSV with one column: no quotes, and a separator that no text contains."""
    if path.endswith(".parquet"):
        return falkirk.Parquet(path, columns=[column], schema={column: pa.string()})
    text = {column: pa.string()}
    return falkirk.Csv(path, names=[column], schema=text, delimiter="\x1f", quote=None, allow_unfinished_line=True)
