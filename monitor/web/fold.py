"""Folding of a layout into nodes: operators, and groups as one node each.

Few enough to read.

Operators stand in a tree of *groups*: the scopes of the program; and where a scope holds very many, what belongs to one
region within it, chains without a fork, and bands of neighbouring layers. A group that is *open* is drawn as a box around
what is in it, one that is *folded* as a single node. What a reader has opened stays open and what he has folded stays
folded; of the rest as much is opened, from the outside inwards, as is good to look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from recovery.layout import Layout

MOST_DRAWN = 150
"""Most nodes on the page at once."""
FIRST_DRAWN = 40
"""Most nodes shown at first, in a larger program."""
MOST_CHILDREN = 48
"""Most children of a group before it is divided further."""

_LEAST_CHAIN = 3


@dataclass(slots=True)
class FoldGroup:
    """Group of operators; `key` is stable as long as the program is."""

    key: str
    label: str
    kind: str
    """One of scope, region, chain or part."""
    children: list[FoldGroup | int] = field(default_factory=list)
    """Groups, and operators by their index in the layout."""

    def members(self) -> list[int]:
        """All operators inside, ascending."""
        found: list[int] = []
        for child in self.children:
            found += [child] if isinstance(child, int) else child.members()
        return sorted(found)

    def groups(self) -> Iterable[FoldGroup]:
        """All groups inside, outer ones first."""
        for child in self.children:
            if isinstance(child, FoldGroup):
                yield child
                yield from child.groups()


@dataclass(frozen=True, slots=True)
class Folding:
    """Folding: the tree of groups, the open ones, and each operator's node.

    `nodes[i]` are the operators of drawn node i; `of[p]` is the node of operator p.
    """

    root: FoldGroup
    open: frozenset[str]
    nodes: tuple[tuple[int, ...], ...]
    folded: tuple[FoldGroup | None, ...]
    """Group represented by each node; None for an operator."""
    of: tuple[int, ...]


def group_tree(layout: Layout) -> FoldGroup:
    """Groups of a layout: its scopes, divided if larger than `MOST_CHILDREN`."""
    root = FoldGroup("", layout.name, "scope")
    scopes: dict[tuple[str, ...], FoldGroup] = {(): root}

    def scope_of(path: tuple[str, ...]) -> FoldGroup:
        if path not in scopes:
            scopes[path] = FoldGroup("/".join(path), path[-1], "scope")
            scope_of(path[:-1]).children.append(scopes[path])
        return scopes[path]

    for index, info in enumerate(layout.processors):
        scope_of(info.scope).children.append(index)
    plain = _plain(layout)
    for group in list(scopes.values()):
        _divide(group, layout, plain)
    return root


def fold(
    layout: Layout,
    root: FoldGroup,
    opened: Collection[str] = (),
    closed: Collection[str] = (),
    most: int | None = None,
) -> Folding:
    """Choose open groups and nodes to draw.

    `opened` and `closed` are keys of groups, as a reader chose them, and take precedence.

    `most`: how many nodes, but for what the reader has opened; by default all of a program that can be drawn whole.
    """
    if most is None:
        most = MOST_DRAWN if len(layout.processors) <= MOST_DRAWN else FIRST_DRAWN
    parents = {
        child.key: group for group in (root, *root.groups()) for child in group.children if isinstance(child, FoldGroup)
    }
    wanted: set[str] = set()
    for key in opened:
        while key in parents:
            wanted.add(key)
            key = parents[key].key
    unwanted = set(closed) - wanted
    is_open = {root.key, *wanted}
    drawn = _drawn(root, is_open)
    level = [child for child in root.children if isinstance(child, FoldGroup)]
    while level:
        folded = [group for group in level if parents[group.key].key in is_open and group.key not in is_open | unwanted]
        # All of a level or none, so that like looks alike; only where that leaves almost nothing, the small ones first.
        if drawn + sum(len(group.children) - 1 for group in folded) <= most or drawn < most / 4:
            for group in sorted(folded, key=lambda group: (len(group.children), group.key)):
                if drawn + len(group.children) - 1 <= most:
                    is_open.add(group.key)
                    drawn += len(group.children) - 1
        level = [child for group in level for child in group.children if isinstance(child, FoldGroup)]
    nodes: list[tuple[int, ...]] = []
    stands_for: list[FoldGroup | None] = []
    of = [0] * len(layout.processors)

    def draw(group: FoldGroup) -> None:
        for child in group.children:
            if isinstance(child, FoldGroup) and child.key in is_open:
                draw(child)
                continue
            members = tuple(child.members()) if isinstance(child, FoldGroup) else (child,)
            for index in members:
                of[index] = len(nodes)
            nodes.append(members)
            stands_for.append(child if isinstance(child, FoldGroup) else None)

    draw(root)
    reachable = frozenset(group.key for group in (root, *root.groups()) if group.key in is_open)
    return Folding(root, reachable, tuple(nodes), tuple(stands_for), tuple(of))


def _drawn(group: FoldGroup, is_open: Collection[str]) -> int:
    count = 0
    for child in group.children:
        count += _drawn(child, is_open) if isinstance(child, FoldGroup) and child.key in is_open else 1
    return count


def _plain(layout: Layout) -> list[list[int]]:
    """Successors of each operator, without feedback edges."""
    after: list[dict[int, None]] = [{} for _ in layout.processors]
    for edge in layout.edges:
        if not edge.feedback:
            after[edge.source][edge.target] = None
    return [list(each) for each in after]


def _divide(group: FoldGroup, layout: Layout, plain: list[list[int]]) -> None:
    """Divide `group` into groups until few enough children are left.

    Regions come first, then chains, then bands: ways that say ever less.
    """
    if len(group.children) > MOST_CHILDREN:
        _by_region(group, layout)
    for part in [
        group,
        *(child for child in group.children if isinstance(child, FoldGroup) and child.kind == "region"),
    ]:
        if len(part.children) > MOST_CHILDREN:
            _by_chain(part, layout, plain)
        if len(part.children) > MOST_CHILDREN:
            _by_band(part, layout, plain)


def _by_region(group: FoldGroup, layout: Layout) -> None:
    regions: dict[str, list[int]] = {}
    for child in group.children:
        if isinstance(child, int) and (region := layout.processors[child].region) is not None:
            regions.setdefault(region, []).append(child)
    for name, members in regions.items():
        if 1 < len(members) < len(group.children):
            _gather(group, FoldGroup(f"{group.key}:{name}", name, "region"), members)


def _by_chain(group: FoldGroup, layout: Layout, plain: list[list[int]]) -> None:
    here = {child for child in group.children if isinstance(child, int)}
    entered = Counter(target for after in plain for target in after)
    follows: dict[int, int] = {}
    for index in sorted(here):
        after = plain[index]
        if len(after) == 1 and after[0] in here and entered[after[0]] == 1:
            follows[index] = after[0]
    later = set(follows.values())
    for first in sorted(follows.keys() - later):
        chain = [first]
        while chain[-1] in follows and len(chain) < MOST_CHILDREN:
            chain.append(follows[chain[-1]])
        if len(chain) >= _LEAST_CHAIN:
            names = layout.processors[chain[0]].name, layout.processors[chain[-1]].name
            _gather(group, FoldGroup(f"{group.key}:{names[0]}..", f"{names[0]} … {names[1]}", "chain"), chain)


def _by_band(group: FoldGroup, layout: Layout, plain: list[list[int]]) -> None:
    """Divide a group into bands of neighbouring layers, and these into components.

    Nothing that leaves a band comes back to it.
    """
    import networkx as nx  # most programs are not divided so, and to load it takes a page most of its start

    unit: dict[int, int] = {}
    for number, child in enumerate(group.children):
        for member in [child] if isinstance(child, int) else child.members():
            unit[member] = number
    between: nx.DiGraph[int] = nx.DiGraph()
    between.add_nodes_from(range(len(group.children)))
    between.add_edges_from(
        (unit[a], unit[b]) for a, after in enumerate(plain) for b in after if a in unit and b in unit
    )
    acyclic = nx.condensation(between)
    layer: dict[int, int] = {}
    for component in nx.lexicographical_topological_sort(acyclic):
        at = max((layer[before] + 1 for before in acyclic.predecessors(component)), default=0)
        layer[component] = at
    depth = max(layer.values()) + 1
    height = -(-depth // MOST_CHILDREN)
    children = list(group.children)
    parts = [[number] for number in range(len(children))]
    while True:
        bands: dict[int, list[int]] = {}
        for component, at in layer.items():
            bands.setdefault(at // height, []).extend(acyclic.nodes[component]["members"])
        found: list[list[int]] = []
        for _, band in sorted(bands.items()):
            together = [sorted(each) for each in nx.weakly_connected_components(between.subgraph(band))]
            found += sorted(together)
        if len(found) == 1:  # all of it hangs together: as a star does in two layers
            break
        parts = found
        if len(parts) <= MOST_CHILDREN or height >= depth:
            break
        height *= 2
    if len(parts) > MOST_CHILDREN:  # many small things side by side
        size = -(-len(parts) // MOST_CHILDREN)
        parts = [[each for part in parts[at : at + size] for each in part] for at in range(0, len(parts), size)]
    for part in parts:
        if len(part) > 1:
            inside = [children[number] for number in part]
            first = inside[0] if isinstance(inside[0], int) else inside[0].members()[0]
            name = layout.processors[first].name
            group_part = FoldGroup(f"{group.key}:{name}+", f"{name} and {len(part) - 1} more", "part")
            _gather(group, group_part, inside)
            if len(group_part.children) > MOST_CHILDREN:
                _by_band(group_part, layout, plain)


def _gather(group: FoldGroup, inner: FoldGroup, members: Iterable[FoldGroup | int]) -> None:
    """Move `members` of `group` into `inner`, at the place of the first of them."""
    chosen = list(members)
    ids = {id(each) if isinstance(each, FoldGroup) else each for each in chosen}

    def is_one(child: FoldGroup | int) -> bool:
        return (id(child) if isinstance(child, FoldGroup) else child) in ids

    place = next(at for at, child in enumerate(group.children) if is_one(child))
    inner.children = [child for child in group.children if is_one(child)]
    group.children = [child for child in group.children if not is_one(child)]
    group.children.insert(place, inner)
