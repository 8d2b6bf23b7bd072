"""Keys of columns: column names, and expressions that make one column each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.selections import flat
from timely.errors import GraphError, user_site


def keys_of(
    verb: str, given: Iterable[Any], named: Mapping[str, Any], schema: pl.Schema | None
) -> tuple[tuple[str, ...], tuple[pl.Expr, ...]]:
    """Names of the keys, in order, and expressions for the computed ones.

    Raises:
        GraphError: with the user's line, for what is neither a column nor an expression of one.
    """
    names: list[str] = []
    made: list[pl.Expr] = []
    for key in (*flat(tuple(given)), *(_named(expr, name, verb) for name, expr in named.items())):
        if not isinstance(key, str | pl.Expr):
            raise GraphError(f"{user_site()}: {verb} takes names of columns and Polars expressions, not {key!r}")
        column = column_of(key)
        if column is not None:
            schemas.check_columns(verb, [column], schema)
        elif isinstance(key, pl.Expr):
            made.append(key)
            column = output_of(key, verb)
        names.append(str(column))
    return tuple(names), tuple(made)


def check_name(verb: str, name: Any, schema: pl.Schema | None) -> None:
    """Refuse an operator name probably meant for a column called "name".

    Raises:
        GraphError: with the user's line.
    """
    there: Collection[str] = () if schema is None else schema
    if name is None or (isinstance(name, str) and ("name" if verb == "filter" else name) not in there):
        return
    instead = "filter(pl.col('name') == ...)" if verb == "filter" else f"{verb}(pl.col(...).alias('name'))"
    raise GraphError(f"{user_site()}: {verb}(name=...) names the operator; for a column 'name' say {instead}")


def check_options(verb: str, **options: Any) -> None:
    """Refuse an aggregate or expression passed as an option of a verb.

    Raises:
        GraphError: with the user's line.
    """
    for option, value in options.items():
        if isinstance(value, Aggregate | pl.Expr):
            raise GraphError(
                f"{user_site()}: {verb}({option}=...) is an option of {verb}, and no column: give the column another name, and "
                "rename it behind"
            )


def column_of(key: str | pl.Expr) -> str | None:
    """Column selected by a plain key; None if computed or renamed."""
    if isinstance(key, str):
        return key
    selection = key.meta.is_column_selection() and not key.meta.has_multiple_outputs()
    return key.meta.output_name() if selection else None


def output_of(expr: Any, verb: str) -> str:
    """Output column of a Polars expression."""
    if isinstance(expr, Aggregate):
        of = ", ".join(map(repr, expr.columns()))
        raise GraphError(
            f"{user_site()}: agg.{expr.kind}({of}) needs a name for its column: agg({expr.column or 'n'}=agg.{expr.kind}({of}))"
        )
    if not isinstance(expr, pl.Expr):
        raise GraphError(f"{user_site()}: {verb} takes Polars expressions, or name=agg.count(), ..., not {expr!r}")
    try:
        return expr.meta.output_name()
    except pl.exceptions.PolarsError as error:
        raise GraphError(f"{user_site()}: {verb} needs expressions of one column each: {error}") from error


def check_made(made: Iterable[pl.Expr], aggregates: Iterable[Aggregate | pl.Expr]) -> None:
    """Refuse computed keys with the name of a column read by aggregates."""
    replaced = {expr.meta.output_name() for expr in made} & _read_by(aggregates)
    if replaced:
        column = min(replaced)
        raise GraphError(
            f"{user_site()}: group_by makes a key {column!r}, and agg reads the column of that name; give the key "
            f'another name: (...).alias("{column}_key")'
        )


def _read_by(aggregates: Iterable[Aggregate | pl.Expr]) -> set[str]:
    """Columns read by aggregates, as far as they are known."""
    found: set[str] = set()
    for item in aggregates:
        found |= set(item.columns() if isinstance(item, Aggregate) else item.meta.root_names())
    return found


def _named(expr: Any, name: str, verb: str) -> pl.Expr:
    if not isinstance(expr, pl.Expr):
        raise GraphError(f"{user_site()}: {verb}({name}=...) takes a Polars expression, not {expr!r}")
    return expr.alias(name)
