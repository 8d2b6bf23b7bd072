"""Sources after a restart: they go on where they were, and only if the input is still the one that was read."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk import run
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Parquet
from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.layout import lay_out
from recovery.policy import AtLeastOnce, Ephemeral
from runtime.folders.workspace import Workspace
from runtime.sources import driver as reading
from runtime.sources.driver import SourceDriver
from runtime.sources.fingerprint import EVERY, MANY, SELDOM, WHOLE, Content, of_input
from runtime.sources.limits import Limits
from runtime.sources.positions import PartitionPosition
from tests.falkirk.simulate.programs import Clocked
from tests.support.mutation import Change, Rules
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError, SourceError
from timely.io import Batches, Chunk, End, Iterable, Rate, Scripted, Wait
from timely.io.scripted import Pause
from timely.worker.restoring import Orders, rewind
from timely.worker.worker import Worker

LIMITS = Limits(epochs=1000)


def driver(items: list[Any], batch: int = 3, epoch: int = 4, policy: object = None) -> tuple[SourceDriver, list[Any]]:
    """A driver of one source, and what its worker was fed."""
    flow = Dataflow()
    seen: list[Any] = []
    source = flow.source("in", Iterable(items, batch=batch, epoch_every=epoch)).policy(policy)
    source.inspect(lambda record: seen.append(record))
    plan = compile_plan(flow.graph)
    node = next(iter(plan.graph.of_kind("source")))
    return SourceDriver(node, Worker(plan), lambda: 0.0, rereads=True), seen


def read(source: SourceDriver, chunks: int) -> None:
    for _ in range(chunks):
        source.pump(LIMITS)


@pytest.mark.parametrize(("rows", "fed"), [(3, [(0, 12), (1, 6)]), (3000, [*[(0, 3000)] * 4, *[(1, 3000)] * 2])])
def test_small_batches_of_an_epoch_that_are_read_together_go_on_as_one(
    rows: int, fed: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Dataflow()
    frames = [pl.DataFrame({"n": range(i * rows, (i + 1) * rows)}) for i in range(6)]
    flow.columns("in", Batches(frames, per_epoch=4)).capture("out")
    plan = compile_plan(flow.graph)
    source = SourceDriver(next(iter(plan.graph.of_kind("source"))), Worker(plan), lambda: 0.0)
    source.gathers = True
    found: list[tuple[int, int]] = []
    numbers: list[int] = []

    def feed(node: int, time: tuple[int, ...], batch: Any) -> None:
        found.append((time[0], len(batch)))
        numbers.extend(batch["n"])

    monkeypatch.setattr(source._worker, "feed", feed)
    for chunks in (4, 2):
        read(source, chunks)
        source.hand_over()
    assert found == fed
    assert numbers == list(range(6 * rows))


def go_back(source: SourceDriver, epoch: int) -> None:
    """A new generation, in which the source is at `epoch` again."""
    node = source.node.index
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
    reached = before._worker.input_time(before.node.index)
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


def sent_again(items: list[Any], cut: int, current: int, chunks: int) -> tuple[SourceDriver, list[Any]]:
    """A source that is AtLeastOnce and was saved at epoch `cut` goes on in epoch `current`, in a new process."""
    before, _ = driver(items, policy=AtLeastOnce())
    read(before, 40)
    after, seen = driver(items, policy=AtLeastOnce())
    rewind(after._worker, Orders(1, {}, lambda *_: True, {after.node.index: (current,)}))
    after.rewind(cut, {place.partition: place for place in before.positions(cut)}, current)
    read(after, chunks)
    return after, seen


def test_what_is_sent_again_comes_in_the_current_epoch_until_its_own_is_later() -> None:
    epochs: list[int | None] = []
    for chunks in range(12):
        source, seen = sent_again(list(range(32)), 2, 5, chunks)
        at = source._worker.input_time(source.node.index)
        epochs.append(None if at is None else at[0])
        assert seen == list(range(8, 32))[: len(seen)]
    assert epochs == [5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 7, 7]  # an epoch is four records, in chunks of three and of one


@pytest.mark.parametrize("cut", [5, 6, 7])
def test_epoch_in_which_much_was_sent_again_is_recognised(cut: int) -> None:
    items = list(range(32))
    source, _ = sent_again(items, 2, 5, 14)
    places = {place.partition: place for place in source.positions(cut)}
    after, seen = driver(items, policy=AtLeastOnce())
    after.rewind(cut, places, 9)
    read(after, 40)
    assert seen == items[8 if cut == 5 else cut * 4 :]
    items[8 if cut == 6 else cut * 4 - 1] = -1
    other, _ = driver(items, policy=AtLeastOnce())
    if cut > 5:  # of nothing that was read there is nothing to recognise
        with pytest.raises(SourceError, match="holds something else"):
            other.rewind(cut, places, 9)


def test_who_sends_again_tells_nobody_where_epochs_end() -> None:
    assert not clocked(0.1, AtLeastOnce())[0].tells
    assert clocked(0.1, None)[0].tells


def test_acknowledged_epochs_are_not_needed_to_go_on() -> None:
    source, seen = driver(list(range(20)))
    read(source, 6)
    source.acknowledge(2)
    go_back(source, 2)
    del seen[:]
    read(source, 50)
    assert seen == list(range(8, 20))


def test_input_that_was_changed_under_a_job_is_refused() -> None:
    before, _ = driver(list(range(20)))
    read(before, 6)
    places = {place.partition: place for place in before.positions(2)}
    after, _ = driver([*range(4), *range(104, 108), *range(8, 20)])
    with pytest.raises(SourceError, match=r"source 'in' \(.*test_inputs.py:\d+\).*something else"):
        after.rewind(2, places)


def test_source_that_is_declared_gives_something_else_and_is_not_refused() -> None:
    def sensed(first: int) -> SourceDriver:
        flow = Dataflow()
        flow.source("in", Rate(lambda n: first + n, 7.0, epoch_every=4)).nondeterministic("a sensor").capture("out")
        plan = compile_plan(flow.graph)
        clock = itertools.count(0.0, 1.5).__next__
        return SourceDriver(next(iter(plan.graph.of_kind("source"))), Worker(plan), clock, rereads=True)

    before = sensed(0)
    read(before, 20)
    places = {place.partition: place for place in before.positions(2)}
    assert any(place.fingerprint for place in places.values())
    sensed(100).rewind(2, places)


PACED: dict[str, Callable[[Callable[[int], Any], Callable[[], float]], Any]] = {
    "rate": lambda fn, clock: Rate(fn, 7.0, epoch_every=4, clock=clock),
    "script": lambda fn, _: Scripted([Pause(3.0) if n % 3 == 0 else fn(n) for n in range(90)], batch=3, epoch_every=4),
}


@pytest.mark.parametrize("kind", PACED)
def test_a_source_that_gives_its_input_at_its_own_pace_is_recognised_too(kind: str) -> None:
    """Its clock stands still: it is not waited for."""

    def made(fn: Callable[[int], Any], clock: Callable[[], float]) -> SourceDriver:
        flow = Dataflow()
        flow.source("in", PACED[kind](fn, clock)).capture("out")
        plan = compile_plan(flow.graph)
        return SourceDriver(next(iter(plan.graph.of_kind("source"))), Worker(plan), clock, rereads=True)

    before = made(lambda n: n * n, itertools.count(0.0, 1.5).__next__)
    read(before, 20)
    cut = before._worker.input_time(before.node.index)
    assert cut is not None
    assert cut[0] > 2
    places = {place.partition: place for place in before.positions(cut[0])}
    made(lambda n: n * n, lambda: 0.0).rewind(cut[0], places)
    with pytest.raises(SourceError, match="holds something else"):
        made(lambda n: n * n + 1, lambda: 0.0).rewind(cut[0], places)


class Slow(Iterable):
    """A source of the user's that gives its input when it will, and cannot be asked to read on to a position."""

    def partitions(self, worker: int, workers: int) -> Sequence[Any]:
        return [_SlowPartition(partition) for partition in super().partitions(worker, workers)]


