"""Large state is saved anew a little with each cut: what is stored stays bounded, and gives the state back at every cut."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from falkirk.simulate.disk import SimulatedDisk
from recovery.checkpoint import processor_checkpoints as module
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import key_of, record_of
from recovery.memory.recorder import WorkerRecorder
from recovery.store.journal import Journal
from recovery.store.reading import read_all, take_over
from tests.recovery.layouts import layout
from tests.recovery.store.owners import OWNER, STORE, memory_disk
from tests.timely.state.test_parts import Added, ByKey
from timely.state import KeyedState, Parts, TimedBatches
from timely.time import Frontier

PLAN = layout("read source, count chain", "read>count", 1)
COUNT = 1


class TwoParts:
    """Two states by key and one that outlives no time, as one."""

    def __init__(self) -> None:
        self._parts = KeyedState(), TimedBatches(), KeyedState()
        self.state = Parts(*self._parts)

    def put(self, epoch: int, rows: list[tuple[str, int]]) -> None:
        first, _, second = self._parts
        first.write((epoch,), {key: value for key, value in rows if value >= 0})
        first.remove((epoch,), [key for key, value in rows if value < 0])
        second.write((epoch,), {value: key for key, value in rows})

    def read(self) -> Any:
        return dict(self._parts[0].read((0,))), dict(self._parts[2].read((0,)))


class Job:
    """One processor's state, its checkpoints, and a store."""

    def __init__(self, kind: Callable[[], Any], disk: SimulatedDisk | None = None, incarnation: int = 0) -> None:
        self.kind = kind
        self.disk = disk or memory_disk()
        self.incarnation = incarnation
        self.journal, found, _ = take_over(self.disk, OWNER, STORE, incarnation)
        read = [(meta, sections, [record_of(each.head) for each in sections]) for meta, sections in found.read()]
        last = {key_of(record): meta.number for meta, _, records in read for record in records}
        self.checkpoints = Checkpoints(PLAN, WorkerRecorder(PLAN, 0), self.journal)
        self.checkpoints.load(
            [
                (record, each.payload)
                for meta, sections, records in read
                for record, each in zip(records, sections)
                if last[key_of(record)] == meta.number
            ]
        )
        live = self.checkpoints.live_keys()
        for meta, sections, records in read:
            keys = [key_of(record) for record in records]
            self.journal.recovered(meta, sections, [k if k in live and last[k] == meta.number else None for k in keys])
        self.journal.resume()
        for name in found.leftovers:
            self.disk.delete(name)
        self.subject = kind()
        self.restored_at = 0
        """All that lies before this came back from the store, and memory cannot tell apart."""
        self.cut_rows = 0
        """Rows that the last cut has written."""

    def cut(self, at: int) -> None:
        """Save what lies before epoch `at`, durably."""
        before = self.checkpoints.saved_rows
        draft = self.checkpoints.cut(0, (at,), lambda p: self.subject.state if p == COUNT else None, defaultdict(tuple))
        while not self.checkpoints.advance(draft):
            pass
        self.cut_rows = self.checkpoints.saved_rows - before
        self.checkpoints.carry()
        sealed = self.journal.seal()
        assert sealed is not None
        self.disk.put(*sealed)
        for name in self.journal.stored(sealed[0]):
            self.disk.delete(name)

    def collect(self, low: int) -> None:
        """W is at epoch `low`."""
        for p in range(2):
            self.checkpoints.collect(p, (low,))
        self.subject.state.compact(Frontier.before([(low,)]))

    def roll_back(self, bound: int, generation: int) -> None:
        """A decision, for a worker that lives."""
        self.checkpoints.apply(generation, [(bound,), (bound,)])
        if bound < self.restored_at:
            self.restored_at = bound
            self.subject.state.restore(self.checkpoints.runs(COUNT, (bound,)))
        else:
            self.subject.state.keep(Frontier.before([(bound,)]))

    def again(self, bound: int) -> Job:
        """Another process takes over, and goes on at `bound`."""
        other = Job(self.kind, self.disk, self.incarnation + 1)
        other.checkpoints.apply(self.checkpoints.generation + 1, [(bound,), (bound,)])
        other.restored_at = bound
        other.subject.state.restore(other.checkpoints.runs(COUNT, (bound,)))
        return other

    def stored(self, bound: int) -> Any:
        """The state at `bound`, from the store."""
        records = [
            (record_of(each.head), each.payload, meta.number)
            for meta, sections in read_all(self.disk, OWNER, STORE)
            for each in sections
        ]
        last = {key_of(record): number for record, _, number in records}
        reader = Checkpoints(PLAN, WorkerRecorder(PLAN, 0), Journal(OWNER, STORE))
        reader.load([(record, payload) for record, payload, number in records if last[key_of(record)] == number])
        subject = self.kind()
        subject.state.restore(reader.runs(COUNT, (bound,)))
        return subject.read()

    @property
    def segments(self) -> int:
        return len(self.disk.names(f"{OWNER}/"))

    @property
    def scanning(self) -> bool:
        return self.checkpoints._of[COUNT].scan is not None


