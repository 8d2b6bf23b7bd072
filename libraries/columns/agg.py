"""Aggregates over groups of rows, such as `n=agg.count()`.

Import them with `from timely.operators import agg`.

Nulls are not values: `count()` counts rows, `n_unique` counts null as one value, as in Polars, the others skip nulls, and a
group without values has sum 0 and no minimum, maximum, first, last, mean or variance. A sum of integers is exact, and an error
where 64 bits do not hold it: cast the column to `pl.Float64` (rounded) or to a `pl.Decimal` (exact, 38 digits). Minimum and
maximum are of numbers, decimals, text, bytes, dates and times; text is compared by code points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from libraries.columns.kernels.added import plain_values
from libraries.columns.kernels.parts import EXACT, MADE, Kind, Part, compared_kind, squared_kind, sum_kind
from libraries.columns.kernels.signed import What, signed, with_special, with_vast
from libraries.columns.kernels.sketches import (
    GREATEST_ERROR,
    LEAST_ERROR,
    Interpolation,
    observations,
    quantiles,
    sketched_kind,
)
from timely.data.kernels.columns import Numbers, pairs, second
from timely.data.sums.terms import is_terms, means, rounded, spreads, summed, terms_of
from timely.errors import GraphError, user_site

_NULL, _EXACT = pa.null().id, EXACT.id

_PARTS: Mapping[str, tuple[Kind, ...]] = {
    "count": ("rows",),
    "sum": ("sum",),
    "min": ("values", "min"),
    "max": ("values", "max"),
    "first": ("values", "min"),
    "last": ("values", "max"),
    "mean": ("values", "sum"),
    "var": ("values", "sum", "squares"),
    "std": ("values", "sum", "squares"),
    "n_unique": ("rows", "distinct"),
    "quantile": ("sketch",),
}
"""Partial aggregates combined into each aggregate."""

_SPREAD: tuple[tuple[Kind, What], ...] = (
    ("sum", "number"),
    ("sum", "sum"),
    ("sum", "squares"),
    ("sum", "rests"),
    ("sum", "ends"),
    ("sketch", "vast"),
)

_SIGNED: Mapping[str, tuple[tuple[Kind, What], ...]] = {
    "sum": (("sum", "sum"), ("sketch", "special")),
    "mean": (("sum", "number"), ("sum", "sum"), ("sketch", "special")),
    "var": _SPREAD,
    "std": _SPREAD,
}
"""Partial aggregates of signed rows for each aggregate, with their inputs."""

KINDS = tuple(_PARTS)
"""Names of the aggregates."""


@dataclass(frozen=True)
class Sketch:
    """Parameters of a quantile: share, interpolation, relative error."""

    quantile: float
    interpolation: Interpolation
    error: float


_Kind: TypeAlias = Literal["count", "sum", "min", "max", "first", "last", "mean", "var", "std", "n_unique", "quantile"]


@dataclass(frozen=True)
class Aggregate:
    """Aggregate of a column, or of the rows themselves for `count`.

    Made by the functions of this module.
    """

    kind: _Kind
    column: str | None = None
    ddof: int = 1
    """Delta degrees of freedom of a variance: its divisor is the count less this."""
    order_by: str | None = None
    """Ordering column of `first` and `last`."""
    sketch: Sketch | None = None
    """Parameters of `quantile`."""
    sign: str | None = None
    """Sign column: 1 for added rows, -1 for rows taken back.

    For `count`, `sum`, `mean`, `var`, `std` and `quantile`.
    """

    @cached_property
    def read(self) -> tuple[str, ...]:
        """Input columns of its parts.

        `first` and `last` take the least and greatest of pairs (order, value), `quantile` takes observations, and
        an aggregate with a sign takes signed values.
        """
        return tuple(dict.fromkeys(part.column for part in self._parts if part.column is not None))

    def columns(self) -> list[str]:
        """Columns needed from a batch."""
        return [column for column in (self.column, self.order_by, self.sign) if column is not None]

    @property
    def makes(self) -> bool:
        """True if its parts read columns computed by `made`."""
        return (
            self.order_by is not None or self.sketch is not None or (self.sign is not None and self.column is not None)
        )

    def made(self, *columns: pa.Array) -> list[pa.Array]:
        """Input columns of the parts (`read`), computed from the columns of a batch.

        Raises:
            TypeError: if they are of types that it does not take.
            OverflowError: if a number is beyond 64 bits.
        """
        self.result_kind(*(column.type for column in columns))
        if self.sketch is not None:
            return [observations(columns[0], self.sketch.error, *columns[1:])]
        if self.sign is not None:
            of, signs = columns
            return [signed(of, signs, what) for _, what in _SIGNED[self.kind]]
        of, by = columns
        return [pairs(by, of)]

    def parts(self) -> list[Part]:
        """Partial aggregates combined into the result."""
        return self._parts

    @cached_property
    def _parts(self) -> list[Part]:
        column = self.column
        if self.order_by is not None:
            column = f"{self.column} by {self.order_by}{MADE}"
        if self.sketch is not None:
            by = "" if self.sign is None else f" by {self.sign}"
            column = f"{self.column} to {self.sketch.error}{by}{MADE}"
        elif self.sign is not None:
            if self.column is None:
                return [Part("sum", self.sign)]
            return [Part(kind, f"{what} of {self.column} by {self.sign}{MADE}") for kind, what in _SIGNED[self.kind]]
        return [Part(kind, None if kind == "rows" else column) for kind in _PARTS[self.kind]]

    @property
    def summed(self) -> Part:
        """Part with the sum, for `sum` and `mean`.

        For signed floats it has the sum of the finite ones.
        """
        return self._parts[-1 if self.sign is None else -2]

    def finishing(self) -> list[Part]:
        """Parts needed as columns by `finish`."""
        if self.kind in ("var", "std"):
            return self.parts()
        return self.parts() if self.kind == "mean" or self.sign is not None else self.parts()[-1:]

    def finish(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The aggregate, from the columns of its parts by name."""
        if self.kind in ("var", "std"):
            parts = {part: _as_parts(columns[part.name], part) for part in self.finishing()}
            return pa.array(self._variances(parts), mask=parts[self._parts[0]] <= self.ddof)
        column, special = columns[self._parts[-1].name], None
        if self.sketch is not None:
            return self._quantiles(_objects(column))
        if self.order_by is not None:
            column = second(column)
        if self.kind in _SIGNED and self.sign is not None:
            special, column = _objects(column), columns[self.summed.name]
        if self.kind == "mean":
            counts = columns[self._parts[0].name].to_numpy()
            numbers = np.where(counts == 0, 1, counts)
            if is_terms(column.type):
                return pa.array(with_special(means(terms_of(column), numbers), special), mask=counts == 0)
            return pa.array(_floats(column) / numbers, mask=counts == 0)
        if is_terms(column.type):
            column = pa.array(with_special(rounded(terms_of(column)), special))
        if pa.types.is_floating(column.type):
            return _with_one_zero(column)  # whichever came first
        if column.type.id == _NULL:  # no value was ever met
            return pa.array(np.zeros(len(column), np.int64), mask=np.full(len(column), self.kind != "sum"))
        return column.cast(pa.int64()) if column.type.id == _EXACT else column

    @property
    def grows(self) -> bool:
        """True if every row changes the result."""
        return self.kind == "count" and self.sign is None

    def result_kind(self, *columns: pa.DataType) -> pa.DataType:
        """The type of the results, given those of its columns.

        Raises:
            TypeError: if there are none.
        """
        names = self.columns()
        match self.kind:
            case "count":
                return pa.int64()
            case "n_unique":
                if pa.types.is_nested(columns[0]):
                    raise TypeError(f"column {names[0]!r} of type {columns[0]} cannot be a key; unnest a struct before")
                return pa.int64()
            case "min" | "max" | "first" | "last":
                found, *_ = [compared_kind(kind, name) for kind, name in zip(columns, names, strict=True)]
                return found
            case "var" | "std":
                return squared_kind(columns[0], names[0])
            case "quantile":
                return sketched_kind(columns[0], names[0])
        kind = sum_kind(columns[0], names[0])
        return pa.float64() if self.kind == "mean" else kind

    def differs(self, before: Mapping[Part, Numbers], after: Mapping[Part, Numbers]) -> npt.NDArray[np.bool_]:
        """Mask of results differing between the parts before and after.

        NaN does not differ from NaN.
        """
        if self.kind == "mean":
            return _differ(self._means(before), self._means(after))
        if self.kind == "sum":
            return _differ(self._sums(before), self._sums(after))
        if self.kind in ("var", "std"):
            few, still = (parts[self._parts[0]] <= self.ddof for parts in (before, after))
            either: npt.NDArray[np.bool_] = _differ(self._variances(before), self._variances(after)) | (few != still)
            return either
        *others, part = self.parts()
        if self.sketch is not None:
            was, now = (self._quantiles(parts[part]) for parts in (before, after))
            none: npt.NDArray[np.bool_] = _differ(was.is_null().to_numpy(False), now.is_null().to_numpy(False))
            return none | _differ(was.fill_null(0).to_numpy(), now.fill_null(0).to_numpy())
        if self.order_by is not None:
            return _differ(_seconds(before[part]), _seconds(after[part]))
        found = _differ(before[part], after[part])
        if self.kind in ("min", "max"):  # which start from a value that may be met, too
            (values,) = others
            found |= (before[values] == 0) != (after[values] == 0)
        return found

    def _quantiles(self, sketches: Numbers) -> pa.Array:
        assert self.sketch is not None
        return quantiles(sketches, self.sketch.quantile, self.sketch.interpolation, self.sketch.error)

    def _sums(self, parts: Mapping[Part, Numbers]) -> Numbers:
        found = parts[self.summed]
        if found.ndim == 1:
            return found
        return with_special(rounded(found), None if self.sign is None else parts[self._parts[-1]])

    def _means(self, parts: Mapping[Part, Numbers]) -> Numbers:
        counts, found = parts[self._parts[0]], parts[self.summed]
        special = None if self.sign is None or found.ndim == 1 else parts[self._parts[-1]]
        return np.where(counts == 0, np.nan, with_special(means(found, np.where(counts == 0, 1, counts)), special))

    def _variances(self, parts: Mapping[Part, Numbers]) -> Numbers:
        """Variances or standard deviations; 0 for groups with too few values.

        Sums and squares are exact, so that nothing is lost where they cancel, and what was taken back has left nothing.
        """
        counts, sums, *many = (parts[part] for part in self._parts)
        of_squares = many[0] if self.sign is None else summed(many[:-1])
        found: Numbers = np.zeros(len(counts))
        some = np.flatnonzero(counts > self.ddof)
        found[some] = spreads(counts[some], sums[some], of_squares[some]) / (counts[some] - self.ddof)
        if self.kind == "std":
            found = np.sqrt(found)
        if self.sign is not None:
            found[some] = with_vast(found[some], many[-1][some])
        return found