class _SlowPartition:
    def __init__(self, partition: Any) -> None:
        self.name, self.seek, self.ack, self.close = partition.name, partition.seek, partition.ack, partition.close
        self._partition, self.ready = partition, True

    def read(self) -> Any:
        return self._partition.read() if self.ready else Wait(0.1)


def test_a_source_that_is_not_recognised_says_so(tmp_path: Path) -> None:
    notes: list[str] = []

    def made() -> SourceDriver:
        flow = Dataflow()
        flow.source("in", Slow(range(20), batch=4, epoch_every=4)).capture("out")
        plan = compile_plan(flow.graph)
        files = Workspace(tmp_path, note=notes.append)
        node = next(iter(plan.graph.of_kind("source")))
        return SourceDriver(node, Worker(plan), lambda: 0.0, rereads=True, files=files)

    before = made()
    read(before, 3)
    places = {place.partition: place for place in before.positions(2)}
    made().rewind(2, places)
    assert notes == []
    later = made()
    later._readers[0].partition.ready = False  # type: ignore[attr-defined]
    later.rewind(2, places)
    [note] = notes
    assert "source 'in' (" in note
    assert "nobody knows that it holds what it held when the job was saved" in note


def by_clock(times: list[int]) -> Any:
    """A partition that gives one number at each of these times, in epochs of ten; the last of them is its end."""

    class Partition:
        name, at = "part", 0

        def seek(self, position: Any) -> None:
            self.at = position or 0

        def read(self) -> Any:
            if self.at == len(times):
                return End()
            self.at += 1
            return Chunk(times[self.at - 1] // 10, [self.at], self.at)

        ack = close = lambda *_: None

    return type("ByClock", (), {"partitions": lambda *_: [Partition()]})()


def test_epochs_that_the_clock_ends_elsewhere_are_no_other_input(tmp_path: Path) -> None:
    """While the last epoch is read again a clock may end it earlier, or later: only another record is a reason to refuse."""
    notes: list[str] = []

    def made(times: list[int]) -> SourceDriver:
        flow = Dataflow()
        flow.source("in", by_clock(times)).capture("out")
        plan = compile_plan(flow.graph)
        files = Workspace(tmp_path, note=notes.append)
        return SourceDriver(
            next(iter(plan.graph.of_kind("source"))), Worker(plan), lambda: 0.0, rereads=True, files=files
        )

    before = made([1, 11, 12, 13, 21])
    read(before, 5)
    places = {place.partition: place for place in before.positions(2)}
    made([1, 11, 12, 13, 14]).rewind(2, places)
    made([1, 1, 1, 1, 1]).rewind(2, places)
    assert notes == []
    made([1, 11, 12, 23, 24]).rewind(2, places)
    [note] = notes
    assert "is cut otherwise when it is read again" in note
    assert "If its input goes into epochs at a pace of its own, let it have read_until(position)" in note
    with pytest.raises(SourceError, match=r"holds something else.*no record"):
        made([1]).rewind(2, places)


RECORDS = st.lists(
    st.one_of(
        st.integers(-5, 300),
        st.text(max_size=3),
        st.tuples(st.integers(), st.floats()),
        st.dictionaries(st.text(), st.none()),
    ),
    max_size=700,
)


def content_of(chunks: Sequence[Any]) -> int:
    content = Content()
    for chunk in chunks:
        content.add(chunk)
    return content.fingerprint()


def cut_up(data: Any, cuts: Sequence[int]) -> list[Any]:
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(ends) if end > start]


