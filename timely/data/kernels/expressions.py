"""Polars verbs over few rows by NumPy, without a query plan for each batch.

Collecting a plan costs as much as some thousand rows do. So `select`, `with_columns` and `filter` are compiled once from the
trees of their expressions, where all that these do is arithmetic on 64-bit numbers, comparing, and choosing columns, and where
Polars and NumPy agree: no nulls, no division by what may be 0, no comparison with NaN. Anything else is `Unfit`, before or
at a batch, and left to Polars.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from timely.data.batch import polars_column
from timely.data.kernels.columns import TINY
from timely.data.kernels.series import Array, frame_of, series_of
from timely.data.kernels.trees import expr_of, tree_of
from timely.data.span import Span

FEW = 8192
"""Largest row count for NumPy; larger batches go to a Polars plan."""

Column: TypeAlias = "pl.Series | Array"
Formula: TypeAlias = Callable[["FewRows"], Any]
"""Compiled expression: gives an array, a text series or a constant."""


class Unfit(Exception):
    """Expression or batch left to Polars."""


class FewRows:
    """Columns under a chain of verbs; filters apply to a column on first access."""

    def __init__(self, batch: pl.DataFrame | pa.Table | Span) -> None:
        self._given = batch
        names = batch.column_names if isinstance(batch, pa.Table) else batch.columns
        self.columns: dict[str, tuple[Column | None, int]] = dict.fromkeys(names, (None, 0))
        """Columns by name, with the number of filters applied; None: still as given."""
        self._filters: list[tuple[Array, pl.Series]] = []
        self.count = len(batch)

    def column(self, name: str) -> Column:
        """A column after all filters so far."""
        held, filtered = self.columns[name]
        if held is not None and filtered == len(self._filters):
            return held
        if held is None:
            given = self._given
            held = polars_column(name, given.column(name)) if isinstance(given, pa.Table) else given.get_column(name)
        for mask, as_series in self._filters[filtered:]:
            held = held.filter(as_series) if isinstance(held, pl.Series) else held[mask]
        self.columns[name] = held, len(self._filters)
        return held

    def values(self, name: str, kinds: Collection[type[pl.DataType]] | None = None) -> Column:
        """A column as an array, text as it is.

        `kinds`: the accepted types, if others than usual.
        """
        if name not in self.columns:
            raise Unfit(name)
        column = self.column(name)
        if isinstance(column, pl.Series):
            kind = type(column.dtype)
            if kind not in (_ARRAYS if kinds is None else kinds) or column.null_count():
                raise Unfit(name)
            if kind is not pl.String:
                column = column.to_numpy()
        return column

    @property
    def masks(self) -> list[Array]:
        """Masks of the filters so far, each over the rows left by the one before."""
        return [mask for mask, _ in self._filters]

    def filter(self, mask: Array) -> None:
        """Keep the rows of a mask."""
        left = int(np.count_nonzero(mask))
        if left < self.count:
            self._filters.append((mask, series_of("", mask)))
            self.count = left

    def put(self, name: str, values: Any) -> None:
        """Add or replace a column."""
        if not isinstance(values, np.ndarray | pl.Series):
            raise Unfit(name)
        self.columns[name] = values, len(self._filters)

    def over(self, span: Span) -> Span:
        """Result over the same span of rows; untouched columns are not copied.

        Only if no row was dropped.
        """
        held = {name: column for name, (column, _) in self.columns.items()}
        return span.having({name: None if column is None else series_of(name, column) for name, column in held.items()})

    def frame(self) -> pl.DataFrame:
        """Remaining rows as a frame."""
        return frame_of([series_of(name, self.column(name)) for name in self.columns])


_ARRAYS = frozenset({pl.Int64, pl.Float64, pl.Boolean, pl.String})
_WHOLE = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.Boolean})
"""Types convertible to 64-bit integers without loss."""


@dataclass(frozen=True, slots=True)
class Verb:
    """Compiled verb: formulas by column name; a plain name selects a column as is."""

    kind: str
    made: tuple[tuple[str, str | Formula], ...]
    chosen: Callable[[list[str]], list[str]] | None = None
    """Column choice of a select by wildcard."""

    def apply(self, rows: FewRows) -> None:
        """Apply the verb to `rows`.

        Raises:
            Unfit: if Polars must do it.
        """
        if self.kind == "filter":
            masks = [_mask(formula(rows)) for _, formula in self.made if callable(formula)]
            rows.filter(masks[0] if len(masks) == 1 else np.logical_and.reduce(masks))
            return
        if self.chosen is not None:
            rows.columns = {name: rows.columns[name] for name in self.chosen(list(rows.columns))}
            return
        found: dict[str, tuple[Column | None, int] | Any] = {}
        for name, formula in self.made:
            if not isinstance(formula, str):
                found[name] = formula(rows)
            elif name == formula:
                found[name] = rows.columns[name]
            else:
                found[name] = rows.column(formula)
        if self.kind == "select":
            rows.columns = {}
        for name, column in found.items():
            if isinstance(column, tuple):
                rows.columns[name] = column
            else:
                rows.put(name, column)


def applied(verbs: Sequence[Verb], batch: pl.DataFrame | pa.Table | Span) -> FewRows:
    """Apply compiled verbs to a small batch.

    Raises:
        Exception: of whatever kind, if Polars must do it.
    """
    rows = FewRows(batch)
    for verb in verbs:
        verb.apply(rows)
        if not rows.count:
            break
    return rows


def apply(verbs: Sequence[Verb], batch: pl.DataFrame | pa.Table) -> pl.DataFrame | None:
    """Apply compiled verbs and return a frame; None if Polars must do it."""
    try:
        return applied(verbs, batch).frame()
    except Exception:  # whatever it is: if it is a mistake in the program, Polars tells of it
        return None


def compiled(kind: str, exprs: Sequence[Any], named: Mapping[str, Any]) -> Verb | None:
    """Compile "select", "with_columns" or "filter"; None if it is for Polars."""
    try:
        if kind == "filter":
            given = [*exprs, *(pl.col(name) == value for name, value in named.items())]
        else:
            given = [*exprs, *(_as_expr(each, name) for name, each in named.items())]
        if kind == "select" and len(given) == 1 and (chosen := _choice(given[0])) is not None:
            return Verb(kind, (), chosen)
        made = [pair for each in given for pair in _compiled(each)]
        names = [name for name, _ in made]
        if not made or (kind != "filter" and len(set(names)) < len(names)):
            return None
        if kind == "filter":
            made = [(name, _reading(each) if isinstance(each, str) else each) for name, each in made]
        return Verb(kind, tuple(made))
    except Exception:  # a tree that this does not know, in whatever way
        return None


def _as_expr(given: Any, name: str) -> pl.Expr:
    expr = pl.col(given) if isinstance(given, str) else given
    if not isinstance(expr, pl.Expr):
        raise Unfit(name)
    return expr.alias(name)


def _choice(expr: Any) -> Callable[[list[str]], list[str]] | None:
    """Column choice by wildcard: all, or all but some."""
    if not isinstance(expr, pl.Expr):
        return None
    match tree_of(expr):
        case {"Selector": "Wildcard"}:
            return lambda names: names
        case {"Selector": {"Difference": ["Wildcard", {"ByName": {"names": [*left_out], "strict": False}}]}}:
            return lambda names: [name for name in names if name not in left_out]
    return None


def _compiled(given: Any) -> list[tuple[str, str | Formula]]:
    """Compiled columns of one argument."""
    if isinstance(given, str):
        given = pl.col(given)
    if isinstance(given, list | tuple):
        return [pair for each in given for pair in _compiled(each)]
    if not isinstance(given, pl.Expr):
        raise Unfit(given)
    tree = tree_of(given)
    match tree:
        case {"Selector": {"ByName": {"names": [*names], "strict": True}}}:
            return [(name, name) for name in names]
        case {"Column": name}:
            return [(name, _plain(name))]
        case {"Alias": [{"Column": name}, other]}:
            return [(other, _plain(name))]
        case {"Alias": [{"Literal": {"Scalar": {"Int8": int(value)}}}, other]}:
            return [(other, lambda rows: np.full(rows.count, value, np.int8))]
        case {"Alias": [{"Literal": {"Scalar": {"Int64": int(value)}}}, other]}:
            return [(other, lambda rows: np.full(rows.count, value, np.int64))]
    return [(given.meta.output_name(), _formula(tree))]


def _plain(name: str) -> str:
    if name == "*" or name.startswith("^"):
        raise Unfit(name)
    return name


def _formula(tree: Any) -> Formula:
    match tree:
        case {"Column": str(name)}:
            return _reading(_plain(name))
        case {"Alias": [inner, _]}:
            return _formula(inner)
        case {"Literal": {"Dyn": {"Int": int(value)}}} | {"Literal": {"Dyn": {"Float": float(value)}}}:
            return lambda _: value
        case {"Literal": {"Scalar": {"String": str(text)}}}:
            return lambda _: text
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}}:
            return _binary(op, _formula(left), _formula(right), _constant(right))
        case {"Cast": {"expr": {"Column": str(name)}, "dtype": {"Literal": "Int64"}}}:
            return _as_integers(_plain(name))
        case {"Cast": {"expr": inner, "dtype": {"Literal": "Int64"}, "options": "Strict"}}:
            return _within_64_bits(inner)
        case {
            "Function": {"input": [inner, low, high], "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}}}
        }:
            bounds = _formula(low), _formula(high)
            return _is_between(_formula(inner), *bounds, *_CLOSED[closed])
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            held = _formula(inner)
            return lambda rows: ~_mask(held(rows))
        case {"Function": {"input": [inner, values], "function": {"Boolean": {"IsIn": _}}}}:
            return _is_in(_formula(inner), values)
    raise Unfit(tree)


def _reading(name: str) -> Formula:
    return lambda rows: rows.values(name)


def _as_integers(name: str) -> Formula:
    def integers(rows: FewRows) -> Array:
        column = rows.values(name, _WHOLE)
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "ib":
            raise Unfit(name)
        return column.astype(np.int64, copy=False)

    return integers


def _within_64_bits(tree: Any) -> Formula:
    """128-bit arithmetic checked, by operand bounds, to fit 64 bits."""
    match tree:
        case {"BinaryExpr": {"left": left, "op": ("Plus" | "Minus" | "Multiply") as op, "right": right}}:
            pass
        case {"Function": {"input": [left, right], "function": {"Sql": {"Binary": "Mul"}}}}:
            op = "Multiply"
        case _:
            raise Unfit(tree)
    work, _ = _ARITHMETIC[op]
    one, two = _widened(left), _widened(right)

    def computed(rows: FewRows) -> Array:
        first, second = one(rows), two(rows)
        (low, high), (least, most) = _bounds(first), _bounds(second)
        ends: tuple[int, ...]
        if op == "Multiply":
            ends = (low * least, low * most, high * least, high * most)
        else:
            ends = (low + least, high + most) if op == "Plus" else (low - most, high - least)
        if min(ends) < -(2**63) or max(ends) >= 2**63:
            raise Unfit("128 bits")
        return _computed(work, True, first, second)

    return computed


def _widened(tree: Any) -> Formula:
    """Operand cast to 128 bits, or a literal beside one."""
    match tree:
        case {"Literal": {"Dyn": {"Int": int(value)}}}:
            return lambda _: value
        case {"Cast": {"expr": {"Column": str(name)}, "dtype": {"Literal": "Int128"}}}:
            return _as_integers(_plain(name))
        case {"Cast": {"expr": inner, "dtype": {"Literal": "Int128"}}}:
            return _formula(inner)
    raise Unfit(tree)


def _bounds(values: Any) -> tuple[int, int]:
    if not isinstance(values, np.ndarray):
        return values, values
    if values.dtype != np.int64:
        raise Unfit("integers")
    return int(values.min()), int(values.max())


def _is_between(of: Formula, low: Formula, high: Formula, above: str, below: str) -> Formula:
    lower, upper = _COMPARISONS[above], _COMPARISONS[below]

    def within(rows: FewRows) -> Array:
        values = of(rows)
        return _compared(lower, above, values, low(rows)) & _compared(upper, below, values, high(rows))

    return within


_CLOSED = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}


def _constant(tree: Any) -> Any:
    match tree:
        case {"Literal": {"Dyn": {"Int": value}}} | {"Literal": {"Dyn": {"Float": value}}}:
            return value
    return None


def _binary(op: str, left: Formula, right: Formula, divisor: Any) -> Formula:
    if op in ("And", "Or"):
        both = np.logical_and if op == "And" else np.logical_or
        return lambda rows: both(_mask(left(rows)), _mask(right(rows)))
    if op in _COMPARISONS:
        compare = _COMPARISONS[op]
        return lambda rows: _compared(compare, op, left(rows), right(rows))
    work, only_integers = _ARITHMETIC[op]
    if op in _DIVISIONS:
        if divisor is None:
            return lambda rows: _computed(work, only_integers, left(rows), _above_zero(right(rows)))
        if not divisor > 0:
            raise Unfit(op)
        if op == "TrueDivide":
            return _by_reciprocal(left, float(divisor))
    return lambda rows: _computed(work, only_integers, left(rows), right(rows))


_COMPARISONS = {
    "Eq": np.equal,
    "NotEq": np.not_equal,
    "Lt": np.less,
    "LtEq": np.less_equal,
    "Gt": np.greater,
    "GtEq": np.greater_equal,
}
_LEAST_DIVISOR = 1e-300
"""Smallest divisor with an exact-range reciprocal, both ways."""
_DIVISIONS = ("FloorDivide", "Modulus", "TrueDivide")
_ARITHMETIC = {
    "Plus": (np.add, False),
    "Minus": (np.subtract, False),
    "Multiply": (np.multiply, False),
    "FloorDivide": (np.floor_divide, True),
    "Modulus": (np.remainder, True),
    "TrueDivide": (np.true_divide, False),
}


def _kind(value: Any) -> str:
    """Kind of operand: "i", "f", "b" (truth) or "t" (text)."""
    if isinstance(value, np.ndarray):
        return str(value.dtype.kind)
    if isinstance(value, str | pl.Series):
        return "t"
    return "f" if isinstance(value, float) else "i"


def _mask(value: Any) -> Array:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "b":
        raise Unfit("not a mask")
    return value


def _compared(compare: Any, op: str, left: Any, right: Any) -> Array:
    kinds = _kind(left), _kind(right)
    if kinds == ("t", "t") and isinstance(left, pl.Series) and isinstance(right, str) and op in ("Eq", "NotEq"):
        found: Array = ((left == right) if op == "Eq" else (left != right)).to_numpy()
        return found
    if kinds not in (("i", "i"), ("f", "f")) or not any(isinstance(side, np.ndarray) for side in (left, right)):
        raise Unfit("comparison")
    if kinds[0] == "f" and any(np.isnan(side).any() for side in (left, right)):
        raise Unfit("NaN")
    compared: Array = compare(left, right)
    return compared


def _above_zero(divisor: Any) -> Array:
    if not isinstance(divisor, np.ndarray) or divisor.dtype.kind == "b" or not (divisor > 0).all():
        raise Unfit("division")
    return divisor


def _computed(work: Any, only_integers: bool, left: Any, right: Any) -> Array:
    kinds = {_kind(left), _kind(right)}
    if not kinds <= ({"i"} if only_integers else {"i", "f"}):
        raise Unfit("arithmetic")
    if not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray):
        raise Unfit("constants")
    with np.errstate(all="ignore"):
        computed: Array = work(left, right)
    return computed


def _by_reciprocal(left: Formula, divisor: float) -> Formula:
    """Division by multiplying with the reciprocal, as Polars does from two rows on.

    So the quotient of a row is the same in every batch.
    """
    if not _LEAST_DIVISOR < divisor < 1 / _LEAST_DIVISOR:
        raise Unfit("reciprocal")
    reciprocal = 1.0 / divisor
    return lambda rows: _computed(np.multiply, False, left(rows), reciprocal)


def _is_in(formula: Formula, values: Any) -> Formula:
    literal = expr_of(values)
    wanted = pl.select(literal).to_series()[0]
    if not isinstance(wanted, pl.Series) or wanted.null_count() or not len(wanted):
        raise Unfit("is_in")
    if wanted.dtype == pl.Int64:
        numbers = wanted.to_list()
        return lambda rows: _among(formula(rows), numbers)
    if wanted.dtype != pl.String:
        raise Unfit("is_in")
    few = frozenset(wanted.to_list())
    options = pc.SetLookupOptions(value_set=wanted.to_arrow())

    def texts(rows: FewRows) -> Array:
        column = formula(rows)
        if not isinstance(column, pl.Series):
            raise Unfit("is_in")
        if len(column) <= TINY:  # the way through Arrow costs more
            return np.fromiter(map(few.__contains__, column.to_list()), np.bool_, len(column))
        found: Array = pc.is_in(column.to_arrow(), options=options).to_numpy(zero_copy_only=False)
        return found

    return texts


def _among(column: Any, numbers: list[int]) -> Array:
    if not isinstance(column, np.ndarray) or column.dtype != np.int64:
        raise Unfit("is_in")
    if len(numbers) > 8:
        return np.isin(column, numbers)
    found: Array = np.logical_or.reduce([column == number for number in numbers])
    return found
