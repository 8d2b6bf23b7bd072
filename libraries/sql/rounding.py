"""Rounding as in SQL: ties away from 0; floats to integers: ties to even."""

from __future__ import annotations

import polars as pl

_SPLITTER = 134217729.0
"""Dekker's factor 2**27 + 1: splits a float into halves of its digits (1971)."""

_WHOLE = 2.0**52
"""Magnitude 2**52: floats of it or more are whole numbers."""


def to_integer(number: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Float or decimal rounded to a whole number of its type."""
    return number.round(0, mode="half_away_from_zero" if kind.is_decimal() else "half_to_even")


def to_digits(number: pl.Expr, digits: int, kind: pl.DataType) -> pl.Expr:
    """Number rounded to some decimals; floats by exact value, without double rounding."""
    if not kind.is_float():
        return number.round(digits, mode="half_away_from_zero")
    if digits > 22:  # powers of ten are no floats from there on, and no number of use has such digits
        return number
    scale = 10.0**digits
    number = number.cast(pl.Float64)
    product = number * scale
    upper, lower = _halves(number)
    part = scale * _SPLITTER
    top = part - (part - scale)
    bottom = scale - top
    rest = ((upper * top - product) + upper * bottom + lower * top) + lower * bottom
    near = product.round(0, mode="half_away_from_zero")
    inwards = product.sign() * product.abs().floor()
    tie = (product - inwards).abs() == 0.5
    rounded = pl.when(tie & (rest * product.sign() < 0)).then(inwards).otherwise(near)
    quotient = rounded / (rounded * 0.0 + scale)  # by a number alone Polars multiplies by the reciprocal
    return pl.when((product.abs() < _WHOLE) & product.is_finite()).then(quotient).otherwise(number).cast(kind)


def _halves(number: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    part = number * _SPLITTER
    upper = part - (part - number)
    return upper, number - upper