CUTS = st.lists(st.integers(0, 700), max_size=5)


@settings(max_examples=30)
@given(records=RECORDS, one=CUTS, other=CUTS, at=st.integers(0, 699), by=st.sampled_from([-1, "x", (1, 2.5), None]))
def test_an_epoch_is_known_by_its_records_however_they_are_read(
    records: list[Any], one: list[int], other: list[int], at: int, by: Any
) -> None:
    right = content_of(cut_up(records, one))
    assert content_of(cut_up(records, other)) == right
    assert bool(right) == bool(records)
    if at < len(records):
        changed = [*records[:at], by, *records[at + 1 :]]
        looked_at = at < WHOLE or at % EVERY == 0
        same = repr(by) == repr(records[at])
        assert (content_of(cut_up(changed, other)) == right) == (same or not looked_at)
        assert content_of(cut_up(records[:at] + records[at + 1 :], other)) != right or len(records) == 1


@settings(max_examples=12)
@given(
    numbers=st.lists(st.integers(0, 9) | st.none(), min_size=1, max_size=600),
    one=CUTS,
    other=CUTS,
    at=st.integers(0, 599),
)
@pytest.mark.parametrize("make", [pa.Table.from_pydict, pl.DataFrame])
def test_so_are_columns(
    make: Callable[[Any], Any], numbers: list[int | None], one: list[int], other: list[int], at: int
) -> None:
    def table(values: list[int | None]) -> Any:
        words = [f"w{value}" for value in values]
        return make({"n": pa.array(values, pa.int64()), "word": pa.array(words).dictionary_encode()})

    right = content_of(cut_up(table(numbers), one))
    assert content_of(cut_up(table(numbers), other)) == right
    if at < len(numbers):
        changed = table([*numbers[:at], 77, *numbers[at + 1 :]])
        assert (content_of(cut_up(changed, other)) != right) == (at < WHOLE or at % EVERY == 0)


