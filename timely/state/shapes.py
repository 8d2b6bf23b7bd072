"""Shape of an operator's state: its parts, with the kind and content of each.

A checkpoint is restored only into a state of the same shape. A state class may describe its content further by an
attribute `shape`: a text such as "sum(v) by key", the same whenever the same operator is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from timely.state.interface import State
from timely.state.parts import Parts


class PartShape(msgspec.Struct, frozen=True, array_like=True):
    """Shape of one part of a state.

    `name`: its name in `Parts`, or its position.

    `attribute` is where the operator has it: that may change, as long as no two parts exchange theirs.
    """

    name: int | str
    kind: str
    shape: str = ""
    attribute: str = ""

    def __str__(self) -> str:
        called = self.name if isinstance(self.name, str) else self.attribute
        text = f"{called}: {self.kind}" if called else self.kind
        return f"{text} ({self.shape})" if self.shape else text


Shape = tuple[PartShape, ...]
"""Parts of a state: unnamed ones by position, then named ones by name."""


def shape_of(state: State | None, attributes: Mapping[str, object]) -> Shape:
    """Shape of an operator's state; `attributes` are the operator's."""
    if state is None:
        return ()
    places = dict(_places(attributes))
    named = state.named if isinstance(state, Parts) else {0: state}
    parts = [
        PartShape(name, type(part).__name__, str(getattr(part, "shape", "")), places.get(id(part), ""))
        for name, part in named.items()
    ]
    return tuple(sorted(parts, key=lambda part: (isinstance(part.name, str), part.name)))


def _places(attributes: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    """Ids of objects held by attributes, with the attribute of each.

    Objects in lists and dictionaries are included; the last entry of an object counts.
    """
    for name, value in sorted(attributes.items(), reverse=True):
        if name == "state":
            continue
        if isinstance(value, dict):
            yield from ((id(each), f"{name}[{key!r}]") for key, each in value.items())
        elif isinstance(value, list | tuple):
            yield from ((id(each), f"{name}[{place}]") for place, each in enumerate(value))
        yield id(value), name


def digest_of(shape: Shape) -> int:
    """Short hash of a shape, for comparison with a checkpoint's; 0 for no state."""
    if not shape:
        return 0
    text = repr([(part.name, part.kind, part.shape) for part in shape])
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=4).digest()) or 1


def shape_changes(before: Shape, now: Shape) -> list[str]:
    """Reasons against restoring a checkpoint of one shape into the other.

    Empty if it can be restored.
    """
    if digest_of(before) != digest_of(now):
        return [f"its state was {shown(before)}, and is {shown(now)}"]
    return [
        f"its state was {shown(before)}, and is {shown(now)}: two parts were exchanged"
        for old, new in _renamed(before, now)
        if any(new.attribute == other.attribute for other in before)
    ][:1]


def renamed(before: Shape, now: Shape) -> list[str]:
    """Warnings about unnamed parts now held by a differently named attribute.

    Nothing shows that these are other parts.
    """
    if shape_changes(before, now):
        return []
    return [f"its state {old.attribute!r} is called {new.attribute!r} now" for old, new in _renamed(before, now)]


def _renamed(before: Shape, now: Shape) -> Iterator[tuple[PartShape, PartShape]]:
    for old, new in zip(before, now, strict=True):
        if isinstance(old.name, int) and old.attribute and new.attribute and old.attribute != new.attribute:
            yield old, new


def shown(shape: Sequence[PartShape]) -> str:
    """Shape as text for messages."""
    if not shape:
        return "nothing"
    return str(shape[0]) if len(shape) == 1 else f"Parts({'; '.join(map(str, shape))})"
