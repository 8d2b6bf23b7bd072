"""Operators that keep something in attributes: what is found, and what is let pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pytest

from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.checkpoint.attributes import Attributes
from recovery.policy import Batch, Ephemeral, Lazy, LogHistory, Policy
from tests.falkirk.simulate.programs import words
from timely.errors import OperatorError
from timely.operators.base import Capability, Context, Operator
from timely.operators.channels import Exchange
from timely.operators.exchange_check import checking_factory
from timely.state import KeyedState, Parts, TimedBatches
from timely.time import Time


class Keeps(Operator):
    """Whatever a test wants it to keep."""

    def __init__(self, act: Callable[[Keeps, Time], None]) -> None:
        self.act = act
        self.count = 0
        self.seen: set[int] = set()
        self.by_time: dict[Time, int] = {}
        self.nothing: Any = None

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.act(self, time)
        ctx.send(batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.by_time.pop(time, None)


class Saves(Keeps):
    def __init__(self, act: Callable[[Keeps, Time], None]) -> None:
        super().__init__(act)
        self.state = KeyedState()


class Says(Keeps):
    transient = ("count", "seen", "nothing")


def job(made: Callable[[], Operator], policy: Policy, **traits: Any) -> World:
    def build() -> Dataflow:
        flow = Dataflow("keeps")
        words(flow).unary("keeper", made, **traits).policy(policy).capture("out")
        return flow

    return World(build, 1, 3, ())


def count(self: Keeps, time: Time) -> None:
    self.count += 1


def collect(self: Keeps, time: Time) -> None:
    self.seen.add(time[0])


def replace(self: Keeps, time: Time) -> None:
    self.nothing = object()


def add(self: Keeps, time: Time) -> None:
    self.extra = 1  # type: ignore[attr-defined]


ACTS = [(count, "count"), (collect, "seen"), (replace, "nothing"), (add, "extra")]


@pytest.mark.parametrize(("act", "name"), ACTS, ids=[name for _, name in ACTS])
@pytest.mark.parametrize(("kind", "policy"), [(Keeps, Lazy(every=2)), (Keeps, Batch()), (Saves, Lazy(every=2))])
def test_what_is_kept_in_attributes_is_an_error_that_says_what_to_do(
    kind: type[Keeps], act: Callable[[Keeps, Time], None], name: str, policy: Policy
) -> None:
    with pytest.raises(
        OperatorError, match=rf"'keeper' \(.*test_attributes.py:\d+\) keeps `{name}` of {kind.__name__}"
    ) as error:
        job(lambda: kind(act), policy).run()
    assert f"transient = ('{name}',)" in str(error.value)
    assert "LogHistory()" in str(error.value)


def test_a_number_that_is_kept_is_found_at_the_first_cut_even_while_more_is_under_way() -> None:
    world = job(lambda: Keeps(count), Lazy(every=1))
    with pytest.raises(OperatorError):
        world.run()
    assert not any(kind == "durable" and data["group"] == 0 for _, kind, data in world.log)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Keeps(lambda self, time: self.by_time.update({time: 1})),
        lambda: Keeps(lambda self, time: setattr(self, "seen", set())),
        lambda: Keeps(lambda self, time: None),
        lambda: Says(count),
        lambda: Says(collect),
    ],
)
def test_what_lasts_no_longer_than_its_time_or_does_not_matter_is_no_error(made: Callable[[], Operator]) -> None:
    job(made, Lazy(every=2)).run()


@pytest.mark.parametrize("act", [count, collect, replace])
def test_a_full_history_brings_back_attributes(act: Callable[[Keeps, Time], None]) -> None:
    job(lambda: Keeps(act), LogHistory(every=2)).run()


class Reaches(Operator):
    def __init__(self, act: Callable[[Context, Time], Any]) -> None:
        self.act = act

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.act(ctx, (time[0] + 1,))


class Finds(Reaches):
    def on_notify(self, ctx: Context, time: Time) -> None:
        pass

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        pass


REACHES: list[tuple[Callable[[Context, Time], Any], str]] = [
    (lambda ctx, time: ctx.send_at(time, [1]), "sent a message"),
    (lambda ctx, time: ctx.notify_at(time), "asked for a notification"),
    (lambda ctx, time: ctx.retain(time).drop(), "kept a capability"),
]


@pytest.mark.parametrize(("act", "what"), REACHES, ids=[what for _, what in REACHES])
def test_who_is_not_remembered_must_not_reach_into_later_times(act: Callable[[Context, Time], Any], what: str) -> None:
    for policy, traits, mend in ((Ephemeral(), {}, "Lazy"), (Batch(), {"stateful": False}, "stateful=False")):
        with pytest.raises(OperatorError, match=rf"'keeper' .* in an event at .*{what} for .*{mend}"):
            job(lambda: Finds(act), policy, holds=True, **traits).run()
    for policy in (Batch(), Lazy(every=2), LogHistory(every=2)):
        job(lambda: Finds(act), policy, holds=True).run()


def test_a_capability_that_could_not_be_found_again_is_refused() -> None:
    with pytest.raises(
        OperatorError, match=r"'keeper' .* keeps a capability for \(1,\) in an event at \(0,\).*on_restore"
    ):
        job(lambda: Reaches(REACHES[2][0]), Lazy(), holds=True).run()
    job(lambda: Reaches(REACHES[2][0]), LogHistory(), holds=True).run()


class Holding(Operator):
    """Says each epoch's words an epoch later, by a capability in an attribute that is None at first, and now and then."""

    def __init__(self) -> None:
        self.now, self.words = TimedBatches(), KeyedState()
        self.state = Parts(self.now, self.words)
        self.cap: Capability | None = None
        self.next: Capability | None = None

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.now.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.cap, self.next = self.next, None
        if self.cap is not None:
            self.cap.send(self.words.read(time)[time[0] - 1])
            self.cap.drop()
        if came := sorted(word for batch in self.now.pop(time) for word in batch):
            self.words.write(time, {time[0]: came})
            self.next = ctx.retain((time[0] + 1,))
            ctx.notify_at((time[0] + 1,))


