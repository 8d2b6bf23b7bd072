"""Values as in SQL: rounding, and casts of texts.

Ties are rounded away from 0, and of floats made integers to the even one.
"""

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


KINDS: dict[str, pl.DataType] = {
    "DATE": pl.Date(),
    "TIMESTAMP": pl.Datetime("us"),
    "TIMESTAMPNTZ": pl.Datetime("us"),
    "DATETIME": pl.Datetime("us"),
    "TIME": pl.Time(),
    "BOOLEAN": pl.Boolean(),
}
"""Polars' types by sqlglot's names of SQL types."""

_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), False),
}


def of_text(text: pl.Expr, kind: pl.DataType, strict: bool) -> pl.Expr:
    """Text in ISO 8601 as one of `KINDS`; others are null, or an error if `strict`.

    Polars would guess a form from the first rows, so that a row would depend on those with which it was read.
    """
    text = text.str.strip_chars()
    if kind == pl.Date():
        return text.str.to_date("%Y-%m-%d", strict=strict)
    if kind == pl.Boolean():
        lower = text.str.to_lowercase()
        if strict:
            return lower.replace_strict(_TRUTHS, return_dtype=pl.Boolean)
        return lower.replace_strict(_TRUTHS, default=None, return_dtype=pl.Boolean)
    if kind == pl.Time():
        return _with(text, {5: ":00"}).str.to_time("%H:%M:%S%.f", strict=strict)
    text = _with(text.str.replace("T", " ", literal=True), {10: " 00:00:00", 16: ":00"})
    return text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=strict)


def _with(text: pl.Expr, endings: dict[int, str]) -> pl.Expr:
    """Texts with an ending appended to those of some lengths."""
    found = text
    for length, ending in endings.items():
        found = pl.when(text.str.len_chars() == length).then(text + ending).otherwise(found)
    return found
