"""Added operators begin where nobody behind is further, and nobody in front has sent what they lack."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.fixed_point.solve import PhysicalEdge
from recovery.metadata import NEVER
from recovery.moving.beginnings import Beginnings, begin
from timely.time import Summary


def begun(
    ends: list[tuple[int, int]], known: dict[int, int], count: int, sources: set[int] = frozenset()
) -> Beginnings:  # type: ignore[assignment]
    edges = [PhysicalEdge(source, target, Summary.identity(1)) for source, target in ends]
    at = {flat: (epoch,) for flat, epoch in known.items()}
    return begin(
        edges, [1] * count, [flat in sources for flat in range(count)], at, [f"p{flat}" for flat in range(count)]
    )


def test_between_two_operators_it_begins_where_they_are() -> None:
    assert begun([(0, 1), (1, 2)], {0: 7, 2: 7}, 3).bounds == [(7,), (7,), (7,)]


def test_behind_a_log_it_begins_where_its_readers_are() -> None:
    found = begun([(0, 1), (1, 2)], {0: 9, 2: 7}, 3)
    assert (found.bounds[1], found.reasons, found.missed) == ((7,), [], {0: 9})


def test_in_front_of_what_is_further_it_cannot_begin() -> None:
    assert begun([(0, 1), (1, 2)], {0: 5, 2: 7}, 3).reasons == [
        "p1 is at epoch 7, and p0, which would send to it, at epoch 5"
    ]


def test_a_new_branch_begins_at_the_earliest_of_its_inputs() -> None:
    assert begun([(0, 2), (1, 2), (2, 3)], {0: 5, 1: 7}, 4).bounds[2:] == [(5,), (5,)]


def test_a_new_source_begins_at_the_newest_epoch() -> None:
    found = begun([(0, 2), (1, 2)], {0: 5}, 3, {0, 1})
    assert (found.bounds[1], found.bounds[2]) == ((5,), (5,))


def test_a_new_source_of_what_has_ended_is_refused() -> None:
    assert begun([(0, 1)], {1: NEVER}, 2, {0}).reasons == ["p0 would send to what has seen the end of all its input"]


@given(st.data())
def test_what_is_not_refused_sends_nothing_that_is_complete(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    pairs = [(source, target) for source in range(count) for target in range(source + 1, count)]
    ends = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12))
    known = data.draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 4), max_size=count))
    sources = {flat for flat in range(count) if all(target != flat for _, target in ends)}
    found = begun(ends, known, count, sources)
    assert all(found.bounds[flat] == (epoch,) for flat, epoch in known.items())
    wrong = [each for each in ends if found.bounds[each[0]] < found.bounds[each[1]] and not set(each) <= set(known)]
    assert bool(wrong) == bool(found.reasons)
    if len(set(known.values())) <= 1:  # all at one epoch: every program can begin
        assert not wrong
