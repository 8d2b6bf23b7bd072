"""Clocks and random generators in a program's functions: each is named with its operator and line, and nothing else is."""

from __future__ import annotations

import gc
import os
import random
import re
import time
import uuid
import weakref
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from random import choice
from time import time_ns as nanoseconds
from typing import Any

import numpy as np
import polars as pl
import pytest

from falkirk.simulate.chance import _EVENTS, find_chance
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from timely.io import Batches, Iterable, Rate
from timely.io.interface import Chunk, End
from timely.operators.base import Context, Operator

SITE = f"{Path(__file__)}:"


def roll() -> int:
    return random.randint(1, 6)


class Refuses:
    """Does not tell what class it has."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        raise ReferenceError


class Late(Operator):
    """Looks at the clock when an epoch is over."""

    def on_batch(self, ctx: Context, port: int, time: Any, batch: Any) -> None:
        ctx.notify_at()

    def on_notify(self, ctx: Context, at: Any) -> None:
        ctx.send([time.monotonic()])


def found(verb: Callable[[Stream], Any], workers: int = 1, source: Callable[[], Any] | None = None) -> list[str]:
    def build() -> Dataflow:
        flow = Dataflow("chance")
        given = Iterable([1, 2, 3], epoch_every=2) if source is None else source()
        verb(flow.source("in", given)).capture("out")
        return flow

    return find_chance(build, workers, -1)


def unseeded(n: int) -> float:
    return random.Random().random()


KEPT = random.Random(7)
KEPT_OF_NUMPY = np.random.default_rng(7)


CALLS: list[tuple[str, Callable[[Stream], Any], str]] = [
    ("time.time", lambda s: s.map(lambda n: time.time(), name="op"), "map"),
    ("time.time_ns", lambda s: s.map(lambda n: nanoseconds(), name="op"), "map"),
    ("time.perf_counter", lambda s: s.filter(lambda n: time.perf_counter(), name="op"), "filter"),
    ("datetime.now", lambda s: s.flat_map(lambda n: [datetime.now()], name="op"), "flat_map"),
    ("date.today", lambda s: s.branch(lambda n: date.today(), name="op")[0], "branch"),
    ("the shared random generator", lambda s: s.map(lambda n: choice([n]), name="op"), "map"),
    ("the system's random generator", lambda s: s.map(lambda n: uuid.uuid4().int, name="op"), "map"),
    ("the system's random generator", lambda s: s.map(lambda n: os.urandom(1), name="op"), "map"),
    ("the system's random generator", lambda s: s.map(lambda n: random.SystemRandom().random(), name="op"), "map"),
    ("time.time", lambda s: s.key_by(lambda n: time.time(), name="op"), "key_by"),
    ("time.monotonic", lambda s: s.unary("op", Late), "unary"),
    ("time.localtime", lambda s: s.map(lambda n: time.localtime(), name="op"), "map"),
    ("time.gmtime", lambda s: s.map(lambda n: time.gmtime(), name="op"), "map"),
    ("time.ctime", lambda s: s.map(lambda n: time.ctime(), name="op"), "map"),
    ("time.asctime", lambda s: s.map(lambda n: time.asctime(), name="op"), "map"),
    ("time.strftime", lambda s: s.map(lambda n: time.strftime("%H"), name="op"), "map"),
    ("a random generator without a seed", lambda s: s.map(unseeded, name="op"), "map"),
    ("a random generator that it keeps", lambda s: s.map(lambda n: KEPT.randint(1, 6), name="op"), "map"),
    ("a random generator that it keeps", lambda s: s.filter(lambda n: KEPT.random(), name="op"), "filter"),
    (
        "time.time",
        lambda s: s.key_by(str).fold(int, lambda all, one: time.time(), name="op").records(),
        "fold",
    ),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("what", "verb", "kind"), CALLS)
def test_each_clock_and_generator_is_named(what: str, verb: Callable[[Stream], Any], kind: str) -> None:
    (line,) = found(verb)
    assert line.startswith(f"{kind} 'op' ({SITE}")
    assert f") calls {what} at {SITE}" in line


def test_line_is_that_of_the_function_which_calls_it() -> None:
    (line,) = found(lambda s: s.map(lambda n: n).map(lambda n: roll(), name="second").map(str))
    assert line.startswith("map 'second'")
    assert line.endswith(f" at {SITE}{roll.__code__.co_firstlineno + 1}")


def test_function_of_the_library_itself_is_named_without_a_line() -> None:
    (line,) = found(lambda s: s.map(lambda n: [n]).map(random.choice, name="op"))
    assert line.endswith("calls the shared random generator")


def test_shared_generator_of_numpy_is_named_without_a_line() -> None:
    (line,) = found(lambda s: s.map(str).map(lambda n: float(np.random.rand()), name="op").filter(bool, name="last"))
    assert line.endswith("calls NumPy's shared random generator")
    assert re.fullmatch(r"one of map 'map-1' \(.*\), map 'op' \(.*\), filter 'last' \(.*\) calls .*", line)


def test_generator_of_numpy_that_the_program_keeps_is_named_without_a_line() -> None:
    (line,) = found(lambda s: s.map(lambda n: float(KEPT_OF_NUMPY.random()), name="op"))
    assert line.startswith("map 'op'")
    assert line.endswith("calls a random generator that it keeps")


class Draws(Operator):
    """Keeps generators of its own, from the first event on."""

    def __init__(self) -> None:
        self.python = random.Random(3)
        self.numpy = np.random.RandomState(3)

    def on_batch(self, ctx: Context, port: int, time: Any, batch: Any) -> None:
        ctx.send([self.python.random() for _ in batch] if batch == [3] else [self.numpy.rand() for _ in batch])


def test_generators_that_an_operator_keeps_are_named() -> None:
    (line,) = found(lambda s: s.unary("op", Draws))
    assert line.startswith("unary 'op'")
    assert "calls a random generator that it keeps" in line


def test_who_watches_the_collector_is_no_part_of_the_operator_in_which_it_comes() -> None:
    seen: list[float] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        seen.append(time.perf_counter())

    gc.callbacks.append(collecting)
    try:
        assert not found(lambda s: s.map(lambda n: gc.collect(), name="op"))
    finally:
        gc.callbacks.remove(collecting)
    assert seen


def test_every_event_of_an_operator_is_watched() -> None:
    assert {name for name in vars(Operator) if name.startswith("on_")} == _EVENTS
    assert {"on_batch", "on_notify", "on_span", "on_notify_several", "on_restore"} <= _EVENTS


def shaken(n: int) -> float:
    return n + random.random()


def test_stages_behind_verbs_of_columns_are_named() -> None:
    """What takes many times at once runs the stages behind its plan as an operator of its own."""
    frames = [pl.DataFrame({"a": [n, n + 1]}) for n in range(40)]

    def build() -> Dataflow:
        flow = Dataflow("spans")
        columns = flow.columns("in", Batches(frames)).with_columns(b=pl.col("a") + 1)
        columns.to_records().map(lambda row: shaken(row["b"]), name="op").capture("out")
        return flow

    lines = find_chance(build, 1, -1)
    assert len(lines) == 1
    assert lines[0].startswith("map 'op'")
    assert "calls the shared random generator at" in lines[0]


class Sensor:
    """A source of the user's, which waits by the clock."""

    rereadable = True
    repeats = True

    def __init__(self, sense: Callable[[], Any]) -> None:
        self._sense = sense

    def partitions(self, worker: int, workers: int) -> list[Any]:
        """One."""
        return [Sensing(self._sense)] if worker == 0 else []


