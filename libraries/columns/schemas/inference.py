"""Schemas of columns, inferred through the graph to report errors at the call.

A schema gives the Polars type of each column, in order. It is None where it cannot be told: behind functions of the user's, in
loops, and behind sources that find their columns as they read. Then mistakes show at the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa

from libraries.columns.agg import Aggregate
from libraries.columns.operators.joins.joining import CHANGE
from timely.data.common_types import common_type
from timely.errors import GraphError, user_site
from timely.io.column_types import arrow_form, polars_schema

MISTAKES = (TypeError, ValueError, pl.exceptions.PolarsError)


def after(
    kind: str, plan: Callable[[Any], Any], schema: pl.Schema | None, expressions: Iterable[Any] = ()
) -> pl.Schema | None:
    """Schema of the output of a Polars verb on frames with `schema`.

    Args:
        plan: the verb, a function of lazy frames.
        expressions: all that it is given. Functions of the user's among them are not called to find out what they return.

    Raises:
        GraphError: with the user's line, if it cannot work.
    """
    try:
        lazy = plan(no_rows(schema or {}))
    except MISTAKES as error:
        why = str(error).partition("\n")[0]
        raise GraphError(f"{user_site()}: {kind} takes Polars expressions or names of columns: {why}") from error
    if schema is None or any("python_udf" in str(each) for each in expressions):
        return None
    try:
        found: pl.Schema = lazy.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise GraphError(f"{user_site()}: {kind}: {error_text(error)}") from error
    return found


def no_rows(schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Frame with these columns and no rows.

    Polars makes one of a schema by way of Python values, a tenth as fast.
    """
    return pl.DataFrame([_no_values(kind).alias(name) for name, kind in schema.items()]).lazy()


@lru_cache(maxsize=256)
def _no_values(kind: pl.DataType) -> pl.Series:
    return pl.Series([], dtype=kind)


def error_text(error: Exception) -> str:
    """Message of a Polars error, without the appended query plan."""
    lines = str(error).partition("Resolved plan until failure")[0].partition("This error occurred")[0].splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())


def check_columns(kind: str, names: Iterable[str], schema: pl.Schema | None) -> None:
    """Refuse unknown columns.

    Raises:
        GraphError: with the user's line.
    """
    for name in names:
        if schema is not None and name not in schema:
            there = ", ".join(repr(each) for each in schema if not each.endswith("()"))
            raise GraphError(f"{user_site()}: {kind}: no column {name!r}; there are {there}")


def check_unsigned(kind: str, names: Iterable[str]) -> None:
    """Refuse a column with the name of the sign, in verbs that add one.

    Raises:
        GraphError: with the user's line.
    """
    if CHANGE in names:
        raise GraphError(
            f"{user_site()}: {kind} gives each row a sign, in a column {CHANGE!r}, and there is one of that name: rename it "
            "before"
        )


def check_keys(kind: str, keys: Iterable[str], schema: pl.Schema | None) -> None:
    """Refuse missing keys, and keys of nested types.

    Raises:
        GraphError: with the user's line.
    """
    keys = list(keys)
    check_columns(kind, keys, schema)
    for key in keys:
        if schema is not None and schema[key].is_nested():
            raise GraphError(
                f"{user_site()}: {kind}: column {key!r} of type {schema[key]} cannot be a key; use numbers, text, bytes, "
                "dates, or several such columns: unnest makes them of a struct"
            )
        if schema is not None:
            _arrow_form(kind, key, schema)


def _arrow_form(kind: str, name: str, schema: pl.Schema) -> pa.DataType:
    found = arrow_form(schema[name])
    if found is None:
        raise GraphError(
            f"{user_site()}: {kind}: column {name!r} of type {schema[name]} has no Arrow form; cast it before: "
            f"with_columns(pl.col({name!r}).cast(pl.Int64)), or pl.Decimal(38, 0)"
        )
    return found


def check_nested(kind: str, given: Sequence[Any], schema: pl.Schema | None) -> None:
    """Refuse `explode` of non-lists, and `unnest` of non-structs or to names in use.

    Raises:
        GraphError: with the user's line.
    """
    chosen = after(kind, lambda frame: frame.select(*given), schema, given)
    if schema is None or chosen is None:
        return
    fields = [name for name in schema if name not in chosen]
    for name, of in chosen.items():
        if isinstance(of, pl.Struct) and kind == "unnest":
            fields += [field.name for field in of.fields]
        elif not (kind == "explode" and isinstance(of, pl.List | pl.Array)):
            wanted = "structs" if kind == "unnest" else "lists"
            raise GraphError(f"{user_site()}: {kind} takes columns of {wanted}, and {name!r} is of type {of}")
    twice = next((name for number, name in enumerate(fields) if name in fields[:number]), None)
    if kind == "unnest" and twice is not None:
        raise GraphError(
            f"{user_site()}: unnest would give two columns {twice!r}; rename one of them, or drop it, before"
        )