@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(0, 9_000), max_size=6),
    at=st.integers(0, 8_999) | st.sampled_from([MANY - EVERY, MANY - 1, MANY, MANY + EVERY, MANY + SELDOM]),
    thin=st.booleans(),
)
@pytest.mark.parametrize(("columns", "held"), [(False, False), (False, True), (True, False), (True, True)])
def test_of_many_records_few_are_looked_at_wherever_chunks_end(
    columns: bool, held: bool, cuts: list[int], at: int, thin: bool
) -> None:
    def epoch(changed: int | None) -> Any:
        words = [f"w{number % 50}" for number in range(9_000)]
        if changed is not None:
            words[changed] = "another"
        return pa.table({"word": pa.array(words).dictionary_encode()}) if columns else words

    def content(chunks: list[Any], like: int) -> Content:
        found = Content.like(like)
        for number, chunk in enumerate(chunks):
            found.add(chunk, held=held and number % 2 == 0)
        return found

    like = content([epoch(None)], Content(1, thin=thin).fingerprint()).fingerprint()
    again = content(cut_up(epoch(None), cuts), like)
    assert again.fingerprint() == like
    if not (held and columns):
        assert sum(map(len, again.picked)) == WHOLE + (MANY - WHOLE) // EVERY + (
            -((MANY - 9_000) // SELDOM) if thin else -((MANY - 9_000) // EVERY)
        )
    looked_at = at < WHOLE or at % (EVERY if at < MANY or not thin else SELDOM) == 0
    assert (content(cut_up(epoch(at), cuts), like).fingerprint() != like) == looked_at


def test_what_is_looked_at_does_not_keep_a_dictionary() -> None:
    words = pa.array([f"word{number}" for number in range(20_000)]).dictionary_encode()
    content = Content()
    content.add(pa.table({"word": words}))
    (picked,) = content.picked
    assert picked["word"].nbytes < words.nbytes / 10  # type: ignore[call-overload, union-attr]


OLD = 4058407535
"""Of 9,000 records, as the version before this one made it."""


def test_fingerprints_of_earlier_versions_are_known_again() -> None:
    """One of 64 is looked at to the end, where it was when the fingerprint was made."""
    old = Content(thin=False)
    old.add([f"w{number % 50}" for number in range(9_000)])
    assert old.fingerprint() == OLD
    assert Content.like(OLD).thin is False
    assert Content.like(content_of([["a"]])).thin is True


def test_columns_that_cannot_be_keys_are_compared_too() -> None:
    def table(last: int) -> pa.Table:
        return pa.table({"list": [[1, 2], None, [last]]})

    assert content_of([table(3)]) == content_of(cut_up(table(3), [1])) != content_of([table(4)])


def parquet_driver(path: Path, epoch: int) -> SourceDriver:
    flow = Dataflow()
    flow.columns("in", Parquet(path, epoch=epoch)).capture("out")
    plan = compile_plan(flow.graph)
    return SourceDriver(next(iter(plan.graph.of_kind("source"))), Worker(plan), lambda: 0.0, rereads=True)


