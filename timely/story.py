"""Recent events and effects of a state machine, shown with every internal error."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec

from timely.errors import FalkirkError

MOST = 100
"""Number of steps in a story."""

_ITEMS, _LETTERS = 4, 80
"""Longest collection and longest text shown in full."""

M = TypeVar("M")


class InvariantBroken(FalkirkError):
    """State machine in an impossible state: a fault of Falkirk, found before harm."""


class Story:
    """Last steps of a state machine as text; it keeps no objects alive."""

    def __init__(self, most: int = MOST) -> None:
        self._steps: deque[str] = deque(maxlen=most)

    def tell(self, at: object, events: Iterable[object], effects: Sequence[object]) -> None:
        """Add a step: simultaneous events and their effects."""
        causes = " and ".join(map(brief, events))
        self._steps.append("\n".join([f"{at}: {causes}", *(f"    -> {brief(effect)}" for effect in effects)]))

    def __str__(self) -> str:
        return "\n".join(["the story, as far back as it is known:", *self._steps])


def brief(value: Any, depth: int = 2) -> str:
    """Short text for a value of any size.

    >>> brief((3, "a", b"bytes")), brief(list(range(9))), brief({"a": [1]})
    ("(3, 'a', bytes of 5)", 'list of 9', "{'a': [1]}")
    """
    kind: type = type(value)
    if kind is int or kind is float or kind is bool or value is None:
        return str(value)
    names = _fields(kind)
    if names is not None:
        if depth < 0 and names:
            return kind.__name__
        return f"{kind.__name__}({', '.join([f'{name}={brief(getattr(value, name), depth - 1)}' for name in names])})"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"bytes of {len(value)}"
    if isinstance(value, str):
        return repr(value if len(value) <= _LETTERS else f"{value[:_LETTERS]}...")
    if isinstance(value, tuple | list | dict | set | frozenset):
        if len(value) > _ITEMS or (depth < 0 and value):
            return f"{kind.__name__} of {len(value)}"
        if isinstance(value, dict):
            return "{" + ", ".join([f"{brief(key)}: {brief(item, depth - 1)}" for key, item in value.items()]) + "}"
        inner = ", ".join([brief(item, depth - 1) for item in value])
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(value) == 1 else f"({inner})"
    return str(value)[:_LETTERS]


@cache  # a story is told at each step
def _fields(kind: type) -> tuple[str, ...] | None:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if is_dataclass(kind):
        return tuple(each.name for each in fields(kind))
    return None


def check(machine: M, invariants: Iterable[Callable[[M], str | None]], story: Story) -> None:
    """Raise InvariantBroken if one of `invariants` finds a fault in `machine`."""
    for invariant in invariants:
        wrong = invariant(machine)
        if wrong is not None:
            raise InvariantBroken(f"{invariant.__name__}: {wrong}\n{story}")
