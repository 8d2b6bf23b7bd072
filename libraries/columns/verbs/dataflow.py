"""`Dataflow` with sources of columns."""

from __future__ import annotations

from libraries.columns.verbs.columns import Columns, Stream
from timely.dataflow import dataflow
from timely.dataflow.wire import view
from timely.io.interface import Source


class Dataflow(dataflow.Dataflow[Stream]):
    """Dataflow program under construction.

    >>> flow = falkirk.Dataflow("greeting")
    >>> greetings = flow.input("names").map(lambda name: f"Hello, {name}").capture()

    Every worker builds the same one, so building must not depend on chance, time, or the worker.
    """

    _streams = Stream

    def columns(self, name: str, source: Source) -> Columns:
        """Stream of columns read from `source`; see `source`.

        Raises:
            GraphError: `source` is none, or the name is taken.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> prices = flow.columns("prices", falkirk.Batches([pl.DataFrame({"price": [3, 4]})]))
        >>> high = prices.filter(pl.col("price") > 3).to_records().capture("high")
        >>> falkirk.run(flow).captured("high")
        [((0,), [{'price': 4}])]
        """
        stream = view(self.source(name, source), Columns)
        if (schema := getattr(source, "columns_schema", None)) is not None:
            self.graph.set_schema(stream.outputs[0], schema)
        return stream
