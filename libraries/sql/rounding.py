"""Numbers that are rounded as SQL rounds them: ties away from 0; to integers, of floats to even ones."""

from __future__ import annotations

import polars as pl

_SPLITTER = 134217729.0
"""2**27 + 1: it parts a float into two of half its digits (Dekker 1971)."""

_WHOLE = 2.0**52
"""Floats from here on are whole numbers."""


def to_integer(number: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """A float or a decimal as a whole number of its type."""
    return number.round(0, mode="half_away_from_zero" if kind.is_decimal() else "half_to_even")


def to_digits(number: pl.Expr, digits: int, kind: pl.DataType) -> pl.Expr:
    """A number with so many decimals. Of a float, what is rounded is the number itself, not its rounded product."""
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
