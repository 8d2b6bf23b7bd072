"""Streams of records: the verbs that take Python functions of one record.

They are the convenient way, not the fast one: `Columns` has the same verbs over whole columns. Where a batch of columns
reaches a function of records, each row is a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from timely.data.batch import Batch, as_polars, is_columns
from timely.dataflow.keyed import Keyed, Over, check_over
from timely.dataflow.wire import Wire, check_callable
from timely.io.column_types import Schema, polars_types
from timely.operators.channels import Exchange
from timely.operators.keyed import Distinct
from timely.operators.shaping import AttemptOperator, Branch

if TYPE_CHECKING:
    from timely.dataflow.columns import Columns

W = TypeVar("W", bound=Wire)


def records_of(batch: Batch) -> list[Any]:
    """The batch as a list of records: rows of columns become dicts."""
    if isinstance(batch, list):
        return batch
    return as_polars(batch).to_dicts()


def view(stream: Wire, kind: type[W]) -> W:
    """The same stream, with the verbs of `kind`."""
    return kind(stream.graph, stream.scope, stream.outputs, stream.first)


class Stream(Wire):
    """A stream of records: each batch is a list of anything."""

    def map(self, function: Callable[[Any], Any], name: str | None = None) -> Stream:
        """Replace every record by `function(record)`."""
        check_callable(function, "map")
        return self._stage("map", name, lambda batch: [function(x) for x in records_of(batch)], function)

    def attempt(self, function: Callable[[Any], Any], name: str | None = None) -> tuple[Stream, Stream]:
        """Like `map`, but a record on which `function` raises does not stop the job.

        Two streams: the results, and the dead letters: pairs (record, error text), at the time of the record.

        >>> from timely.dataflow.dataflow import Dataflow
        >>> numbers, dead_letters = Dataflow().input("lines").attempt(int)
        """
        check_callable(function, "attempt")
        node = self._attach("attempt", name, factory=lambda: AttemptOperator(function, records_of), outputs=2)
        return self._of(node, 0), self._of(node, 1)

    def filter(self, predicate: Callable[[Any], Any], name: str | None = None) -> Stream:
        """Keep the records for which `predicate(record)` is true."""
        check_callable(predicate, "filter")
        return self._stage("filter", name, lambda batch: [x for x in records_of(batch) if predicate(x)], predicate)

    def flat_map(self, function: Callable[[Any], Iterable[Any]], name: str | None = None) -> Stream:
        """Replace every record by the records that `function(record)` gives."""
        check_callable(function, "flat_map")
        return self._stage(
            "flat_map", name, lambda batch: list(chain.from_iterable(map(function, records_of(batch)))), function
        )

    def inspect(self, function: Callable[[Any], Any], name: str | None = None) -> Stream:
        """Call `function(record)` for every record that passes; for looking, not for output (use a sink for that)."""
        check_callable(function, "inspect")

        def look(batch: Batch) -> Batch:
            for record in records_of(batch):
                function(record)
            return batch

        return self._stage("inspect", name, look, function)

    def branch(self, predicate: Callable[[Any], Any], name: str | None = None) -> tuple[Stream, Stream]:
        """Two streams: the records for which `predicate(record)` is true, and the others."""
        check_callable(predicate, "branch")

        def split(batch: Batch) -> tuple[Batch, Batch]:
            yes: list[Any] = []
            no: list[Any] = []
            for record in records_of(batch):
                (yes if predicate(record) else no).append(record)
            return yes, no

        node = self._attach("branch", name, factory=lambda: Branch(split, by_record=True), outputs=2)
        return self._of(node, 0), self._of(node, 1)

    def distinct(self, over: Over = "scope", name: str | None = None) -> Stream:
        """Each record once: once in a scope (the default: ever, in the root scope), or once a time."""
        running = check_over(over, "distinct")
        node = self._attach(
            "distinct",
            name,
            Exchange(key=_whole, prepare=records_of),
            factory=lambda: Distinct(running),
            notifies=True,
            stateful=True,
        )
        return self._of(node)

    def exchange(self, by: Callable[[Any], Any], name: str | None = None) -> Stream:
        """Bring the records with equal `by(record)` to the same worker."""
        check_callable(by, "exchange")
        return self._stage("exchange", name, records_of, channel=Exchange(key=by, prepare=records_of))

    def key_by(self, function: Callable[[Any], Any], name: str | None = None) -> Keyed:
        """Pairs (function(record), record), ready for keyed verbs."""
        check_callable(function, "key_by")
        return view(
            self._stage("key_by", name, lambda batch: [(function(x), x) for x in records_of(batch)], function), Keyed
        )

    def keyed(self) -> Keyed:
        """The same stream, whose records are already pairs (key, value)."""
        return view(self, Keyed)

    def to_columns(self, schema: Schema | None = None, name: str | None = None) -> Columns:
        """The stream as columns: records are dicts, or tuples in the order of `schema`.

        `schema` gives types of columns by name: Polars', Python's or Arrow's.
        """
        from timely.dataflow.columns import Columns

        types = None if schema is None else polars_types(schema)

        def frame(batch: Batch) -> Batch:
            if is_columns(batch):
                return batch if types is None else as_polars(batch).cast(pl.Schema(types))
            assert isinstance(batch, list)
            return pl.DataFrame(batch, schema=types, orient=None if isinstance(batch[0], dict) else "row")

        return view(self._stage("to_columns", name, frame), Columns)


def _whole(record: Any) -> Any:
    return record