class Finding(Holding):
    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        (self.next,) = capabilities or (None,)


def test_a_capability_may_be_kept_in_an_attribute_that_is_none_at_first() -> None:
    def build(kind: type[Operator]) -> Dataflow:
        flow = Dataflow("holding")
        source = words(flow).exchange(by=lambda word: word)
        source.unary("keeper", kind, holds=True).policy(Lazy(every=1)).capture("out")
        return flow

    with pytest.raises(
        OperatorError, match=r"'keeper' .* keeps a capability for \(1,\) in an event at \(0,\).*on_restore"
    ):
        World(lambda: build(Holding), 1, 3, ()).run()
    runs = Simulation(lambda: build(Finding), 2, ("kill",))
    for seed in range(8):
        failure = runs.run(seed)
        assert failure is None, failure
    assert sum(map(len, runs.expected.values())) == 93
    assert runs.tally.faults["kill"] > 3


def test_a_job_for_a_later_time_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"'keeper' .* starts a job for \(1,\) in an event at \(0,\)"):
        job(lambda: Finds(lambda ctx, time: ctx.start(lambda: 1, time)), Lazy(), holds=True).run()


# ---------------------------------------------------------------------------------------------- what is compared


class Watched:
    """The attributes of one processor, whose worker is what a test says."""

    def __init__(self, operator: Operator, kind: str = "unary", history: bool = False) -> None:
        self.delivered: tuple[tuple[int, ...], ...] = ()
        self.runtime = SimpleNamespace(
            operator=operator, ctx=SimpleNamespace(pending={}), processor=SimpleNamespace(node="unary 'keeper'")
        )
        info = SimpleNamespace(kind=kind, history=history, depth=1)
        self.worker = SimpleNamespace(runtimes=[self.runtime], held={})
        layout = SimpleNamespace(processors=[info], members=lambda group: [0])
        recorder = SimpleNamespace(delivered_bounds=lambda p: self.delivered)
        self.attributes = Attributes(*cast(Any, (layout, self.worker, recorder)))

    def is_error(self) -> bool:
        """At the cut before epoch 3."""
        try:
            self.attributes.check(0, (3,))
        except OperatorError:
            return True
        return False


def keeping(value: Any) -> Any:
    operator: Any = Operator()
    operator.kept = value
    return operator


MANY = list(range(65))
COMPARED: list[tuple[str, Any, Any, bool]] = [
    ("a number", 3000, int("3000"), False),
    ("another number", 3, 4, True),
    ("a number of another type", 1, True, True),
    ("another object, though it is equal", Fraction(1, 2), Fraction(1, 2), True),
    ("another list", [1], [1], False),
    ("a longer list", [1], [1, 2], True),
    ("another element", [1], [2], True),
    ("a container of another type", [1], deque([1]), True),
    ("the value of a key", {1: 2}, {1: 3}, True),
    ("a set", {1, 2}, {2, 1}, False),
    ("one of 64 elements", MANY[:64], [*MANY[:63], 0], True),
    ("one of 65 elements, which are only counted", MANY, [*MANY[:64], 0], False),
    ("more than 65 elements", MANY, [*MANY, 65], True),
    ("elements that were few", MANY[:64], MANY, True),
    ("elements that were many", MANY, MANY[:64], True),
]


