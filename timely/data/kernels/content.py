"""Rows in an order that follows from what stands in them, and not from when they came."""

from __future__ import annotations

import polars as pl

from timely.data.codec import encode

_SORTED = (pl.List, pl.Array, pl.Struct, pl.Object, pl.Categorical, pl.Enum)
"""Types that Polars sorts by in another way than by what stands there, or not at all."""


def in_content_order(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a frame, sorted by all columns: so rows that are side by side in any order are alike."""
    if len(frame) < 2 or not frame.width:
        return frame
    if any(isinstance(kind, _SORTED) for kind in frame.dtypes):
        content = list(map(encode, frame.rows()))
        return frame[sorted(range(len(frame)), key=content.__getitem__)]
    columns = [name for name, kind in frame.schema.items() if kind != pl.Null]
    return frame.sort(columns) if columns else frame
