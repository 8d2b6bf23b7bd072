"""Bridges: a sequence has each epoch wholly before the next, marks on every edge, and becomes the same epochs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.memory import Cluster
from runtime.session import Session
from timely.data.batch import Batch
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.stream import Stream
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.operators.bridges import EpochOver, MarkedExchange, epochs, exchange, past_marks, sequence
from timely.time import Time

Records = list[tuple[int, int, int]]
"""(worker, epoch, value)."""


class Order(Operator):
    """Writes down what reaches a worker, in order."""

    def __init__(self, log: list[list[Any]]) -> None:
        self._log: list[Any] = []
        log.append(self._log)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._log += [(time[0], record) for record in batch]
        ctx.send(batch)


def play(build: Callable[[Stream], Stream], records: Records, workers: int, seed: int) -> Counter[tuple[Time, int]]:
    """The records that come out, with their times."""
    flow = Dataflow("bridges")
    capture = build(flow.input("in")).capture()
    random = Random(seed)
    cluster = Cluster(flow, workers, seed=seed)
    for epoch in range(6):
        for index, session in random.sample(list(enumerate(cluster.sessions)), workers):
            for worker, at, value in records:
                if at == epoch and worker % workers == index:
                    session.input("in").send([value])
                    session.input("in").flush()
            session.input("in").advance_to(epoch + 1)
            for _ in range(random.randint(0, 12)):
                cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
    return Counter((time, value) for time, batch in cluster.captured(capture) for value in batch)


def check_order(log: list[Any]) -> None:
    """Each epoch's records, then its mark, then nothing more of it."""
    over = -1
    for epoch, record in log:
        assert epoch > over, f"{record} of epoch {epoch} came after the mark of {over}"
        if isinstance(record, EpochOver):
            assert record.epoch == epoch
            over = epoch
    assert not log or isinstance(log[-1][1], EpochOver)
    firsts = [epoch for epoch, _ in log]
    assert firsts == sorted(firsts)


runs = given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 20)), max_size=25),
    st.integers(1, 4),
    st.integers(0, 1000),
)


@settings(max_examples=40)
@runs
def test_a_sequence_has_each_epoch_wholly_before_the_next(records: Records, workers: int, seed: int) -> None:
    log: list[list[Any]] = []
    play(lambda s: sequence(s, "front").unary("order", lambda: Order(log), stateful=False), records, workers, seed)
    assert len(log) == workers
    for own in log:
        check_order(own)
        marks = [record.epoch for _, record in own if isinstance(record, EpochOver)]
        assert marks == sorted({epoch for _, epoch, _ in records})


@settings(max_examples=40)
@runs
def test_epochs_of_a_sequence_are_the_epochs_that_it_was_made_of(records: Records, workers: int, seed: int) -> None:
    def build(stream: Stream) -> Stream:
        inside = sequence(stream, "front").map_batches(past_marks(lambda batch: [value + 1 for value in batch]))
        return epochs(inside, "back")

    assert play(build, records, workers, seed) == Counter(((epoch,), value + 1) for _, epoch, value in records)


@settings(max_examples=40)
@runs
def test_exchanges_inside_keep_epochs_apart_and_keys_together(records: Records, workers: int, seed: int) -> None:
    log: list[list[Any]] = []

    def build(stream: Stream) -> Stream:
        once = exchange(sequence(stream, "front"), lambda value: value % 7, "once")
        twice = exchange(once, lambda value: value, "twice")
        return epochs(twice.unary("order", lambda: Order(log), stateful=False), "back")

    assert play(build, records, workers, seed) == Counter(((epoch,), value) for _, epoch, value in records)
    for own in log:
        check_order(own)
    homes = Counter(v for own in log for v in {r for _, r in own if not isinstance(r, EpochOver)})
    assert all(count == 1 for count in homes.values())


def test_an_epoch_is_released_without_waiting_for_a_notification() -> None:
    log: list[list[Any]] = []
    flow = Dataflow("bridges")
    inside = sequence(flow.input("in"), "front").unary("order", lambda: Order(log), stateful=False, notifies=False)
    capture = epochs(inside, "back").capture()
    assert not any(node.notifies for node in flow.graph.nodes if node.name in ("order", "back"))
    with Session(flow) as session:
        records = session.input("in")
        records.send([1, 2])
        records.flush()
        session.step()
        assert session.captured(capture) == []
        records.advance_to(1)
        session.step()
        assert session.captured(capture) == [((0,), [1, 2])]
        records.close()


def test_columns_cannot_be_a_sequence() -> None:
    flow = Dataflow("bridges")
    sequence(flow.input("in"), "front").probe()
    with Session(flow) as session, pytest.raises(OperatorError, match="to_records"):
        session.input("in").send(pl.DataFrame({"n": [1]}))


def test_a_plain_exchange_inside_a_sequence_is_found_out() -> None:
    """Its marks would go to one worker only, which would take another's for its own."""

    def build(stream: Stream) -> Stream:
        return epochs(sequence(stream, "front").exchange(by=lambda record: 0), "back")

    with pytest.raises(OperatorError, match=r"with timely\.operators\.bridges\.exchange"):
        play(build, [(0, 0, 1), (1, 0, 2)], 2, 0)


def test_an_exchange_sends_each_mark_to_all_behind_what_came_before_it() -> None:
    mark = EpochOver(0, 0)
    parts = MarkedExchange(key=lambda value: value).split([*range(20), mark, *range(20, 40)], 3)
    for part in parts:
        assert isinstance(part, list)
        assert part.count(mark) == 1
        at = part.index(mark)
        assert max(part[:at]) < 20 <= min(part[at + 1 :])
