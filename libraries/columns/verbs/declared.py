"""Schemas of columns declared by users, checked against every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from libraries.columns.schemas import inference as schemas
from libraries.columns.verbs.stateless import C, StatelessVerbs
from timely.data.batch import Batch, as_polars
from timely.errors import GraphError, user_site
from timely.io.column_types import Schema, polars_types


def match_to_schema(columns: C, schema: Schema, name: str | None) -> C:
    """`columns` with the declared `schema` in all batches.

    See `Columns.match_to_schema`.
    """
    declared = pl.Schema(polars_types(schema))
    if (known := columns.schema) is not None:
        if differs := _difference(known, declared):
            raise GraphError(f"{user_site()}: match_to_schema: {differs}")
        return columns if known == declared else columns._choose("drop", *declared)
    return columns._stage("match_to_schema", name, _matching(declared), schema=declared, repeats_over="record")


def _matching(declared: pl.Schema) -> Callable[[Batch], Batch]:
    """Function to put a batch's columns into the declared order.

    Raises TypeError for a batch with other columns.
    """
    names = list(declared)

    def match(batch: Batch) -> Batch:
        frame = as_polars(batch)
        if frame.schema == declared:
            return batch
        if differs := _difference(frame.schema, declared):
            raise TypeError(differs)
        return frame.select(names)

    return match


def _difference(found: pl.Schema, declared: pl.Schema) -> str:
    """Differences between found and declared columns, in words for users.

    Empty if only the order is another one.
    """
    differences = [f"column {name!r} is declared, and not there" for name in declared if name not in found]
    differences += [f"column {name!r} is there, and not declared" for name in found if name not in declared]
    differences += [
        f"column {name!r} is {found[name]}, and declared as {kind}"
        for name, kind in declared.items()
        if name in found and found[name] != kind
    ]
    return "; ".join(differences)


def loop_body(schema: pl.Schema, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Body of a loop, with the schema of its input declared for its feedback.

    Its result must have that schema, too.
    """

    def with_errors(inside: StatelessVerbs) -> Any:
        inside.graph.set_schema(inside.outputs[-1], schema)
        result = body(inside)
        if isinstance(result, tuple) and len(result) == 2:
            return _held(result[0], schema), result[1]
        return _held(result, schema)

    return with_errors


def _held(again: Any, schema: pl.Schema) -> Any:
    if getattr(again, "_signed", False):
        raise GraphError(
            f"{user_site()}: iterate: what goes round is never taken back, so changes cannot go round: return "
            "them beside it, (again, out)"
        )
    if not isinstance(again, StatelessVerbs):
        return again
    if again.schema is not None and (differs := _difference(again.schema, schema)):
        raise GraphError(f"{user_site()}: iterate: what goes round has other columns than what enters: {differs}")
    return match_to_schema(again, schema, None)


def alike(streams: list[C]) -> list[C]:
    """Streams for `concat`, with columns in one order and of common types.

    The order is that of the first. Streams of unknown columns stay as they are.

    Raises:
        GraphError: with the user's line, if they have different columns, or types that do not go together.
    """
    known = [stream.schema for stream in streams if stream.schema is not None]
    if len(known) < 2 or all(schema == known[0] for schema in known):
        return streams
    wanted = schemas.united("concat", known)
    return [stream if stream.schema in (None, wanted) else _brought(stream, wanted) for stream in streams]


def _brought(stream: C, wanted: pl.Schema) -> C:
    known = stream.schema
    assert known is not None
    exprs = [pl.col(name) if known[name] == kind else pl.col(name).cast(kind) for name, kind in wanted.items()]
    return stream._choose("drop", *exprs)
