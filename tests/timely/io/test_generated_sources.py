"""Sources that need no file: Iterable, Rate, Scripted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timely.io.reading import check_seek_anywhere, chunks, comparable, read_all
from timely.errors import SourceError
from timely.io import Abort, Chunk, End, Eof, Iterable, Pause, Rate, Scripted, ScriptedAbort, Wait


@given(count=st.integers(0, 40), batch=st.integers(1, 9), every=st.none() | st.just("batch") | st.integers(1, 12))
def test_items_come_in_order_in_their_epochs_and_from_anywhere(count: int, batch: int, every: Any) -> None:
    source = Iterable(lambda: iter(range(count)), batch=batch, epoch_every=every)
    size = {None: 1 << 30, "batch": batch}.get(every, every)
    assert read_all(source, workers=2) == [(i // size, i) for i in range(count)]
    [partition] = source.partitions(0, 1)
    found = chunks(partition)
    assert all(len(c.data) <= batch for c in found)
    check_seek_anywhere(source)


def test_partitioned_iterables_are_spread_over_workers() -> None:
    source = Iterable(partitioned=[[1, 2], [3], [4, 5]], epoch_every=1)
    assert [p.name for p in source.partitions(0, 2)] == ["items-0", "items-2"]
    assert sorted(read_all(source, 2)) == [(0, 1), (0, 3), (0, 4), (1, 2), (1, 5)]
    check_seek_anywhere(source, 2)


def test_an_iterator_goes_on_but_not_back() -> None:
    source = Iterable(iter(range(10)), batch=2)
    [partition] = source.partitions(0, 1)
    partition.seek(4)
    assert partition.read() == Chunk(0, [4, 5], 6)
    with pytest.raises(SourceError, match="cannot go back to item 2"):
        partition.seek(2)


def test_items_that_became_fewer_are_noticed() -> None:
    [partition] = Iterable([1, 2, 3]).partitions(0, 1)
    with pytest.raises(SourceError, match="only 3 items now, but 5"):
        partition.seek(5)
    with pytest.raises(SourceError, match="not a position"):
        partition.seek("x")


def test_an_error_of_the_users_iterable_is_named_and_chained() -> None:
    def items() -> Any:
        yield from (1, 2, 3)
        raise RuntimeError("broken")

    [partition] = Iterable(items, batch=2).partitions(0, 1)
    assert partition.read() == Chunk(0, [1, 2], 2)
    with pytest.raises(SourceError, match="RuntimeError after item 2: broken") as caught:
        partition.read()
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Iterable(),
        lambda: Iterable([1], partitioned=[[1]]),
        lambda: Iterable([1], batch=0),
        lambda: Iterable([1], epoch_every=0),
        lambda: Rate(lambda i: i, 0),
        lambda: Rate(lambda i: i, float("nan")),
        lambda: Scripted([], batch=-1),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(make: Any) -> None:
    with pytest.raises(SourceError):
        make()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rate_gives_what_is_due_and_says_how_long_to_wait() -> None:
    clock = Clock()
    [partition] = Rate(lambda i: i * i, per_second=10, total=25, clock=clock).partitions(0, 1)
    assert partition.read() == Chunk(0, [0], 1)
    wait = partition.read()
    assert isinstance(wait, Wait)
    assert wait.seconds == pytest.approx(0.1)
    clock.now += wait.seconds
    assert partition.read() == Chunk(0, [1], 2)
    clock.now += 1.0  # late: it catches up, one epoch (a second's worth) at a time
    assert partition.read() == Chunk(0, [i * i for i in range(2, 10)], 10, closes=True)
    assert partition.read() == Chunk(1, [100, 121], 12)
    clock.now += 100
    assert [c.position for c in chunks(partition)] == [20, 25]
    assert isinstance(partition.read(), End)


@given(st.floats(0.001, 1e6), st.lists(st.floats(0, 3), max_size=10))
def test_rate_never_runs_ahead_of_the_clock_nor_falls_behind(per_second: float, steps: list[float]) -> None:
    clock = Clock()
    [partition] = Rate(lambda i: i, per_second, epoch_every=7000, clock=clock).partitions(0, 1)
    count, start = 0, clock.now
    for step in [0.0, *steps]:
        clock.now += min(step, 2e4 / per_second)
        while isinstance(chunk := partition.read(), Chunk):
            count = chunk.position
        assert abs(count - ((clock.now - start) * per_second + 1)) <= 1.01


def test_rate_goes_on_from_a_position_at_its_rate() -> None:
    clock = Clock()
    source = Rate(lambda i: i, per_second=2, epoch_every=3, clock=clock)
    [partition] = source.partitions(0, 2)
    assert source.partitions(1, 2) == []
    partition.seek(7)
    assert partition.read() == Chunk(2, [7], 8)
    assert partition.read() == Wait(0.5)


def test_rate_reports_an_error_of_the_function() -> None:
    [partition] = Rate(lambda i: 1 // i, per_second=1).partitions(0, 1)
    with pytest.raises(SourceError, match=r"\(0\) raised ZeroDivisionError"):
        partition.read()


def test_a_script_pauses_aborts_once_and_goes_on() -> None:
    source = Scripted([1, 2, Pause(0.5), Abort("test"), 3, Eof(), 4], batch=5, epoch_every=2)
    [partition] = source.partitions(0, 1)
    assert partition.read() == Chunk(0, [1, 2], 2, closes=True)
    assert partition.read() == Wait(0.5)
    with pytest.raises(ScriptedAbort, match="entry 3: test"):
        partition.read()
    [again] = source.partitions(0, 1)  # the job starts again
    again.seek(2)
    assert again.read() == Wait(0.5)
    assert again.read() == Chunk(1, [3], 5)
    assert isinstance(again.read(), End)
    assert isinstance(again.read(), End)
    [later] = source.partitions(0, 1)
    later.seek(5)
    assert later.read() == Chunk(1, [4], 7, closes=True)
    assert isinstance(later.read(), End)


@given(
    script=st.lists(st.integers(0, 9) | st.just(Pause()), max_size=15),
    batch=st.integers(1, 4),
    every=st.none() | st.integers(1, 5),
)
def test_a_script_can_be_read_from_anywhere(script: list[Any], batch: int, every: int | None) -> None:
    source = Scripted(script, batch=batch, epoch_every=every)
    [partition] = source.partitions(0, 1)
    whole = chunks(partition)
    records = [e for e in script if not isinstance(e, Pause)]
    assert [row for c in whole for row in c.data] == records
    for i, chunk in enumerate(whole):
        partition.seek(chunk.position)
        assert comparable(chunks(partition)) == comparable(whole)[i + 1 :]
