"""The order of times and its antichains, against brute force on small grids."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.time import INF, Time, join, leq, maximal, minimal, not_before

depths = st.integers(1, 3)
coordinates = st.integers(0, 4) | st.just(INF)


def times(depth: int) -> st.SearchStrategy[Time]:
    return st.tuples(*[coordinates] * depth)


def same_depth(count: int) -> st.SearchStrategy[tuple[Time, ...]]:
    return depths.flatmap(lambda depth: st.tuples(*[times(depth)] * count))


sets_of_times = depths.flatmap(lambda depth: st.lists(times(depth), max_size=8))


@given(same_depth(2))
def test_leq_compares_every_coordinate(pair: tuple[Time, Time]) -> None:
    a, b = pair
    assert leq(a, b) == all(x <= y for x, y in zip(a, b, strict=True))


@given(same_depth(3))
def test_leq_is_a_partial_order(triple: tuple[Time, Time, Time]) -> None:
    a, b, c = triple
    assert leq(a, a)
    assert not (leq(a, b) and leq(b, a)) or a == b
    assert not (leq(a, b) and leq(b, c)) or leq(a, c)


@given(same_depth(3))
def test_join_is_the_least_upper_bound(triple: tuple[Time, Time, Time]) -> None:
    a, b, c = triple
    assert leq(join(a, b), c) == (leq(a, c) and leq(b, c))


@given(sets_of_times)
def test_minimal_and_maximal_are_those_with_nothing_beyond(given_times: list[Time]) -> None:
    every = set(given_times)
    lowest = {t for t in every if not any((s != t and leq(s, t)) for s in every)}
    highest = {t for t in every if not any((t != s and leq(t, s)) for s in every)}
    assert minimal(given_times) == tuple(sorted(lowest))
    assert maximal(given_times) == tuple(sorted(highest))
    assert minimal(iter(given_times)) == minimal(every)


@given(same_depth(2))
def test_not_before_bounds_the_times_that_come_in_lexicographic_order(pair: tuple[Time, Time]) -> None:
    start, time = pair
    bounds = not_before(start)
    assert bounds == minimal(bounds)
    assert any(leq(least, time) for least in bounds) == (time >= start)


@pytest.mark.parametrize("depth", [1, 2])
def test_minimal_and_maximal_of_every_small_set(depth: int) -> None:
    grid = list(itertools.product(range(3), repeat=depth))
    for size in range(4):
        for chosen in itertools.combinations_with_replacement(grid, size):
            assert set(minimal(chosen)) == {t for t in chosen if not any((s != t and leq(s, t)) for s in chosen)}
            assert set(maximal(chosen)) == {t for t in chosen if not any((t != s and leq(t, s)) for s in chosen)}
