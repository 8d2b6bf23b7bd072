"""Operators that keep something in attributes: what is found, and what is let pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from recovery.policies import Batch, Ephemeral, Lazy, LogHistory, Policy
from tests.falkirk.simulate.programs import words
from timely.dataflow.dataflow import Dataflow
from timely.errors import OperatorError
from timely.operators.base import Capability, Context, Operator
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
