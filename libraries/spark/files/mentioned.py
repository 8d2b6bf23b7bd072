"""The columns that a region's SQL can read, by its text: those that it mentions. The others need not be written for it.

A column whose name is nowhere in the text is read only by what stands for all columns: a star, or one of a few words. Whoever
is in doubt keeps them all, so a name in a comment or in a string counts as a mention. Functions say nothing beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_COUNTS = re.compile(r"\bcount\s*\(\s*\*\s*\)")
_PRODUCT = re.compile(r"""([\w)\]`'"]+)\s*\*""")
_NO_FACTOR = ("select", "distinct", "all")
_COMMENT = re.compile(r"--|/\*")
_STANDS_FOR_ALL = re.compile(r"\*|\|>|\b(natural|pivot|unpivot|table|identifier|execute|describe|show)\b")
_RENAMED = r"\b{}`?\s+(?:as\s+)?`?(\w+)`?\s*\("
_NOT_RENAMED = (
    *("where", "join", "on", "using", "union", "except", "intersect", "minus", "limit", "having", "tablesample"),
)


class Mentioned:
    """The text of a query over `inputs`.

    >>> query = Mentioned("select shop, sum(price * 2) as sum, count(*) as n from input group by shop", ["input"])
    >>> query.left_out(["Shop", "price", "at", "um"])
    ('at', 'um')
    >>> Mentioned("select * from input", ["input"]).left_out(["shop", "price"])
    ()
    """

    def __init__(self, sql: str, inputs: Iterable[str]) -> None:
        self._text = sql.lower()
        bare = _COUNTS.sub("", self._text)
        if _COMMENT.search(bare) is None:  # what stands before a star may be the end of one
            bare = _PRODUCT.sub(_factor, bare)
        self._all = _STANDS_FOR_ALL.search(bare) is not None or any(self._renamed(name) for name in inputs)

    def left_out(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Those of an input's columns that the query cannot read; one of an input stays, by which its rows are counted."""
        columns = list(columns)
        found = [] if self._all else [name for name in columns if not self._mentions(name)]
        return tuple(found[1:] if len(found) == len(columns) else found)

    def _mentions(self, name: str) -> bool:
        # What is not plain may be written in several ways, and in upper case in yet others.
        plain = name.isascii() and "`" not in name
        return not plain or re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", self._text) is not None

    def _renamed(self, name: str) -> bool:
        """True where columns get names by their places, as in `input as t(a, b)`."""
        found = re.finditer(_RENAMED.format(re.escape(name.lower())), self._text)
        return any(each[1] not in _NOT_RENAMED for each in found)


def _factor(found: re.Match[str]) -> str:
    """A product without its star; the star of `select *` stays."""
    return found[0] if found[1] in _NO_FACTOR else found[1]
