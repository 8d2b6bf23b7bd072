"""Changes find their place by structure, and say what to do where it is gone."""

from __future__ import annotations

import sys

import pytest

from tests.support.mutation import GONE, Change, changed

HERE = sys.modules[__name__]


def total(numbers: list[int], limit: int) -> int:
    """Of the numbers up to a limit."""
    found = 0
    for number in numbers:
        if (
            number <= limit  # a comment
            and number >= 0
        ):
            found += number
    sys.getsizeof(found, 1)
    return found


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [
        ("x <= y", "x < y", 2),
        ("number >= 0", GONE, 1),
        ("number <= ... and ...", "True", 10),
        ("found += number", GONE, 0),
        ("if ... and ...: ...", "number == 3", 3),
        ("for x in y: ...", "()", 0),
        ("for number in numbers: ...", "reversed(numbers[:1])", 0),
        ("sys.getsizeof(...)", "found = 7", 7),
        ("sys.getsizeof(...); return ...", "return -1", -1),
    ],
)
def test_one_place_is_changed_whatever_its_layout_and_the_names_of_variables(old: str, new: str, right: int) -> None:
    numbers = [-4, 3, 1, 2, 9]
    numbers.remove(1)
    assert changed([Change(HERE, "total", old, new)], lambda: total(numbers, 3)) == right
    assert total(numbers, 3) == 5


def test_two_changes_of_a_function_add_up() -> None:
    both = [Change(HERE, "total", "number >= 0", GONE), Change(HERE, "total", "x <= y", "True")]
    assert changed(both, lambda: total([-4, 9], 3)) == 5


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "old", "words"),
    [
        ("total", "number <= 7", ("0 times", "Name the function", "like it there: number <= limit")),
        ("total", "...", ("times in", "total")),
        ("gone", "x in self._risen", ("no such function", "stands in: recovery/fixed_point/forest.py")),
    ],
)
def test_a_change_without_a_place_says_what_to_do(name: str, old: str, words: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError) as caught:
        changed([Change(HERE, name, old, "True")], lambda: None)
    for word in words:
        assert word in str(caught.value)
