"""Every verb gives, after every epoch, what it gives when computed from scratch: on random histories, however they are run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import differential
from libraries.differential import Collection
from tests.libraries.differential.histories import PATHS, Contents, check

some = settings(max_examples=settings.default.max_examples // 3)  # each has several epochs, and several times in each


@st.composite
def histories(draw: st.DrawFn, names: str, record: st.SearchStrategy[Any], most: int = 14) -> list[list[Any]]:
    """Epochs of insertions, and of removals of what is there."""
    held: Counter[Any] = Counter()
    epochs = []
    for _ in range(draw(st.integers(1, 4))):
        epoch = []
        for _ in range(draw(st.integers(0, most))):
            there = sorted((each for each in held if held[each] > 0), key=repr)
            if there and draw(st.booleans()):
                each, by = draw(st.sampled_from(there)), -1
            else:
                each, by = (draw(st.sampled_from(names)), draw(record)), 1
            held[each] += by
            epoch.append((*each, by))
        epochs.append(epoch)
    return epochs


numbers = st.integers(0, 4)
pairs = st.tuples(numbers, numbers)
odd_keys = st.sampled_from([0, 1, "a", None, (1, 2), (1, None), 2.5, -(1 << 63)])
odd_pairs = st.tuples(odd_keys, st.sampled_from([0, 1, "a", "b", None, (1, 2)]))
odd_records = odd_pairs | st.sampled_from([0, 1, "a", None, 2.5, (1, 2, 3)])
edges = st.tuples(st.integers(0, 6), st.integers(0, 6))
runs = {"path": st.sampled_from(PATHS), "workers": st.integers(1, 4), "seed": st.integers(0, 1000)}


def key_and_value(record: Any) -> tuple[Any, Any]:
    """The key and the value: a record that is no pair is its own key, and its value is None."""
    return record if type(record) is tuple and len(record) == 2 else (record, None)


def grouped(held: Contents) -> dict[Any, list[tuple[Any, int]]]:
    groups: dict[Any, list[tuple[Any, int]]] = {}
    for record, times in held.items():
        key, value = key_and_value(record)
        groups.setdefault(key, []).append((value, times))
    return groups


def each_key(function: Callable[[list[tuple[Any, int]]], list[Any]]) -> Callable[[Contents], Contents]:
    return lambda held: dict(Counter((key, value) for key, group in grouped(held).items() for value in function(group)))


def _least(group: list[tuple[Any, int]]) -> list[Any]:
    return [min(value for value, _ in group)]


def _top(group: list[tuple[Any, int]]) -> list[Any]:
    return sorted((value for value, times in group for _ in range(times)), reverse=True)[:2]


REDUCES: dict[str, tuple[Callable[[Collection], Collection], Callable[[Contents], Contents]]] = {
    "count": (lambda c: c.count(), each_key(lambda group: [sum(times for _, times in group)])),
    "sum": (lambda c: c.sum(), each_key(lambda group: [sum(value * times for value, times in group)])),
    "min": (lambda c: c.min(), each_key(_least)),
    "max": (lambda c: c.max(), each_key(lambda group: [max(value for value, _ in group)])),
    "top": (lambda c: c.top(2), each_key(_top)),
    "distinct": (lambda c: c.distinct(), lambda held: dict.fromkeys(held, 1)),
    "threshold": (
        lambda c: c.threshold(lambda n: n // 2),
        lambda held: {record: times // 2 for record, times in held.items()},
    ),
    "reduce": (
        lambda c: c.reduce(lambda key, group: sorted(value for value, _ in group)[1:]),
        each_key(lambda group: sorted(value for value, _ in group)[1:]),
    ),
    "as it is": (lambda c: c.consolidate(), lambda held: held),
    "mapped": (
        lambda c: c.map_pairs(lambda key, value: (value, key + value)).filter(lambda pair: pair[1] > 2).max(),
        lambda held: each_key(lambda group: [max(value for value, _ in group)])(
            dict(Counter((v, k + v) for (k, v), n in held.items() for _ in range(n) if k + v > 2))
        ),
    ),
}


@pytest.mark.parametrize("name", REDUCES)
@some
@given(epochs=histories("a", pairs), **runs)
def test_reduces_are_what_they_are_from_scratch(
    name: str, epochs: list[Any], path: int, workers: int, seed: int
) -> None:
    check(*REDUCES[name], ["a"], epochs, path, workers, seed)


@pytest.mark.parametrize("name", ["count", "distinct", "as it is", "threshold"])
@some
@given(epochs=histories("a", odd_records), **runs)
def test_keys_may_be_anything_and_of_mixed_types(
    name: str, epochs: list[Any], path: int, workers: int, seed: int
) -> None:
    check(*REDUCES[name], ["a"], epochs, path, workers, seed)


def joined(left: Contents, right: Contents) -> Contents:
    found: Counter[Any] = Counter()
    for (key, one), n in left.items():
        for (other_key, other), m in right.items():
            if key == other_key:
                found[key, (one, other)] += n * m
    return dict(found)


def alone(held: Contents, other: Contents, select: Callable[[Any], Any]) -> Contents:
    return {(k, select(v)): times for (k, v), times in held.items() if k not in {key for key, _ in other}}


JOINS: dict[str, tuple[Callable[..., Collection], Callable[..., Contents]]] = {
    "join": (lambda a, b: a.join(b), joined),
    "semijoin": (
        lambda a, b: a.semijoin(b.map(lambda pair: pair[0]).distinct()),
        lambda a, b: {pair: times for pair, times in a.items() if pair[0] in {key for key, _ in b}},
    ),
    "antijoin": (
        lambda a, b: a.antijoin(b.map(lambda pair: pair[0]).distinct()),
        lambda a, b: {pair: times for pair, times in a.items() if pair[0] not in {key for key, _ in b}},
    ),
    "left join": (lambda a, b: a.left_join(b), lambda a, b: joined(a, b) | alone(a, b, lambda v: (v, None))),
    "full join": (
        lambda a, b: a.full_join(b),
        lambda a, b: joined(a, b) | alone(a, b, lambda v: (v, None)) | alone(b, a, lambda v: (None, v)),
    ),
    "join of what was reduced": (
        lambda a, b: a.min().join(b.count(), lambda key, least, count: (least, count)),
        lambda a, b: dict(
            Counter(
                (min(v for v, _ in group), sum(n for _, n in grouped(b)[key]))
                for key, group in grouped(a).items()
                if key in grouped(b)
            )
        ),
    ),
}


@pytest.mark.parametrize("name", JOINS)
@some
@given(epochs=histories("ab", pairs), **runs)
def test_joins_are_what_they_are_from_scratch(name: str, epochs: list[Any], path: int, workers: int, seed: int) -> None:
    check(*JOINS[name], ["a", "b"], epochs, path, workers, seed)


def met(left: Contents, right: Contents) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for (one, n), (other, m) in product(left.items(), right.items()):
        (key, mine), (same, theirs) = key_and_value(one), key_and_value(other)
        if key == same:
            found[key, (mine, theirs)] += n * m
    return found


def without(held: Contents, other: Contents, turned: bool = False) -> Counter[Any]:
    keys = set(map(key_and_value, other))
    found: Counter[Any] = Counter()
    for record, times in held.items():
        key, value = key_and_value(record)
        if key not in {key for key, _ in keys}:
            found[key, (None, value) if turned else (value, None)] += times
    return found


def keys_of(collection: Collection) -> Collection:
    return collection.map(lambda record: (key_and_value(record)[0], None)).distinct()


def is_in(held: Contents, other: Contents, wanted: bool) -> Contents:
    keys = [key_and_value(record)[0] for record in other]
    return {record: times for record, times in held.items() if (key_and_value(record)[0] in keys) == wanted}


ODD_JOINS: dict[str, tuple[Callable[..., Collection], Callable[..., Contents]]] = {
    "join": (lambda a, b: a.join(b), met),
    "semijoin": (lambda a, b: a.semijoin(keys_of(b)), lambda a, b: is_in(a, b, True)),
    "antijoin": (lambda a, b: a.antijoin(keys_of(b)), lambda a, b: is_in(a, b, False)),
    "left join": (lambda a, b: a.left_join(b), lambda a, b: met(a, b) + without(a, b)),
    "full join": (lambda a, b: a.full_join(b), lambda a, b: met(a, b) + without(a, b) + without(b, a, turned=True)),
}


@pytest.mark.parametrize("name", ODD_JOINS)
@some
@given(epochs=histories("ab", odd_records), **runs)
def test_what_is_joined_may_be_anything_pairs_as_keys_and_none_as_a_value_included(
    name: str, epochs: list[Any], path: int, workers: int, seed: int
) -> None:
    check(*ODD_JOINS[name], ["a", "b"], epochs, path, workers, seed)


# Loops


def labels(edges: Collection) -> Collection:
    """Pairs (node, least node that leads to it)."""
    both = edges.concat(edges.map_pairs(lambda a, b: (b, a)))
    nodes = both.map_pairs(lambda a, b: (a, a)).distinct()
    return nodes.iterate(
        lambda inner: both.join(inner, lambda node, other, label: (other, label), columns=True).concat(nodes).min()
    )


def components(held: Contents) -> Contents:
    graph = nx.Graph()
    graph.add_edges_from(held)
    return {(node, min(part)): 1 for part in nx.connected_components(graph) for node in part}


def reached(edges: Collection, roots: Collection) -> Collection:
    """Nodes that can be reached from roots."""
    return roots.distinct().iterate(
        lambda inner: edges.join(inner, lambda a, b, _: b, columns=True).concat(roots).distinct()
    )


def reachable(edges: Contents, roots: Contents) -> Contents:
    graph = nx.DiGraph()
    graph.add_edges_from(edges)
    graph.add_nodes_from(roots)
    return {node: 1 for root in roots for node in {root, *nx.descendants(graph, root)}}


def distances(edges: Collection, roots: Collection) -> Collection:
    """Pairs (node, number of steps from the nearest root)."""
    begun = roots.map_pairs(lambda root, _: (root, 0)).distinct()
    return begun.iterate(
        lambda inner: edges.join(inner, lambda a, b, steps: (b, steps + 1), columns=True).concat(begun).min()
    )


def shortest(edges: Contents, roots: Contents) -> Contents:
    graph = nx.DiGraph()
    graph.add_edges_from(edges)
    graph.add_nodes_from(roots)
    return dict.fromkeys(nx.multi_source_dijkstra_path_length(graph, set(roots)).items(), 1) if roots else {}


def trimmed(edges: Collection, roots: Collection) -> Collection:
    """Edges on which one can walk without end: a loop whose collection shrinks."""
    return (
        edges.distinct()
        .iterate(lambda inner: inner.semijoin(inner.map_pairs(lambda a, b: b).distinct()))
        .concat(roots.map_pairs(lambda a, b: (a, -1)).distinct())
    )


def on_cycles(edges: Contents, roots: Contents) -> Contents:
    left = set(edges)
    while True:
        ends = {b for _, b in left}
        less = {edge for edge in left if edge[0] in ends}
        if less == left:
            return dict.fromkeys(left, 1) | {(root, -1): 1 for root in roots}
        left = less


@some
@given(epochs=histories("e", edges), **runs)
def test_components_are_those_of_networkx(epochs: list[Any], path: int, workers: int, seed: int) -> None:
    check(labels, components, ["e"], epochs, path, workers, seed)


@pytest.mark.parametrize(
    ("build", "oracle"),
    [(reached, reachable), (distances, shortest), (trimmed, on_cycles)],
    ids=["reach", "steps", "trim"],
)
@some
@given(epochs=histories("e", edges), roots=st.lists(st.lists(st.integers(0, 6), max_size=2), max_size=3), **runs)
def test_walks_are_those_of_networkx(
    build: Any, oracle: Any, epochs: list[Any], roots: list[list[int]], path: int, workers: int, seed: int
) -> None:
    for number, found in enumerate(roots[: len(epochs)]):
        epochs[number] += [("r", root, 1) for root in found]
    check(build, oracle, ["e", "r"], epochs, path, workers, seed)


def strong(edges: Collection) -> Collection:
    """Edges inside of strongly connected components: a loop of two loops, whose times have three coordinates."""

    def within(inner: Collection) -> Collection:
        return _same(_same(inner.map_pairs(lambda a, b: (b, a))).map_pairs(lambda a, b: (b, a)))

    def _same(inner: Collection) -> Collection:
        nodes = inner.map_pairs(lambda a, b: (b, b)).distinct()
        least = nodes.iterate(
            lambda each: inner.join(each, lambda a, b, label: (b, label), columns=True).concat(nodes).min()
        )
        known = inner.join(least, lambda a, b, label: (a, b, label))
        both = known.map(lambda each: (each[1], (each[0], each[2]))).join(
            least, lambda b, found, label: (found[0], b, found[1] == label)
        )
        return both.filter(lambda each: each[2]).map(lambda each: (each[0], each[1]))

    return edges.distinct().iterate(within)


def strongly(held: Contents) -> Contents:
    graph = nx.DiGraph()
    graph.add_edges_from(held)
    part = {node: n for n, nodes in enumerate(nx.strongly_connected_components(graph)) for node in nodes}
    return {(a, b): 1 for a, b in held if part[a] == part[b]}


@some
@given(epochs=histories("e", edges), **runs)
def test_strongly_connected_components_are_those_of_networkx(
    epochs: list[Any], path: int, workers: int, seed: int
) -> None:
    check(strong, strongly, ["e"], epochs, path, workers, seed)


@some
@given(epochs=histories("e", edges), **runs)
def test_several_collections_go_round_one_loop(epochs: list[Any], path: int, workers: int, seed: int) -> None:
    """Nodes at an even and at an odd number of steps from node 0."""

    def build(edges: Collection) -> Collection:
        zero = edges.map_pairs(lambda a, b: a * 0).distinct()

        def step(even: Collection, odd: Collection) -> list[Collection]:
            def along(nodes: Collection) -> Collection:
                return edges.join(nodes, lambda a, b, _: b, columns=True)

            return [along(odd).concat(zero).distinct(), along(even).distinct()]

        even, odd = differential.iterate([zero, zero.filter(lambda n: False)], step)
        return even.map(lambda n: (n, 0)).concat(odd.map(lambda n: (n, 1)))

    def oracle(held: Contents) -> Contents:
        found = {(0, 0)} if held else set()
        while True:
            more = found | {(b, 1 - side) for node, side in found for a, b in held if a == node}
            if more == found:
                return dict.fromkeys(found, 1)
            found = more

    check(build, oracle, ["e"], epochs, path, workers, seed)