def write_parquet(path: Path, changed: int | None = None) -> None:
    """Row groups of 1,000 rows, of which one may be another: neither size nor ends of the file tell."""
    numbers = np.arange(20_000) * 7
    if changed is not None:
        numbers[changed] += 1
    table = pa.table({"n": numbers})
    plain: Any = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, row_group_size=1_000, **plain)


@pytest.mark.parametrize("epoch", [2_000, 500, 2_500])
def test_an_epoch_of_whole_row_groups_is_known_by_its_bytes(tmp_path: Path, epoch: int) -> None:
    """All of it is looked at then; elsewhere some of its records."""
    path = tmp_path / "in.parquet"
    write_parquet(path)
    before = parquet_driver(path, epoch)
    read(before, 30)
    cut = 10_000 // epoch
    places = {place.partition: place for place in before.positions(cut)}
    whole = epoch == 2_000
    assert all(mark.content.counted == whole for mark in before._readers[0].positions)
    last = range((cut - 1) * epoch, cut * epoch)
    seen = last if whole else [*last[:WHOLE], *last[::EVERY]]
    for changed in (None, last[0], last[WHOLE + 1], last[EVERY * 7], last[-1], last[0] - 1, last[-1] + 1):
        write_parquet(path, changed)
        after = parquet_driver(path, epoch)
        if changed is None or changed not in seen:
            after.rewind(cut, places)
            read(after, 1)
            assert after._readers[0].positions[-1].epoch == cut
        else:
            with pytest.raises(SourceError, match="holds something else than when the job was saved"):
                after.rewind(cut, places)


def test_going_back_in_memory_reads_no_checksum_and_keeps_what_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    write_parquet(path)
    source = parquet_driver(path, 2_000)
    read(source, 8)
    places = source.positions(2)
    go_back(source, 2)
    assert source.positions(2) == places
    read(source, 8)
    assert source.positions(2) == places


def test_input_that_is_gone_hinders_no_checkpoint(tmp_path: Path) -> None:
    """The job does not need it any more, unless it goes back."""
    path = tmp_path / "in.parquet"
    write_parquet(path)
    source = parquet_driver(path, 2_000)
    read(source, 8)
    path.unlink()
    (place,) = source.positions(2)
    assert place.fingerprint == 0


def test_a_checkpoint_in_which_records_are_known_is_taken_with_a_checksum_too(tmp_path: Path) -> None:
    """An earlier version has made it."""
    path = tmp_path / "in.parquet"
    write_parquet(path)
    source = parquet_driver(path, 2_000)
    read(source, 8)
    (place,) = source.positions(2)
    number = content_of([pa.table({"n": np.arange(2_000, 4_000) * 7})])
    places = {place.partition: replace(place, fingerprint=number)}
    parquet_driver(path, 2_000).rewind(2, places)
    write_parquet(path, 2_001)
    with pytest.raises(SourceError, match="the epoch of 2,000 records before"):
        parquet_driver(path, 2_000).rewind(2, places)


def test_a_partition_without_a_checksum_is_not_taken_for_one_that_had_one() -> None:
    before, _ = driver(list(range(20)))
    read(before, 6)
    (place,) = before.positions(2)
    places = {place.partition: replace(place, fingerprint=of_input(7))}
    with pytest.raises(SourceError, match="holds something else"):
        driver(list(range(20)))[0].rewind(2, places)


def test_a_checksum_of_the_users_that_fails_is_blamed_on_the_source() -> None:
    class Odd(type(Iterable([1]).partitions(0, 1)[0])):  # type: ignore[misc]
        checksums = True

        def checksum(self, begin: Any, end: Any) -> int:
            raise KeyError("no such thing")

    source, _ = driver(list(range(20)))
    for reader in source._readers:
        reader.partition.__class__ = Odd
    read(source, 6)
    with pytest.raises(SourceError, match=r"test_inputs.py.*no such thing"):
        source.positions(2)


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
    with pytest.raises(GraphError, match=r"'in' \(.*test_inputs.py:\d+\) cannot be read again.*Ephemeral"):
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
    source.rewind(5, {"items-0": PartitionPosition("items-0", 12, False, 8, 77)})
    read(source, 2)
    assert worker.input_time(node.index) == (6,)
    read(source, 20)
    assert seen == list(range(8))


