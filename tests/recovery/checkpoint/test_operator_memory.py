"""Memory of a user's operator beside its `state`: found wherever it is, and where nobody can tell, it counts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sized
from functools import cached_property, partial
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from recovery.checkpoint import operator_memory
from recovery.checkpoint.operator_memory import MOST, OperatorMemory, look
from tests.recovery.rollback.test_replay import Box, adder, adding
from timely.errors import OperatorError
from timely.operators.base import Capability, Operator, give_back
from timely.operators.channels import Exchange
from timely.operators.exchange_check import checking_factory
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


def counted() -> None:
    """Remembers in an attribute."""


counted.times = 1  # type: ignore[attr-defined]


class OneSlot:
    __slots__ = "shown"

    def __init__(self) -> None:
        self.shown = 0


class Bare:
    __slots__ = ()


class Dunder:
    __slots__ = ("__kept__",)

    def __init__(self) -> None:
        self.__kept__ = 0


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
    (counted, lambda it: setattr(it, "times", 2)),
    (OneSlot(), lambda it: setattr(it, "shown", 1)),
    (Dunder(), lambda it: setattr(it, "__kept__", 1)),
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


def defaults(n: int, *, kept: list[int] = []) -> int:  # noqa: B006  # a function that remembers in its default
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

    @cached_property
    def once(self, kept: list[int] = []) -> int:  # noqa: B006
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
    "the default of a property that is cached": lambda it: vars(Sums)["once"].func(it),
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
        (int, Bare()),
        (int, str),
        (defaultdict(list), defaultdict(set)),
        ([[1], 2], [[1, 2]]),
        (lambda: 1, lambda: 2),
    ],
)
def test_values_that_are_equal_only_for_python_are_not_the_same(one: Any, other: Any) -> None:
    assert look(Keeping(one)) != look(Keeping(other))


def test_the_same_object_twice_is_something_else_than_two_that_are_equal() -> None:
    one: list[int] = []
    assert look(Keeping(one, one)) != look(Keeping([], []))
    assert look(Keeping(one, one)) == look(Keeping(*[[]] * 2))
    other: list[int] = []
    assert look(Keeping(one, other, one)) != look(Keeping(one, other, other))
    assert look(Keeping([one, other, one])) != look(Keeping([one, other, other]))


def test_the_name_of_an_attribute_counts() -> None:
    one, other = Keeping(), Keeping()
    one.a, other.b = 1, 1  # type: ignore[attr-defined]
    assert look(one) != look(other)


def test_a_capability_is_its_time() -> None:
    def at(time: int) -> Any:
        capability = object.__new__(Capability)
        capability.time = (time,)
        return look(Keeping(capability))

    assert at(1) == at(1) != at(2)


def test_what_the_engine_puts_around_the_method_does_not_count_but_a_function_of_the_users_does() -> None:
    operator: Any = Keeping()
    before = look(operator)
    for engines in (operator.on_batch, give_back):
        operator.on_batch = engines
        assert look(operator) == before
    for users in (Keeping().on_batch, remembers(1)):
        operator.on_batch = users
        assert look(operator) != before
    wrapped: Any = Keeping()
    checking_factory(lambda: wrapped, "the operator", "here", {0: Exchange(key=lambda record: record)})()
    assert look(wrapped) == before


def test_a_frozen_set_and_a_class_with_abstract_bases_can_be_looked_into() -> None:
    class Derived(Keeping, Sized):
        def __len__(self) -> int:
            return 0

    assert look(Keeping(frozenset([1]))) is not None
    assert look(Derived()) is not None


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


# ---------------------------------------------------------------------------------------------- operators of a worker


class Leaves(Keeping):
    """Of each that is made, something stays behind in the class."""

    made: ClassVar[list[int]] = []


class Worker:
    """One processor, whose operators `make` makes."""

    def __init__(
        self, patch: pytest.MonkeyPatch, make: Callable[[], Operator], kind: str = "unary", history: bool = True
    ) -> None:
        patch.setattr(operator_memory, "build_operator", lambda processor, effects: make())
        self.runtimes = [SimpleNamespace(operator=make(), processor=SimpleNamespace(node="unary 'op'"))]
        layout = SimpleNamespace(processors=[SimpleNamespace(kind=kind, history=history)])
        self.memory = OperatorMemory(*cast(Any, (layout, self)))


def test_operators_of_the_users_with_a_history_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, history, of in (
        ("unary", True, {0}),
        ("binary", True, {0}),
        ("count", True, set()),
        ("unary", False, set()),
    ):
        memory = Worker(monkeypatch, Keeping, kind, history).memory
        assert memory.of == of
        assert set(memory.watched()) == of
        if not of:
            memory.made(0, Keeping(1))  # nothing is known of how it was made, so nothing is wrong
    assert Worker(monkeypatch, Operator).memory.watched() == {}  # there is no `state` in which its history could end


def test_an_operator_keeps_more_if_it_does_not_look_as_it_was_made_or_nobody_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker(monkeypatch, Keeping)
    (keeps,) = worker.memory.watched().values()
    assert not keeps()
    assert worker.memory.keeps(0, Keeping(1))
    worker.runtimes[0].operator.thing = 1
    assert keeps()
    assert not worker.memory.keeps(0, Keeping())
    assert Worker(monkeypatch, lambda: Keeping(Random(1))).memory.keeps(0)


def test_a_new_operator_that_begins_with_what_another_has_left_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaves, "made", [])
    memory = Worker(monkeypatch, Leaves).memory
    memory.made(0, Leaves())
    Leaves.made.append(1)
    with pytest.raises(OperatorError, match="remembers something outside of Leaves"):
        memory.made(0, Leaves())


def test_where_nobody_can_tell_how_operators_are_made_a_new_one_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Worker(monkeypatch, Keeping).memory.made(0, Keeping(Random(1)))
    number = count()
    Worker(monkeypatch, lambda: Keeping(next(number))).memory.made(0, Keeping(7))