@pytest.mark.parametrize(
    ("before", "now", "differs"), [each[1:] for each in COMPARED], ids=[each[0] for each in COMPARED]
)
def test_an_attribute_is_compared_by_what_it_is_and_plain_containers_by_what_they_hold(
    before: Any, now: Any, differs: bool
) -> None:
    operator = keeping(before)
    watched = Watched(operator)
    operator.kept = now
    assert watched.attributes.changed(0) == (["kept"] if differs else [])


def test_attributes_that_come_and_go_are_named_in_their_order() -> None:
    operator = keeping(1)
    watched = Watched(operator)
    del operator.kept
    for name in "fbdaec":
        setattr(operator, name, 1)
    assert watched.attributes.changed(0) == [*"abcdef", "kept"]


def test_state_what_the_engine_wraps_and_capabilities_are_not_compared() -> None:
    operator = keeping(None)
    watched = Watched(operator)
    operator.state, operator.on_batch = KeyedState(), print
    operator.kept = object.__new__(Capability)
    assert watched.attributes.changed(0) == []


def test_what_is_put_around_an_operator_behind_an_exchange_of_one_worker_is_not_compared() -> None:
    operator = keeping(None)
    watched = Watched(operator)
    make = checking_factory(lambda: operator, "the operator", "here", {0: Exchange(key=lambda record: record)})
    assert make() is operator
    assert watched.attributes.changed(0) == []


def test_only_operators_of_the_users_without_a_history_are_watched() -> None:
    for kind, history, found in (("binary", False, ["kept"]), ("count", False, []), ("unary", True, [])):
        operator = keeping(1)
        watched = Watched(operator, kind, history)
        operator.kept = 2
        assert watched.attributes.changed(0) == found


def test_a_new_operator_is_compared_with_how_the_first_was_made() -> None:
    """It may have heard already of what it holds."""
    watched = Watched(keeping(1))
    watched.runtime.operator = keeping(2)
    watched.attributes.look()
    assert watched.attributes.changed(0) == ["kept"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [Fraction(1, 2), [1]],
        lambda: {"a": Fraction(1, 2)},
        lambda: (1, object()),
        lambda: frozenset([(1, object())]),
        lambda: deque([SimpleNamespace()]),
    ],
)
def test_objects_that_a_new_operator_is_made_with_are_its_own(make: Callable[[], Any]) -> None:
    watched = Watched(keeping(make()))
    watched.runtime.operator = new = keeping(make())
    watched.attributes.look()
    assert watched.attributes.changed(0) == []
    new.kept = make()
    assert watched.attributes.changed(0) == ["kept"]


@pytest.mark.parametrize("made", [(1, ("a", frozenset([2.5]))), [1, "a"], {"a": (1,)}, list(range(100))])
def test_what_is_plain_all_through_is_compared_with_how_the_first_was_made(made: Any) -> None:
    watched = Watched(keeping(made))
    watched.runtime.operator = keeping(type(made)())
    watched.attributes.look()
    assert watched.attributes.changed(0) == ["kept"]


def test_an_operator_that_is_made_with_objects_in_containers_goes_back_and_on() -> None:
    """Whether or not something fails, for each worker begins by going to where it was."""

    def made() -> Operator:
        operator = Keeps(lambda self, time: None)
        operator.models = [Fraction(1, 2)], {"a": [1]}  # type: ignore[attr-defined]
        operator.known = {"model": SimpleNamespace()}  # type: ignore[attr-defined]
        return operator

    job(made, Lazy(every=2)).run()


def test_another_look_at_the_same_operator_forgets_no_change() -> None:
    operator = keeping(object())
    watched = Watched(operator)
    operator.kept = object()
    watched.attributes.look()
    assert watched.attributes.changed(0) == ["kept"]


def test_a_container_may_hold_what_belongs_to_times_that_are_under_way() -> None:
    operator = keeping([])
    watched = Watched(operator)
    operator.kept.append(1)
    assert watched.is_error()
    watched.delivered = ((3,), (3,))
    assert watched.is_error()
    watched.delivered = ((3,), (4,))
    assert not watched.is_error()
    watched.delivered = ()
    watched.worker.held[1, (4,)] = 1  # of another processor
    assert watched.is_error()
    watched.worker.held[0, (4,)] = 1
    assert not watched.is_error()
    watched.worker.held.clear()
    watched.runtime.ctx.pending[4,] = (4,)
    assert not watched.is_error()
    operator.kept = 1
    assert watched.is_error()
