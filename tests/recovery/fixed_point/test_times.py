"""The oracle's times are sets: every operation is checked against sets of times on a grid."""

from __future__ import annotations

import doctest
import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.recovery.fixed_point.times
from tests.recovery.fixed_point.times import MaximalTimes, image, maximal_times, meet, preimage, projection
from tests.timely.time.test_summary import summaries
from timely.time import FINITE, INF, Frontier, Summary, Time, join, leq, minimal

# Antichains and summaries use numbers up to 2, so images stay below 5 and 6 stands for all that is larger.
AXIS = (0, 1, 2, 3, 4, 5, 6, INF)
depths = st.integers(1, 3)
low = st.integers(0, 2)


@functools.cache
def grid(depth: int) -> tuple[Time, ...]:
    return tuple(itertools.product(AXIS, repeat=depth))


def members(s: Frontier | MaximalTimes) -> set[Time]:
    assert s.depth is not None
    return {t for t in grid(s.depth) if t in s}


def times(depth: int) -> st.SearchStrategy[Time]:
    return st.tuples(*[low | st.just(INF)] * depth)


def frontiers(depth: int) -> st.SearchStrategy[Frontier]:
    return st.lists(times(depth), max_size=4).map(lambda chosen: Frontier.before(chosen, depth))


def bounds(depth: int) -> st.SearchStrategy[MaximalTimes]:
    some = st.lists(st.tuples(*[low | st.sampled_from([FINITE, INF])] * depth), max_size=4)
    return some.map(lambda chosen: MaximalTimes.of(chosen, depth))


pairs_of_bounds = depths.flatmap(lambda d: st.tuples(bounds(d), bounds(d)))
with_frontier = summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.depth)))
with_result = summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.result_depth)))
with_both = summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.depth), frontiers(s.result_depth)))


def test_examples_in_docstrings_hold() -> None:
    result = doctest.testmod(tests.recovery.fixed_point.times)
    assert result.attempted > 20
    assert result.failed == 0


@given(depths.flatmap(lambda d: st.tuples(times(d), times(d), times(d))))
def test_meet_is_the_greatest_lower_bound(triple: tuple[Time, Time, Time]) -> None:
    a, b, c = triple
    assert leq(c, meet(a, b)) == (leq(c, a) and leq(c, b))
    assert join(a, meet(a, b)) == a == meet(a, join(a, b))


@given(pairs_of_bounds)
def test_maximal_times_of_different_depths_are_refused(pair: tuple[MaximalTimes, MaximalTimes]) -> None:
    m = pair[0]
    other = MaximalTimes.empty(m.depth + 1)
    for operation in (lambda: m | other, lambda: m & other, lambda: m <= other, lambda: m <= Frontier.top(m.depth + 1)):
        with pytest.raises(ValueError, match="coordinate"):
            operation()


@given(depths.flatmap(bounds))
def test_repr_can_be_read_back(m: MaximalTimes) -> None:
    assert eval(repr(m), {"MaximalTimes": MaximalTimes, "INF": INF, "FINITE": FINITE}) == m


@given(depths.flatmap(lambda d: st.lists(times(d), min_size=1, max_size=4)))
def test_closure_has_exactly_what_is_at_or_before(chosen: list[Time]) -> None:
    expected = {t for t in grid(len(chosen[0])) if any(leq(t, m) for m in chosen)}
    assert members(MaximalTimes.of(chosen).to_frontier()) == expected
    assert members(MaximalTimes.of(chosen)) == expected


@given(depths.flatmap(frontiers))
def test_a_frontier_and_its_maximal_times_are_the_same_set(f: Frontier) -> None:
    inside = maximal_times(f)
    assert members(inside) == members(f)
    assert inside.to_frontier() == f
    assert inside <= f


@given(depths.flatmap(bounds))
def test_maximal_times_and_their_frontier_are_the_same_set(m: MaximalTimes) -> None:
    f = m.to_frontier()
    assert members(f) == members(m)
    assert maximal_times(f) == m
    assert all(c != FINITE for left_out in f.antichain for c in left_out)


