"""Windows in `group by`: `tumble`, `hop` and `session`, over event times.

Calls: `tumble(at, interval '10 seconds')`, `hop(at, slide, size)`, `session(at, gap)`.

The bounds of the window of a row of results are `tumble_start(...)` and `tumble_end(...)`, with the same arguments. These are
the grouped window functions of SQL as Calcite and Flink have it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from libraries.sql.expressions import refuse
from libraries.sql.nodes import Node, text
from timely.operators.window_shapes import Length, Session, Sliding, Tumbling

Shape: TypeAlias = Tumbling | Sliding | Session

_LENGTHS = {"tumble": ("size",), "hop": ("slide", "size"), "session": ("gap",)}
"""Names of the lengths after the event time, by window function."""

_PART = r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=\s|\d|$)"
"""Pattern of a number and a unit in an interval."""

_UNITS = {
    "millisecond": dt.timedelta(milliseconds=1),
    "second": dt.timedelta(seconds=1),
    "minute": dt.timedelta(minutes=1),
    "hour": dt.timedelta(hours=1),
    "day": dt.timedelta(days=1),
    "week": dt.timedelta(weeks=1),
}


@dataclass(frozen=True, slots=True)
class WindowCall:
    """Window in `group by` over an expression of event time."""

    time: Node
    shape: Shape
    bounds: dict[str, str]
    """Bounds by the text of the call: column "start" or "end"."""


def window_in(keys: Sequence[Node]) -> tuple[WindowCall | None, list[Node]]:
    """Window among the keys of `group by`, or None, and the other keys."""
    calls = [key for key in keys if _function(key) in _LENGTHS]
    if len(calls) > 1:
        refuse(f"{text(calls[1])}: group by takes one window")
    others = [key for key in keys if _function(key) not in _LENGTHS]
    return (_window(calls[0]) if calls else None), others


def check_outside(node: Node) -> None:
    """Reject functions of windows in a query without the window."""
    from sqlglot import exp

    for each in node.find_all(exp.Anonymous):
        kind, _, bound = _function(each).partition("_")
        if kind in _LENGTHS and bound in ("", "start", "end"):
            why = "windows are in group by" if not bound else f"there is no such window in group by: {kind}(...)"
            refuse(f"{text(each)}: {why}; their bounds are {kind}_start and {kind}_end with the same arguments")


def _window(call: Node) -> WindowCall:
    kind, arguments = _function(call), call.expressions
    takes = _LENGTHS[kind]
    if len(arguments) != 1 + len(takes):
        refuse(f"{text(call)}: {kind} takes a column of event times, and the {' and the '.join(takes)} of windows")
    lengths = [_length(each) for each in arguments[1:]]
    if len({isinstance(length, dt.timedelta) for length in lengths}) > 1:
        refuse(f"{text(call)}: lengths are all numbers, or all intervals")
    as_sql = ", ".join(map(text, arguments))
    shape: Shape
    if kind == "hop":
        shape = Sliding(lengths[1], lengths[0])
    else:
        shape = Tumbling(lengths[0]) if kind == "tumble" else Session(lengths[0])
    return WindowCall(arguments[0], shape, {f"{kind}_{bound}({as_sql})": bound for bound in ("start", "end")})


def bound_of(window: WindowCall | None, node: Node) -> str | None:
    """Column of a window's bound for a call, or None."""
    if window is None or not _function(node):
        return None
    as_sql = ", ".join(map(text, node.expressions))
    return window.bounds.get(f"{_function(node)}({as_sql})")


def _function(node: Node) -> str:
    from sqlglot import exp

    return str(node.name).lower() if isinstance(node, exp.Anonymous) else ""


def _length(node: Node) -> Length:
    from sqlglot import exp

    if isinstance(node, exp.Literal) and not node.is_string:
        if not node.name.isdigit():
            refuse(f"{text(node)}: windows have whole numbers as lengths, or intervals")
        return int(node.name)
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        refuse(f"{text(node)}: the length of a window is a number, or interval '10 seconds'")
    unit = node.args.get("unit")
    as_sql = (node.this.name if unit is None else f"{node.this.name} {unit.name}").lower()
    parts = re.findall(_PART, as_sql)
    if not parts or re.sub(_PART, "", as_sql).strip():
        refuse(f"{text(node)}: an interval is a text like '1 hour 30 minutes'")
    unknown = [unit for _, unit in parts if unit not in _UNITS]
    if unknown:
        known = ", ".join(f"{each}s" for each in _UNITS)
        refuse(f"{text(node)}: a window has a fixed length: intervals of {known}, not {unknown[0]}s")
    return sum((float(number) * _UNITS[unit] for number, unit in parts), dt.timedelta())


def has_window(query: Node) -> bool:
    """True if a query contains a window."""
    from sqlglot import exp

    return any(_function(each) in _LENGTHS for each in query.find_all(exp.Anonymous))