def clocked(seconds: float, policy: object = None) -> tuple[SourceDriver, dict[int, list[int]]]:
    """A driver of two partitions whose epochs a clock cuts that goes on by so much at each look; and what it fed, by epoch."""
    flow = Dataflow()
    clock = itertools.count(0.0, seconds).__next__
    flow.source("in", Clocked([range(25), range(25, 40)], 1.0, clock)).policy(policy).capture("out")
    worker = Worker(compile_plan(flow.graph))
    source, fed = (
        SourceDriver(next(iter(flow.graph.of_kind("source"))), worker, lambda: 0.0, rereads=True),
        defaultdict(list),
    )
    feed = worker.feed

    def watched(node: int, time: Any, data: Any) -> None:
        fed[time[0]] += data
        feed(node, time, data)

    worker.feed = watched  # type: ignore[method-assign]
    return source, fed


@settings(max_examples=40)
@given(
    chunks=st.integers(0, 60),
    again=st.integers(0, 60),
    seconds=st.tuples(*[st.sampled_from([0.02, 0.1, 0.2])] * 2),
    data=st.data(),
)
def test_epochs_whose_ends_are_known_are_read_again_as_they_were(
    chunks: int, again: int, seconds: tuple[float, float], data: st.DataObject
) -> None:
    first, fed = clocked(seconds[0])
    read(first, chunks)
    ends = first.take_ends()
    upto = 0 if ends is None else ends.upto
    begin = data.draw(st.integers(0, upto), "begin")
    known = {} if ends is None else ends.partitions
    second, fed_again = clocked(seconds[1])
    second.rewind(begin, {place.partition: place for place in first.positions(begin)}, upto, known)
    read(second, again)
    back = min(second._worker.input_time(second.node.index) or (begin,), (begin,))[0]
    for epoch in list(fed_again):
        if epoch >= back:
            del fed_again[epoch]
    rewind(second._worker, Orders(1, {}, lambda *_: True, {second.node.index: (back,)}))
    second.rewind(back, None, upto, known)  # while it is at it, or later
    read(second, 400)
    assert second.done
    for epoch in range(begin, upto):
        assert sorted(fed_again[epoch]) == sorted(fed[epoch])
    every = [n for of in (fed, fed_again) for epoch, some in of.items() if (epoch < begin) == (of is fed) for n in some]
    assert sorted(every) == list(range(40))


class Readings:
    """Partitions of numbers, one a look at the clock, whose epochs last some looks.

    `until`: they can be read again up to a position. `saves`: a position says in which epoch it is; if not, epochs are counted
    from where the process begins to read.
    """

    LOOKS = 4

    def __init__(self, parts: Sequence[Sequence[int]], until: bool, saves: bool) -> None:
        self._made = [_Readings(n, part, saves) for n, part in enumerate(parts)]
        for part in self._made if until else ():
            part.read_until = part.up_to  # type: ignore[attr-defined]

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return list(self._made)


class _Readings:
    def __init__(self, number: int, part: Sequence[int], saves: bool) -> None:
        self.name, self._part, self._saves = f"part-{number}", part, saves
        self._looks = itertools.count()
        self.seek(None)

    def seek(self, position: Any) -> None:
        self._epoch, self._at = (position or (0, 0)) if self._saves else (0, position or 0)
        self._over = next(self._looks) + Readings.LOOKS

    def read(self) -> Any:
        if self._at == len(self._part):
            return End()
        if (now := next(self._looks)) >= self._over:
            self._epoch, self._over = self._epoch + 1, now + Readings.LOOKS
        return self._give(self._at + 1)

    def up_to(self, position: Any) -> Any:
        self._epoch, end = position if self._saves else (self._epoch, position)
        return self._give(end)

    def _give(self, end: int) -> Chunk:
        begin, self._at = self._at, end
        return Chunk(self._epoch, list(self._part[begin:end]), [self._epoch, end] if self._saves else end)

    def ack(self, position: Any) -> None:
        """All is kept."""

    def close(self) -> None:
        """Nothing is open."""


