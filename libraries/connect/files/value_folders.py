"""Hive-style partition folders, `name=value`, as written by Hive and Spark.

>>> folder_of("at", "10:30"), values_in("table/shop=a%2Fb/day=3/x.parquet")
('at=10%3A30', {'shop': 'a/b', 'day': '3'})
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

NULL = "__HIVE_DEFAULT_PARTITION__"
"""Folder value for rows with null."""

_ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
"""Characters escaped in folder names: Spark's, and path separators."""


def folder_of(name: str, value: str | None) -> str:
    """Folder name for a column's value as text.

    Raises:
        ValueError: for empty text and what else cannot be told from null.
    """
    if value is not None and (value in ("", NULL) or "\0" in value):
        raise ValueError(f"the value {value!r} cannot be the name of a folder")
    return f"{_escaped(name)}={NULL if value is None else _escaped(value)}"


def values_in(path: str | os.PathLike[str]) -> dict[str, str | None]:
    """Column values in a path's folder names, as text."""
    found: dict[str, str | None] = {}
    for part in os.path.dirname(os.fspath(path)).split(os.sep):
        name, equals, value = part.partition("=")
        if equals:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