def united(kind: str, several: Sequence[pl.Schema]) -> pl.Schema:
    """Common schema of rows of several schemas.

    The columns are in the order of the first, of types that hold those of all.

    Raises:
        GraphError: with the user's line, if they have different columns, or types that do not go together.
    """
    first = several[0]
    for other in several[1:]:
        if differ := sorted({*first} ^ {*other}):
            names = ", ".join(map(repr, differ))
            raise GraphError(
                f"{user_site()}: {kind}: {names} {'is' if len(differ) == 1 else 'are'} not in all of the streams; select the "
                "same columns of each before"
            )
    types: dict[str, Any] = {}
    for name in first:
        kinds = [each[name] for each in several]
        try:
            types[name] = common_type(kinds)
        except TypeError as error:
            raise GraphError(
                f"{user_site()}: {kind}: column {name!r} is of {error}, in different streams; cast it"
            ) from None
    return pl.Schema(types)


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
    check_keys(kind, keys, schema)
    types: dict[str, Any] = {key: _as_key(schema[key]) for key in keys}
    expressions = {name: item for name, item in named.items() if isinstance(item, pl.Expr)}
    if expressions:
        made = after(kind, lambda frame: frame.group_by(keys).agg(**expressions), schema, expressions.values())
        if made is None:
            return None
        types |= made
    for name, aggregate in named.items():
        if not isinstance(aggregate, Aggregate):
            continue
        call = f"{kind}({name}=agg.{aggregate.kind}(...))"
        check_columns(call, aggregate.columns(), schema)
        kinds = [_arrow_form(call, column, schema) for column in aggregate.columns()]
        try:
            found = aggregate.result_kind(*kinds)
        except TypeError as error:
            raise GraphError(f"{user_site()}: {call}: {error}") from error
        settled = None if pa.types.is_null(found) else polars_schema(pa.schema([(name, found)]))
        if settled is None:
            return None
        types[name] = settled[name]
    return pl.Schema({name: types[name] for name in (*keys, *named)})


def topped(keys: Sequence[str], schema: pl.Schema | None, running: bool) -> pl.Schema | None:
    """Schema of the first rows of each key: keys, then other columns, without sign.

    Raises:
        GraphError: with the user's line, if rows of a time (or, `running`, of all so far) cannot be compared.
    """
    if schema is None:
        return None
    others = [name for name in schema if name not in keys and name != CHANGE]
    check_keys("top_k", [*keys, *(others if running else ())], schema)
    return pl.Schema({name: _as_key(schema[name]) if running else schema[name] for name in (*keys, *others)})


def _as_key(kind: pl.DataType) -> pl.DataType:
    """Output type of a column used as a key; an `Enum` becomes `Categorical`."""
    return pl.Categorical() if isinstance(kind, pl.Enum) else kind


def other_side(kind: str, known: pl.Schema | None, as_declared: Mapping[str, Any] | None) -> pl.Schema | None:
    """Schema of a join's other stream: inferred, or declared by the user (`right=`).

    Raises:
        GraphError: with the user's line, if what he says is not so.
    """
    if as_declared is None:
        return known
    there = pl.DataFrame(schema=dict(as_declared)).schema
    if known is not None and dict(known) != dict(there):
        raise GraphError(
            f"{user_site()}: {kind}: right= says {_listed(there)}, and the other stream has {_listed(known)}: leave it "
            "out, as those are known"
        )
    return there


def _listed(schema: pl.Schema) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in schema.items() if not name.endswith("()"))


def joined(
    how: str,
    keys: Sequence[str | pl.Expr],
    left: pl.Schema | None,
    right: pl.Schema | None,
    suffix: str = "_right",
    right_keys: Sequence[str | pl.Expr] | None = None,
) -> pl.Schema | None:
    """Schema of a join on equal keys.

    The keys are `keys`, or `keys` of the left side and `right_keys` of the right one.

    Raises:
        GraphError: with the user's line, if it cannot work.
    """
    theirs = keys if right_keys is None else right_keys
    check_keys("join", _named(keys), left)
    check_keys("join: the other stream", _named(theirs), right)
    if left is None or right is None:
        return None
    for mine, other in zip(keys, theirs, strict=False):
        if isinstance(mine, str) and isinstance(other, str):
            kinds = left[mine], right[other]
            if all(kind.is_numeric() for kind in kinds) and kinds[0] != kinds[1]:
                raise GraphError(
                    f"{user_site()}: join: {mine!r} is of type {kinds[0]}, and {other!r} of the other stream of type "
                    f"{kinds[1]}: cast one of them before"
                )
    kind = how if right_keys is not None else _POLARS_HOW.get(how, how)
    return after(
        "join",
        lambda frame: frame.join(
            no_rows(_uncoded(right, _named(theirs))),
            left_on=keys,
            right_on=theirs,
            how="left" if kind == "lookup" else kind,
            suffix=suffix,
        ),
        _uncoded(left, _named(keys)),
        [key for key in (*keys, *theirs) if isinstance(key, pl.Expr)],
    )


def _named(keys: Sequence[str | pl.Expr]) -> list[str]:
    return [key for key in keys if isinstance(key, str)]


def joined_asof(
    on: str, keys: Sequence[str], tolerance: Any, left: pl.Schema | None, right: pl.Schema | None
) -> pl.Schema | None:
    """Schema of an as-of join by `on`, with equal `keys`.

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
            no_rows(_uncoded(right, keys)), on=on, by=list(keys) or None, tolerance=tolerance, suffix="_right"
        ),
        _uncoded(left, keys),
    )


_POLARS_HOW = {"lookup": "left", "right": "left", "full": "left"}


def _uncoded(schema: pl.Schema, keys: Sequence[str]) -> pl.Schema:
    """Schema with dictionary-coded keys as text, as a join gives them."""
    coded = (pl.Categorical, pl.Enum)
    types = {name: pl.String() if name in keys and isinstance(kind, coded) else kind for name, kind in schema.items()}
    return pl.Schema(types)


def windowed(
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    time: str | None,
    instants: bool,
    schema: pl.Schema | None,
) -> pl.Schema | None:
    """Schema of aggregates in windows: keys, `start`, `end`, and the aggregates.

    `time` is the column of event times; None: windows of epochs.

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
