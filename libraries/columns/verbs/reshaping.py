"""Dropping and renaming columns: `drop("n")`, `rename({"n": "m"})`.

Where the columns are known, both are a choice of columns by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.selections import flat
from timely.data.kernels.expressions import compiled
from timely.errors import GraphError, user_site

if TYPE_CHECKING:
    from libraries.columns.verbs.columns import Columns


def drop(columns: Columns, given: tuple[Any, ...], strict: bool, name: str | None) -> Columns:
    """Drop columns: see `Columns.drop`."""
    if not given:
        raise GraphError(f"{user_site()}: drop takes the names of the columns that go")
    if strict:
        schemas.check_columns("drop", [each for each in flat(given) if isinstance(each, str)], columns.schema)
    plan = lambda frame: frame.drop(*given, strict=strict)  # noqa: E731
    made = schemas.after("drop", plan, columns.schema)
    if made is None:
        return columns._plan("drop_columns", name, plan)
    if not made:
        raise GraphError(f"{user_site()}: drop leaves no column")
    return _chosen(columns, "drop_columns", name, {column: column for column in made})


def rename(
    columns: Columns, mapping: Mapping[str, str] | Callable[[str], str], strict: bool, name: str | None
) -> Columns:
    """Rename columns: see `Columns.rename`."""
    if not isinstance(mapping, Mapping) and not callable(mapping):
        raise GraphError(
            f"{user_site()}: rename takes a dict of names, old to new, or a function of a name, not {mapping!r}"
        )
    if strict and isinstance(mapping, Mapping):
        schemas.check_columns("rename", mapping, columns.schema)
    plan = lambda frame: frame.rename(mapping, strict=strict)  # noqa: E731
    if columns.schema is None:
        return columns._plan("rename", name, plan)
    made = schemas.after("rename", plan, columns.schema)
    assert made is not None
    return _chosen(columns, "rename", name, dict(zip(made, columns.schema, strict=True)))


def _chosen(columns: Columns, kind: str, name: str | None, names: Mapping[str, str]) -> Columns:
    """Select columns, by their new names."""
    exprs = [pl.col(old) if new == old else pl.col(old).alias(new) for new, old in names.items()]
    return columns._plan(kind, name, lambda frame: frame.select(exprs), few=compiled("select", exprs, {}))
