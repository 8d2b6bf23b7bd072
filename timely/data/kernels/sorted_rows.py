"""Rows in the order of some columns, then of all others: the same in whatever order they came."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def sorted_rows(
    frame: pl.DataFrame, columns: Sequence[str], descending: bool = False, nulls_last: bool = False
) -> pl.DataFrame:
    """The rows in the order of `columns`, null first or last; those that are equal in them in that of the other columns.

    >>> sorted_rows(pl.DataFrame({"a": [2, 1, 1], "b": ["x", "z", "y"]}), ["a"]).rows()
    [(1, 'y'), (1, 'z'), (2, 'x')]
    """
    found = frame.sort(columns, descending=descending, nulls_last=nulls_last)
    others = [name for name in frame.columns if name not in columns]
    if not others or not _tied(found.select(columns)):
        return found
    flags = [descending] * len(columns) + [False] * len(others)
    return frame.sort(
        [*columns, *others], descending=flags, nulls_last=[nulls_last] * len(columns) + [False] * len(others)
    )


def _tied(rows: pl.DataFrame) -> bool:
    """True if two rows beside each other are equal."""
    same = pl.Series([True]).new_from_index(0, max(len(rows) - 1, 0))
    for column in rows:
        same &= column[1:].eq_missing(column[:-1])
    return bool(same.any())
