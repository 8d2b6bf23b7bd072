"""Sort rows by content, independent of their arrival order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from timely.data.content import content_of
from timely.errors import CodecError

_BY_VALUE = (pl.List, pl.Array, pl.Struct, pl.Object, pl.Categorical, pl.Enum)
"""Types sorted by Polars other than by value, or not at all."""


def sorted_rows(
    frame: pl.DataFrame, columns: Sequence[str], descending: bool = False, nulls_last: bool = False
) -> pl.DataFrame:
    """Rows sorted by `columns`, and ties by the other columns.

    Null is first or last.

    >>> sorted_rows(pl.DataFrame({"a": [2, 1, 1], "b": ["x", "z", "y"]}), ["a"]).rows()
    [(1, 'y'), (1, 'z'), (2, 'x')]
    """
    found = frame.sort(columns, descending=descending, nulls_last=nulls_last)
    others = [name for name in frame.columns if name not in columns]
    if not others or not _tied(found.select(columns)):
        return found
    return in_content_order(frame).sort(columns, descending=descending, nulls_last=nulls_last, maintain_order=True)


def in_content_order(frame: pl.DataFrame, first: Sequence[str] = ()) -> pl.DataFrame:
    """Rows sorted by the columns `first`, then by all others, in one piece.

    Polars groups sorted keys in another way, and adds floats of several pieces in another order. A frame may be known to be
    sorted, or not, by how it came: so rows that are to be grouped by keys are in the order of these.

    What cannot be encoded, and so neither travels nor is saved, stays in the order in which it is.

    >>> in_content_order(pl.DataFrame({"a": [2, 1, 1], "b": [[1], [3], [2]]})).rows()
    [(1, [2]), (1, [3]), (2, [1])]
    """
    if len(frame) < 2 or not frame.width:
        return frame
    if any(isinstance(kind, _BY_VALUE) for kind in frame.dtypes):
        try:
            content = [
                content_of(row)
                for row in _as_integers(frame).select(list(dict.fromkeys([*first, *frame.columns]))).rows()
            ]
        except CodecError:
            return frame
        return frame[sorted(range(len(frame)), key=content.__getitem__)]
    names = dict.fromkeys([*first, *frame.columns])
    columns: list[str | pl.Expr] = [name for name in names if frame.schema[name] != pl.Null]
    if not columns:
        return frame
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    if floats and frame.select(pl.any_horizontal((pl.col(floats) == 0).any())).item():
        columns += [(pl.lit(1.0) / pl.col(name)) > 0 for name in floats]  # by value zeros of both signs are equal
    return frame.sort(columns).rechunk()


def _as_integers(frame: pl.DataFrame) -> pl.DataFrame:
    """Frame with times as integers, as Python's times lose distinctions.

    See `columns.as_integers`.
    """
    kinds = {name: _integers_type(kind) for name, kind in frame.schema.items()}
    return frame.cast({name: kind for name, kind in kinds.items() if kind != frame.schema[name]})


def _integers_type(kind: Any) -> Any:
    if isinstance(kind, pl.List):
        return pl.List(_integers_type(kind.inner))
    if isinstance(kind, pl.Array):
        return pl.Array(_integers_type(kind.inner), kind.size)
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _integers_type(field.dtype) for field in kind.fields})
    return pl.Int64() if kind.is_temporal() else kind


def _tied(rows: pl.DataFrame) -> bool:
    """True if two neighbouring rows are equal."""
    same = pl.Series([True]).new_from_index(0, max(len(rows) - 1, 0))
    for column in rows:
        same &= column[1:].eq_missing(column[:-1])
    return bool(same.any())
