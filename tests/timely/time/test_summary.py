"""Path summaries, against brute force: as functions, as an order, and as maps of frontiers both ways."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.time import (
    FINITE,
    INF,
    Frontier,
    MaximalTimes,
    Summary,
    Time,
    join,
    leq,
    meet,
    minimal,
    minimal_summaries,
)

# Antichains and summaries use numbers up to 2, so images stay below 5 and 6 stands for all that is larger.
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


def frontiers(depth: int) -> st.SearchStrategy[Frontier]:
    some = st.lists(tuples(depth, low | st.just(INF)), max_size=4)
    return some.map(lambda chosen: Frontier.before(chosen, depth))


def bounds(depth: int) -> st.SearchStrategy[MaximalTimes]:
    some = st.lists(tuples(depth, low | st.sampled_from([FINITE, INF])), max_size=4)
    return some.map(lambda chosen: MaximalTimes.of(chosen, depth))


def members(s: Frontier | MaximalTimes) -> set[Time]:
    assert s.depth is not None
    return {t for t in grid(s.depth) if t in s}


def by_definition(s: Summary, t: Time) -> Time:
    return tuple(INF if x == INF else x + y for x, y in zip(t, s.add)) + s.append


with_frontier = summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.depth)))
with_result = summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.result_depth)))
with_both = summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.depth), frontiers(s.result_depth)))
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
    assert leq(s(meet(a, b)), s(a))
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


@given(with_frontier)
def test_projection_has_exactly_what_nothing_outside_can_reach(pair: tuple[Summary, Frontier]) -> None:
    s, f = pair
    outside = minimal(s(t) for t in grid(s.depth) if t not in f)
    reachable = {u for u in grid(s.result_depth) if any(leq(v, u) for v in outside)}
    assert members(s.project(f)) == set(grid(s.result_depth)) - reachable
    assert s.project(f).antichain == outside


@given(summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.depth), frontiers(s.depth))))
def test_projection_is_monotone_and_keeps_intersections(triple: tuple[Summary, Frontier, Frontier]) -> None:
    s, f, g = triple
    assert not f <= g or s.project(f) <= s.project(g)
    assert s.project(f & g) == s.project(f) & s.project(g)


@given(st.data())
def test_projections_and_inverses_compose(data: st.DataObject) -> None:
    s = data.draw(summaries())
    r = data.draw(summaries(s.result_depth))
    f, h = data.draw(frontiers(s.depth)), data.draw(frontiers(r.result_depth))
    assert s.then(r).project(f) == r.project(s.project(f))
    assert s.then(r).inverse(h) == s.inverse(r.inverse(h))


@given(with_result)
def test_inverse_has_exactly_the_times_that_lead_into_the_frontier(pair: tuple[Summary, Frontier]) -> None:
    s, h = pair
    g = s.inverse(h)
    assert g.depth == s.depth
    assert members(g) == {t for t in grid(s.depth) if s(t) in h}


@given(with_both)
def test_a_frontier_lies_in_the_inverse_iff_its_image_lies_in_the_result(
    triple: tuple[Summary, Frontier, Frontier],
) -> None:
    s, g, h = triple
    assert (g <= s.inverse(h)) == (s.image(g) <= h)
    assert s.inverse(s.project(g)) <= g


@given(with_result)
def test_inverse_agrees_with_the_named_edges(pair: tuple[Summary, Frontier]) -> None:
    h = pair[1]
    depth = h.depth or 0
    assert Summary.identity(depth).inverse(h) == h
    egress = Summary.egress(depth + 1).inverse(h)
    assert egress.antichain == tuple((*a, 0) for a in h.antichain)
    feedback = Summary.feedback(depth).inverse(h)
    assert feedback == Frontier.before(
        [(*a[:-1], a[-1] if a[-1] == INF else max(a[-1] - 1, 0)) for a in h.antichain], depth
    )
    if depth > 1:
        ingress = Summary.ingress(depth - 1).inverse(h)
        assert ingress.antichain == tuple(a[:-1] for a in h.antichain if a[-1] == 0)


@given(summaries().flatmap(lambda s: st.tuples(st.just(s), bounds(s.depth))))
def test_image_is_the_closure_of_what_is_reached(pair: tuple[Summary, MaximalTimes]) -> None:
    s, g = pair
    sources = [t for t in grid(s.depth) if t in g]
    # The grid ends at 6: what a source there reaches stands for all larger numbers.
    reached = {tuple(FINITE if 6 <= c < INF else c for c in s(t)) for t in sources}
    assert members(s.image(g)) == {u for u in grid(s.result_depth) if any(leq(u, v) for v in reached)}


@pytest.mark.parametrize(
    ("s", "g", "discarded", "projected"),
    [
        # Leaving the loop: something of epoch 1 may have been discarded, though φ promises only epoch 0.
        (Summary.egress(2), Frontier.lexicographic((1, 3)), [(1,)], Frontier.before([(1,)])),
        # Going round: φ promises a whole round more than can have been discarded.
        (Summary.feedback(2), Frontier.before([(0, 2), (1, 0)]), [(0, 2)], Frontier.before([(0, 3), (1, 1)])),
    ],
)
def test_what_is_discarded_is_not_what_is_projected(
    s: Summary, g: Frontier, discarded: list[Time], projected: Frontier
) -> None:
    assert s.image(g) == MaximalTimes.of(discarded)
    assert s.project(g) == projected
    assert s.image(g).to_frontier() != projected


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
