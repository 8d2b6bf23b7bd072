"""Descriptions of stateful column verbs, for compilers to other engines.

A stateless verb is in the `plan` of its stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import Over


@dataclass(frozen=True, slots=True)
class Totals:
    """Aggregates for each key: `GroupBy.agg`, `distinct`."""

    keys: Sequence[str]
    aggregates: Mapping[str, Aggregate | pl.Expr]
    over: Over


@dataclass(frozen=True, slots=True)
class Join:
    """`Columns.join`: of input 0 with input 1."""

    on: Sequence[str]
    how: str
    over: Over
    changes: bool


@dataclass(frozen=True, slots=True)
class Split:
    """`Columns.branch`: rows with a true `predicate` to output 0, others to output 1."""

    predicate: pl.Expr


@dataclass(frozen=True, slots=True)
class Times:
    """Event times of windows: rows to output 0, maximum of each epoch to output 1."""

    column: str


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of each row of input 0, by the watermark from input 1.

    See `timely.operators.watermark` for the outputs.

    Lengths are of microseconds where event times are datetimes.
    """

    column: str
    length: int
    every: int
    allowed: int


@dataclass(frozen=True, slots=True)
class WindowTotals:
    """Aggregates for each window, and each key in it."""

    keys: Sequence[str]
    aggregates: Mapping[str, Aggregate]
    length: int


Verb: TypeAlias = Totals | Join | Split | Times | Windows | WindowTotals