@given(pairs_of_bounds)
def test_operations_on_maximal_times_are_those_of_sets(pair: tuple[MaximalTimes, MaximalTimes]) -> None:
    m, n = pair
    assert members(m | n) == members(m) | members(n)
    assert members(m & n) == members(m) & members(n)
    assert (m <= n) == (members(m) <= members(n))
    assert (m == n) == (members(m) == members(n))
    assert (m <= n.to_frontier()) == (m <= n)


def test_what_needs_a_depth_says_so() -> None:
    with pytest.raises(ValueError, match="depth"):
        maximal_times(Frontier.before([]))
    with pytest.raises(ValueError, match="depth"):
        MaximalTimes.of([])


@given(with_frontier)
def test_projection_has_exactly_what_nothing_outside_can_reach(pair: tuple[Summary, Frontier]) -> None:
    s, f = pair
    outside = minimal(s(t) for t in grid(s.depth) if t not in f)
    reachable = {u for u in grid(s.result_depth) if any(leq(v, u) for v in outside)}
    assert members(projection(s, f)) == set(grid(s.result_depth)) - reachable
    assert projection(s, f).antichain == outside


@given(summaries().flatmap(lambda s: st.tuples(st.just(s), frontiers(s.depth), frontiers(s.depth))))
def test_projection_is_monotone_and_keeps_intersections(triple: tuple[Summary, Frontier, Frontier]) -> None:
    s, f, g = triple
    assert not f <= g or projection(s, f) <= projection(s, g)
    assert projection(s, f & g) == projection(s, f) & projection(s, g)


@given(st.data())
def test_projections_and_inverses_compose(data: st.DataObject) -> None:
    s = data.draw(summaries())
    r = data.draw(summaries(s.result_depth))
    f, h = data.draw(frontiers(s.depth)), data.draw(frontiers(r.result_depth))
    assert projection(s.then(r), f) == projection(r, projection(s, f))
    assert preimage(s.then(r), h) == preimage(s, preimage(r, h))


@given(with_result)
def test_inverse_has_exactly_the_times_that_lead_into_the_frontier(pair: tuple[Summary, Frontier]) -> None:
    s, h = pair
    g = preimage(s, h)
    assert g.depth == s.depth
    assert members(g) == {t for t in grid(s.depth) if s(t) in h}


@given(with_both)
def test_a_frontier_lies_in_the_inverse_iff_its_image_lies_in_the_result(
    triple: tuple[Summary, Frontier, Frontier],
) -> None:
    s, g, h = triple
    assert (g <= preimage(s, h)) == (image(s, g) <= h)
    assert preimage(s, projection(s, g)) <= g


@given(with_result)
def test_inverse_agrees_with_the_named_edges(pair: tuple[Summary, Frontier]) -> None:
    h = pair[1]
    depth = h.depth or 0
    assert preimage(Summary.identity(depth), h) == h
    egress = preimage(Summary.egress(depth + 1), h)
    assert egress.antichain == tuple((*a, 0) for a in h.antichain)
    feedback = preimage(Summary.feedback(depth), h)
    assert feedback == Frontier.before(
        [(*a[:-1], a[-1] if a[-1] == INF else max(a[-1] - 1, 0)) for a in h.antichain], depth
    )
    if depth > 1:
        ingress = preimage(Summary.ingress(depth - 1), h)
        assert ingress.antichain == tuple(a[:-1] for a in h.antichain if a[-1] == 0)


@given(summaries().flatmap(lambda s: st.tuples(st.just(s), bounds(s.depth))))
def test_image_is_the_closure_of_what_is_reached(pair: tuple[Summary, MaximalTimes]) -> None:
    s, g = pair
    sources = [t for t in grid(s.depth) if t in g]
    # The grid ends at 6: what a source there reaches stands for all larger numbers.
    reached = {tuple(FINITE if 6 <= c < INF else c for c in s(t)) for t in sources}
    assert members(image(s, g)) == {u for u in grid(s.result_depth) if any(leq(u, v) for v in reached)}


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
    assert image(s, g) == MaximalTimes.of(discarded)
    assert projection(s, g) == projected
    assert image(s, g).to_frontier() != projected
