"""Runs a program over collections on random histories, and gives what it holds after each epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from libraries import differential
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection, joins, lookups, operators, trace
from libraries.differential.rows import LEAST, rows_of
from runtime.session.cluster import Cluster

Change = tuple[str, Any, int]
"""Input, record, difference."""

Epochs = Sequence[Sequence[Change]]

Contents = dict[Any, int]

PATHS = [-1, 3, 1 << 30]
"""Changes that operators take to be few: all are handled in columns, both ways come by turns, or all one by one."""


def run(
    build: Callable[..., Collection], inputs: Sequence[str], epochs: Epochs, workers: int = 1, seed: int = 0
) -> list[Contents]:
    """The contents of `build(*inputs)` after each epoch, computed by `workers` workers that are scheduled by `seed`.

    Each worker feeds its part in batches of random size, some as columns, and runs ahead of the others by some epochs.
    """
    flow = Dataflow()
    out = build(*(differential.input_of(flow, name) for name in inputs)).capture("out")
    cluster, chance = Cluster(flow, workers, seed), Random(seed)
    parts: list[list[list[Change]]] = [[[] for _ in epochs] for _ in range(workers)]
    for number, epoch in enumerate(epochs):
        for change in epoch:
            parts[chance.randrange(workers)][number].append(change)
    at = [0] * workers
    while min(at) < len(epochs):
        worker = chance.choice([w for w in range(workers) if at[w] < len(epochs)])
        session = cluster.sessions[worker]
        for name in inputs:
            mine = [(record, by) for of, record, by in parts[worker][at[worker]] if of == name]
            while mine:
                size = chance.randint(1, len(mine))
                session.input(name).send(_batch(mine[:size], chance.random() < 0.5))
                mine = mine[size:]
            session.input(name).advance_to(at[worker] + 1)
        at[worker] += 1
        for _ in range(chance.choice([0, 0, 1, 5])):
            cluster.step()
    for session in cluster.sessions:
        for name in inputs:
            session.input(name).close()
    cluster.run()
    captured = cluster.captured(out)
    return [differential.snapshot(captured, epoch) for epoch in range(len(epochs))]


def _batch(changes: list[tuple[Any, int]], columns: bool) -> list[Any]:
    """The changes as a batch, as columns where they can be."""
    by = [each for _, each in changes]
    if columns and all(_is_integer(record) for record, _ in changes):
        return [rows_of([record for record, _ in changes], None, by)]
    if columns and all(_integers(record) for record, _ in changes):
        keys, values = ([record[i] for record, _ in changes] for i in (0, 1))
        return [rows_of(keys, values, by)]
    return list(changes)


def _integers(record: Any) -> bool:
    return type(record) is tuple and len(record) == 2 and all(map(_is_integer, record))


def _is_integer(value: Any) -> bool:
    return type(value) is int and LEAST <= value < 1 << 63


def contents(epochs: Epochs, name: str) -> list[Contents]:
    """The contents of an input after each epoch."""
    held: Counter[Any] = Counter()
    found = []
    for epoch in epochs:
        for of, record, by in epoch:
            if of == name:
                held[record] += by
        found.append({record: times for record, times in held.items() if times})
    return found


def check(
    build: Callable[..., Collection],
    oracle: Callable[..., Contents],
    inputs: Sequence[str],
    epochs: Epochs,
    path: int,
    workers: int = 1,
    seed: int = 0,
) -> None:
    """The program gives after every epoch what the oracle makes of the inputs as they are then."""
    with handled(path):
        given = run(build, inputs, epochs, workers, seed)
    histories = zip(*(contents(epochs, name) for name in inputs), strict=True)
    for epoch, (got, held) in enumerate(zip(given, histories, strict=True)):
        want = {record: times for record, times in oracle(*held).items() if times}
        assert got == want, f"after epoch {epoch} of {epochs}"


@contextmanager
def handled(path: int) -> Iterator[None]:
    """Few changes are so many at most, and runs are short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "FEW", path)
        patch.setattr(joins, "FEW", path)
        patch.setattr(lookups, "FEW", path)
        for module in (joins, lookups):
            patch.setattr(module, "PAIRS", 7)
            patch.setattr(module, "PAIRS_OF_RECORDS", 5)
        patch.setattr(operators, "_COLLECT", 4)
        patch.setattr(trace, "_RECENT", 5)
        patch.setattr(trace, "_AT_ONCE", 4)
        patch.setattr(trace, "_SPEED", 2)
        patch.setattr(trace, "_SOME", 3)
        patch.setattr(trace, "_LONG", 2)
        patch.setattr(trace, "_FEW", 2)
        yield


@pytest.fixture(params=PATHS, ids=["columns", "mixed", "one by one"])
def path(request: pytest.FixtureRequest) -> Iterator[int]:
    """The ways in which operators handle changes."""
    with handled(request.param):
        yield request.param