class Sensing:
    """See `Sensor`."""

    name = "sensor"

    def __init__(self, sense: Callable[[], Any]) -> None:
        self._sense = sense
        self._began = time.monotonic()
        self._count = 0

    def read(self) -> Any:
        """One reading, and another, and the end."""
        if time.monotonic() < self._began or self._count == 2:
            return End()
        self._count += 1
        return Chunk(self._count, [self._sense()], self._count)

    def seek(self, position: Any) -> None:
        """The next reading."""
        self._count = position or 0

    def ack(self, position: Any) -> None:
        """Nothing to let go."""

    def close(self) -> None:
        """Nothing to release."""


def steady() -> Any:
    chosen = random.Random(7)
    yield from (chosen.random() for _ in range(3))


SOURCES: list[tuple[str, Callable[[], Any]]] = [
    ("time.time", lambda: Iterable(lambda: [time.time()])),
    ("time.time", lambda: Iterable(lambda: (time.time() for _ in range(3)))),
    ("time.time", lambda: Rate(lambda n: time.time(), per_second=1000, total=3)),
    ("the shared random generator", lambda: Rate(lambda n: random.random(), per_second=1000, total=3)),
    ("a random generator that it keeps", lambda: Iterable(lambda: [KEPT.random()])),
    ("the shared random generator", lambda: Sensor(lambda: random.random())),
]