def _differ(a: Numbers, b: Numbers) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = a != b
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        found &= (a == a) | (b == b)
    return found


def _seconds(pairs: Numbers) -> Numbers:
    """Second elements of pairs, None for a missing pair."""
    if pairs.dtype.kind != "O":  # no pair was ever met
        return pairs
    found: Numbers = np.fromiter((pair and pair[1] for pair in pairs.tolist()), object, len(pairs))
    return found


def _with_one_zero(column: pa.Array) -> pa.Array:
    kind = column.type if column.type.bit_width > 16 else pa.float32()  # in which Arrow adds
    return pc.add(column.cast(kind), pa.scalar(0.0, kind)).cast(column.type)


def _objects(column: pa.Array) -> Numbers:
    """A column of bytes as an array of bytes, or None."""
    return np.array(column.to_pylist(), object)


def _as_parts(column: pa.Array, part: Part) -> Numbers:
    """A column of parts as numbers, sums or sketches."""
    if part.kind == "sketch":
        return _objects(column)
    return np.zeros(len(column), np.int64) if column.type.id == _NULL else plain_values(column)


def _floats(column: pa.Array) -> Numbers:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column))
    if pa.types.is_decimal(kind):
        return np.array([float(value) for value in column.to_pylist()], np.float64)
    numbers: Numbers = column.to_numpy()
    return numbers


