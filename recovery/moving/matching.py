"""Operators of a changed program, matched with those that wrote its store.

They are matched by name. Matched operators keep what they have saved, so it has to fit: kind, scope, shape of state, and the
keys by which their input is divided. What is saved nowhere needs no match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from recovery.layout import EdgeInfo, Layout, ProcessorInfo
from timely.dataflow.fingerprint import read_outline
from timely.state.shapes import shape_changes

_INPUT = re.compile(r"(\d+) <- (.*):(\d+) by (.*)", re.DOTALL)
"""Input of a node in an outline: port, sender, its port, channel."""

_AUTOMATIC = re.compile(r"(.+)-\d+")
"""Automatic name of an operator: its kind, and a number."""

_KINDS = {
    "kind": "kind",
    "role": "role",
    "depth": "number of scopes",
    "scope": "scopes",
    "history": "way of persisting",
}


@dataclass(frozen=True)
class Matching:
    """Parts of a changed program in its former layout.

    Attributes:
        processors: former processor of each one that is matched.
        edges: former index in `Layout.edges` of each one that is matched.
        reasons: reasons against the change.
    """

    before: Layout
    after: Layout
    processors: Mapping[int, int]
    edges: Mapping[int, int]
    reasons: Sequence[str] = field(default=())

    @property
    def added(self) -> list[int]:
        """New processors without a former one."""
        return [p for p in range(len(self.after.processors)) if p not in self.processors]

    @property
    def removed(self) -> list[int]:
        """Former processors without a new one."""
        kept = set(self.processors.values())
        return [p for p in range(len(self.before.processors)) if p not in kept]


def with_names(layout: Layout, renames: Mapping[str, str]) -> Layout:
    """The layout with other names of operators."""
    if not renames:
        return layout

    def named(name: str) -> str:
        return renames.get(name, name)

    functions, nodes = layout.functions, read_outline(layout.outline)
    if functions is not None:
        functions = replace(functions, of={named(name): found for name, found in functions.of.items()})
    for node in nodes.values():
        node["inputs"] = [
            f"{found[1]} <- {named(found[2])}:{found[3]} by {found[4]}" if (found := _INPUT.fullmatch(each)) else each
            for each in node.get("inputs", ())
        ]
    return replace(
        layout,
        processors=tuple(
            replace(info, name=named(info.name), members=tuple(map(named, info.members))) for info in layout.processors
        ),
        outline=json.dumps({named(name): node for name, node in nodes.items()}),
        functions=functions,
    )


def match(before: Layout, after: Layout, sure: Collection[str] = ()) -> Matching:
    """Match the processors and edges of `after` with those of `before`.

    Args:
        sure: operators whose automatic names are known to mean the same.
    """
    former = {info.name: p for p, info in enumerate(before.processors)}
    nodes = [read_outline(of.outline) for of in (before, after)]
    automatic = [_automatic(of.processors) for of in (before, after)]
    processors: dict[int, int] = {}
    reasons: list[str] = []
    for p, info in enumerate(after.processors):
        if (was := former.get(info.name)) is None:
            continue
        old = before.processors[was]
        if not _saves(old) and not _saves(info):
            if (old.kind, old.depth, old.role) == (info.kind, info.depth, info.role):
                processors[p] = was
            continue
        processors[p] = was
        found = [*_differences(old, info, before, after)]
        if info.state and not found:
            inputs = [_inputs(of.get(info.name, {})) for of in nodes]
            found += _other_channels(*map(_channels, inputs))
            kind = _AUTOMATIC.fullmatch(info.name)
            moved = kind and (automatic[0].get(kind[1]) != automatic[1].get(kind[1]) or inputs[0] != inputs[1])
            if moved and info.name not in sure:
                found.append(
                    "has a name by its place in the program, and may have been another operator before, because what is around "
                    f"it has changed: if it is the same, say so by --rename {info.name}={info.name}, or by its former name"
                )
        reasons += [f"{info.kind} {info.name!r} ({info.site}) {text}" for text in found]
    return Matching(before, after, processors, _edges(before, after, processors), reasons)


def _saves(info: ProcessorInfo) -> bool:
    return info.chain or info.remembers or info.role != "operator"


def _differences(old: ProcessorInfo, new: ProcessorInfo, before: Layout, after: Layout) -> Iterator[str]:
    for name, words in _KINDS.items():
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield f"is another one: its {words} was {was!r}, and is {now!r}"
            return
    if before.groups[old.group].eager != after.groups[new.group].eager:
        yield f"commits in another way: it was {old.policy}, and is {new.policy}"
    if old.state is not None and new.state is not None:
        yield from shape_changes(old.state, new.state)


def _inputs(node: Mapping[str, object]) -> list[tuple[str, ...]]:
    """Inputs of a node: port, sender, its port, channel."""
    inputs = node.get("inputs", ())
    found = [_INPUT.fullmatch(str(each)) for each in (inputs if isinstance(inputs, list) else ())]
    return sorted(each.groups() for each in found if each)


def _channels(inputs: Iterable[tuple[str, ...]]) -> dict[str, set[str]]:
    """Channels of inputs by port."""
    found: dict[str, set[str]] = {}
    for port, _, _, channel in inputs:
        found.setdefault(port, set()).add(channel)
    return found


def _other_channels(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> Iterator[str]:
    """Reasons against keeping state by key: input divided in another way."""
    if before.keys() != after.keys():
        yield f"had {len(before)} input(s), and has {len(after)}"
    for port in before.keys() & after.keys():
        if before[port] != after[port]:
            was, now = (" and ".join(sorted(each)) for each in (before[port], after[port]))
            yield f"got its input by {was}, and gets it by {now}: its state would be at other keys"


def _automatic(processors: Iterable[ProcessorInfo]) -> dict[str, int]:
    """Number of operators with automatic names, by kind."""
    found: dict[str, int] = {}
    for info in processors:
        for name in info.members or (info.name,):
            if parts := _AUTOMATIC.fullmatch(name):
                found[parts[1]] = found.get(parts[1], 0) + 1
    return found


def _edges(before: Layout, after: Layout, processors: Mapping[int, int]) -> dict[int, int]:
    """Former index of each edge with the same ends and the same way of sending."""

    def ends(edge: EdgeInfo, source: int | None, target: int | None) -> tuple[object, ...]:
        way = edge.spread, edge.logged, edge.ahead, edge.depth, edge.add, edge.append
        return source, edge.port, target, edge.target_port, *way

    former: dict[tuple[object, ...], list[int]] = {}
    for index, edge in enumerate(before.edges):
        former.setdefault(ends(edge, edge.source, edge.target), []).append(index)
    found = {}
    for index, edge in enumerate(after.edges):
        source, target = processors.get(edge.source), processors.get(edge.target)
        if source is not None and target is not None and (there := former.get(ends(edge, source, target))):
            found[index] = there.pop(0)
    return found
