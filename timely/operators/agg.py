"""Aggregates over groups of rows: `from timely.operators import agg`, then `n=agg.count()`.

Nulls are not values: `count()` counts rows, the others skip nulls, and a group without values has sum 0 and no
minimum, maximum, mean or variance. A sum of integers is exact, and an error where 64 bits do not hold it: cast the column to
`pl.Float64` (rounded) or to a `pl.Decimal` (exact, 38 digits). Minimum and maximum are of numbers, decimals, text, bytes, dates
and times; text is compared by code points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from timely.data.kernels.columns import Numbers
from timely.data.kernels.totals import EXACT, Part, name_of

_NULL, _EXACT = pa.null().id, EXACT.id


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a column (of the rows themselves for `count`). Made by the functions of this module."""

    kind: Literal["count", "sum", "min", "max", "mean", "var", "std"]
    column: str | None = None
    ddof: int = 1
    """Of a variance: it is divided by the number of values less this."""

    def parts(self) -> list[Part]:
        """The partial aggregates from which the result is combined."""
        values = Part("values", self.column)
        match self.kind:
            case "count":
                return [Part("rows")]
            case "mean":
                return [values, Part("sum", self.column)]
            case "sum":
                return [Part("sum", self.column)]
            case "var" | "std":
                return [values, Part("sum", self.column), Part("squares", self.column)]
            case "min":
                return [values, Part("min", self.column)]
            case "max":
                return [values, Part("max", self.column)]

    def finishing(self) -> list[Part]:
        """Those of its parts that `finish` needs as columns."""
        if self.kind in ("var", "std"):
            return [Part("values", self.column), Part("squares", self.column)]
        return self.parts() if self.kind == "mean" else self.parts()[-1:]

    def finish(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The aggregate, from the columns of its parts by name."""
        if self.kind == "count":
            return columns[name_of("rows")]
        if self.kind in ("var", "std"):
            found = self._variances(*(columns[part.name].to_numpy() for part in self.finishing()))
            return pa.array(found, mask=columns[name_of("values", self.column)].to_numpy() <= self.ddof)
        column = columns[name_of("sum" if self.kind == "mean" else self.kind, self.column)]
        if self.kind == "mean":
            counts = columns[name_of("values", self.column)].to_numpy()
            return pa.array(_floats(column) / np.maximum(counts, 1), mask=counts == 0)
        if column.type.id == _NULL:  # no value was ever met
            return pa.array(np.zeros(len(column), np.int64), mask=np.full(len(column), self.kind != "sum"))
        return column.cast(pa.int64()) if column.type.id == _EXACT else column

    @property
    def grows(self) -> bool:
        """True if every row changes the result."""
        return self.kind == "count"

    def differs(self, before: Mapping[Part, Numbers], after: Mapping[Part, Numbers]) -> npt.NDArray[np.bool_]:
        """A mask of the results that differ, given the parts before and after. NaN does not differ from NaN."""
        if self.kind == "mean":
            return _differ(self._means(before), self._means(after))
        if self.kind in ("var", "std"):
            values, squares = self.finishing()
            was, now = (self._variances(parts[values], parts[squares]) for parts in (before, after))
            few, still = before[values] <= self.ddof, after[values] <= self.ddof
            either: npt.NDArray[np.bool_] = _differ(was, now) | (few != still)
            return either
        part = self.parts()[-1]
        found = _differ(before[part], after[part])
        if self.kind in ("min", "max"):  # which start from a value that may be met, too
            values = Part("values", self.column)
            found |= (before[values] == 0) != (after[values] == 0)
        return found

    def _means(self, parts: Mapping[Part, Numbers]) -> Numbers:
        counts = parts[Part("values", self.column)]
        sums = parts[Part("sum", self.column)].astype(np.float64)
        return np.where(counts == 0, np.nan, sums / np.maximum(counts, 1))

    def _variances(self, counts: Numbers, squares: Numbers) -> Numbers:
        """Variances, or their roots; 0 where there are too few values."""
        found: Numbers = np.where(counts > self.ddof, squares, 0) / np.maximum(counts - self.ddof, 1)
        if self.kind == "std":
            found = np.sqrt(found)
        return found

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
            case "var":
                return column.var(self.ddof)
            case "std":
                return column.std(self.ddof)


def _differ(a: Numbers, b: Numbers) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = a != b
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        found &= (a == a) | (b == b)
    return found


def _floats(column: pa.Array) -> Numbers:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column))
    if pa.types.is_decimal(kind):
        return np.array([float(value) for value in column.to_pylist()], np.float64)
    numbers: Numbers = column.to_numpy()
    return numbers


def count() -> Aggregate:
    """Number of rows.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.count(), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 2), ('s', 1)]
    """
    return Aggregate("count")


def sum(column: str) -> Aggregate:
    """The sum of the values of `column`: numbers, decimals.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.sum("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 8), ('s', 4)]
    """
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """The least value of `column`: numbers, decimals, text, bytes, dates, times.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.min("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 3), ('s', 4)]
    """
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """The greatest value of `column`: numbers, decimals, text, bytes, dates, times.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.max("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 5), ('s', 4)]
    """
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean of the values of `column`, as a float.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.mean("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 4.0), ('s', 4.0)]
    """
    return Aggregate("mean", column)


def var(column: str, ddof: int = 1) -> Aggregate:
    """The variance of the values of `column`, numbers, as a float: divided by their number less `ddof`, null where that is not
    above 0.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.var("price")).to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 2.0), ('s', None)]
    """
    return Aggregate("var", column, ddof)


def std(column: str, ddof: int = 1) -> Aggregate:
    """The standard deviation of the values of `column`: the root of `var`.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.std("price", ddof=0)).to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 1.0), ('s', 0.0)]
    """
    return Aggregate("std", column, ddof)


def parts_of(aggregates: Mapping[str, Aggregate]) -> list[Part]:
    """The distinct parts of several aggregates, in order."""
    return list(dict.fromkeys(part for aggregate in aggregates.values() for part in aggregate.parts()))


__all__ = ["Aggregate", "count", "max", "mean", "min", "parts_of", "std", "sum", "var"]
