"""Reading a journal again: what is missing or damaged is named, and only one incarnation goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from falkirk.simulate.disk import SimulatedDisk
from recovery.store.interface import AlreadyThere, Buffer, NotThere, StoreBusy, StoreCorrupt
from recovery.store.journal import Journal
from recovery.store.reading import read_all, survey, take_over
from recovery.store.segments import SegmentMeta, encode_segment, segment_name
from tests.recovery.store.owners import OWNER, STORE, Owner, contents, memory_disk, section
from tests.support.faulty_disk import FaultyDisk


def three_segments() -> FaultyDisk:
    """Segments 1, 3 and 4 are needed, 2 is gone, 0 is the fence; 4 is the newest."""
    owner = Owner(memory_disk())
    for key in "abcd":
        owner.add(key, 100_000)
        owner.write()
        if key == "c":
            owner.dead("b")
    assert owner.disk.names("") == [segment_name(OWNER, number) for number in (0, 1, 3, 4)]
    return owner.disk


def test_holes_where_segments_were_deleted_are_as_they_should_be() -> None:
    disk = three_segments()
    assert [meta.number for meta, _ in read_all(disk, OWNER, STORE)] == [1, 3, 4]


def test_an_empty_store_has_an_empty_journal() -> None:
    found = survey(memory_disk(), OWNER, STORE)
    assert (found.newest, found.torn, found.fences, found.leftovers, list(found.read())) == (None, None, (), (), [])


@pytest.mark.parametrize("number", [1, 3])
def test_a_lost_segment_is_noticed_and_named(number: int) -> None:
    disk = three_segments()
    disk.lose_acknowledged(segment_name(OWNER, number))
    with pytest.raises(
        StoreCorrupt,
        match=rf"segment-0000000{number} is damaged at byte 0: the file is missing, and .*segment-00000004 needs it\. It is",
    ):
        list(read_all(disk, OWNER, STORE))


def test_all_damaged_segments_are_named() -> None:
    disk = three_segments()
    disk.lose_acknowledged(segment_name(OWNER, 1))
    disk.damage(segment_name(OWNER, 3), 500_000)
    with pytest.raises(
        StoreCorrupt, match=r"segment-00000001 .*missing.*others: .*segment-00000003 at byte \d+: the check"
    ):
        list(read_all(disk, OWNER, STORE))


@pytest.mark.parametrize(
    "needed",
    [((0, 1 << 60),), ((3, 1),), ((1, 1), (1, 1)), ((-5, 1),), ((1, 1), (2, (1 << 40))), ((1, 1), (3, 3), (2, 2))],
)
def test_a_head_that_asks_for_the_impossible_is_refused_at_once(needed: tuple[tuple[int, int], ...]) -> None:
    disk = memory_disk()
    number = 1 << 50
    for at, meta in enumerate(
        (
            SegmentMeta(owner=OWNER, number=0, generation=0, incarnation=1, fence=0),
            SegmentMeta(owner=OWNER, number=number, generation=0, incarnation=1, fence=0, needed=needed),
        )
    ):
        disk.put(segment_name(OWNER, meta.number), encode_segment(meta, [], STORE))
        assert len(disk.names("")) == at + 1
    with pytest.raises(StoreCorrupt, match="needs"):
        survey(disk, OWNER, STORE)


def test_a_segment_under_the_name_of_another_is_noticed() -> None:
    disk = three_segments()
    data = disk.get(segment_name(OWNER, 3))
    disk.delete(segment_name(OWNER, 1))
    disk.put(segment_name(OWNER, 1), [data])
    with pytest.raises(StoreCorrupt, match=r"segment-00000001 .*it is segment 3 of worker-000"):
        list(read_all(disk, OWNER, STORE))


@pytest.mark.parametrize("keep", [0, 10, 64, 3000])
@pytest.mark.parametrize("fill", [b"", b"\0", b"x"])
def test_a_newest_segment_that_was_cut_off_is_set_aside(keep: int, fill: bytes) -> None:
    disk = three_segments()
    name = segment_name(OWNER, 5)
    whole = b"".join(
        encode_segment(
            SegmentMeta(owner=OWNER, number=5, generation=0, incarnation=0, fence=0), [section("e", 9000)], STORE
        )
    )
    disk.put(name, [whole[:keep] + fill * (len(whole) - keep)])
    assert survey(disk, OWNER, STORE).torn == name
    owner = Owner(disk, 1)
    (warning,) = owner.warnings
    assert f"{name} was cut off" in warning
    assert f"{name}.damaged" in warning
    assert disk.names(name) == [name, f"{name}.damaged"]  # the fence took the number
    assert owner.live.keys() == {"a", "c", "d"}
    with pytest.raises(StoreCorrupt):
        survey(three_segments(), OWNER, STORE, acknowledged=5)


def test_all_that_was_ever_set_aside_is_kept() -> None:
    disk = three_segments()
    name = segment_name(OWNER, 5)
    for incarnation in (1, 2, 3):
        disk.put(name, [bytes(incarnation)])
        (warning,) = Owner(disk, incarnation).warnings
        assert f"after {incarnation} bytes" in warning
        disk.delete(name)
    aside = [f"{name}.damaged", f"{name}.damaged-2", f"{name}.damaged-3"]
    assert disk.names(name) == aside
    assert [len(disk.get(each)) for each in aside] == [1, 2, 3]


def test_a_cut_off_segment_that_was_acknowledged_is_an_error() -> None:
    disk = three_segments()
    disk.put(segment_name(OWNER, 5), [b""])
    with pytest.raises(StoreCorrupt, match=r"segment-00000005 .*it ends after 0 bytes"):
        take_over(disk, OWNER, STORE, 1, acknowledged=5)
    assert take_over(disk, OWNER, STORE, 1, acknowledged=4)[2]


def test_a_newest_segment_that_decayed_is_an_error() -> None:
    disk = three_segments()
    disk.damage(segment_name(OWNER, 4), 500_000)
    with pytest.raises(StoreCorrupt, match="segment-00000004"):
        take_over(disk, OWNER, STORE, 1)


def test_two_cut_off_segments_are_an_error() -> None:
    disk = three_segments()
    disk.put(segment_name(OWNER, 5), [b""])
    disk.put(segment_name(OWNER, 6), [b""])
    with pytest.raises(StoreCorrupt, match="segment-00000005"):
        take_over(disk, OWNER, STORE, 1)


def test_what_was_not_deleted_before_a_crash_is_found_and_not_read() -> None:
    disk = three_segments()
    old = b"".join(
        encode_segment(
            SegmentMeta(owner=OWNER, number=2, generation=0, incarnation=0, fence=0), [section("b", 1)], STORE
        )
    )
    disk.put(segment_name(OWNER, 2), [old])
    assert survey(disk, OWNER, STORE).leftovers == (segment_name(OWNER, 2),)
    assert "b" not in contents(disk)
    Owner(disk, 1)
    assert segment_name(OWNER, 2) not in disk.names("")


def test_the_older_incarnation_cannot_write_once_it_is_fenced() -> None:
    disk = memory_disk()
    zombie = Owner(disk)
    zombie.add("a", 10)
    zombie.write()
    Owner(disk, 1)
    zombie.add("b", 10)
    sealed = zombie.journal.seal()
    assert sealed is not None
    with pytest.raises(AlreadyThere):
        disk.put(*sealed)
    with pytest.raises(ValueError, match="it must stop"):
        zombie.journal.overtaken(SegmentMeta(owner=OWNER, number=2, generation=0, incarnation=1, fence=2), (0, 2))


def test_fences_stay_for_ever_so_that_a_very_late_write_is_refused_too() -> None:
    disk = memory_disk()
    zombie = Owner(disk)
    zombie.add("a", 10)
    late = zombie.journal.seal()
    assert late is not None
    for incarnation in (1, 2):
        owner = Owner(disk, incarnation)
        for size in range(5):
            owner.add("b", size)
            owner.write()
    assert survey(disk, OWNER, STORE).fences == (0, 1, 7)
    assert disk.names("") == [segment_name(OWNER, number) for number in (0, 1, 7, 12)]
    with pytest.raises(AlreadyThere):
        disk.put(*late)
    disk.lose_acknowledged(segment_name(OWNER, 7))
    with pytest.raises(StoreCorrupt, match=r"segment-00000007 .*it must stay as long as the store"):
        survey(disk, OWNER, STORE)


class Meanwhile(FaultyDisk):
    """Something happens just before the next blob is read."""

    happens: Callable[[], object] | None = None

    def get(self, name: str) -> memoryview:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().get(name)


@pytest.mark.parametrize(("gone", "newest"), [(False, 2), (True, None)])
def test_a_newest_segment_that_goes_while_it_is_looked_for_is_looked_for_again(gone: bool, newest: int | None) -> None:
    """Its writer has deleted it, and wrote a later one before; or the whole journal is gone."""
    disk = Meanwhile(random.Random(0), lambda: 0.0)
    owner = Owner(disk)
    owner.add("a", 10)
    owner.write()

    def writes() -> None:
        owner.add("a", 20)
        owner.write()
        assert segment_name(OWNER, 1) not in disk.names("")

    def goes() -> None:
        for name in disk.names(""):
            disk.delete(name)

    disk.happens = goes if gone else writes
    found = survey(disk, OWNER, STORE).newest
    assert (None if found is None else found.number) == newest


def test_a_segment_that_is_listed_and_cannot_be_read_is_an_error() -> None:
    class Unreadable(FaultyDisk):
        def get(self, name: str) -> memoryview:
            raise NotThere(name)

    disk = Unreadable(random.Random(0), lambda: 0.0)
    disk.put(segment_name(OWNER, 4), [b""])
    with pytest.raises(StoreCorrupt, match="segment-00000004 is damaged at byte 0: the file is listed, but cannot be"):
        survey(disk, OWNER, STORE)


def test_segments_are_in_the_order_of_their_numbers_however_long_these_are() -> None:
    """A store lists names in the order of texts: 100,000,000 before 99,999,999."""
    disk = memory_disk()
    last = 100_000_000
    fence = SegmentMeta(owner=OWNER, number=0, generation=0, incarnation=1, fence=0)
    needed = ((last - 2, last - 1),)
    for number, needs in ((0, ()), (last - 2, ()), (last - 1, ()), (last, needed)):
        meta = msgspec.structs.replace(fence, number=number, needed=needs)
        disk.put(segment_name(OWNER, number), encode_segment(meta, [], STORE))
    assert [meta.number for meta, _ in read_all(disk, OWNER, STORE)] == [last - 2, last - 1, last]


class Racing(SimulatedDisk):
    """Somebody else writes just before each of the first few puts."""

    def __init__(self) -> None:
        super().__init__(random.Random(0), lambda: 0.0)
        self.others: list[Owner] = []

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        if self.others:
            other, *following = self.others
            self.others = []
            other.add(f"late {name}", 10)
            if "early" in other.live:
                other.dead("early")
            other.write()
            self.others = following
        super().put(name, parts)


def test_a_fence_goes_on_behind_what_the_older_incarnation_still_wrote() -> None:
    disk = Racing()
    zombie = Owner(disk)
    zombie.add("early", 10)
    zombie.write()
    zombie.add("second", 10)
    zombie.write()

    disk.others = [zombie, zombie, zombie]
    owner = Owner(disk, 1)
    assert owner.journal.next_number == 7  # 0 to 5 by the zombie, and the fence is 6
    assert owner.live.keys() == {"second"} | {f"late {segment_name(OWNER, number)}" for number in (3, 4, 5)}
    owner.add("new", 1)
    owner.write()
    assert contents(disk).keys() == {*owner.live}


def test_a_put_whose_acknowledgement_was_lost_is_known_again() -> None:
    disk = memory_disk()
    journal = Journal(OWNER, STORE, incarnation=7)
    name, parts = journal.fence()
    disk.put(name, parts)
    newest = survey(disk, OWNER, STORE).newest
    assert newest is not None
    assert journal.is_mine(newest)
    journal.stored(name)
    assert not Journal(OWNER, STORE, incarnation=8).is_mine(newest)


def test_a_fence_that_was_written_and_not_heard_of_is_taken_for_ones_own() -> None:
    class Deaf(FaultyDisk):
        def put(self, name: str, parts: Sequence[Buffer]) -> None:
            super().put(name, parts)
            raise AlreadyThere(name)  # as a driver has it that has tried twice

    journal, found, _ = take_over(Deaf(random.Random(0), lambda: 0.0), OWNER, STORE, 7)
    assert found.newest is not None
    assert journal.is_mine(found.newest)
    assert journal.next_number == 1


def test_a_reader_that_is_overtaken_while_it_reads_is_told_so() -> None:
    disk = memory_disk()
    owner = Owner(disk)
    owner.add("a", 10)
    owner.write()
    found = survey(disk, OWNER, STORE)
    owner.add("a", 20)
    owner.write()
    with pytest.raises(StoreBusy, match="read it again"):
        list(found.read())


def test_nothing_is_written_or_released_before_everything_was_read() -> None:
    disk = three_segments()
    journal, found, _ = take_over(disk, OWNER, STORE, 1)
    journal.add("early", section("early", 5))
    assert journal.seal() is None
    assert journal.carry() == []
    for meta, sections in found.read():
        journal.recovered(meta, sections, [None if each.head == b"c" else each.head for each in sections])
    assert journal.seal() is None
    journal.resume()
    sealed = journal.seal()
    assert sealed is not None
    disk.put(*sealed)
    released = journal.stored(sealed[0])
    assert released == [segment_name(OWNER, 3)]  # of "c"


def test_a_damaged_segment_of_one_owner_does_not_concern_others() -> None:
    disk = three_segments()
    disk.damage(segment_name(OWNER, 4), 8)
    assert survey(disk, "worker-001", STORE).newest is None