@pytest.fixture
def small_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans from the smallest state on, a row or so with each cut."""
    monkeypatch.setattr(module, "SMALL", -1)
    monkeypatch.setattr(module, "SCAN_PIECES", 1)


rows = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-2, 9)), max_size=4, unique_by=lambda row: row[0])


@pytest.mark.usefixtures("small_scans")
@pytest.mark.parametrize("kind", [ByKey, Added, TwoParts])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), epochs=st.lists(rows, min_size=6, max_size=40), size=st.integers(1, 3))
def test_what_is_stored_gives_the_state_at_every_cut_that_may_be_needed(
    kind: Callable[[], Any], data: Any, epochs: list[list[tuple[str, int]]], size: int
) -> None:
    job, low, cuts, written, at = Job(kind), 0, [0], 0, 0

    def expected(upto: int) -> Any:
        subject = kind()
        for epoch in range(upto):
            if epochs[epoch]:
                subject.put(epoch, epochs[epoch])
        return subject.read()

    while at < len(epochs):
        job.checkpoints.piece_rows = size
        at = min(at + data.draw(st.integers(1, 3)), len(epochs))
        ahead = min(at + data.draw(st.integers(0, 2)), len(epochs))
        for epoch in range(written, ahead):
            if epochs[epoch]:
                job.subject.put(epoch, epochs[epoch])
        written = max(written, ahead)
        job.cut(at)
        cuts.append(at)
        what = data.draw(st.sampled_from(["go on", "go on", "collect", "collect", "roll back", "restart"]))
        if what == "collect":
            low = data.draw(st.sampled_from([cut for cut in cuts if cut >= low]))
            job.collect(low)
        elif what in ("roll back", "restart"):
            at = data.draw(st.sampled_from([cut for cut in cuts if cut >= low]))
            cuts = [cut for cut in cuts if cut <= at]
            if what == "restart":
                job = job.again(at)
            else:
                job.roll_back(at, job.checkpoints.generation + 1)
            written = at
            assert job.subject.read() == expected(at)
        for cut in cuts:
            if cut >= low and cut > 0:
                assert job.stored(cut) == expected(cut)


@pytest.mark.parametrize("kind", [ByKey, Added])
def test_cuts_of_a_large_state_write_what_is_new_and_a_little_more_and_what_is_stored_stays_bounded(
    kind: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cut writes all of it, though all that is stored is written anew several times."""
    monkeypatch.setattr(module, "SMALL", 1 << 10)
    draw, job, keys, few = random.Random(5), Job(kind), 600, 20
    job.journal.small = 256
    job.checkpoints.piece_rows = 4
    job.subject.put(0, [(f"key-{n}", n) for n in range(keys)])
    job.cut(1)
    assert job.cut_rows == keys
    most, scans, scanned = 0, 0, False
    for epoch in range(1, 300):
        job.subject.put(epoch, [(f"key-{n}", n) for n in draw.sample(range(keys), few)])
        job.cut(epoch + 1)
        job.collect(epoch)
        assert job.cut_rows <= few + max(few, module.SCAN_PIECES * 4) + 4
        scans += job.scanning and not scanned
        scanned = job.scanning
        most = max(most, job.checkpoints._of[COUNT].stored()[1])
        if epoch % 100 == 0:
            assert job.stored(epoch + 1) == job.subject.read()
    assert scans >= 3
    assert most <= 4 * keys
    assert job.segments < 100
    assert job.journal.size <= 5 * job.journal.live
    assert job.again(300).subject.read() == job.subject.read()


def test_tiny_checkpoints_of_a_large_state_are_joined_and_not_paid_for_with_the_state() -> None:
    job = Job(Added)
    job.subject.put(0, [(f"key-{n}", n) for n in range(5_000)])
    job.cut(1)
    for epoch in range(1, 400):
        job.subject.put(epoch, [("key-7", 1)])
        job.cut(epoch + 1)
        job.collect(epoch)
        assert job.cut_rows == 1
    assert not job.scanning
    assert job.segments < 300
    assert job.stored(400) == job.subject.read()


def test_state_that_grows_is_written_as_it_comes() -> None:
    job = Job(Added)
    for epoch in range(20):
        job.subject.put(epoch, [(f"key-{epoch}-{n}", n) for n in range(300)])
        job.cut(epoch + 1)
        job.collect(epoch)
        assert job.cut_rows == 300
    assert job.stored(20) == job.subject.read()
