"""The grade of what was seen of an output, case by case and as a rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.simulate.judging import Publication, difference, observed
from recovery.guarantees.promises import Alike, Grade
from timely.time import Time

NUMBERS: dict[Time, list[Any]] = {(0,): [1, 2], (1,): [3]}
TOTALS: dict[Time, list[Any]] = {(0,): [("a", 1)], (1,): [("a", 3), ("b", 1)]}


def at(epoch: int, *rows: Any, worker: int = 0) -> Publication:
    return worker, (epoch,), list(rows)


CASES: list[tuple[Alike, dict[Time, list[Any]], list[Publication], Grade]] = [
    (Alike.EPOCHS, NUMBERS, [at(0, 1, 2), at(1, 3)], Grade.PRECISE),
    (Alike.EPOCHS, NUMBERS, [at(0, 1), at(0, 2, worker=1), at(1, 3)], Grade.PRECISE),
    (Alike.EPOCHS, NUMBERS, [at(0, 1, 2), at(1, 3), at(0, 1, 2), at(1, 3)], Grade.REPEATING),
    (Alike.EPOCHS, NUMBERS, [at(0, 1), at(0, 1, 2), at(1, 3)], Grade.CONVERGENT),
    (Alike.EPOCHS, NUMBERS, [at(0, 1, 2), at(0, 1), at(1, 3)], Grade.DIVERGENT),
    (Alike.EPOCHS, NUMBERS, [at(0, 1, 2), at(1, 3), at(2, 4)], Grade.DIVERGENT),
    (Alike.EPOCHS, NUMBERS, [at(0, 1, 2, 2), at(1, 3)], Grade.DIVERGENT),
    (Alike.EPOCHS, NUMBERS, [at(0, 1, 2)], Grade.GAP),
    (Alike.EPOCHS, NUMBERS, [at(0, 1), at(1, 3), at(1, 3)], Grade.GAP),
    (Alike.RECORDS, NUMBERS, [at(0, 1), at(5, 2, 3)], Grade.PRECISE),
    (Alike.RECORDS, NUMBERS, [at(0, 1), at(5, 2, 3), at(5, 2, 3)], Grade.REPEATING),
    (Alike.RECORDS, NUMBERS, [at(0, 1, 2), at(5, 2, 3)], Grade.CONVERGENT),
    (Alike.RECORDS, NUMBERS, [at(0, 1, 2), at(5, 2, 3), at(5, 3)], Grade.CONVERGENT),
    (Alike.RECORDS, NUMBERS, [at(0, 1, 2), at(5, 3, 4)], Grade.DIVERGENT),
    (Alike.RECORDS, NUMBERS, [at(0, 1), at(5, 3, 3)], Grade.GAP),
    (Alike.LATEST, TOTALS, [at(0, ("a", 2)), at(1, ("b", 1)), at(2, ("a", 3))], Grade.PRECISE),
    (Alike.LATEST, TOTALS, [at(0, ("a", 3), ("b", 1)), at(0, ("a", 2), ("b", 1)), at(2, ("a", 3))], Grade.CONVERGENT),
    (Alike.LATEST, TOTALS, [at(0, ("a", 3), ("b", 1)), at(2, ("a", 2))], Grade.DIVERGENT),
    (Alike.LATEST, TOTALS, [at(0, ("a", 3))], Grade.GAP),
    (Alike.NOT, NUMBERS, [at(0, 7), at(3, 8)], Grade.PRECISE),
    (Alike.NOT, NUMBERS, [at(0, 7), at(0, 7)], Grade.REPEATING),
    (Alike.NOT, NUMBERS, [at(0, 7), at(0, 8)], Grade.CONVERGENT),
]


@pytest.mark.parametrize(("alike", "expected", "seen", "grade"), CASES)
def test_what_was_seen_has_this_grade(
    alike: Alike, expected: dict[Time, list[Any]], seen: list[Publication], grade: Grade
) -> None:
    found, why = observed(seen, expected, alike)
    assert found == grade, why
    assert bool(why) == (grade != Grade.PRECISE)


givens = st.dictionaries(
    st.tuples(st.integers(0, 4)), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1), min_size=1
)


@given(givens, st.sampled_from(list(Alike)), st.data())
def test_more_that_comes_again_is_never_better(given: Any, alike: Alike, data: st.DataObject) -> None:
    seen = [(0, time, given[time]) for time in sorted(given)]
    assert observed(seen, given, alike)[0] == Grade.PRECISE
    for _ in range(3):
        worker, time, _ = data.draw(st.sampled_from(seen))
        before = observed(seen, given, alike)[0]
        last = [rows for w, t, rows in seen if (w, t) == (worker, time)][-1]
        seen = [*seen, (worker, time, last)]
        if alike != Alike.LATEST:  # there the order counts: an old total that comes last is the last word
            assert observed(seen, given, alike)[0] <= before
        assert observed(seen, given, alike)[0] < Grade.PRECISE


@given(givens, givens)
def test_what_is_alike_in_each_epoch_is_alike_in_every_other_way(one: Any, other: Any) -> None:
    assert all(difference(level, one, one) is None for level in Alike)
    if difference(Alike.EPOCHS, one, other) is None:
        assert difference(Alike.RECORDS, one, other) is None
