"""Warm-up of the verbs of columns in a process that waits for its program."""

from __future__ import annotations

import polars as pl

from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.session import Session


def warm_up() -> None:
    """Run a few rows through common kernels, to load and compile them."""
    flow = Dataflow("warm-up")
    columns = flow.input("columns").to_columns()
    columns.group_by("w").agg(n=agg.count(), t=agg.sum("v")).capture("words")
    columns.group_by("k").agg(n=agg.count(), t=agg.sum("v")).capture("numbers")
    with Session(flow) as session:
        session.input("columns").send(pl.DataFrame({"k": [1, 2, 1], "w": ["a", "b", "a"], "v": [1, 2, 3]}))
        session.input("columns").close()
        session.run()
