"""The domain of processors that count messages, against sets of (edge, number)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recovery.fixed_point.times import SequenceFrontier, SequenceTime
from timely.time import INF

EDGES = ("a", "b", "c")
GRID = [(edge, number) for edge in EDGES for number in (1, 2, 3, 4, 10**12)]
counts = st.fixed_dictionaries({edge: st.integers(0, 3) | st.just(INF) for edge in EDGES})
frontiers = counts.map(SequenceFrontier.of)


def members(f: SequenceFrontier) -> set[SequenceTime]:
    return {t for t in GRID if t in f}


@given(counts)
def test_a_frontier_has_the_first_messages_of_every_edge(given_counts: dict[str, int]) -> None:
    f = SequenceFrontier.of(given_counts)
    assert members(f) == {(edge, n) for edge, n in GRID if n <= given_counts[edge]}
    assert all(f.count(edge) == given_counts[edge] for edge in EDGES)


@given(frontiers)
def test_a_frontier_is_what_is_not_at_or_after_its_antichain(f: SequenceFrontier) -> None:
    after = {(edge, n) for edge, n in GRID for left_out, least in f.antichain if edge == left_out and n >= least}
    assert members(f) == set(GRID) - after
    assert SequenceFrontier.before(f.antichain, EDGES) == f


@given(frontiers, frontiers)
def test_operations_on_sequence_frontiers_are_those_of_sets(f: SequenceFrontier, g: SequenceFrontier) -> None:
    assert members(f & g) == members(f) & members(g)
    assert members(f | g) == members(f) | members(g)
    assert (f <= g) == (members(f) <= members(g))
    assert (f < g) == (members(f) < members(g))
    assert (f == g) == (members(f) == members(g))
    assert f.is_top == (members(f) == set(GRID))
    assert f.is_empty == (not members(f))
    if f == g:
        assert hash(f) == hash(g)


@given(frontiers, frontiers)
def test_union_drops_pairs_of_different_edges_from_the_antichain(f: SequenceFrontier, g: SequenceFrontier) -> None:
    joins = {(e, max(m, n)) for e, m in f.antichain for other, n in g.antichain if e == other}
    assert set((f | g).antichain) == joins


@given(frontiers, frontiers, frontiers)
def test_sequence_frontiers_form_a_distributive_lattice(
    f: SequenceFrontier, g: SequenceFrontier, h: SequenceFrontier
) -> None:
    assert f & (g | h) == (f & g) | (f & h)
    assert f & (f | g) == f == f | (f & g)
    assert (f <= g) == (f & g == f) == (f | g == g)
    assert SequenceFrontier.empty(EDGES) <= f <= SequenceFrontier.top(EDGES)


def test_empty_leaves_out_the_first_message_of_every_edge() -> None:
    assert SequenceFrontier.empty("ba").antichain == (("a", 1), ("b", 1))
    assert SequenceFrontier.empty(EDGES).is_empty
    assert members(SequenceFrontier.empty(EDGES)) == set()
    assert members(SequenceFrontier.top(EDGES)) == set(GRID)


def test_edges_are_told_apart() -> None:
    f, g = SequenceFrontier.of({"a": 1}), SequenceFrontier.of({"b": 1})
    for other in (g, SequenceFrontier.of({"a": 1, "b": 1})):
        with pytest.raises(ValueError, match="different processors"):
            f & other
        with pytest.raises(ValueError, match="different processors"):
            assert f <= other
    with pytest.raises(KeyError):
        assert ("b", 1) in f
    with pytest.raises(KeyError):
        SequenceFrontier.before([("b", 1)], edges=["a"])
    with pytest.raises(ValueError, match="negative"):
        SequenceFrontier.of({"a": -1})


@given(frontiers)
def test_repr_can_be_read_back(f: SequenceFrontier) -> None:
    assert eval(repr(f), {"SequenceFrontier": SequenceFrontier, "INF": INF}) == f