@pytest.mark.parametrize(("what", "source"), SOURCES)
def test_what_a_source_gives_by_chance_is_named(what: str, source: Callable[[], Any]) -> None:
    (line,) = found(lambda s: s.map(str), source=source)
    assert line.startswith(f"source 'in' ({SITE}")
    assert f") calls {what} at {SITE}" in line


@pytest.mark.parametrize(
    "source",
    [
        lambda: Sensor(lambda: 7),
        lambda: Rate(lambda n: n, per_second=1000, total=3),
        lambda: Rate(lambda n: random.Random(n).random(), per_second=1000, total=3),
        lambda: Iterable(lambda: range(3)),
        lambda: Iterable(steady, batch=1),
    ],
)
def test_source_that_waits_by_the_clock_is_not_named(source: Callable[[], Any]) -> None:
    assert found(lambda s: s.map(str), source=source) == []


def test_source_that_is_declared_is_not_named() -> None:
    assert found(lambda s: s.nondeterministic("a sensor"), source=lambda: Iterable(lambda: [time.time()])) == []


def test_function_that_chooses_a_worker_is_named_by_its_exchange() -> None:
    (line,) = found(lambda s: s.exchange(by=lambda n: random.random(), name="anywhere"), workers=2)
    assert line.startswith("exchange 'anywhere'")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "verb",
    [
        lambda s: s.map(lambda n: time.time()).nondeterministic("it stamps"),
        lambda s: s.exchange(by=lambda n: random.random()).nondeterministic("anywhere"),
        lambda s: s.map(lambda n: random.Random(n).random()),
        lambda s: s.map(lambda n: float(np.random.default_rng(n).random())),
        lambda s: s.map(lambda n: datetime.fromtimestamp(n)),
        lambda s: s.map(lambda n: time.gmtime(n)),
        lambda s: s.map(lambda n: list(map(time.gmtime, [n]))),
        lambda s: s.map(lambda n: time.localtime(*[n])),
        lambda s: s.map(lambda n: time.strftime("%H", time.gmtime(n))),
        lambda s: s.map(lambda n: random.Random(n).sample(range(9), 3)),
        lambda s: s.map(lambda n: KEPT.seed(n) or KEPT.random()),
        lambda s: s.key_by(str).count().records(),
    ],
)
def test_what_is_declared_or_gives_the_same_each_time_is_not_named(verb: Callable[[Stream], Any]) -> None:
    assert found(verb, workers=2) == []


def test_objects_that_do_not_tell_their_class_do_no_harm() -> None:
    gone = weakref.proxy(set[int]())  # as it is, for example, what a closed connection of Spark leaves behind
    kept = [gone, Refuses()]
    assert found(lambda s: s.map(str)) == []
    assert len(kept) == 2
