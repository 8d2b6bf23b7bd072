"""`source` and `sink`: reads and writes by Spark's own connectors, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from libraries.columns.verbs.changes import Changes
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.dataflow.partitioned_query import PartitionedQuery
from libraries.spark.dataflow.region import batch
from libraries.spark.dataflow.runner import SparkRunner
from libraries.spark.files.manifest import Over
from libraries.spark.setup.options import SparkOptions
from recovery.policy import Every
from timely.errors import GraphError, user_site
from timely.io import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def source(
    flow: Dataflow,
    what: Callable[..., DataFrame],
    *,
    per_epoch: int | None = None,
    options: SparkOptions | None = None,
    name: str | None = None,
) -> Columns:
    """Stream of columns from a DataFrame: a table, a catalogue or lakehouse query.

    It is read once: after a failure, again from what Spark wrote, unless that was not durable yet.

    Args:
        flow: the dataflow.
        what: a function from a SparkSession to a DataFrame that is no stream (for one there is `Stream`).
        per_epoch: how many partitions of the DataFrame, in their order, make an epoch, in which a job goes on that has failed;
            by default all rows are epoch 0. Partitions without rows count.
        options: where Spark runs, and what is expected of it.
        name: of its operators; by it they are found again after a restart.

    Raises:
        GraphError: if `what` is no function, or `per_epoch` no number of partitions, at the user's line.
    """
    _check(what, "source")
    name = name or flow.graph.fresh_name("spark-source")
    options = options or SparkOptions()
    if per_epoch is not None:
        if isinstance(per_epoch, bool) or not isinstance(per_epoch, int) or per_epoch < 1:
            raise GraphError(f"{user_site()}: per_epoch={per_epoch!r}: must be a number of partitions, 1 or more")
        return flow.columns(name, PartitionedQuery(what, per_epoch, options))
    once = flow.columns(f"{name}-once", Batches([pa.table({"once": [0]})]))
    return batch(once, what, options=options, name=name, runner=SparkRunner(name, what, {}, options, "source"))


def sink(
    stream: Columns,
    write: Callable[..., Any],
    *,
    every: Every = 1,
    over: Over = "new",
    options: SparkOptions | None = None,
    name: str | None = None,
) -> None:
    """Write a stream by a user's function on Spark, at each complete epoch.

    An epoch that was written and then lost in a failure is written again: so the function had better use `epoch`, as what
    it names, replaces, or commits with its rows. What is safe is never written again.

    Args:
        stream: the columns.
        write: a function of a DataFrame, that may ask for `epoch`, and for `attempt`: a number, from 0 on, that no other
            attempt at the epoch has. It returns nothing.
        every: as for `batch`.
        over: as for `batch`.
        options: where Spark runs, and what is expected of it.
        name: of its operators; by it they are found again after a restart.

    Raises:
        GraphError: for arguments that cannot be, at the user's line.
    """
    _check(write, "sink")
    if not isinstance(stream, Columns):
        raise GraphError(
            f"{user_site()}: sink takes a stream of columns, not {type(stream).__name__}: use to_columns() first"
        )
    name = name or stream.graph.fresh_name("spark-sink")
    options = options or SparkOptions()
    runner = SparkRunner(name, write, {}, options, "sink")
    written = stream.rows() if isinstance(stream, Changes) else stream
    batch(written, write, every=every, over=over, options=options, name=name, runner=runner)


def _check(what: object, called: str) -> None:
    if not callable(what):
        raise GraphError(f"{user_site()}: {called} takes a function, not {what!r:.80}")
