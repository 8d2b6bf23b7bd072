"""The simulated disk keeps its promises, breaks what may break, and does so the same way for the same seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from falkirk.simulate.disk import DiskCounts, DiskFaults
from recovery.store.interface import AlreadyThere, NotThere, StoreCorrupt, StoreError, StoreFull
from recovery.store.reading import take_over
from recovery.store.segments import Section
from tests.support.faulty_disk import FaultyDisk

STORE = b"0123456789abcdef"
CALM = DiskFaults(slow=0, made=0, late=0, torn=0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def disk_of(seed: int, faults: DiskFaults = CALM) -> tuple[FaultyDisk, Clock]:
    clock = Clock()
    return FaultyDisk(Random(seed), clock, faults), clock


def finish(disk: FaultyDisk, clock: Clock) -> None:
    while (at := disk.next_time()) is not None:
        clock.now = max(clock.now, at)
        disk.advance(clock.now)


def test_a_put_takes_time_and_is_heard_of_once() -> None:
    disk, clock = disk_of(0)
    disk.begin("w", "a", [b"abc", b"d"])
    disk.advance(0.0)
    assert disk.take_done("w") == []
    finish(disk, clock)
    assert bytes(disk.get("a")) == b"abcd"
    assert CALM.delay[0] <= clock.now <= CALM.delay[1]
    assert disk.take_done("w") == [("a", None)]
    assert disk.take_done("w") == []


def test_it_is_a_store_as_any_other() -> None:
    disk, _ = disk_of(0)
    disk.put("b/1", [b"abc"])
    disk.put("a/1", [b"d"])
    with pytest.raises(AlreadyThere):
        disk.put("a/1", [b"e"])
    assert disk.names("") == ["a/1", "b/1"]
    assert (disk.size(), disk.size("b/")) == (4, 3)
    disk.delete("a/1")
    disk.delete("a/1")
    with pytest.raises(NotThere):
        disk.get("a/1")


def test_operations_of_one_writer_finish_in_order() -> None:
    disk, clock = disk_of(3, replace(CALM, slow=0.5))
    for number in range(30):
        disk.begin("w", f"{number}", [b""])
        if number:
            disk.begin_delete("w", f"{number - 1}")
    finish(disk, clock)
    assert disk.take_done("w") == [(f"{number}", None) for number in range(30)]
    assert disk.names("") == ["29"]


def test_of_two_writers_one_gets_the_name() -> None:
    winners = set()
    for seed in range(20):
        disk, clock = disk_of(seed)
        for writer in ("old", "new"):
            disk.begin(writer, "a", [writer.encode()])
        finish(disk, clock)
        winner = bytes(disk.get("a")).decode()
        winners.add(winner)
        (loser,) = {"old", "new"} - {winner}
        assert disk.take_done(winner) == [("a", None)]
        ((_, error),) = disk.take_done(loser)
        assert isinstance(error, AlreadyThere)
    assert winners == {"old", "new"}


def test_a_buffer_that_changes_while_it_is_written_is_noticed() -> None:
    disk, clock = disk_of(0)
    buffer = bytearray(b"abc")
    disk.begin("w", "a", [buffer])
    buffer[0] = 0
    with pytest.raises(AssertionError, match="a was changed while"):
        finish(disk, clock)


FATES = {
    "made": replace(CALM, made=1.0),
    "late": replace(CALM, late=1.0),
    "torn": replace(CALM, torn=1.0),
    "nothing": CALM,
}


@pytest.mark.parametrize("fate", FATES)
def test_what_becomes_of_the_puts_of_a_dead_writer(fate: str) -> None:
    for seed in range(30):
        disk, clock = disk_of(seed, FATES[fate])
        disk.begin("w", "a", [b"a" * 100])
        disk.begin("w", "b", [b"b" * 100])
        disk.crash("w")
        before = disk.names("")
        finish(disk, clock)
        assert disk.take_done("w") == []
        if fate == "made":
            assert before == ["a", "b"]
        elif fate == "late":
            assert (before, disk.names("")) == ([], ["a"])
            assert bytes(disk.get("a")) == b"a" * 100
        elif fate == "torn":
            assert before == disk.names("") == ["a"]
            assert bytes(disk.get("a")) != b"a" * 100
        else:
            assert disk.names("") == []


def test_what_was_acknowledged_survives_every_crash() -> None:
    for seed in range(30):
        disk, clock = disk_of(seed, DiskFaults())
        acknowledged = set()
        for number in range(20):
            disk.begin("w", f"{number}", [bytes([number])])
            if Random(seed * 100 + number).random() < 0.3:
                clock.now += 0.002
                disk.advance(clock.now)
                acknowledged |= {name for name, error in disk.take_done("w") if error is None}
                disk.crash("w")
            else:
                finish(disk, clock)
                acknowledged |= {name for name, error in disk.take_done("w") if error is None}
        finish(disk, clock)
        assert acknowledged
        assert all(bytes(disk.get(name)) == bytes([int(name)]) for name in acknowledged)


def test_a_full_disk_says_so_and_has_room_again_later() -> None:
    disk, clock = disk_of(1, replace(CALM, fills=1.0, full_for=100.0))
    disk.begin("w", "a", [b"abc"])
    finish(disk, clock)
    ((_, error),) = disk.take_done("w")
    assert isinstance(error, StoreFull)
    assert disk.names("") == []
    clock.now += 100
    disk.faults = CALM
    disk.begin("w", "a", [b"abc"])
    finish(disk, clock)
    assert disk.take_done("w") == [("a", None)]


def test_an_unclear_error_leaves_the_blob_or_not() -> None:
    there = set()
    for seed in range(20):
        disk, clock = disk_of(seed, replace(CALM, unclear=1.0))
        disk.begin("w", "a", [b"abc"])
        finish(disk, clock)
        ((_, error),) = disk.take_done("w")
        assert type(error) is StoreError
        there.add(bool(disk.names("")))
    assert there == {False, True}


def test_a_stalled_writer_is_late_but_gets_there() -> None:
    disk, clock = disk_of(0)
    disk.begin("zombie", "a", [b"old"])
    disk.stall("zombie", 10.0)
    disk.begin("new", "b", [b"new"])
    clock.now = 1.0
    disk.advance(clock.now)
    assert disk.names("") == ["b"]
    finish(disk, clock)
    assert clock.now > 10
    assert disk.take_done("zombie") == [("a", None)]


class Life:
    """One incarnation of a writer that keeps ten keys, and dies at any moment."""

    def __init__(self, disk: FaultyDisk, incarnation: int, acknowledged: int) -> None:
        self.disk = disk
        self.me = ("w", incarnation)
        self.journal, found, _ = take_over(disk, "w", STORE, incarnation, acknowledged)
        self.values: dict[bytes, Section] = {}
        for meta, sections in found.read():
            self.journal.recovered(meta, sections, [each.head for each in sections])
            self.values |= {each.head: each for each in sections}
        self.journal.resume()
        self.under_way: dict[bytes, Section] = {}

    def set(self, key: bytes, value: bytes) -> None:
        self.values[key] = Section(key, value)
        self.journal.add(key, self.values[key])

    def begin(self) -> bool:
        for key in self.journal.carry():
            assert isinstance(key, bytes)
            self.journal.add(key, self.values[key])
        sealed = self.journal.seal()
        if sealed is not None:
            self.under_way = dict(self.values)
            self.disk.begin(self.me, *sealed)
        return sealed is not None

    def hear(self) -> int | None:
        """The number of a segment that is durable now; raises the error that the disk has for this writer."""
        number = None
        for name, error in self.disk.take_done(self.me):
            if error is not None:
                raise error
            number = self.journal.next_number - 1
            for old in self.journal.stored(name):
                self.disk.begin_delete(self.me, old)
        return number


def history(seed: int, faults: DiskFaults, steps: int = 150) -> tuple[list[str], DiskCounts, int]:
    """Writers that die, and some that only seem to. Whoever comes next must find what was acknowledged last, or what was
    begun after it. Returns what was on the disk at each step, what the disk did, and how many were fenced off.
    """
    disk, clock = disk_of(seed, faults)
    draw = Random(seed + 1_000_000)
    trace: list[str] = []
    acknowledged, fenced = -1, 0
    life = Life(disk, 0, acknowledged)
    allowed = [dict(life.values)]
    zombies: list[Life] = []
    for _ in range(steps):
        for one in [life, *zombies]:
            one.set(b"%d" % draw.randrange(10), draw.randbytes(draw.choice((10, 2000, 90_000))))
            if one.begin() and one is life:
                allowed.append(one.under_way)
        clock.now += draw.uniform(0, 0.006)
        disk.advance(clock.now)
        for zombie in list(zombies):
            try:
                zombie.hear()
            except StoreError:
                fenced += 1
                zombies.remove(zombie)
        dies = draw.random() < 0.08
        try:
            heard = life.hear()
            if heard is not None:
                acknowledged, allowed = heard, [life.under_way]
        except StoreFull:
            dies = True
        trace.append(f"{disk.names('')} {disk.size()}")
        if dies:
            if draw.random() < 0.5:
                disk.crash(life.me)
            else:
                disk.stall(life.me, draw.uniform(0, 0.05))
                zombies.append(life)
            life = Life(disk, life.me[1] + 1, acknowledged)
            assert life.values in allowed
            allowed = [dict(life.values)]
    assert disk.size() < 4_000_000
    return trace, disk.counts, fenced


def test_nothing_that_was_acknowledged_is_lost_whatever_happens() -> None:
    total = DiskCounts()
    fenced = 0
    for seed in range(40):
        _, counts, stopped = history(seed, DiskFaults(fills=0.002, full_for=0.05))
        fenced += stopped
        for each in DiskCounts.__slots__:
            setattr(total, each, getattr(total, each) + getattr(counts, each))
    assert fenced > 10
    assert min(total.acknowledged, total.slow, total.full, total.refused, total.made, total.late, total.torn) > 0


def test_the_same_seed_gives_the_same_history() -> None:
    assert history(7, DiskFaults()) == history(7, DiskFaults())
    assert history(7, DiskFaults()) != history(8, DiskFaults())


def test_a_disk_that_loses_what_it_acknowledged_is_found_out() -> None:
    disk, clock = disk_of(0)
    life = Life(disk, 0, -1)
    life.set(b"a", bytes(100_000))
    life.begin()
    finish(disk, clock)
    number = life.hear()
    assert number == 1
    disk.lose_acknowledged("w/segment-00000001")
    with pytest.raises(StoreCorrupt, match=r"w/segment-00000001 .*missing, and it was durable before"):
        Life(disk, 1, number)
