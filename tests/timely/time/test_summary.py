"""Path summaries, against brute force: as functions and as an order."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.time import (
    FINITE,
    INF,
    Summary,
    Time,
    join,
    leq,
    minimal_summaries,
)

# Summaries use numbers up to 2, so what they make of these stays below 5, and 6 stands for all that is larger.
AXIS = (0, 1, 2, 3, 4, 5, 6, INF)
depths = st.integers(1, 3)
low = st.integers(0, 2)


@functools.cache
def grid(depth: int) -> tuple[Time, ...]:
    return tuple(itertools.product(AXIS, repeat=depth))


def tuples(length: int, numbers: st.SearchStrategy[int]) -> st.SearchStrategy[Time]:
    return st.tuples(*[numbers] * length)


@st.composite
def summaries(draw: st.DrawFn, depth: int | None = None, result: int | None = None) -> Summary:
    depth = draw(depths) if depth is None else depth
    result = draw(depths) if result is None else result
    keep = draw(st.integers(0, min(depth, result)))
    return Summary(depth, draw(tuples(keep, low)), draw(tuples(result - keep, low | st.just(INF))))


def by_definition(s: Summary, t: Time) -> Time:
    return tuple(INF if x == INF else x + y for x, y in zip(t, s.add)) + s.append


siblings = summaries().flatmap(lambda s: st.tuples(st.just(s), summaries(s.depth, s.result_depth)))


@given(summaries())
def test_application_keeps_adds_and_appends(s: Summary) -> None:
    for t in grid(s.depth):
        assert s(t) == by_definition(s, t)
        assert len(s(t)) == s.result_depth
    assert s((FINITE,) * s.depth) == (FINITE,) * s.keep + s.append


@given(summaries(), st.data())
def test_application_is_monotone(s: Summary, data: st.DataObject) -> None:
    a, b = data.draw(st.tuples(*[st.sampled_from(grid(s.depth))] * 2))
    assert leq(s(a), s(join(a, b)))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_edges_of_scopes_do_what_their_names_say(depth: int) -> None:
    for t in grid(depth):
        assert Summary.identity(depth)(t) == t
        assert Summary.ingress(depth)(t) == (*t, 0)
        assert Summary.egress(depth)(t) == t[:-1]
        inner = INF if t[-1] == INF else t[-1] + 2
        assert Summary.feedback(depth, by=2)(t) == (*t[:-1], inner)
    assert Summary.ingress(depth).then(Summary.egress(depth + 1)) == Summary.identity(depth)
    assert Summary.feedback(depth).then(Summary.feedback(depth)) == Summary.feedback(depth, by=2)
    assert Summary.feedback(depth, by=0) == Summary.identity(depth)


@given(st.data())
def test_composition_is_one_function_after_the_other(data: st.DataObject) -> None:
    s = data.draw(summaries())
    r = data.draw(summaries(s.result_depth))
    q = data.draw(summaries(r.result_depth))
    path = s.then(r)
    assert (path.depth, path.result_depth) == (s.depth, r.result_depth)
    for t in grid(s.depth):
        assert path(t) == r(s(t))
    assert path.then(q) == s.then(r.then(q))
    assert Summary.identity(s.depth).then(s) == s == s.then(Summary.identity(s.result_depth))


@given(siblings)
def test_order_of_summaries_is_that_of_their_values(pair: tuple[Summary, Summary]) -> None:
    s, r = pair
    assert s.leq(r) == all(leq(s(t), r(t)) for t in grid(s.depth))


@given(siblings)
def test_equal_functions_are_equal_objects(pair: tuple[Summary, Summary]) -> None:
    s, r = pair
    assert (s == r) == all(s(t) == r(t) for t in grid(s.depth))
    if s == r:
        assert hash(s) == hash(r)


@given(summaries().flatmap(lambda s: st.lists(summaries(s.depth, s.result_depth), max_size=6)))
def test_minimal_summaries_are_those_with_nothing_below(paths: list[Summary]) -> None:
    expected = {s for s in paths if not any(r != s and r.leq(s) for r in paths)}
    kept = minimal_summaries(paths)
    assert set(kept) == expected
    assert len(kept) == len(expected)
    assert kept == minimal_summaries(reversed(paths))


def test_paths_that_do_not_meet_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot go on"):
        Summary.identity(1).then(Summary.identity(2))
    with pytest.raises(ValueError, match="same scopes"):
        Summary.identity(1).leq(Summary.identity(2))
    with pytest.raises(ValueError, match="same scopes"):
        Summary.egress(2).leq(Summary.identity(1))


@pytest.mark.parametrize(
    "arguments", [(1, (0, 0), ()), (1, (-1,), ()), (1, (INF,), ()), (1, (), (-1,)), (1, (), (FINITE,))]
)
def test_summaries_that_go_back_or_keep_too_much_are_refused(arguments: tuple[int, Time, Time]) -> None:
    with pytest.raises(ValueError, match="summary"):
        Summary(*arguments)
