"""Explanations: the program gives a record again from the input records that explain it, and from these alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import differential, graph
from libraries.differential import Collection
from tests.libraries.differential import test_histories
from tests.libraries.differential.histories import run
from tests.libraries.differential.test_histories import JOINS, REDUCES, odd_pairs, pairs
from timely.errors import GraphError

few = settings(max_examples=settings.default.max_examples // 10)

VERBS = {name: build for name, (build, _) in (REDUCES | JOINS).items()} | {
    "what an antijoin kept away": lambda a, b: a.antijoin(b.map(lambda pair: pair[1]).distinct()).count(),
    "of what was least the most": lambda a, b: (
        a.min().map(lambda pair: (pair[1], pair[0])).concat(b.negate()).threshold(abs)
    ),
    "delta": lambda a, b: differential.delta_join((a, "xy"), (b, "yz"), (a, "xz")),
    "shared": lambda a, b: a.arrange().join(b.arrange()).count(),
}

LOOPS = {
    "strong": test_histories.strong,
    "trimmed": lambda edges: test_histories.trimmed(edges, edges.map_pairs(lambda a, b: a)),
    "steps": lambda edges: test_histories.distances(edges, edges.map_pairs(lambda a, b: a * 0)),
    "core": lambda edges: graph.k_core(edges, 2),
    "components": graph.components,
}


def explained(build: Any, contents: dict[str, list[Any]], data: st.DataObject) -> None:
    """Whatever record of the result is chosen, it comes of what explains it."""
    whole = run(build, list(contents), [[(name, each, 1) for name in contents for each in contents[name]]])[0]
    if not whole:
        return
    record = data.draw(st.sampled_from(sorted(whole, key=repr)))
    found = differential.explain(build, contents, record)
    for name, held in found.items():
        assert all(contents[name].count(each) == times for each, times in held.items())
    again = run(build, list(found), [[(name, each, by) for name in found for each, by in found[name].items()]])[0]
    assert again.get(record, 0) == whole[record], found


@pytest.mark.parametrize("name", VERBS)
@few
@given(data=st.data())
def test_a_record_comes_again_of_what_explains_it(name: str, data: st.DataObject) -> None:
    records = odd_pairs if name in ("count", "distinct", "join", "shared", "full join") else pairs
    inputs = "a" if name in REDUCES else "ab"
    explained(VERBS[name], {each: data.draw(st.lists(records, max_size=8)) for each in inputs}, data)


@pytest.mark.parametrize("name", LOOPS)
@few
@given(edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14), data=st.data())
def test_a_record_of_a_loop_comes_again_of_what_explains_it(
    name: str, edges: list[tuple[int, int]], data: st.DataObject
) -> None:
    explained(LOOPS[name], {"e": edges}, data)


def test_an_explanation_leaves_out_what_does_not_matter() -> None:
    path = [(n, n + 1) for n in range(5)]
    beside = [(n, n + 7) for n in range(100, 200)]
    found = differential.explain(graph.distances, {"edges": [*path, *beside, (4, 9)], "roots": [0, 100]}, (3, 3))
    assert found == {"edges": {(0, 1): 1, (1, 2): 1, (2, 3): 1}, "roots": {0: 1}}


def test_what_kept_a_record_away_is_part_of_an_explanation() -> None:
    """Without ("a", 2) the least value of "a" would be 5, which is not removed, and counts."""

    def program(values: Collection, removed: Collection) -> Collection:
        return values.min().map(lambda pair: (pair[1], None)).antijoin(removed).map(lambda pair: "left").count()

    given = {"values": [("a", 2), ("a", 5), ("b", 3), ("c", 4)], "removed": [2]}
    found = differential.explain(program, given, ("left", 2))
    assert {("b", 3), ("c", 4)} <= found["values"].keys()
    assert (("a", 5) in found["values"]) <= (("a", 2) in found["values"] and 2 in found["removed"])


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(KeyError, match="does not make 4"):
        differential.explain(lambda a: a, {"a": [1]}, 4)
    with pytest.raises(GraphError, match="follows the operators of collections; the count"):
        differential.explain(lambda a: differential.from_records(a.changes().key_by(str).count()), {"a": [1]}, 4)