def _of(
    kind: _Kind, column: str, ddof: int = 1, order_by: str | None = None, sketch: Sketch | None = None
) -> Aggregate:
    """Aggregate of a column, after a check of the column names."""
    for given in (column, order_by):
        if given is not None and not isinstance(given, str):
            raise GraphError(
                f"{user_site()}: agg.{kind} takes the name of a column, not {given}: with_columns(...) makes one of an "
                "expression"
            )
    return Aggregate(kind, column, ddof, order_by, sketch)


def count(*columns: object) -> Aggregate:
    """Number of rows. It takes no column.

    Raises:
        GraphError: one is given.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.count(), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 2), ('s', 1)]
    """
    if columns:
        raise GraphError(
            f"{user_site()}: agg.count() counts rows and takes no column: agg(n=agg.count()). For the values of {columns[0]!r} "
            f"that are not null: filter(pl.col({columns[0]!r}).is_not_null()) before"
        )
    return Aggregate("count")


def sum(column: str) -> Aggregate:
    """The sum of the values of `column`: numbers, decimals.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.sum("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 8), ('s', 4)]
    """
    return _of("sum", column)


def min(column: str) -> Aggregate:
    """The least value of `column`: numbers, decimals, text, bytes, dates, times.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.min("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 3), ('s', 4)]
    """
    return _of("min", column)


