"""An operator of one's own with timers of event time, as `Keyed.split_late` has it, in simulated jobs with faults."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

import falkirk
from falkirk import Batch, Eager, KeyedState, Lazy, LogHistory, Operator, Parts, Snapshot, TimedBatches, TimedValues
from falkirk.simulate.simulation import Simulation
from recovery.policy import Policy
from runtime.session.cluster import Cluster
from timely.operators.base import Context
from timely.time import Time

LATENESS, DELAY, EVERY = 3, 10, 4


class Reminders(Operator):
    """Tells of a key once the watermark is ten behind the first of its events, and begins anew with the next one."""

    repeats_over = "time"

    def __init__(self) -> None:
        self.due = KeyedState()
        self.pairs = TimedBatches()
        self.marks = TimedValues()
        self.state = Parts(self.due, self.pairs, self.marks)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        if port == 0:
            self.pairs.add(time, batch)
        else:
            self.marks.at(time)["mark"] = batch[-1]
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        due = self.due.read(time)
        new: dict[Any, int] = {}
        for key, at in (pair for batch in self.pairs.pop(time) for pair in batch):
            new[key] = min(at + DELAY, new.get(key, due.get(key, at + DELAY)))
        self.due.write(time, new)
        for mark in self.marks.pop(time).values():
            fired = [(key, at) for key, at in self.due.read(time).items() if at <= mark]
            self.due.remove(time, [key for key, _ in fired])
            ctx.send(sorted(fired))


PARTS = [
    [((part + 3 * number * number) % 7, number * 2 + (number * (5 + part)) % 9) for number in range(40)]
    for part in range(3)
]


def build(policy: Policy | None = None) -> falkirk.Dataflow:
    flow = falkirk.Dataflow("timers")
    with flow.region("read", policy=Batch(log_outputs=True)):
        source = flow.source("clicks", falkirk.Iterable(partitioned=PARTS, batch=2, epoch_every=EVERY))
        clicks = source.map(lambda pair: pair).keyed()
    with flow.region("timers", policy=policy or Lazy(every=2)):
        on_time, late, watermarks = clicks.split_late(time=lambda at: at, lateness=LATENESS)
        reminders = on_time.binary(watermarks, "reminders", Reminders)
    reminders.capture("out")
    late.records().capture("late")
    return flow


def expected() -> tuple[dict[Time, Counter[Any]], dict[Time, Counter[Any]]]:
    """What is told, and what is late, at each epoch, by a loop over all events."""
    due: dict[int, int] = {}
    mark = None
    told: dict[Time, Counter[Any]] = {}
    late: dict[Time, Counter[Any]] = {}
    for epoch in range(len(PARTS[0]) // EVERY):
        events = [pair for part in PARTS for pair in part[epoch * EVERY : (epoch + 1) * EVERY]]
        early = Counter(pair for pair in events if mark is not None and pair[1] < mark)
        if early:
            late[(epoch,)] = early
        for key, at in events:
            if mark is None or at >= mark:
                due[key] = min(at + DELAY, due.get(key, at + DELAY))
        reached = max(at for _, at in events) - LATENESS
        if mark is None or reached > mark:
            mark = reached
            fired = {(key, at) for key, at in due.items() if at <= mark}
            due = {key: at for key, at in due.items() if at > mark}
            if fired:
                told[(epoch,)] = Counter(fired)
    return told, late


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_timers_fire_at_the_epoch_that_moves_the_watermark(workers: int) -> None:
    told, late = expected()
    assert sum(map(len, told.values())) > 20
    assert len(late) > 3
    for seed in range(5):
        cluster = Cluster(build(), workers, seed)
        cluster.run()
        for name, wanted in (("out", told), ("late", late)):
            found: dict[Time, Counter[Any]] = {}
            for time, batch in cluster.captured(name):
                found.setdefault(time, Counter()).update(batch)
            assert found == wanted


CHECKED = partial(pytest.param, marks=pytest.mark.check)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "policy",
    [
        Lazy(every=2),
        pytest.param(LogHistory(every=3), marks=pytest.mark.check),
        pytest.param(Snapshot(2), marks=pytest.mark.check),
        Eager(),
    ],
    ids=["lazy", "history", "snapshot", "eager"],
)
@pytest.mark.parametrize("seeds", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_timers_fire_once_whatever_fails(policy: Policy, seeds: int) -> None:
    runs = {workers: Simulation(lambda: build(policy), workers) for workers in (1, 2, 3)}
    for each in runs.values():
        assert all(rows for rows in each.expected.values())
    for seed in range(seeds):
        assert runs[1 + seed % 3].run(seed) is None
