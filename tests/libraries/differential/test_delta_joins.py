"""Delta joins give, after every epoch, the tuples that are in all relations."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import differential
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection
from recovery.policy import LogHistory
from tests.libraries.differential.histories import Contents, check
from tests.libraries.differential.test_histories import histories, odd_pairs, pairs, runs
from timely.dataflow.graph import Region
from timely.errors import GraphError

few = settings(max_examples=settings.default.max_examples // 8)

QUERIES = {
    "triangle": [("a", "xy"), ("a", "yz"), ("a", "xz")],
    "path": [("a", "xy"), ("b", "yz"), ("a", "zw")],
    "star": [("a", "xy"), ("b", "xz"), ("b", "xw")],
    "both ways": [("a", "xy"), ("b", "yx")],
}


far = st.sampled_from([0, 1, 1 << 40, -(1 << 62), (1 << 63) - 1])
alike = st.sampled_from([0, 1, 1.0, True, 2, (1, 2), (1, 2.0)])
RECORDS = {
    "integers": pairs,
    "anything": odd_pairs,
    "far apart": st.tuples(far, far),
    "equal ones": st.tuples(alike, alike),
}


def by_hand(query: list[tuple[str, str]], held: dict[str, Contents]) -> Contents:
    found: Counter[Any] = Counter()
    letters = list(dict.fromkeys(letter for _, each in query for letter in each))
    for chosen in product(*(held[name].items() for name, _ in query)):
        values: dict[str, Any] = {}
        times = 1
        for (_, of), (record, n) in zip(query, chosen, strict=True):
            times *= n
            for letter, value in zip(of, record if len(of) == 2 else (record,), strict=True):
                if values.setdefault(letter, value) != value:
                    times = 0
        if times:
            found[tuple(values[letter] for letter in letters)] += times
    return dict(found)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS)
def test_delta_joins_are_what_they_are_from_scratch(name: str, records: Any) -> None:
    query = QUERIES[name]

    @few
    @given(epochs=histories("ab", records, most=7), **runs)
    def compared(epochs: list[Any], path: int, workers: int, seed: int) -> None:
        def build(a: Collection, b: Collection) -> Collection:
            return differential.delta_join(*(({"a": a, "b": b}[of], letters) for of, letters in query))

        check(build, lambda a, b: by_hand(query, {"a": a, "b": b}), ["a", "b"], epochs, path, workers, seed)

    compared()


def test_relations_may_have_one_letter_and_traces_of_their_own() -> None:
    epochs = [
        [("e", (1, 2), 1), ("e", (2, 3), 1), ("n", 2, 1), ("n", 3, 1)],
        [("e", (1, 3), 2), ("n", 2, -1)],
        [("e", (2, 3), -1), ("n", 1, 1), ("e", (3, 1), 1)],
    ]
    query = [("n", "y"), ("e", "xy"), ("e", "yz"), ("n", "z")]

    def build(e: Collection, n: Collection) -> Collection:
        e.stream.graph.enter_region(Region("replayed", LogHistory()))
        found = differential.delta_join(*(({"e": e, "n": n}[of], letters) for of, letters in query))
        e.stream.graph.leave_region()
        assert not any(node.reads for node in e.stream.graph.nodes)
        return found

    check(build, lambda e, n: by_hand(query, {"e": e, "n": n}), ["e", "n"], epochs, 3, 2)


@pytest.mark.parametrize("nodes", [[0, 1, 2], ["a", (0, 1), 2]], ids=["integers", "anything"])
@few
@given(data=st.data(), **runs)
def test_relations_of_one_letter_are_what_they_are_from_scratch(
    nodes: list[Any], data: st.DataObject, path: int, workers: int, seed: int
) -> None:
    node = st.sampled_from(nodes)
    epochs = data.draw(histories("n", node, most=4))
    for epoch, more in zip(epochs, data.draw(histories("e", st.tuples(node, node), most=7)), strict=False):
        epoch += more
    query = [("n", "x"), ("e", "xy"), ("n", "y")]

    def build(e: Collection, n: Collection) -> Collection:
        return differential.delta_join(*(({"e": e, "n": n}[of], letters) for of, letters in query))

    check(build, lambda e, n: by_hand(query, {"e": e, "n": n}), ["e", "n"], epochs, path, workers, seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alike", [False, True], ids=["integers", "equal ones"])
def test_many_changes_of_few_nodes_meet_in_columns_once_each(seed: int, alike: bool) -> None:
    """Changes of all relations of an epoch meet; where `alike`, integers are asked for among numbers that equal them."""
    chance, epochs = Random(seed), list[list[Any]]()
    nodes = {"a": [0, 1, 2], "b": [0, 1, 1.0, 2, 2.0] if alike else [0, 1, 2]}
    for number in range(3):
        gone = [(name, edge, -1) for name, edge, _ in (epochs[-1][:4] if number == 1 else ())]
        epochs.append(gone + [(n, (chance.choice(nodes[n]), chance.choice(nodes[n])), 1) for n in "aabb" * 3])
    query = [("a", "xy"), ("a", "yz"), ("b", "xz")]

    def build(a: Collection, b: Collection) -> Collection:
        return differential.delta_join(*(({"a": a, "b": b}[of], letters) for of, letters in query))

    check(build, lambda a, b: by_hand(query, {"a": a, "b": b}), ["a", "b"], epochs, -1, 1 + seed % 3, seed)


def test_what_cannot_be_joined_so_is_refused() -> None:
    flow = Dataflow()
    edges = differential.input_of(flow, "edges")
    with pytest.raises(GraphError, match="no letter of 'cd' is in 'ab'"):
        differential.delta_join((edges, "ab"), (edges, "cd"))
    with pytest.raises(GraphError, match="one letter or two different ones, not 'aa'"):
        differential.delta_join((edges, "aa"), (edges, "ab"))
    with pytest.raises(GraphError, match=r"test_delta_joins.py:\d+: delta_join works outside of loops"):
        edges.iterate(lambda inner: differential.delta_join((inner, "ab"), (edges, "bc")))