@settings(max_examples=60)
@given(until=st.booleans(), saves=st.booleans(), parts=st.integers(1, 3), data=st.data())
def test_a_source_by_the_clock_goes_on_after_any_number_of_deaths(
    until: bool, saves: bool, parts: int, data: st.DataObject
) -> None:
    """In a new process, or in the one that lives on; also where a position lies in an epoch that is over, or in none.

    Each number comes once, and no epoch takes longer than its partition's clock lets it.
    """
    numbers = [list(range(100 * n, 100 * n + 40)) for n in range(parts)]
    fed: dict[int, list[int]] = defaultdict(list)

    def made() -> SourceDriver:
        flow = Dataflow()
        flow.source("in", Readings(numbers, until, saves)).capture("out")
        worker = Worker(compile_plan(flow.graph))
        found = SourceDriver(next(iter(flow.graph.of_kind("source"))), worker, lambda: 0.0, rereads=True)
        feed = worker.feed

        def watched(node: int, time: Any, batch: Any) -> None:
            fed[time[0]] += batch
            feed(node, time, batch)

        worker.feed = watched  # type: ignore[method-assign]
        return found

    source, low, known = made(), 0, KnownEnds()
    for _ in range(data.draw(st.integers(1, 5), "deaths")):
        read(source, data.draw(st.integers(0, 12 * parts), "chunks"))
        ends = source.take_ends()
        if ends is not None:
            known.hear(EpochEnds(0, 0, ends.begin, ends.upto, tuple(ends.partitions.items())))
        current = source._worker.input_time(source.node.index)
        if current is None:
            break
        bound = data.draw(st.integers(low, current[0]), "bound")
        places = {place.partition: place for place in source.positions(bound)}
        if data.draw(st.booleans(), "a new process"):
            source, low = made(), bound
        else:
            places = None
        if not data.draw(st.booleans(), "ends are known"):
            known = KnownEnds()
        known.decided([[(bound,)]])
        told = known.of((0, 0))
        rewind(source._worker, Orders(1, {}, lambda *_: True, {source.node.index: (bound,)}))
        source.rewind(bound, places, *((bound, None) if told is None else (told.upto, dict(told.partitions))))
        for epoch in [epoch for epoch in fed if epoch >= bound]:
            del fed[epoch]
    read(source, 200 * parts)
    assert source.done
    assert sorted(number for some in fed.values() for number in some) == sorted(itertools.chain(*numbers))
    for part in numbers:
        epochs = [epoch for epoch in sorted(fed) for number in fed[epoch] if number in part]
        assert [number for epoch in sorted(fed) for number in fed[epoch] if number in part] == part
        assert max(map(epochs.count, epochs)) <= 2 * Readings.LOOKS, "what is over in one epoch stays in it"


def test_what_ends_before_a_known_end_is_refused() -> None:
    source, _ = clocked(0.1)
    source.rewind(0, {}, 2, {"part-0": ((1, [1, 26]),)})
    with pytest.raises(SourceError, match=r"'in' .*part.* ends before position \[1, 26\]"):
        read(source, 100)


def test_who_repeats_or_cannot_be_read_again_tells_accordingly() -> None:
    source, _ = driver([1, 2])
    read(source, 9)
    assert source.take_ends() is None
    flow = Dataflow()
    flow.source("in", _Once(list(range(8)), batch=2, epoch_every=4)).capture("out")
    plan = compile_plan(flow.graph, 2)
    told = []
    for index in range(2):
        once = SourceDriver(next(iter(flow.graph.of_kind("source"))), Worker(plan, index), lambda: 0.0, rereads=True)
        read(once, 3)
        ends = once.take_ends()
        assert ends is not None
        assert once.take_ends() is None
        told.append((ends.begin, ends.upto > 1, ends.local_only))
    assert sorted(told) == [(0, False, True), (0, True, False)]


RULES = Rules()
rule = RULES.add


def other_input() -> Any:
    """A new process finds other records in front of the position where it is to go on."""
    before, _ = driver(list(range(20)))
    read(before, 6)
    places = {place.partition: place for place in before.positions(2)}
    found = []
    for items in (list(range(20)), [*range(4), 104, *range(5, 20)], [*range(4), *range(5, 20)]):
        try:
            driver(items)[0].rewind(2, places)
        except SourceError:
            found.append("refused")
        else:
            found.append("read")
    return found


