"""Clocks and random generators in a program's functions: each is named with its operator and line, and nothing else is."""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from random import choice
from time import time_ns as nanoseconds
from typing import Any

import numpy as np
import pytest

from falkirk.simulate.chance import find_chance
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.stream import Stream
from timely.io import Iterable
from timely.operators.base import Context, Operator

SITE = f"{Path(__file__)}:"


def roll() -> int:
    return random.randint(1, 6)


class Late(Operator):
    """Looks at the clock when an epoch is over."""

    def on_batch(self, ctx: Context, port: int, time: Any, batch: Any) -> None:
        ctx.notify_at()

    def on_notify(self, ctx: Context, at: Any) -> None:
        ctx.send([time.monotonic()])


def found(verb: Callable[[Stream], Any], workers: int = 1) -> list[str]:
    def build() -> Dataflow:
        flow = Dataflow("chance")
        verb(flow.source("in", Iterable([1, 2, 3], epoch_every=2))).capture("out")
        return flow

    return find_chance(build, workers, -1)


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
    (
        "time.time",
        lambda s: s.key_by(str).fold(int, lambda all, one: time.time(), name="op").records(),
        "fold",
    ),
]


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


def test_function_that_chooses_a_worker_is_named_by_its_exchange() -> None:
    (line,) = found(lambda s: s.exchange(by=lambda n: random.random(), name="anywhere"), workers=2)
    assert line.startswith("exchange 'anywhere'")


@pytest.mark.parametrize(
    "verb",
    [
        lambda s: s.map(lambda n: time.time()).nondeterministic("it stamps"),
        lambda s: s.exchange(by=lambda n: random.random()).nondeterministic("anywhere"),
        lambda s: s.map(lambda n: random.Random(n).random()),
        lambda s: s.map(lambda n: float(np.random.default_rng(n).random())),
        lambda s: s.map(lambda n: datetime.fromtimestamp(n)),
        lambda s: s.map(lambda n: time.gmtime(n)),
        lambda s: s.key_by(str).count().records(),
    ],
)
def test_what_is_declared_or_gives_the_same_each_time_is_not_named(verb: Callable[[Stream], Any]) -> None:
    assert found(verb, workers=2) == []