def max(column: str) -> Aggregate:
    """The greatest value of `column`: numbers, decimals, text, bytes, dates, times.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.max("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 5), ('s', 4)]
    """
    return _of("max", column)


def first(column: str, order_by: str) -> Aggregate:
    """Value of `column` in the first row by `order_by`.

    Only rows where both columns are not null count.

    Of several rows in that place the least value counts: so the result does not depend on when and where rows arrive. Both
    columns are numbers, decimals, text, bytes, dates or times; NaN is behind all numbers.

    Raises:
        GraphError: `column` or `order_by` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"at": [7, 9], "price": [3, 4]}), pl.DataFrame({"at": [8, 5], "price": [5, 6]})]
    >>> sales = flow.columns("sales", falkirk.Batches(days))
    >>> result = sales.agg(x=agg.first("price", order_by="at")).to_records().capture("out")
    >>> [(epoch, [row["x"] for row in batch]) for (epoch,), batch in falkirk.run(flow).captured("out")]
    [(0, [3]), (1, [6])]
    """
    return _of("first", column, order_by=order_by)


def last(column: str, order_by: str) -> Aggregate:
    """Value of `column` in the last row by `order_by`.

    Only rows where both columns are not null count.

    Of several rows in that place the greatest value counts. See `first`.

    Raises:
        GraphError: `column` or `order_by` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"at": [7, 9], "price": [3, 4]}), pl.DataFrame({"at": [8, 5], "price": [5, 6]})]
    >>> sales = flow.columns("sales", falkirk.Batches(days))
    >>> result = sales.agg(x=agg.last("price", order_by="at"), n=agg.count()).to_records().capture("out")
    >>> [(epoch, [row["x"] for row in batch]) for (epoch,), batch in falkirk.run(flow).captured("out")]
    [(0, [4]), (1, [4])]
    """
    return _of("last", column, order_by=order_by)


def n_unique(column: str) -> Aggregate:
    """Exact number of distinct values of `column`; null counts as one value.

    Running totals keep each value.

    Values are such as can be keys.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"shop": ["n", "s"], "buyer": [1, 1]}), pl.DataFrame({"shop": ["n", "n"], "buyer": [1, 2]})]
    >>> sales = flow.columns("sales", falkirk.Batches(days))
    >>> result = sales.group_by("shop").agg(x=agg.n_unique("buyer")).to_records().capture("out")
    >>> [(epoch, sorted((row["shop"], row["x"]) for row in batch)) for (epoch,), batch in falkirk.run(flow).captured("out")]
    [(0, [('n', 1), ('s', 1)]), (1, [('n', 2)])]
    """
    return _of("n_unique", column)


def mean(column: str) -> Aggregate:
    """The mean of the values of `column`, as a float.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.mean("price"), over="time").to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 4.0), ('s', 4.0)]
    """
    return _of("mean", column)


def var(column: str, ddof: int = 1) -> Aggregate:
    """Variance of the numbers in `column`, as a float.

    The divisor is the number of values less `ddof`; the result is null where that is not above 0.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.var("price")).to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 2.0), ('s', None)]
    """
    return _of("var", column, ddof)