rule(
    "fingerprints",
    "t's end position is durable, for every partition, with a content fingerprint",
    other_input,
    ["read", "refused", "refused"],
    Change(reading, "recognise", "content.fingerprint() != place.fingerprint", "False"),
)


def next_epochs() -> Any:
    """Where a source by the clock goes on that had read into its third epoch, and so in the next process and the one after."""
    found, places, bound = [], None, 0
    for _ in range(3):
        flow = Dataflow()
        flow.source("in", Readings([range(100)], until=False, saves=False)).capture("out")
        worker = Worker(compile_plan(flow.graph))
        source = SourceDriver(next(iter(flow.graph.of_kind("source"))), worker, lambda: 0.0, rereads=True)
        source.rewind(bound, places)
        read(source, 12)
        (bound,) = worker.input_time(source.node.index) or (0,)
        found.append(bound)
        places = {place.partition: place for place in source.positions(bound)}
    return found


rule(
    "a clock goes on",
    "epochs that a clock ends go on behind those that are over, each as long as before",
    next_epochs,
    [3, 6, 9],
    Change(SourceDriver, "_read_one", "self._clocked and self._rereadable", "False"),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()


@pytest.mark.parametrize(
    ("rereads", "limits", "most"),
    [(True, Limits(), 2), (True, Limits(seconds=inf), 32), (True, Limits(epochs=1), 1), (False, Limits(), 32)],
)
def test_with_a_store_a_source_reads_ahead_by_the_work_that_is_open(rereads: bool, limits: Limits, most: int) -> None:
    flow = Dataflow()
    flow.source("in", Iterable(partitioned=[list(range(40)), [1]], epoch_every=1)).capture("out")
    plan = compile_plan(flow.graph, 2)  # the other worker has read nothing, so nothing is complete
    source = SourceDriver(next(iter(plan.graph.of_kind("source"))), Worker(plan, 0), lambda: 0.0, rereads=rereads)
    while source.pump(limits):
        pass
    assert source.records == most
    assert not source.may_read(limits)


class Fixed:
    """A source, and its partition, that gives what it is told."""

    def __init__(self, *given: Any) -> None:
        self.name = "fixed"
        self._given = [*given, End()]
        self._next = 0

    def partitions(self, worker: int, workers: int) -> Sequence[Any]:
        return [self]

    def read(self) -> Any:
        self._next += 1
        return self._given[self._next - 1]

    def seek(self, position: Any) -> None:
        self._next = position or 0

    def ack(self, position: Any) -> None:
        """Nothing to let go."""

    def close(self) -> None:
        """Nothing to release."""


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "gives None, where read.. returns a Chunk, a Wait or End..; is a return missing"),
        ((1, [2], 2), "gives .1, .2., 2., where read.. returns"),
        (End, "where read.. returns"),
        (Chunk(0.5, [2], 2), "a chunk with epoch 0.5: it is a whole number"),  # type: ignore[arg-type]
        (Chunk(np.int64(1), [2], 2), "it is a whole number, an int"),  # type: ignore[arg-type]
        (Chunk(True, [2], 2), "a chunk with epoch True: it is a whole number"),
        (Chunk(-1, [2], 2), "a chunk with epoch -1: it is a number from 0 up"),
        (Chunk(1 << 70, [2], 2), "from 0 up, and below"),
        (Chunk(1, (1, 2), 2), "gives tuple for a batch"),  # type: ignore[arg-type]
        (Wait("x"), "its seconds are a number"),  # type: ignore[arg-type]
    ],
)
def test_what_a_source_of_the_users_cannot_give_is_an_error_with_its_line(
    given: Any, why: str, stored: bool, tmp_path: Path
) -> None:
    flow = Dataflow()
    flow.source("in", Fixed(Chunk(0, [1], 1), given)).capture("out")
    with pytest.raises(SourceError, match=rf"source 'in' .*test_inputs\.py:\d+.*partition fixed .*{why}"):
        run(flow, store=tmp_path / "store" if stored else None)
