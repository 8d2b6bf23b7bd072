"""Full histories: any deterministic operator comes back, wherever it keeps what it knows, and however often it fails."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache, partial
from random import Random
from typing import Any, ClassVar

import pytest

import recovery.policy.chosen
from falkirk.simulate.faults import Rates
from falkirk.simulate.outside import Result
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.collection import Collection
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import NOTIFICATION, HistoryEvent
from recovery.metadata import at_epoch
from recovery.policy import LogHistory
from recovery.rollback.orders import RollbackPlanner
from tests.falkirk.simulate.programs import PROGRAMS
from tests.recovery.layouts import layout
from tests.support.mutation import GONE, Change, changed
from timely.errors import OperatorError
from timely.io import Iterable
from timely.operators.base import Context, Operator
from timely.state import KeyedState, Parts, State, TimedBatches
from timely.time import Time

SOAK = os.environ.get("FALKIRK_TEST_PROFILE") == "soak"

KEEPS = ("state", "attribute", "list", "deep", "closure", "generator", "flag")
"""The places where an operator keeps a running total. Nobody can look into a generator."""


class Box:
    """An object of the user's, with another one inside."""

    def __init__(self) -> None:
        self.total = 0


def adder() -> Callable[[int], int]:
    """A function that remembers."""
    total = 0

    def add(n: int) -> int:
        nonlocal total
        total += n
        return total

    return add


def adding() -> Generator[int, int, None]:
    total = 0
    while True:
        total += yield total


class Totals(Operator):
    """Adds each epoch's numbers to several totals, each kept somewhere else and begun at an epoch of its own."""

    def __init__(self, begins: dict[str, int], buffered: bool) -> None:
        self.begins = begins
        if "state" in begins:
            self.now, self.kept = TimedBatches(), KeyedState()
            self.state: State | None = self.kept if buffered else Parts(self.now, self.kept)
        self.buffers: dict[Time, list[int]] = {}
        self.buffered = buffered or "state" not in begins
        self.total = 0
        self.list: list[int] = []
        self.deep = {"box": [Box()]}
        self.add = adder()
        self.flag: int | None = None
        if "generator" in begins:
            self.generator = adding()
            next(self.generator)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        if self.buffered:
            self.buffers.setdefault(time, []).extend(batch)
        else:
            self.now.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = [self.buffers.pop(time)] if self.buffered else self.now.pop(time)
        n = sum(map(sum, batches))
        said = {where: getattr(self, f"to_{where}")(time, n) for where, at in self.begins.items() if time[0] >= at}
        ctx.send([(time[0], n, *sorted(said.items()))])

    def to_state(self, time: Time, n: int) -> int:
        total = int(self.kept.read(time).get("total", 0)) + n
        self.kept.write(time, {"total": total})
        return total

    def to_attribute(self, time: Time, n: int) -> int:
        self.total += n
        return self.total

    def to_list(self, time: Time, n: int) -> int:
        self.list.append(n)
        return sum(self.list)

    def to_deep(self, time: Time, n: int) -> int:
        self.deep["box"][0].total += n
        return self.deep["box"][0].total

    def to_closure(self, time: Time, n: int) -> int:
        return self.add(n)

    def to_generator(self, time: Time, n: int) -> int:
        return self.generator.send(n)

    def to_flag(self, time: Time, n: int) -> int:
        """Something is kept from every other epoch to the next."""
        before, self.flag = self.flag, n if self.flag is None else None
        return before or 0


class Case:
    """A program drawn from a seed: an operator with a full history, and others behind it."""

    def __init__(self, seed: int) -> None:
        random = Random(f"history {seed}")
        if random.random() < 0.5:  # what keeps nothing but state may change its mind
            self.begins = dict.fromkeys(random.sample(KEEPS[1:-2], random.randint(0, 1)), 7)
            self.begins.update(dict.fromkeys(random.sample(("flag",), random.randint(0, 1)), 0))
        else:
            self.begins = {where: random.choice((0, 0, 6)) for where in random.sample(KEEPS, random.randint(1, 3))}
        if random.random() < 0.8:
            self.begins["state"] = 0
        self.buffered = random.random() < 0.5
        self.every = random.choice((1, 2, 3))
        self.logs = random.random() < 0.5

    def build(self) -> Dataflow:
        flow = Dataflow("history")
        first, second = [(i * i * 7) % 11 for i in range(42)], [(i * 5) % 13 for i in range(36)]
        numbers = flow.source("in", Iterable(partitioned=[first, second], batch=2, epoch_every=3))
        with flow.region("kept", policy=LogHistory(every=self.every, log_outputs=self.logs)):
            made = partial(Totals, self.begins, self.buffered)
            kept = numbers.exchange(by=lambda n: n % 3).unary("totals", made)
        kept.capture("out")
        return flow


@cache
def expected(seed: int) -> Result:
    return Simulation(Case(seed).build, 2 + seed % 2).expected


RATES = {
    "kill": Rates(until=2.0, kill=0.006, in_rounds=3.0),
    "io": Rates(until=2.0, kill_io=0.015),
    "all": Rates(until=2.0, kill=0.003, kill_io=0.004, monitor=0.002, job=0.001, stall=0.005),
}


def run(seed: int, most_events: int) -> str | None:
    """The fault of one run; None: nothing."""
    world = World(Case(seed).build, 2 + seed % 2, seed, ())
    world._most_events = most_events
    world.injector.rates = RATES[sorted(RATES)[seed % 3]]
    try:
        world.run(60_000)
        world.outside.compare(expected(seed))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("most_events", [4, pytest.param(1000, marks=pytest.mark.check)])
