"""Loading what the first batches of a job would load otherwise: a process that waits as a spare has the time."""

from __future__ import annotations

import polars as pl

from runtime.session import Session
from timely.dataflow.dataflow import Dataflow
from timely.io import Iterable
from timely.operators import agg


def warm_up() -> None:
    """Run records and columns through the kernels that most programs use."""
    flow = Dataflow("warm-up")
    words = flow.source("records", Iterable(["a", "b", "a"]))
    words.key_by(lambda word: word).count().capture("counts")
    frame = pl.DataFrame({"k": [1, 2, 1], "w": ["a", "b", "a"], "v": [1, 2, 3]})
    columns = flow.input("columns")
    columns.to_columns().group_by("w").agg(n=agg.count(), t=agg.sum("v")).capture("words")
    columns.to_columns().group_by("k").agg(n=agg.count(), t=agg.sum("v")).capture("numbers")
    with Session(flow) as session:
        session.input("columns").send(frame)
        session.input("columns").close()
        session.run()
