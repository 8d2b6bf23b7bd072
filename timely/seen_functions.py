"""Record of a program's functions, for stores and for other processes.

`timely.dataflow.functions` makes it.
"""

from __future__ import annotations

import msgspec


class Functions(msgspec.Struct, frozen=True):
    """Functions of a program.

    `of`: by operator, a text for each thing that was seen, by its place.
    """

    scheme: int
    python: str
    polars: str
    of: dict[str, dict[str, str]]
    sites: dict[str, str]
    """Description of each operator, with the user's line."""
