"""Values for SQLite: stored exactly, or refused.

SQLite has no NaN, and makes NULL of it. And the declared type of a column changes what is put into it: text that looks like a
number becomes one in a column of numbers, a number becomes text in one of text.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from timely.errors import SinkError, shown

_NONE = type(None)
_PLAIN: Set[type] = frozenset({str, int, float, bytes, _NONE})

_UNCHANGED: dict[str, Set[type]] = {
    "INTEGER": {int, float, bytes, _NONE},
    "NUMERIC": {int, float, bytes, _NONE},
    "REAL": {float, bytes, _NONE},
    "TEXT": {str, bytes, _NONE},
    "": _PLAIN,
}
"""Python types unchanged by a column of each affinity."""

_LIKE_A_NUMBER = re.compile(r"[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\v\f\r]*")


def stored(values: list[Any], declared: str, where: str) -> list[Any]:
    """Column values as numbers, text and bytes, checked by the declared type.

    Raises:
        SinkError: for what SQLite does not have, or would hold as another value.

    >>> stored([1, True, None], "INTEGER", "counts.db, column 'n'")
    [1, 1, None]
    """
    types = set(map(type, values))
    plain = values if types <= _PLAIN else [_value(value, where) for value in values]
    if not types <= _PLAIN:
        types = set(map(type, plain))
    if float in types and any(value != value for value in plain):
        raise SinkError(
            f"{where}: SQLite has no NaN, and would hold NULL. Put None or text in its place before the sink, for example with "
            "fill_nan(None)."
        )
    affinity = _affinity(declared)
    if not types <= _UNCHANGED[affinity]:
        for value, put in zip(values, plain, strict=True):
            _check(value, put, affinity, declared, where)
    return plain


def beyond(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> str:
    """Message naming the first value unsupported by SQLite."""
    for row in rows:
        for name, value in zip(columns, row, strict=True):
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                return (
                    f"column {name!r}: {shown(value, 80)} is too large for SQLite, which holds 64 bits. Map it to text."
                )
            if isinstance(value, str) and not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    return f"column {name!r}: {shown(value, 80)} is no text in Unicode. Map it to what is, or to bytes."
    return "a value that SQLite does not take. Convert it before the sink."


def _value(value: Any, where: str) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime.date | datetime.time):
        if value != value:
            raise _no_value(value, where)
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise _no_value(value, where)
        plain = value.item()
        return str(value) if isinstance(plain, int) else plain.isoformat()  # of nanoseconds it is a number
    if isinstance(value, np.bool_ | np.number | np.str_ | np.bytes_) and not isinstance(value, np.timedelta64):
        plain = value.item()
        if not isinstance(plain, np.generic | complex):
            return _value(plain, where)
    if isinstance(value, str):  # a class of the user's, as those below
        return str.__str__(value)
    if isinstance(value, int | float | bytes):
        return next(plain(value) for plain in (int, float, bytes) if isinstance(value, plain))  # type: ignore[arg-type]
    raise SinkError(
        f"{where}: SQLite holds numbers, text and bytes, not {type(value).__name__}: {shown(value, 80)}. Convert it before the "
        "sink."
    )


def _no_value(value: Any, where: str) -> SinkError:
    return SinkError(
        f"{where}: {shown(value)} is no time, and SQLite would hold it as text. Put None in its place before the sink."
    )


def _affinity(declared: str) -> str:
    """Affinity of a declared type, by SQLite's own rules in their order."""
    kind = declared.upper()
    if "INT" in kind:
        return "INTEGER"
    if any(part in kind for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in kind or not kind:
        return ""
    return "REAL" if any(part in kind for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _check(value: Any, put: Any, affinity: str, declared: str, where: str) -> None:
    if affinity == "TEXT":
        changed = isinstance(put, int | float)
    elif isinstance(put, str):  # also what a decimal is written as
        changed = _LIKE_A_NUMBER.fullmatch(put) is not None
    else:
        changed = affinity == "REAL" and type(put) is int and float(put) != put
    if changed:
        other = "text" if affinity == "TEXT" else "another number" if isinstance(put, int) else "a number"
        raise SinkError(
            f"{where}: the table has it as {declared}, and would hold {shown(value, 80)} as {other}. Make all values of the "
            "column of one type before the sink, or make the table with a column without a type."
        )
