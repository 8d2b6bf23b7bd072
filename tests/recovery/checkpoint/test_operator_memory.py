"""What an operator of the user's keeps beside its `state`: found wherever it is, and where nobody can tell, it counts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any, ClassVar

import pytest

from recovery.checkpoint.operator_memory import MOST, look
from tests.recovery.rollback.test_replay import Box, adder, adding
from timely.operators.base import Operator
from timely.state import KeyedState, Parts, TimedBatches


class Keeping(Operator):
    shared: ClassVar[list[int]] = []

    def __init__(self, thing: Any = None, *more: Any) -> None:
        self.state = Parts(KeyedState(), TimedBatches())
        self.values = self.state.parts[0]
        self.thing = thing
        self.more = more


def remembers(thing: Any) -> Callable[[], Any]:
    return lambda: thing


CHANGED: list[tuple[Any, Callable[[Any], Any]]] = [
    ([1], lambda it: it.append(2)),
    ({1: [Box()]}, lambda it: setattr(it[1][0], "total", 5)),
    ({1: 2, 3: 4}, lambda it: it.update({1: it.pop(1)})),
    ({1, 2}, lambda it: it.add(3)),
    (bytearray(b"x"), lambda it: it.extend(b"y")),
    (deque([1.0]), lambda it: it.append(-0.0)),
    ([True], lambda it: it.__setitem__(0, 1)),
    (defaultdict(list), lambda it: it[3].append(1)),
    (adder(), lambda it: it(1)),
    (partial(remembers([]), 1), lambda it: it.func.__closure__[0].cell_contents.append(1)),
    (remembers([]), lambda it: setattr(it, "called", 1)),
    ([].append, lambda it: it(1)),
    (partial({}.setdefault, 1), lambda it: it(2)),
    (Box().__init__, lambda it: setattr(it.__self__, "total", 3)),  # type: ignore[misc]
]


@pytest.mark.parametrize(("thing", "change"), CHANGED)
def test_what_changes_anywhere_inside_is_found(thing: Any, change: Callable[[Any], Any]) -> None:
    operator = Keeping(thing, (thing,))
    before = look(operator)
    assert before is not None
    assert look(operator) == before
    change(thing)
    assert look(operator) != before


def test_state_and_what_is_said_not_to_matter_are_not_looked_at() -> None:
    class Caches(Keeping):
        transient = ("cache",)

        def __init__(self) -> None:
            super().__init__()
            self.cache: dict[int, int] = {}

    operator = Caches()
    before = look(operator)
    operator.cache[1] = 1
    operator.values.write((0,), {1: 1})
    assert look(operator) == before
    operator.thing = KeyedState()
    assert look(operator) != before


def test_another_object_with_the_same_content_is_the_same() -> None:
    operator = Keeping({"a": [Box()]}, remembers(3))
    before = look(operator)
    operator.thing = {"a": [Box()]}
    assert before is not None
    assert look(operator) == before


@pytest.mark.parametrize(
    "thing",
    [Random(1), Random(1).random, iter([1]), adding(), count(), list(range(1000)), {frozenset([1])}, memoryview(b"x")],
    ids=lambda thing: type(thing).__name__,
)
def test_what_cannot_be_looked_into_counts_as_more(thing: Any) -> None:
    assert look(Keeping(thing)) is None


class Slotted:
    __slots__ = ("__hidden", "shown")

    def __init__(self) -> None:
        self.__hidden = 0
        self.shown = 0

    def hide(self) -> None:
        self.__hidden += 1


def defaults(n: int = 0, *, kept: list[int] = []) -> int:  # noqa: B006  # a function that remembers in its default
    kept.append(n)
    return sum(kept)


def positional(n: int, kept: list[int] = []) -> int:  # noqa: B006
    kept.append(n)
    return sum(kept)


def called() -> None:
    called.times = getattr(called, "times", 0) + 1  # type: ignore[attr-defined]


class Sums(Keeping):
    """Its class remembers in each of the ways in which a class can."""

    table: ClassVar[dict[int, int]] = {}
    several: ClassVar[set[int]] = set()
    octets: ClassVar[bytearray] = bytearray()
    __private: ClassVar[list[int]] = []
    by_default = staticmethod(positional)
    by_keyword = staticmethod(defaults)
    by_attribute = staticmethod(called)
    around = staticmethod(adder())
    number = 0
    box: ClassVar[Box] = Box()

    @property
    def with_a_default(self, kept: list[int] = []) -> int:  # noqa: B006
        kept.append(1)
        return sum(kept)

    @classmethod
    def privately(cls) -> None:
        cls.__private.append(1)


WAYS: dict[str, Callable[[Sums], Any]] = {
    "a list of the class before": lambda it: it.shared.append(1),
    "a dict": lambda it: it.table.update({1: len(it.table)}),
    "a set": lambda it: it.several.add(len(it.several)),
    "bytes": lambda it: it.octets.extend(b"x"),
    "a private list": lambda it: it.privately(),
    "a default": lambda it: it.by_default(1),
    "a default by keyword": lambda it: it.by_keyword(1),
    "an attribute of a function": lambda it: it.by_attribute(),
    "a number of the class": lambda it: setattr(type(it), "number", it.number + 1),
    "a new attribute of the class": lambda it: setattr(type(it), f"new{len(vars(Sums))}", None),
    "an object": lambda it: setattr(it.box, "total", it.box.total + 1),
    "the default of a property": lambda it: it.with_a_default,
    "what a function closes over": lambda it: it.around(1),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_class_of_the_users_remembers_is_found(way: Callable[[Sums], Any]) -> None:
    operator = Sums()
    before = look(operator)
    assert before is not None
    assert look(operator) == look(Sums()) == before
    way(operator)
    assert look(operator) != before
    assert look(Keeping()) == look(Keeping())


@pytest.mark.parametrize(
    "change", [lambda it: it.hide(), lambda it: setattr(it, "shown", 2), lambda it: delattr(it, "shown")]
)
def test_slots_are_looked_into(change: Callable[[Any], Any]) -> None:
    thing = Slotted()
    operator = Keeping(thing)
    before = look(operator)
    assert before is not None
    assert look(operator) == before == look(Keeping(Slotted()))
    change(thing)
    assert look(operator) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ([1], (1,)),
        ({1}, frozenset([1])),
        ({1}, {True}),
        (b"x", bytearray(b"x")),
        ("1", 1),
    ],
)
def test_values_that_are_equal_only_for_python_are_not_the_same(one: Any, other: Any) -> None:
    assert look(Keeping(one)) != look(Keeping(other))


def test_the_same_object_twice_is_something_else_than_two_that_are_equal() -> None:
    one: list[int] = []
    assert look(Keeping(one, one)) != look(Keeping([], []))
    assert look(Keeping(one, one)) == look(Keeping(*[[]] * 2))


def test_as_much_as_can_be_looked_at_is_and_no_more() -> None:
    room = MOST - len(look(Keeping([])) or ())
    fits, over = [None] * (room // 2), [None] * MOST
    assert look(Keeping(fits)) is not None
    assert look(Keeping(over)) is None
    assert look(Keeping(set(range(MOST)))) is not None
    assert look(Keeping(set(range(MOST + 1)))) is None
    assert look(Keeping(bytearray(MOST))) is not None
    assert look(Keeping(bytearray(MOST + 1))) is None


def test_an_object_around_itself_has_an_end() -> None:
    around: list[Any] = []
    around.append(around)
    operator = Keeping(around)
    before = look(operator)
    assert before is not None
    around.append(1)
    assert look(operator) != before
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert look(Keeping(deep)) is None
