"""The journal: nothing that is live is ever lost, what is dead goes, and only one incarnation writes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.simulate.disk import SimulatedDisk
from recovery.store import journal as journal_module
from recovery.store.interface import AlreadyThere, StoreBusy, StoreCorrupt
from recovery.store.journal import IDLE_RELEASE, PLACE, SMALL, Journal, Key, cost
from recovery.store.reading import read_all, survey, take_over
from recovery.store.segments import Section, SegmentMeta, decode_segment, encode_segment, segment_name

STORE = b"0123456789abcdef"
OWNER = "worker-000"


def memory_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(0), lambda: 0.0)


def section(key: str, size: int) -> Section:
    return Section(key.encode(), bytes(size))


class Owner:
    """A writer with a store that answers at once, and what it must find again: the sections of every live key."""

    def __init__(self, disk: SimulatedDisk, incarnation: int = 0) -> None:
        self.disk = disk
        self.live: dict[str, Section] = {}
        self.journal, found, self.warnings = take_over(disk, OWNER, STORE, incarnation)
        for meta, sections in found.read():
            self.journal.recovered(meta, sections, [each.head.decode() for each in sections])
            self.live.update((each.head.decode(), each) for each in sections)
        self.journal.resume()
        for name in found.leftovers:
            disk.delete(name)

    def add(self, key: str, size: int) -> None:
        self.live[key] = section(key, size)
        self.journal.add(key, self.live[key])

    def dead(self, key: str) -> None:
        del self.live[key]
        self.journal.dead(key)

    def carry(self) -> list[Key]:
        keys = self.journal.carry()
        for key in keys:
            assert isinstance(key, str)
            self.journal.add(key, self.live[key])
        return keys

    def write(self) -> bool:
        """Carry, seal, put, acknowledge and delete; whether there was anything to write."""
        self.carry()
        sealed = self.journal.seal()
        if sealed is None:
            return False
        self.disk.put(*sealed)
        for name in self.journal.stored(sealed[0]):
            self.disk.delete(name)
        return True

    def settle(self) -> None:
        for _ in range(1000):
            if not self.write():
                return
        raise AssertionError("the journal never stops writing")

    def live_cost(self) -> int:
        return sum(map(cost, self.live.values()))


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    """What a new incarnation reads, of each key the last."""
    return {each.head.decode(): bytes(each.payload) for _, several in read_all(disk, OWNER, STORE) for each in several}


def test_sections_are_gathered_while_a_segment_is_being_written() -> None:
    owner = Owner(memory_disk())
    owner.add("a", 10)
    first = owner.journal.seal()
    assert first is not None
    owner.add("b", 10)
    owner.add("c", 10)
    assert owner.journal.seal() is None
    assert owner.journal.in_flight == first[0] == segment_name(OWNER, 1)
    owner.journal.stored(first[0])
    second = owner.journal.seal()
    assert second is not None
    assert [each.head for each in decode_segment(b"".join(second[1]))[1]] == [b"b", b"c"]
    owner.journal.stored(second[0])
    assert owner.journal.seal() is None


def test_segments_say_who_wrote_them() -> None:
    owner = Owner(memory_disk(), incarnation=3)
    owner.journal.generation = 5
    owner.add("a", 1)
    sealed = owner.journal.seal()
    assert sealed is not None
    meta, _ = decode_segment(b"".join(sealed[1]), store_id=STORE)
    assert (meta.owner, meta.number, meta.generation, meta.incarnation) == (OWNER, 1, 5, 3)
    assert owner.journal.is_mine(meta)


def test_only_the_segment_that_was_sealed_can_be_acknowledged() -> None:
    owner = Owner(memory_disk())
    with pytest.raises(ValueError, match="is not the segment"):
        owner.journal.stored(segment_name(OWNER, 1))


def test_a_segment_goes_once_a_later_one_that_does_not_need_it_is_acknowledged() -> None:
    owner = Owner(memory_disk())
    owner.add("a", 10)
    owner.write()
    owner.add("b", 100_000)
    owner.write()
    owner.dead("a")
    assert segment_name(OWNER, 1) in owner.disk.names("")  # nothing durable says that it is not needed
    owner.add("c", 10)
    sealed = owner.journal.seal()
    assert sealed is not None
    meta, _ = decode_segment(b"".join(sealed[1]))
    assert list(meta.needed_numbers()) == [2]
    assert owner.journal.stored(sealed[0]) == [segment_name(OWNER, 1)]


def test_what_dies_while_its_segment_is_written_is_not_kept() -> None:
    owner = Owner(memory_disk())
    owner.add("a", 10)
    sealed = owner.journal.seal()
    assert sealed is not None
    owner.dead("a")
    owner.journal.stored(sealed[0])
    assert owner.journal.live == 0
    assert "a" not in owner.journal


def test_what_dies_before_it_is_sealed_is_not_written() -> None:
    owner = Owner(memory_disk())
    owner.add("a", 10)
    owner.dead("a")
    assert owner.journal.seal() is None
    assert owner.journal.gathered == 0


def test_a_key_can_have_several_sections_and_a_new_value_replaces_all() -> None:
    owner = Owner(memory_disk())
    owner.journal.add("a", section("a", 10))
    owner.journal.add("a", section("a", 20))
    assert owner.journal.gathered == 2 + 30 + 2 * PLACE
    owner.write()
    owner.add("a", 7)
    owner.write()
    assert owner.journal.live == owner.live_cost()
    assert contents(owner.disk) == {"a": bytes(7)}
    assert owner.disk.names("") == [segment_name(OWNER, 2)]


def test_a_mostly_dead_segment_is_cleaned_after_its_copy_is_durable() -> None:
    owner = Owner(memory_disk())
    for key in "abcde":
        owner.add(key, 1_000_000)
    owner.write()
    for key in "abc":
        owner.dead(key)
    assert owner.journal.carry() == []  # two fifths of it are live
    owner.dead("d")
    assert owner.carry() == ["e"]
    assert owner.journal.carry() == []  # it waits
    sealed = owner.journal.seal()
    assert sealed is not None
    assert owner.journal.carry() == []  # it is under way
    assert segment_name(OWNER, 1) in owner.disk.names("")
    owner.disk.put(*sealed)
    assert segment_name(OWNER, 1) in owner.journal.stored(sealed[0])
    assert contents(owner.disk)["e"] == bytes(1_000_000)


def test_small_segments_are_joined_so_that_their_number_stays_low() -> None:
    owner = Owner(memory_disk())
    for i in range(3000):
        owner.add(f"{i}", 500)
        owner.write()
    assert len(owner.disk.names("")) < 2 * SMALL // 564 + owner.live_cost() // SMALL
    assert owner.journal.carried <= owner.journal.written
    assert contents(owner.disk).keys() == owner.live.keys()


def test_much_that_is_dead_goes_even_if_nothing_new_is_written() -> None:
    owner = Owner(memory_disk())
    owner.add("a", IDLE_RELEASE)
    owner.write()
    owner.dead("a")
    owner.settle()
    assert owner.disk.size() < 1000
    assert not owner.write()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("birth"), st.integers(0, 12), st.sampled_from((0, 50, 3_000, 70_000, 400_000))),
        st.tuples(st.just("death"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("write"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=120,
)


@given(STEPS)
def test_what_is_live_and_durable_is_always_read_back(steps: list[tuple[str, int, int]]) -> None:
    disk = memory_disk()
    owner = Owner(disk)
    incarnation = 0
    durable: dict[str, int] = {}
    for what, key, size in steps:
        match what:
            case "birth":
                owner.add(str(key), size)
            case "death":
                if str(key) in owner.live:
                    owner.dead(str(key))
                    durable.pop(str(key), None)
            case "write":
                owner.write()
                durable = {name: len(each.payload) for name, each in owner.live.items()}
            case "restart":
                incarnation += 1
                dead = [key for key in contents(disk) if key not in durable]
                owner = Owner(disk, incarnation)
                for each in dead:  # what the other knowledge of a reader says
                    owner.dead(each)
        found = contents(disk)
        assert {name: len(found[name]) for name in durable} == durable


def sizes(draw: random.Random) -> Iterator[int]:
    while True:
        yield draw.choice((0, 100, 2_000, 50_000, 300_000))


@pytest.mark.parametrize("seed", range(6))
def test_the_store_stays_within_a_multiple_of_what_is_live(seed: int) -> None:
    draw = random.Random(seed)
    owner = Owner(memory_disk())
    size = sizes(draw)
    aim = draw.choice((1, 5, 100))
    most_carried = 0.0
    for step in range(1500):
        if draw.random() < 0.002:
            aim = draw.choice((1, 5, 100, 300))
        owner.add(f"{step}", next(size))
        while len(owner.live) > aim:
            # Some keys live long and some short, so that segments decay at different speeds.
            keys = sorted(owner.live, key=int)
            owner.dead(keys[int(len(keys) * draw.random() ** 2)])
        owner.write()
        if step % 50 == 0:
            owner.settle()
            assert owner.disk.size() <= 4 * owner.live_cost() + 2 * IDLE_RELEASE
            assert contents(owner.disk).keys() >= owner.live.keys()
        most_carried = max(most_carried, owner.journal.carried / owner.journal.written)
    assert owner.journal.carried < owner.journal.written
    assert most_carried <= 5 / 3


def test_one_live_thing_in_each_segment_does_not_keep_them_all() -> None:
    """The first segment is large and lives for ever: it is not enough to look at the oldest one."""
    owner = Owner(memory_disk())
    owner.add("for ever", 5_000_000)
    owner.write()
    for step in range(200):
        owner.add(f"short {step}", 200_000)
        owner.add(f"long {step}", 100)
        owner.write()
        owner.dead(f"short {step}")
    owner.settle()
    assert owner.disk.size() < 4 * owner.live_cost() + IDLE_RELEASE


def test_without_cleaning_the_bound_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module.Journal, "carry", lambda self: [])
    with pytest.raises(AssertionError):
        test_one_live_thing_in_each_segment_does_not_keep_them_all()


# Reading, damage and fencing


def three_segments() -> SimulatedDisk:
    """Segments 1, 3 and 4 are needed, 0 and 2 are gone; 4 is the newest."""
    owner = Owner(memory_disk())
    for key in "abcd":
        owner.add(key, 100_000)
        owner.write()
        if key == "c":
            owner.dead("b")
    assert owner.disk.names("") == [segment_name(OWNER, number) for number in (1, 3, 4)]
    return owner.disk


def test_holes_where_segments_were_deleted_are_as_they_should_be() -> None:
    disk = three_segments()
    assert [meta.number for meta, _ in read_all(disk, OWNER, STORE)] == [1, 3, 4]


def test_an_empty_store_has_an_empty_journal() -> None:
    found = survey(memory_disk(), OWNER, STORE)
    assert (found.newest, found.torn, found.leftovers, list(found.read())) == (None, None, (), [])


@pytest.mark.parametrize("number", [1, 3])
def test_a_lost_segment_is_noticed_and_named(number: int) -> None:
    disk = three_segments()
    disk.lose_acknowledged(segment_name(OWNER, number))
    with pytest.raises(
        StoreCorrupt, match=f"segment-0000000{number} .*the file is missing, and .*segment-00000004 needs"
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


def test_a_segment_under_the_name_of_another_is_noticed() -> None:
    disk = three_segments()
    data = disk.get(segment_name(OWNER, 3))
    disk.delete(segment_name(OWNER, 1))
    disk.put(segment_name(OWNER, 1), [data])
    with pytest.raises(StoreCorrupt, match="segment-00000001 .*it is segment 3 of worker-000"):
        list(read_all(disk, OWNER, STORE))


@pytest.mark.parametrize("keep", [0, 10, 64, 3000])
@pytest.mark.parametrize("fill", [b"", b"\0", b"x"])
def test_a_newest_segment_that_was_cut_off_is_set_aside(keep: int, fill: bytes) -> None:
    disk = three_segments()
    name = segment_name(OWNER, 5)
    whole = b"".join(
        encode_segment(SegmentMeta(owner=OWNER, number=5, generation=0, incarnation=0), [section("e", 9000)], STORE)
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


def test_a_cut_off_segment_that_was_acknowledged_is_an_error() -> None:
    disk = three_segments()
    disk.put(segment_name(OWNER, 5), [b""])
    with pytest.raises(StoreCorrupt, match="segment-00000005"):
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
        encode_segment(SegmentMeta(owner=OWNER, number=2, generation=0, incarnation=0), [section("b", 1)], STORE)
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
        zombie.journal.overtaken(SegmentMeta(owner=OWNER, number=2, generation=0, incarnation=1))


class Racing(SimulatedDisk):
    """Somebody else writes just before each of the first few puts."""

    def __init__(self, others: list[Owner]) -> None:
        super().__init__(random.Random(0), lambda: 0.0)
        self.others = others

    def put(self, name: str, parts: object) -> None:
        if self.others:
            other = self.others.pop(0)
            other.add(f"late {name}", 10)
            if "early" in other.live:
                other.dead("early")
            other.write()
        super().put(name, parts)  # type: ignore[arg-type]


def test_a_fence_goes_on_behind_what_the_older_incarnation_still_wrote() -> None:
    disk = Racing([])
    zombie = Owner(disk)
    zombie.add("early", 10)
    zombie.write()
    zombie.add("second", 10)
    zombie.write()

    class Once(Owner):
        def write(self) -> bool:
            waiting, disk.others = disk.others, []
            wrote = super().write()
            disk.others = waiting
            return wrote

    zombie.__class__ = Once
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
    assert released == [segment_name(OWNER, number) for number in (3, 5)]  # of "c", and the fence


def test_a_damaged_segment_of_one_owner_does_not_concern_others() -> None:
    disk = three_segments()
    disk.damage(segment_name(OWNER, 4), 8)
    assert survey(disk, "worker-001", STORE).newest is None
