"""Sources after a restart: they go on where they were, and only if the input is still the one that was read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.layout import lay_out
from recovery.policies import Ephemeral
from timely.dataflow import Dataflow
from timely.drivers.inputs import Limits, Place, SourceDriver
from timely.errors import GraphError, SourceError
from timely.io import Iterable
from timely.plan import compile_plan
from timely.rewind import Orders, rewind
from timely.worker import Worker

LIMITS = Limits(epochs=1000)


def driver(items: list[Any], batch: int = 3, epoch: int = 4) -> tuple[SourceDriver, list[Any]]:
    """A driver of one source, and what its worker was fed."""
    flow = Dataflow()
    seen: list[Any] = []
    flow.source("in", Iterable(items, batch=batch, epoch_every=epoch)).inspect(lambda record: seen.append(record))
    plan = compile_plan(flow.graph)
    node = next(iter(plan.graph.of_kind("source")))
    return SourceDriver(node, Worker(plan), lambda: 0.0, rereads=True), seen


def read(source: SourceDriver, chunks: int) -> None:
    for _ in range(chunks):
        source.pump(LIMITS)


def go_back(source: SourceDriver, epoch: int) -> None:
    """A new generation, in which the source is at `epoch` again."""
    node = source._node.index
    rewind(source._worker, Orders(1, {}, lambda *_: True, {node: (epoch,)}))
    source.rewind(epoch, None)


@settings(max_examples=60)
@given(
    size=st.integers(0, 40), batch=st.integers(1, 6), epoch=st.integers(1, 9), chunks=st.integers(0, 40), data=st.data()
)
def test_a_source_goes_on_behind_the_epochs_that_were_saved(
    size: int, batch: int, epoch: int, chunks: int, data: st.DataObject
) -> None:
    items = list(range(size))
    before, _ = driver(items, batch, epoch)
    read(before, chunks)
    reached = before._worker.input_time(before._node.index)
    cut = data.draw(st.integers(0, size // epoch + 1 if reached is None else reached[0]), "cut")
    places = {place.partition: place for place in before.positions(cut)}
    after, seen = driver(items, batch, epoch)
    after.rewind(cut, places)
    read(after, 200)
    assert seen == items[cut * epoch :]


def test_going_back_in_memory_reads_the_same_again() -> None:
    source, seen = driver(list(range(20)))
    read(source, 6)
    go_back(source, 2)
    del seen[:]
    read(source, 50)
    assert seen == list(range(8, 20))


def test_settled_epochs_are_not_needed_to_go_on() -> None:
    source, seen = driver(list(range(20)))
    read(source, 6)
    source.settle(2)
    go_back(source, 2)
    del seen[:]
    read(source, 50)
    assert seen == list(range(8, 20))


def test_input_that_was_changed_under_a_job_is_refused() -> None:
    before, _ = driver(list(range(20)))
    read(before, 6)
    places = {place.partition: place for place in before.positions(2)}
    after, _ = driver([*range(4), *range(104, 108), *range(8, 20)])
    with pytest.raises(SourceError, match=r"source 'in' \(.*test_source_positions.py:\d+\).*something else"):
        after.rewind(2, places)


def test_a_partition_that_is_gone_is_an_error() -> None:
    before, _ = driver(list(range(20)))
    read(before, 6)
    places = {"items-7": before.positions(2)[0]}
    after, _ = driver(list(range(20)))
    with pytest.raises(SourceError, match=r"had read from items-7"):
        after.rewind(2, places)


def test_records_of_types_that_cannot_be_saved_do_no_harm() -> None:
    items = [object() for _ in range(12)]
    before, _ = driver(items)
    read(before, 4)
    places = {place.partition: place for place in before.positions(2)}
    after, seen = driver(items)
    after.rewind(2, places)
    read(after, 20)
    assert seen == items[8:]


class _Once(Iterable):
    """A source that gives nothing twice, as a socket does."""

    rereadable = False


def test_a_source_that_cannot_be_read_again_needs_the_word_of_its_sender() -> None:
    flow = Dataflow()
    stream = flow.source("in", _Once([1]))
    stream.capture("out")
    with pytest.raises(GraphError, match=r"'in' \(.*test_source_positions.py:\d+\) cannot be read again.*Ephemeral"):
        lay_out(compile_plan(flow.graph))
    stream.policy(Ephemeral())
    assert lay_out(compile_plan(flow.graph)).processors[0].chain


def test_a_source_that_begins_anew_goes_on_in_the_epochs_of_the_job() -> None:
    flow = Dataflow()
    seen: list[Any] = []
    flow.source("in", _Once(list(range(8)), batch=2, epoch_every=4)).inspect(seen.append)
    node = next(iter(flow.graph.of_kind("source")))
    worker = Worker(compile_plan(flow.graph))
    source = SourceDriver(node, worker, lambda: 0.0, rereads=True)
    rewind(worker, Orders(1, {}, lambda *_: True, {node.index: (5,)}))
    source.rewind(5, {"items-0": Place("items-0", 12, False, 8, 77)})
    read(source, 2)
    assert worker.input_time(node.index) == (6,)
    read(source, 20)
    assert seen == list(range(8))
