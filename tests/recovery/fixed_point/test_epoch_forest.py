"""The low-watermarks on arrays: small dataflows by hand, what is taken at once, and what must be looked at one by one."""

from __future__ import annotations

import pytest

from recovery.fixed_point.epochs import EpochForest
from recovery.fixed_point.forest import Forest
from recovery.fixed_point.solve import PhysicalEdge
from recovery.metadata import Bound
from tests.recovery.fixed_point.ceilings import of_arrays, of_objects
from timely.time import Summary

SAME = Summary.identity(1)


def line(size: int = 3, start: int = 0) -> EpochForest:
    """Chains one behind the other."""
    return EpochForest([True] * size, [(start,)] * size, [PhysicalEdge(p, p + 1, SAME) for p in range(size - 1)])


def report(p: int, epoch: int, *lost: int) -> tuple[int, Bound, tuple[Bound, ...]]:
    return p, (epoch,), tuple((each,) for each in lost)


ALL_AT_3 = [report(0, 3, 3), report(1, 3, 3), report(2, 3)]


def test_reports_that_are_plainly_new_are_taken_at_once() -> None:
    forest = line()
    assert sorted(forest.update_many(ALL_AT_3) or ()) == [(0, (3,)), (1, (3,)), (2, (3,))]
    assert sorted(forest.update_many([report(1, 5, 5), report(2, 5)]) or ()) == []
    assert sorted(forest.update_many([report(0, 5, 4)]) or ()) == [(0, (5,)), (1, (5,)), (2, (5,))]


@pytest.mark.parametrize(
    "reports",
    [
        [report(0, 4, 3), report(-1, 4)],
        [report(0, 4, 3), report(3, 4)],
        [report(0, 4, 3), report(0, 5, 3)],
        [report(0, 4, 3), report(2, 3)],
        [report(0, 4, 3), report(2, 2)],
        [report(0, 4, 2), report(1, 4, 4)],
        [(0, (4, 0), ((3,),))],
        [report(0, -4, 3)],
    ],
    ids=["no such", "none behind the last", "twice", "again", "less", "discards less", "two coordinates", "negative"],
)
def test_what_is_not_is_looked_at_one_by_one_and_nothing_is_done(
    reports: list[tuple[int, Bound, tuple[Bound, ...]]],
) -> None:
    forest = line()
    forest.update_many(ALL_AT_3)
    assert forest.update_many(reports) is None
    assert [forest.limit(p) for p in range(3)] == [(3,)] * 3
    assert forest.update_many([report(0, 4, 3), report(1, 4, 3), report(2, 4)]) is not None


def test_what_a_chain_reported_is_known_until_its_low_watermark_has_passed_it() -> None:
    forest = line()
    for epoch in (2, 4, 6):
        forest.update([report(0, epoch, epoch - 1)], few=True)
    assert [forest.known(0, (epoch,)) for epoch in (2, 4, 6)] == [((1,),), ((3,),), ((5,),)]
    assert [forest.known(0, (epoch,)) for epoch in (1, 3, 7)] == [None] * 3
    assert forest.last_discards(0) == ((5,),)
    forest.update([report(1, 4, 4), report(2, 4)], few=True)
    assert forest.value(0) == (4,)
    assert [forest.known(0, (epoch,)) for epoch in (2, 4, 6)] == [None, ((3,),), ((5,),)]
    assert forest.last_discards(0) == ((5,),)
    assert forest.limit(0) == (6,)


def test_what_keeps_nothing_is_where_its_neighbours_are() -> None:
    edges = [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 2, SAME)]
    forest = EpochForest([True, False, True], [(0,)] * 3, edges)
    risen = forest.update([report(0, 5, 0), report(1, 9), report(2, 4)], few=False)
    assert sorted(risen) == [(0, (5,)), (1, (4,)), (2, (4,))]
    assert forest.last_discards(1) == ()


def test_low_watermarks_begin_where_they_are_known_to_hold() -> None:
    forest = line(start=7)
    assert [forest.value(p) for p in range(3)] == [forest.limit(p) for p in range(3)] == [(7,)] * 3
    assert forest.known(1, (7,)) is not None
    assert forest.update([], few=True) == []


def test_ports_have_discards_of_their_own() -> None:
    """A message that was discarded on one holds its sender back until the receiver behind that one has it."""
    edges = [PhysicalEdge(0, 1, SAME, 0), PhysicalEdge(0, 2, SAME, 1)]
    forest = EpochForest([True] * 3, [(0,)] * 3, edges)
    forest.update([report(0, 5, 2, 4), report(1, 2), report(2, 3)], few=False)
    assert [forest.value(p) for p in range(3)] == [(0,), (0,), (0,)]
    forest.update([report(2, 4)], few=True)
    assert [forest.value(p) for p in range(3)] == [(5,), (2,), (4,)]
    assert forest.known(0, (5,)) == ((2,), (4,))


@pytest.mark.parametrize("size", [0, 1, 40])
def test_there_is_room_for_any_number_of_reports_and_processors(size: int) -> None:
    forest = line(size)
    for epoch in range(1, 40):
        forest.update([report(p, epoch, *((epoch,) if p < size - 1 else ())) for p in range(size)], few=False)
    assert [forest.value(p) for p in range(size)] == [(39,)] * size
    forest = line(size)
    for p in range(size):
        for epoch in range(1, 40):
            forest.update([report(p, epoch, *((epoch,) if p < size - 1 else ()))], few=True)
    assert [forest.value(p) for p in range(size)] == [(39,)] * size


# Another witness: what keeps a processor where it is may be any neighbour, but a neighbour, and one that does not rise itself

EITHER = pytest.mark.parametrize("make", [Forest, EpochForest])


@EITHER
def test_who_has_no_neighbours_is_kept_by_nobody(make: type[Forest] | type[EpochForest]) -> None:
    forest = make([False, True, True], [(0,)] * 3, [PhysicalEdge(1, 2, SAME)])
    assert forest.update([report(0, 3)], few=True) == [(0, (3,))]


@EITHER
def test_a_neighbour_that_has_more_keeps_nobody(make: type[Forest] | type[EpochForest]) -> None:
    forest = make([True, False], [(0,)] * 2, [PhysicalEdge(0, 1, SAME)])
    assert forest.update([report(0, 4, 0)], few=True) == [(0, (4,))]
    assert forest.update([report(1, 3)], few=True) == [(1, (3,))]


@EITHER
def test_who_is_about_to_rise_keeps_nobody(make: type[Forest] | type[EpochForest]) -> None:
    """The receiver, which what was discarded waits for, reports with its sender at once."""
    forest = make([True, False], [(0,)] * 2, [PhysicalEdge(0, 1, SAME)])
    forest.update([report(0, 4, 0)], few=True)
    assert sorted(forest.update([report(1, 5), report(0, 5, 3)], few=True)) == [(0, (5,)), (1, (5,))]


@EITHER
def test_a_ceiling_from_which_nothing_follows_is_forgotten_at_once(make: type[Forest] | type[EpochForest]) -> None:
    """The first is lowered twice, by its neighbour, and by its neighbour's neighbour."""
    forest = make([False] * 3, [(0,)] * 3, [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 2, SAME)])
    forest.update([report(0, 3), report(1, 2), report(2, 1)], few=False)
    assert [forest.value(p) for p in range(3)] == [(1,)] * 3
    of = of_objects(forest) if isinstance(forest, Forest) else of_arrays(forest)
    assert [[ceiling.bound for ceiling in each.values()] for each in of] == [[(1,), (3,)], [(1,), (2,)], [(1,)]]
