"""What can be aggregated over a group of rows: `from timely.operators import agg`, then `n=agg.count()`.

Nulls are not values: `count()` counts rows, the others skip nulls, and a group without values has sum 0 and no
minimum, maximum or mean. Sums are 64-bit integers (which wrap) or floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from timely.kernels.totals import Part


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a column (of the rows themselves for `count`). Made by the functions of this module."""

    kind: Literal["count", "sum", "min", "max", "mean"]
    column: str | None = None

    def parts(self) -> list[Part]:
        """What must be kept to combine partial results."""
        values = Part("values", self.column)
        match self.kind:
            case "count":
                return [Part("rows")]
            case "mean":
                return [values, Part("sum", self.column)]
            case "sum":
                return [Part("sum", self.column)]
            case "min":
                return [values, Part("min", self.column)]
            case "max":
                return [values, Part("max", self.column)]

    def finish(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
        """The aggregate, from the columns of its parts by name."""
        if self.kind == "count":
            return columns[Part("rows").name]
        if self.kind != "mean":
            return columns[Part(self.kind, self.column).name]
        counts = columns[Part("values", self.column).name].to_numpy()
        sums = columns[Part("sum", self.column).name].to_numpy()
        empty = counts == 0
        return pa.array(sums / np.maximum(counts, 1), mask=empty)

    def expression(self) -> pl.Expr:
        """The same in Polars."""
        if self.kind == "count":
            return pl.len().cast(pl.Int64)
        assert self.column is not None
        column = pl.col(self.column)
        match self.kind:
            case "sum":
                return column.sum()
            case "min":
                return column.min()
            case "max":
                return column.max()
            case "mean":
                return column.mean()


def count() -> Aggregate:
    """How many rows."""
    return Aggregate("count")


def sum(column: str) -> Aggregate:
    """The sum of the values of `column`."""
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """The least value of `column`: numbers, dates, times."""
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """The greatest value of `column`: numbers, dates, times."""
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean of the values of `column`, as a float."""
    return Aggregate("mean", column)


def parts_of(aggregates: Mapping[str, Aggregate]) -> list[Part]:
    """The distinct parts of several aggregates, in order."""
    return list(dict.fromkeys(part for aggregate in aggregates.values() for part in aggregate.parts()))


__all__ = ["Aggregate", "count", "max", "mean", "min", "parts_of", "sum"]
