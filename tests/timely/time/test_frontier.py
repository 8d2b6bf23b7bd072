"""Frontiers are sets: every operation is checked against sets of times on a grid.

Antichains have coordinates up to 3 (or INF), so a grid up to 5, with INF and a stand-in for "some huge
number", meets every region that they can tell apart.
"""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.time import INF, Frontier, Time, leq

HUGE = 10**12
AXIS = (0, 1, 2, 3, 4, 5, HUGE, INF)
depths = st.integers(1, 3)
low = st.integers(0, 3)


@functools.cache
def grid(depth: int) -> tuple[Time, ...]:
    return tuple(itertools.product(AXIS, repeat=depth))


def members(s: Frontier) -> set[Time]:
    assert s.depth is not None
    return {t for t in grid(s.depth) if t in s}


def times(depth: int) -> st.SearchStrategy[Time]:
    return st.tuples(*[low | st.just(INF)] * depth)


def frontiers(depth: int) -> st.SearchStrategy[Frontier]:
    return st.lists(times(depth), max_size=4).map(lambda chosen: Frontier.before(chosen, depth))


pairs = depths.flatmap(lambda d: st.tuples(frontiers(d), frontiers(d)))
triples = depths.flatmap(lambda d: st.tuples(frontiers(d), frontiers(d), frontiers(d)))


@given(depths.flatmap(lambda d: st.lists(times(d), min_size=1, max_size=4)))
def test_before_leaves_out_exactly_what_is_at_or_after(chosen: list[Time]) -> None:
    f = Frontier.before(chosen)
    assert members(f) == {t for t in grid(len(chosen[0])) if not any(leq(m, t) for m in chosen)}


@given(depths.flatmap(times))
def test_lexicographic_prefix_is_that_of_tuples(time: Time) -> None:
    f = Frontier.lexicographic(time)
    assert members(f) == {t for t in grid(len(time)) if t <= time}
    assert Frontier.before(f.antichain, f.depth) == f
    assert all(c <= INF for left_out in f.antichain for c in left_out)


@given(depths.flatmap(lambda d: st.tuples(times(d), times(d))))
def test_lexicographic_prefixes_form_a_chain(pair: tuple[Time, Time]) -> None:
    a, b = pair
    f, g = Frontier.lexicographic(a), Frontier.lexicographic(b)
    assert (f <= g) == (a <= b)
    assert (f < g) == (a < b)


@given(depths)
def test_top_has_every_time_and_empty_none(depth: int) -> None:
    assert members(Frontier.top(depth)) == set(grid(depth))
    assert members(Frontier.empty(depth)) == set()
    assert Frontier.empty(depth).antichain == ((0,) * depth,)
    assert Frontier.before([], depth) == Frontier.top(depth)


@given(pairs)
def test_comparisons_of_frontiers_are_those_of_sets(pair: tuple[Frontier, Frontier]) -> None:
    f, g = pair
    assert (f <= g) == (members(f) <= members(g))
    assert (f < g) == (members(f) < members(g))
    assert (f >= g) == (members(f) >= members(g))
    assert (f == g) == (members(f) == members(g))
    assert f.is_empty == (not members(f))
    if f == g:
        assert hash(f) == hash(g)


@given(pairs)
def test_intersection_and_union_of_frontiers_are_those_of_sets(pair: tuple[Frontier, Frontier]) -> None:
    f, g = pair
    assert members(f & g) == members(f) & members(g)
    assert members(f | g) == members(f) | members(g)
    assert (f & g).depth == (f | g).depth == f.depth


@given(triples)
def test_frontiers_form_a_distributive_lattice(triple: tuple[Frontier, Frontier, Frontier]) -> None:
    f, g, h = triple
    assert f & g == g & f
    assert f | g == g | f
    assert (f & g) & h == f & (g & h)
    assert (f | g) | h == f | (g | h)
    assert f & (f | g) == f == f | (f & g)
    assert f & (g | h) == (f & g) | (f & h)
    assert (f <= g) == (f & g == f) == (f | g == g)
    top, empty = Frontier.top(f.depth), Frontier.empty(f.depth or 0)
    assert f & top == f == f | empty
    assert f | top == top
    assert f & empty == empty
    assert empty <= f <= top


def test_a_frontier_that_leaves_out_only_the_end_of_a_loop_has_every_iteration() -> None:
    f = Frontier.before([(2, INF), (3, 0)])
    assert (2, HUGE) in f
    assert (2, INF) not in f


def test_the_order_in_which_times_are_given_does_not_matter() -> None:
    chosen = [(0, 3), (1, 1), (2, 0), (2, 2), (1, 1)]
    frontiers = {Frontier.before(order) for order in itertools.permutations(chosen)}
    assert len(frontiers) == 1


@given(depths.flatmap(frontiers))
def test_repr_can_be_read_back(f: Frontier) -> None:
    assert eval(repr(f), {"Frontier": Frontier, "INF": INF}) == f


def test_sets_of_different_depths_are_refused() -> None:
    one, two = Frontier.before([(1,)]), Frontier.before([(1, 0)])
    for operation in (
        lambda: one <= two,
        lambda: one & two,
        lambda: one | two,
    ):
        with pytest.raises(ValueError, match="coordinate"):
            operation()


def test_a_top_of_unknown_depth_takes_the_depth_of_what_it_meets() -> None:
    known = Frontier.before([(1, 0)])
    assert Frontier.before([]) & known == known
    assert (Frontier.before([]) | known) == Frontier.top(2)


def test_frontiers_cannot_be_changed() -> None:
    f = Frontier.before([(1,)])
    with pytest.raises(AttributeError):
        f.antichain = ()  # type: ignore[misc]
