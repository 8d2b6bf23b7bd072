"""Schemas of streams of columns, inferred through the graph: a verb that cannot work is an error where it is called.

A schema gives the Polars type of each column, in order. It is None where it cannot be told: behind functions of the user's, in
loops, and behind sources that find their columns as they read. Then mistakes show at the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from timely.errors import GraphError, user_site
from timely.io.column_types import polars_schema
from timely.operators.agg import Aggregate
from timely.operators.column_join import CHANGE

MISTAKES = (TypeError, ValueError, pl.exceptions.PolarsError)


def after(
    kind: str, plan: Callable[[Any], Any], schema: pl.Schema | None, expressions: Iterable[Any] = ()
) -> pl.Schema | None:
    """The schema of what a verb of Polars makes of frames with `schema`.

    Args:
        plan: the verb, a function of lazy frames.
        expressions: all that it is given. Functions of the user's among them are not called to find out what they return.

    Raises:
        GraphError: with the user's line, if it cannot work.
    """
    try:
        lazy = plan(pl.LazyFrame(schema=schema))
    except MISTAKES as error:
        why = str(error).partition("\n")[0]
        raise GraphError(f"{user_site()}: {kind} takes Polars expressions or names of columns: {why}") from error
    if schema is None or any("python_udf" in str(each) for each in expressions):
        return None
    try:
        found: pl.Schema = lazy.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise GraphError(f"{user_site()}: {kind}: {told(error)}") from error
    return found


def told(error: Exception) -> str:
    """The message of an error of Polars, without the plan that follows it."""
    lines = str(error).partition("Resolved plan until failure")[0].partition("This error occurred")[0].splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())


def check_columns(kind: str, names: Iterable[str], schema: pl.Schema | None) -> None:
    """Refuse columns that are not there.

    Raises:
        GraphError: with the user's line.
    """
    for name in names:
        if schema is not None and name not in schema:
            there = ", ".join(repr(each) for each in schema if not each.endswith("()"))
            raise GraphError(f"{user_site()}: {kind}: no column {name!r}; there are {there}")


def check_unsigned(kind: str, names: Iterable[str]) -> None:
    """Refuse a column that has the name of the sign, where rows are given one.

    Raises:
        GraphError: with the user's line.
    """
    if CHANGE in names:
        raise GraphError(
            f"{user_site()}: {kind} gives each row a sign, in a column {CHANGE!r}, and there is one of that name: rename it "
            "before"
        )


def aggregated(
    kind: str,
    keys: Sequence[str],
    named: Mapping[str, Aggregate | pl.Expr],
    schema: pl.Schema | None,
) -> pl.Schema | None:
    """The schema of aggregates: the keys, then a column for each.

    Raises:
        GraphError: with the user's line, if one of them cannot be computed.
    """
    if schema is None:
        return None
    check_columns(kind, keys, schema)
    types: dict[str, Any] = {key: schema[key] for key in keys}
    if any(isinstance(types[key], pl.Enum) or types[key].is_nested() for key in keys):
        return None
    expressions = {name: item for name, item in named.items() if isinstance(item, pl.Expr)}
    if expressions:
        made = after(kind, lambda frame: frame.group_by(keys).agg(**expressions), schema, expressions.values())
        # Beside expressions the others are computed by Polars, too, with types of its own for narrow floats and integers.
        return made if len(expressions) == len(named) else None
    arrow = pl.DataFrame(schema=schema).to_arrow().schema
    for name, aggregate in named.items():
        assert isinstance(aggregate, Aggregate)
        call = f"{kind}({name}=agg.{aggregate.kind}(...))"
        check_columns(call, aggregate.columns(), schema)
        try:
            found = aggregate.result_kind(*(arrow.field(column).type for column in aggregate.columns()))
        except TypeError as error:
            raise GraphError(f"{user_site()}: {call}: {error}") from error
        settled = None if pa.types.is_null(found) else polars_schema(pa.schema([(name, found)]))
        if settled is None:
            return None
        types[name] = settled[name]
    return pl.Schema(types)


def topped(keys: Sequence[str], schema: pl.Schema | None) -> pl.Schema | None:
    """The schema of the first rows of each key: the keys, then the other columns, without a sign."""
    if schema is None or any(isinstance(kind, pl.Enum) or kind.is_nested() for kind in schema.values()):
        return None
    check_columns("top_k", keys, schema)
    others = [name for name in schema if name not in keys and name != CHANGE]
    return pl.Schema({name: schema[name] for name in (*keys, *others)})


def joined(how: str, keys: Sequence[str], left: pl.Schema | None, right: pl.Schema | None) -> pl.Schema | None:
    """The schema of a join on equal `keys`.

    Raises:
        GraphError: with the user's line, if it cannot work.
    """
    check_columns("join", keys, left)
    check_columns("join: the other stream", keys, right)
    if left is None or right is None:
        return None
    return after(
        "join",
        lambda frame: frame.join(_uncoded(right, keys), on=keys, how=_POLARS_HOW.get(how, how), suffix="_right"),
        _uncoded(left, keys).collect_schema(),
    )


def joined_asof(
    on: str, keys: Sequence[str], tolerance: Any, left: pl.Schema | None, right: pl.Schema | None
) -> pl.Schema | None:
    """The schema of an as-of join in the order of `on`, of rows with equal `keys`.

    Raises:
        GraphError: with the user's line, if it cannot work.
    """
    check_columns("join_asof", [on, *keys], left)
    check_columns("join_asof: the other stream", [on, *keys], right)
    if left is None or right is None:
        return None
    return after(
        "join_asof",
        lambda frame: frame.join_asof(
            _uncoded(right, keys), on=on, by=list(keys) or None, tolerance=tolerance, suffix="_right"
        ),
        _uncoded(left, keys).collect_schema(),
    )


_POLARS_HOW = {"lookup": "left", "right": "left", "full": "left"}


def _uncoded(schema: pl.Schema, keys: Sequence[str]) -> pl.LazyFrame:
    """Keys that are dictionary codes are joined, and come out, as text."""
    coded = (pl.Categorical, pl.Enum)
    types = {name: pl.String() if name in keys and isinstance(kind, coded) else kind for name, kind in schema.items()}
    return pl.LazyFrame(schema=types)


def windowed(
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    time: str | None,
    instants: bool,
    schema: pl.Schema | None,
) -> pl.Schema | None:
    """The schema of aggregates in windows, by the event times `time` (None: of epochs): the keys, `start`, `end`, then a column
    for each.

    Raises:
        GraphError: with the user's line, if one of them cannot be computed.
    """
    found = aggregated("agg in windows", keys, aggregates, schema)
    if found is None or schema is None:
        return None
    of = None if time is None else schema[time]
    bound = pl.Datetime("us", of.time_zone if isinstance(of, pl.Datetime) else None) if instants else pl.Int64()
    types = {key: found[key] for key in keys} | {"start": bound, "end": bound}
    return pl.Schema(types | {name: found[name] for name in aggregates})
