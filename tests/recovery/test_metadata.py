"""Bounds are sets of times: what is computed on them is checked by trying all times of a grid.

Bounds have coordinates up to 3 (or INF), and summaries add or append up to 2, so a grid up to 6, with INF, has the first
time of every set that can come up.
"""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.metadata import (
    MORE,
    MOST_STEPS,
    Bound,
    after,
    at_cut,
    at_epoch,
    cut_within,
    everything,
    holds,
    inverse,
    leaving_out,
    nothing,
    project,
    steps,
    to_frontier,
)
from tests.recovery.fixed_point.times import MaximalTimes, image, projection
from timely.time import INF, Summary, Time

AXIS = (*range(7), INF)
depths = st.integers(1, 3)
coordinates = st.integers(0, 3) | st.just(INF)


@functools.cache
def times(depth: int) -> tuple[Time, ...]:
    """The grid in lexicographic order."""
    return tuple(itertools.product(AXIS, repeat=depth))


def bounds(depth: int) -> st.SearchStrategy[Bound]:
    return st.tuples(*[coordinates] * depth) | st.just(everything(depth))


@st.composite
def summaries(draw: st.DrawFn, depth: int | None = None, result_depth: int | None = None) -> Summary:
    """Paths of ordinary edges, ingress, egress and feedback; each keeps the epoch at least."""
    depth = depth or draw(depths)
    most = min(depth, result_depth or depth)
    keep = draw(st.integers(1, most))
    appended = draw(st.integers(0, 3 - keep)) if result_depth is None else result_depth - keep
    numbers = st.integers(0, 2)
    return Summary(depth, draw(st.tuples(*[numbers] * keep)), draw(st.tuples(*[numbers] * appended)))


with_bound = summaries().flatmap(lambda s: st.tuples(st.just(s), bounds(s.depth)))
with_result = summaries().flatmap(lambda s: st.tuples(st.just(s), bounds(s.result_depth)))


@given(with_bound)
def test_project_is_what_nothing_outside_can_reach(case: tuple[Summary, Bound]) -> None:
    summary, bound = case
    reached = (summary(t) for t in times(summary.depth) if t >= bound)
    assert project(summary, bound) == min(reached, default=everything(summary.result_depth))


@given(with_result)
def test_inverse_is_all_that_leads_into_the_bound_alone(case: tuple[Summary, Bound]) -> None:
    summary, bound = case
    leads_out = (t for t in times(summary.depth) if summary(t) >= bound)
    assert inverse(summary, bound) == next(leads_out, everything(summary.depth))


@given(summaries().flatmap(lambda s: st.tuples(st.just(s), bounds(s.depth), bounds(s.result_depth))))
def test_inverse_decides_whether_what_was_discarded_is_kept(case: tuple[Summary, Bound, Bound]) -> None:
    """g ⊆ σ⁻¹(h) is ↓σ(g) ⊆ h, in the terms of the literal fixed point."""
    summary, g, h = case
    assert (g <= inverse(summary, h)) == (image(summary, to_frontier(g)) <= to_frontier(h))


@given(summaries().flatmap(lambda s: st.tuples(st.just(s), bounds(s.depth), bounds(s.depth))))
def test_project_is_monotone_and_keeps_more_than_the_general_projection_would_lose(
    case: tuple[Summary, Bound, Bound],
) -> None:
    summary, a, b = case
    assert (project(summary, a) <= project(summary, b)) or a > b
    # The general φ of a prefix is larger, by times that no prefix within it has.
    assert to_frontier(project(summary, a)) <= projection(summary, to_frontier(a))
    assert min(projection(summary, to_frontier(a)).antichain, default=everything(summary.result_depth)) == project(
        summary, a
    )


@given(depths.flatmap(lambda d: st.tuples(*[coordinates] * d)))
def test_after_is_the_least_bound_with_the_time(time: Time) -> None:
    depth = len(time)
    candidates = [*times(depth), everything(depth)]
    assert after(time) == next(b for b in candidates if time < b)


