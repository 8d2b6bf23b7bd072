"""Programs for jobs that go on with other numbers of workers: drawn ones of verbs that can, and some by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Lazy, LogHistory
from recovery.policy.traits import Policy
from tests.falkirk.simulate.drawn import ENTRIES, Region, _accepted, built
from timely.data.batch import Batch as Rows
from timely.io import Iterable as Items
from timely.io import Memory
from timely.operators.base import Context, Operator
from timely.operators.channels import Exchange
from timely.state import KeyedState, Parts, TimedBatches, TimedValues
from timely.state.interface import Run
from timely.time import Time

KEEPING = (
    *("sums", "most", "counts", "distinct", "windows", "columns", "joined", "windows of event time"),
    *("windows of columns", "for a time", "taken back", "nearest", "looked up", "late"),
)
"""Steps that keep something by key, or what is equal on all workers."""

PASSING = (
    *("map", "filter", "twice", "sums of an epoch", "distinct in an epoch", "lindi", "rows of an epoch", "exchange"),
    "everywhere",
)

SOURCES = ("two parts", "ends early", "a part without anything", "one part", "one epoch", "small frames", "single rows")

POLICIES: tuple[Callable[[Random], Policy], ...] = (
    lambda random: Batch(log_outputs=random.random() < 0.7),
    lambda random: Lazy(random.choice((1, 2, 4, 0.1, 0.3)), log_outputs=random.random() < 0.7),
    lambda random: Lazy(random.choice((1, 2, 4, 0.1, 0.3)), log_outputs=random.random() < 0.7),
    lambda random: LogHistory(random.choice((1, 2, 4, 0.1, 0.3)), log_outputs=random.random() < 0.7),
)


def draw(seed: int) -> tuple[Region, ...]:
    """A program that the framework accepts, of steps and policies that can change workers."""
    for attempt in count():
        regions = _draw(Random(f"moving {seed}/{attempt}"))
        if _accepted(regions):
            return regions
    raise AssertionError("unreachable")


def _draw(random: Random) -> tuple[Region, ...]:
    regions: list[Region] = []
    for at in range(random.randint(1, 4)):
        policy = random.choice(POLICIES)(random)
        inputs = tuple(random.sample(range(at), min(at, random.choice((1, 1, 2))))) if random.random() < 0.8 else ()
        kinds = PASSING if isinstance(policy, Batch) else (*PASSING, *KEEPING, *KEEPING)
        steps = tuple((random.choice(kinds), random.randrange(10)) for _ in range(random.randint(1, 3)))
        outputs = tuple(
            (name, random.randint(0, len(steps))) for name in ("capture", "memory") if random.random() < 0.3
        )
        regions.append(Region(policy, inputs, steps, outputs, random.choice(tuple(ENTRIES)), random.choice(SOURCES)))
    return tuple(regions)


def program(seed: int) -> Callable[[], Dataflow]:
    """The program of a seed."""
    regions = draw(seed)
    return lambda: built(regions)


class Ages(Operator):
    """How often each key was there, three epochs later: state of its own by key, and entries kept for later times."""

    moves_by_key = True
    repeats_over = "time"

    def __init__(self) -> None:
        self._seen, self._due = KeyedState(), TimedValues()
        self._now = TimedBatches()
        self.state = Parts(seen=self._seen, due=self._due, now=self._now)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Rows) -> None:
        self._now.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        due = self._due.pop(time)
        if due:
            ctx.send(sorted(("due", key, n) for key, n in due.items()))
        rows = [row for batch in self._now.pop(time) for row in batch]
        if rows:
            old, later = self._seen.read(time), (time[0] + 3,)
            new: dict[Any, int] = {}
            for key, _ in rows:
                new[key] = new.get(key, old.get(key, 0)) + 1
            self._seen.write(time, new)
            self._due.at(later).update(new)
            ctx.notify_at(later)


class Counted(KeyedState):
    """The number of records so far, wherever they were: it is put together by adding up."""

    def merge(self, former: list[list[Run]], worker: int, workers: int) -> Iterable[Run]:
        """All of it goes to the first worker."""
        if worker:
            return []
        total, last = 0, (0,)
        for runs in former:
            here = KeyedState()
            here.restore(runs)
            last = max([last, *(run.time for run in runs)])
            total += here.read(last).get("n", 0)
        made = KeyedState()
        made.write(last, {"n": total})
        return [Run(last, [(0, "n", total)])]


class Counter(Operator):
    """Counts what it meets, and says nothing until the end: then each worker says how much it has counted."""

    def __init__(self) -> None:
        self.state = Counted()

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Rows) -> None:
        ctx.notify_at()
        self.state.write(time, {"n": self.state.read(time).get("n", 0) + len(batch)})
        ctx.send([len(batch)])

    def on_notify(self, ctx: Context, time: Time) -> None:
        """Nothing is left to be done."""


def pairs(flow: Dataflow, parts: int = 3, size: int = 30) -> Any:
    given = [[((i * i * 7 + part) % 11, i) for i in range(size - 4 * part)] for part in range(parts)]
    return flow.source("in", Items(partitioned=given, batch=2, epoch_every=4))


def by_hand() -> Dataflow:
    """An operator of the user's by key, with entries for later times, between a log and a sink."""
    flow = Dataflow("by hand")
    with flow.region("front", policy=Lazy(3, log_outputs=True)):
        front = pairs(flow).map(lambda pair: pair)
    with flow.region("ages", policy=Lazy(2)):
        ages = front.unary("ages", Ages, Exchange())
        ages.to(Memory(), name="out")
    return flow


def timers() -> Dataflow:
    """Timers of keys, with state of theirs, behind a log that is cut at other epochs."""

    def begin(key: Any, value: Any, timers: Any) -> None:
        timers.state = (timers.state or 0) + value
        if not timers.due:
            timers.set(timers.epoch + 1 + key % 4)

    def tell(key: Any, epoch: int, timers: Any) -> Any:
        yield key, epoch, timers.state
        if timers.state % 3:
            timers.set(epoch + 2)
            timers.state = timers.state // 3 * 3

    flow = Dataflow("timers")
    with flow.region("front", policy=Batch(log_outputs=True)):
        front = pairs(flow).map(lambda pair: pair)
    with flow.region("timers", policy=Lazy(4, log_outputs=True)):
        told = front.keyed().process(begin, tell)
    told.capture("told")
    return flow


def added_up() -> Dataflow:
    """State without keys that says how it is put together."""
    flow = Dataflow("added up")
    pairs(flow).unary("counter", Counter, stateful=True).exchange(by=lambda n: 0).key_by(
        lambda n: 0
    ).sum().records().capture("out")
    return flow


BY_HAND: dict[str, Callable[[], Dataflow]] = {"by hand": by_hand, "timers": timers, "added up": added_up}
