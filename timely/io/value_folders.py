"""Values of columns in the names of folders, `name=value`, as Hive and Spark lay tables out.

>>> folder_of("at", "10:30"), values_in("table/shop=a%2Fb/day=3/x.parquet")
('at=10%3A30', {'shop': 'a/b', 'day': '3'})
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder for rows that have none."""

_ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
"""The characters that Spark does not leave as they are, and those that would not make one folder."""


def folder_of(name: str, value: str | None) -> str:
    """The folder for rows that have the value, as text, in the column `name`.

    Raises:
        ValueError: for empty text and what else cannot be told from null.
    """
    if value is not None and (value in ("", NULL) or "\0" in value):
        raise ValueError(f"the value {value!r} cannot be the name of a folder")
    return f"{_escaped(name)}={NULL if value is None else _escaped(value)}"


def values_in(path: str | os.PathLike[str]) -> dict[str, str | None]:
    """The columns that the folders of a path stand for, and their values as text."""
    found: dict[str, str | None] = {}
    for part in os.path.dirname(os.fspath(path)).split(os.sep):
        name, equals, value = part.partition("=")
        if equals:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return found


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
