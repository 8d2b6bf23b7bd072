"""Casts of texts to dates, times and truth values, which Polars lacks."""

from __future__ import annotations

import polars as pl

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