@pytest.mark.parametrize("first", range(0, 400 if SOAK else 10, 10))
def test_whatever_a_deterministic_operator_keeps_comes_back(first: int, most_events: int) -> None:
    wrong = {seed: run(seed, most_events) for seed in range(first, first + 10)}
    assert not any(wrong.values()), {seed: (Case(seed).begins, what) for seed, what in wrong.items() if what}


@pytest.mark.check
def test_the_seeds_replay_in_living_and_in_new_processes_from_snapshots_and_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: Counter[str] = Counter()
    restore, replaces = RollbackPlanner._restore, Checkpoints._replaces_history

    def restored(self: RollbackPlanner, p: int, bound: Any, remembers: bool, lowest: bool) -> Any:
        base = self._checkpoints.base(p, bound)
        found = restore(self, p, bound, remembers, lowest)
        if found.replay is not None and any(bound):
            living = self._remembers and (bound >= self._recorder.since[p] or self._between(p, bound))
            met[f"{'living' if living else 'new'} from {'a snapshot' if any(base) else 'the beginning'}"] += 1
        return found

    def replaced(self: Checkpoints, p: int, bound: Any) -> bool:
        found = replaces(self, p, bound)
        met["replaced" if found else "not replaced"] += 1
        return found

    monkeypatch.setattr(RollbackPlanner, "_restore", restored)
    monkeypatch.setattr(Checkpoints, "_replaces_history", replaced)
    assert not any(run(seed, 4) for seed in range(10))
    assert len(met) == 6, met


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_comes_through_under_full_histories(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy where it gives no other; and histories end in snapshots after a few events."""
    monkeypatch.setattr(recovery.policy.chosen, "DEFAULT", LogHistory())
    right = Simulation(PROGRAMS[name], 2).expected
    for seed in range(10 if SOAK else 1):
        world = World(PROGRAMS[name], 2, seed, ())
        world._most_events = 4
        world.injector.rates = RATES["kill"]
        world.run()
        world.outside.compare(right)


CHANGES = {
    "a living operator is replayed": Change(RollbackPlanner, "_restore", "p in self._operator_memory.of", GONE),
    "a snapshot only where it is all": Change(Checkpoints, "_replaces_history", "self._recorder.only_state(...)", GONE),
    "state is there as it was saved": Change(
        Collection, "let_go", "own.checkpoints.base(p, bound) if p in own.operator_memory.of else bound", "bound"
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_without_the_rule_something_is_lost(name: str) -> None:
    assert changed([CHANGES[name]], lambda: any(run(seed, 4) for seed in (1, 4, 7, 9, 46, 49)))


def test_more_than_a_thousand_events_are_no_reason_to_lose_attributes() -> None:
    """With the true limit: the history goes on, and the state alone does not take its place."""

    def build() -> Dataflow:
        flow = Dataflow("long")
        numbers = flow.source("in", Iterable(range(620), batch=1, epoch_every=1))
        made = partial(Totals, {"state": 0, "attribute": 0}, False)
        numbers.unary("totals", made).policy(LogHistory(every=40)).capture("out")
        return flow

    world = World(build, 1, 5, ())
    while not any(kind == "durable" and data["epoch"] >= 540 for _, kind, data in world.log[-5:]):
        world.step()
    (process,) = world._processes.values()
    assert process is not None
    world._kill(process, "killed")
    world.run()
    out = [records for (_, _, _), records in sorted(world.outside.exactly.items())]
    sums = [sum(range(n + 1)) for n in range(620)]
    assert out == [[(n, n, ("attribute", sums[n]), ("state", sums[n]))] for n in range(620)]
    decided = [data for _, kind, data in world.log if kind == "decided"]
    assert len(decided) == 2, world.log


# Where all else goes wrong


def test_events_of_other_times_in_between_must_not_have_hidden_anything() -> None:
    def only(*events: tuple[int, bool]) -> bool:
        plan = layout("a chain, b chain", "a=>b", 1)
        recorder = WorkerRecorder(plan, 0)
        recorder.histories[0] = [
            HistoryEvent(order, NOTIFICATION, (epoch,), beside=kept) for order, (epoch, kept) in enumerate(events)
        ]
        return recorder.only_state(0, at_epoch(5, 1))

    clean, kept = False, True
    assert only()
    assert only((7, kept))
    assert only((3, kept), (4, clean))
    assert not only((3, clean), (4, kept))
    assert only((3, kept), (4, clean), (5, kept))
    assert not only((3, kept), (5, kept), (4, clean))
    assert only((3, clean), (5, clean), (4, clean))
    assert not only((3, clean), (5, kept), (4, clean))
    assert not only((5, kept), (4, clean))
    assert only((5, clean), (4, clean), (6, kept))


def test_what_a_class_or_the_program_around_remembers_is_an_error_rather_than_a_wrong_result() -> None:
    """A new operator in the same process would begin with it."""
    for shares in (True, False):
        around: list[int] = []

        class Shares(Totals):
            seen: ClassVar[list[int]] = []

            def to_list(self, time: Time, n: int, shares: bool = shares, around: list[int] = around) -> int:
                kept = self.seen if shares else around
                kept.append(n)
                return sum(kept)

        def build(made: type[Totals] = Shares) -> Dataflow:
            flow = Dataflow("shares")
            numbers = flow.source("in", Iterable(range(60), batch=2, epoch_every=3))
            kept = numbers.exchange(by=lambda n: n % 3).unary("totals", lambda: made({"list": 0}, True))
            kept = kept.nondeterministic("what it remembers elsewhere outlives it")
            kept.policy(LogHistory(every=2)).capture("out")
            return flow

        world = World(build, 2, 3, ())
        world.injector.rates = Rates(until=9.0, kill=0.02)
        with pytest.raises(OperatorError, match=r"'totals' .*outside of Shares.*__init__"):
            world.run()