@given(depths.flatmap(bounds))
def test_to_frontier_has_the_same_times(bound: Bound) -> None:
    f = to_frontier(bound)
    assert {len(least) for least in f.antichain} <= {len(bound)}
    assert [t for t in times(len(bound)) if t in f] == [t for t in times(len(bound)) if t < bound]
    assert all(max(least) <= INF for least in f.antichain), "what no time comes to need not be left out"


@given(depths.flatmap(lambda d: st.tuples(bounds(d), bounds(d))))
def test_comparing_bounds_is_set_inclusion(pair: tuple[Bound, Bound]) -> None:
    a, b = pair
    assert (a <= b) == (to_frontier(a) <= to_frontier(b))


@given(depths, st.integers(0, 5))
def test_nothing_everything_and_whole_epochs(depth: int, epoch: int) -> None:
    every = times(depth)
    assert to_frontier(nothing(depth)).is_empty
    assert not to_frontier(everything(depth)).antichain
    assert [t for t in every if t < at_epoch(epoch, depth)] == [t for t in every if t[0] < epoch]
    assert MaximalTimes.of([(INF,) * depth]) <= to_frontier(everything(depth))


@pytest.mark.parametrize(
    ("time", "bound"),
    [
        ((3,), (4,)),
        ((3, 5, 7), (3, 5, 8)),
        ((3, 2, INF), (3, 3, 0)),
        ((3, INF, INF), (4, 0, 0)),
        ((3, INF, 1), (3, INF, 2)),
    ],
)
def test_the_least_bound_behind_a_time(time: Time, bound: Bound) -> None:
    assert after(time) == bound


@pytest.mark.parametrize(
    ("cut", "depth", "bound"),
    [((3, 0, 1), 1, (4,)), ((3, 1, 0), 1, (4,)), ((3, 0, 0), 1, (3,)), ((3, 1, MORE, 1), 1, (5,))],
)
def test_what_enters_a_loop_has_entered_it_where_the_cut_is_in_the_midst_of_an_epoch(
    cut: Bound, depth: int, bound: Bound
) -> None:
    assert at_cut(cut, depth) == bound


@given(depths.flatmap(lambda d: st.lists(st.tuples(*[st.integers(0, 4)] * d), min_size=1, max_size=5)))
def test_a_set_leaves_out_times_and_whatever_these_may_lead_to_and_nothing_else_of_their_epochs(
    left: list[Time],
) -> None:
    """A message at a time may lead to that time's iteration, and later ones, in its epoch and in later ones."""
    made = leaving_out(left, len(left[0]))
    assert steps(made)[-1][0] <= max(left)[0], "no step is lost on an epoch of which nothing is known"
    for time in times(len(left[0])):
        if time[0] <= max(left)[0]:
            assert holds(made, time) == (not any(each[0] <= time[0] and each[1:] <= time[1:] for each in left))


def test_a_set_is_no_longer_than_so_many_epochs() -> None:
    made = leaving_out([(0, 9), (1000, 1)], 2)
    assert len(steps(made)) == MOST_STEPS + 1
    assert steps(made)[-1] == (MOST_STEPS, 9)


@pytest.mark.parametrize(
    ("bound", "depth", "cut"),
    [
        ((3, 7), 1, (3,)),
        ((3, 7, 2), 2, (3, 7)),
        ((4,), 3, (4, 0, 0)),
        ((3, 7, MORE, 5), 1, (3,)),
        ((3, 7, MORE, 5), 2, (3, 7, MORE, 5)),
        ((3, 7, 1, MORE, 5, 2), 2, (3, 7, MORE, 5)),
        ((3, 7, MORE, 5), 3, (3, 7, 0, MORE, 5, 0)),
    ],
)
def test_the_last_cut_that_a_processor_at_a_bound_has_come_to(bound: Bound, depth: int, cut: Bound) -> None:
    assert cut_within(bound, depth) == cut