def std(column: str, ddof: int = 1) -> Aggregate:
    """The standard deviation of the values of `column`: the root of `var`.

    Raises:
        GraphError: `column` is no name of a column.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})]))
    >>> result = sales.group_by("shop").agg(x=agg.std("price", ddof=0)).to_records().capture("out")
    >>> sorted((row["shop"], row["x"]) for _, batch in falkirk.run(flow).captured("out") for row in batch)
    [('n', 1.0), ('s', 0.0)]
    """
    return _of("std", column, ddof)


def quantile(column: str, quantile: float, interpolation: Interpolation = "nearest", error: float = 0.01) -> Aggregate:
    """Quantile of the values of `column`, as a float, within a relative error.

    `column` has numbers or decimals; the share `quantile` of its values lies below the result.

    `quantile` is from 0 to 1. As in Polars, it lies at the rank `quantile * (values - 1)`, and between two ranks at the
    nearest, or, by `interpolation`, the "lower", the "higher", their "midpoint", or between them ("linear"). Nulls are skipped,
    null is the result without values, and NaN is greater than all numbers.

    The result differs from the exact one by at most `error` times that, or, between two values, times the greater of
    their sizes: 0.0001 to 0.5. Numbers nearer to 0 than 2.3e-308 count as 0. What is kept of a key is how many values there
    are in each range that is so wide, 16 bytes each: of values from 1 to 1,000 in at most 350 ranges, at an error of 0.01.
    Beside Polars expressions (over="time") it is exact.

    Raises:
        GraphError: for a quantile, an interpolation or an error that there is not.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"ms": [3, 9, 4, 700]}), pl.DataFrame({"ms": [5, 800, 900]})]
    >>> calls = flow.columns("calls", falkirk.Batches(days))
    >>> result = calls.agg(slow=agg.quantile("ms", 0.75, error=0.001)).to_records().capture("out")
    >>> [(epoch, [round(row["slow"]) for row in batch]) for (epoch,), batch in falkirk.run(flow).captured("out")]
    [(0, [9]), (1, [800])]
    """
    at = user_site()
    if not _is_between(quantile, 0, 1):
        raise GraphError(f"{at}: agg.quantile({column!r}, quantile) takes a share from 0 to 1, not {quantile!r}")
    if interpolation not in get_args(Interpolation):
        kinds = ", ".join(map(repr, get_args(Interpolation)))
        raise GraphError(f"{at}: agg.quantile(interpolation=...) is one of {kinds}, not {interpolation!r}")
    if not _is_between(error, LEAST_ERROR, GREATEST_ERROR):
        raise GraphError(
            f"{at}: agg.quantile(error=...) is a share of the value from {LEAST_ERROR} to {GREATEST_ERROR}, not {error!r}"
        )
    return _of("quantile", column, sketch=Sketch(float(quantile), interpolation, float(error)))


def _is_between(value: object, least: float, most: float) -> bool:
    return isinstance(value, float | int) and least <= value <= most


def median(column: str, error: float = 0.01) -> Aggregate:
    """Median of `column`: `quantile(column, 0.5, "linear", error)`.

    It is the value in the middle, or the mean of the two there.

    >>> import polars as pl
    >>> from falkirk import agg
    >>> flow = falkirk.Dataflow()
    >>> calls = flow.columns("calls", falkirk.Batches([pl.DataFrame({"ms": [3, 9, 4, 700]})]))
    >>> result = calls.agg(middle=agg.median("ms", error=0.0001)).to_records().capture("out")
    >>> [round(row["middle"], 2) for _, batch in falkirk.run(flow).captured("out") for row in batch]
    [6.5]
    """
    return quantile(column, 0.5, "linear", error)


def parts_of(aggregates: Mapping[str, Aggregate]) -> list[Part]:
    """The distinct parts of several aggregates, in order."""
    return list(dict.fromkeys(part for aggregate in aggregates.values() for part in aggregate.parts()))


__all__ = [
    "Aggregate",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "n_unique",
    "parts_of",
    "quantile",
    "std",
    "sum",
    "var",
]
