"""Columns of rows that have a sign, 1 where one comes and -1 where one is taken back, as columns that are added up."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.data.kernels import exact
from timely.data.kernels.added import present_values
from timely.data.kernels.columns import Numbers, numbers

What = Literal["number", "sum", "digits"]
"""Of the values of a column: how many there are, the sum of what is whole, and, of floats, observations of `exact` sums."""


def signed(column: pa.Array, signs: pa.Array, what: What) -> pa.Array:
    """What is added up of a column of numbers or decimals, to a sum of that kind. Null is no value.

    Raises:
        OverflowError: if a number, or its negative, is beyond 64 bits.
    """
    kind = column.type
    if what == "number":
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(np.where(there, numbers(signs), 0))
    if what == "digits" and not pa.types.is_floating(kind):
        return pa.nulls(len(column), pa.int64())
    if what == "sum" and pa.types.is_floating(kind):
        return pa.array(np.zeros(len(column)))
    if pa.types.is_null(kind):
        return column
    if pa.types.is_decimal(kind):
        return pc.if_else(pc.less(signs, 0), pc.negate(column), column)
    present, valid = present_values(column)
    values, by = numbers(present), numbers(signs)
    by = by if valid is None else by[valid]
    found = exact.observations(values, by) if what == "digits" else _by_sign(values, by)
    if valid is None:
        return pa.array(found)
    filled = np.zeros(len(column), np.int64)
    filled[valid] = found
    return pa.array(filled, mask=~valid)


def _by_sign(values: Numbers, signs: Numbers) -> Numbers:
    least = np.iinfo(np.int64).min
    if ((values == least) & (signs < 0)).any():
        raise OverflowError(
            f"{least} is taken back, and its negative is beyond 64-bit integers; cast the column before: "
            "with_columns(pl.col(...).cast(pl.Decimal(38, 0))) is exact, pl.Float64 rounds"
        )
    found: Numbers = values * signs
    return found
