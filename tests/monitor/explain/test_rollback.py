"""The account of a rollback: rows of frontiers that say of each processor what happened to it, and the end of catching up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from monitor.explain.rollback import RollbackAccount, grouped, ranges
from recovery.place import Place
from recovery.protocol import Redone, Resent, Restored
from tests.recovery.layouts import layout

_BOUND = st.tuples(st.integers(0, 3))
_PLACE = st.tuples(_BOUND, st.none() | _BOUND)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(_PLACE, min_size=n, max_size=n), min_size=1, max_size=4)))
def test_rows_say_of_each_processor_what_happened_to_it_once(places: list[list[Any]]) -> None:
    found: dict[tuple[int, int], tuple[Any, Any]] = {}
    for row in grouped(places):
        for worker in row["workers"]:
            for first, last in row["operators"]:
                for processor in range(first, last + 1):
                    assert (worker, processor) not in found
                    found[worker, processor] = row["from"], row["to"]
    assert found == {
        (worker, processor): (list(before), None if after is None else list(after))
        for worker, of_worker in enumerate(places)
        for processor, (before, after) in enumerate(of_worker)
    }


@given(st.sets(st.integers(0, 30)))
def test_ranges_are_the_numbers_and_do_not_touch(numbers: set[int]) -> None:
    found = ranges(sorted(numbers))
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(second[0] > first[1] + 1 for first, second in pairwise(found))


def test_who_was_taken_over_by_a_mate_is_said_with_what_it_had() -> None:
    account = RollbackAccount(layout("a source, b chain", "a|b"), [None] * 3, 10.0)
    for worker in (0, 1, 2):
        account.failed(worker, "was killed by SIGKILL", "", 10.0)
    for worker in (0, 1):
        account.taken_over(worker)
    account.failed(0, "was killed by SIGKILL", "", 10.5)  # the mate that had taken over: a spare follows it
    account.decided(3, (((2,), (2,)),) * 3, (0, 1, 2), 11.0)
    for worker in (0, 1, 2):
        account.restored(Restored(Place(worker), 3, ahead=8, pieces=worker), 12.0)
    assert account.finish(12.0)["mates"] == [[1, 8, 1]]


def test_phases_costs_and_catching_up() -> None:
    plan = layout("a source, b chain", "a|b")
    groups = len(plan.groups)
    account = RollbackAccount(plan, [((5,),) * groups, ((4,),) * groups], 10.0)
    account.failed(1, "was killed by SIGKILL", "a last note", 10.0, "its last words")
    account.began()
    account.drained(0, 10.25)
    account.joined(1, 10.5)
    account.gathered({}, 10.5)
    account.decided(3, (((2,), None), ((2,), (2,))), (1,), 10.75)
    account.restored(Restored(Place(0), 3, (Resent(0, 1, 7, 70),), (Redone(0, 20, 2, 0.5),)), 11.0)
    account.restored(Restored(Place(1), 3), 11.5)
    samples = account.finish(11.5)
    assert samples["phases"] == {"drain": 0.5, "decide": 0.25, "restore": 0.75}
    cause = {"worker": 1, "reason": "was killed by SIGKILL", "words": "a last note", "after": 0.0}
    assert samples["causes"] == [cause | {"output": "its last words"}]
    assert samples["resent"] == [{"edge": 0, "from": 0, "to": 1, "messages": 7, "bytes": 70}]
    assert samples["redone"] == [{"operator": 0, "worker": 0, "records": 20, "epochs": 2, "seconds": 0.5}]
    assert [(row["from"], row["to"], row["workers"], row["operators"]) for row in samples["places"]] == [
        ([5], [2], [0], [[0, 0]]),
        ([5], None, [0], [[1, 1]]),
        ([4], [2], [1], [[0, 1]]),
    ]
    assert account.caught_up([((5,),) * groups, None], 12.0) is None
    assert account.caught_up([((5,),) * groups, ((3,),) * groups], 12.0) is None
    assert account.caught_up([((5,),) * groups, ((4,),) * groups], 12.0) == {"generation": 3, "seconds": 0.5}
