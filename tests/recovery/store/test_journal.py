"""The journal: nothing that is live is ever lost, and what is dead goes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from recovery.store import journal as journal_module
from recovery.store.journal import IDLE_RELEASE, PLACE, SMALL, Journal, cost
from recovery.store.reading import take_over
from recovery.store.segments import SegmentMeta, decode_segment, segment_name
from tests.recovery.store.owners import OWNER, STORE, Owner, contents, memory_disk, section


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
    fence, _ = decode_segment(owner.disk.get(segment_name(OWNER, 0)), store_id=STORE)
    assert (fence.generation, fence.incarnation) == (0, 3), "no decision was heard of yet"
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

    assert owner.journal.unwritten == 0
    owner.add("a", 10)
    gathered = owner.journal.gathered
    sealed = owner.journal.seal()
    assert sealed is not None
    assert (owner.journal.gathered, owner.journal.unwritten) == (0, gathered)
    with pytest.raises(ValueError, match="is not the segment"):
        owner.journal.stored(segment_name(OWNER, 7))
    assert "a" in owner.journal
    assert not owner.journal.is_stored("a")
    owner.journal.stored(sealed[0])
    assert "a" in owner.journal
    assert owner.journal.is_stored("a")
    assert owner.journal.unwritten == 0


def test_a_journal_is_resumed_once_after_all_was_read_and_asks_to_be_looked_at_then() -> None:
    disk = memory_disk()
    owner = Owner(disk)
    for key in ("a", "b", "a"):
        owner.add(key, 100)
        owner.write()
    journal, found, _ = take_over(disk, OWNER, STORE, 1)
    assert journal.seal() is None
    read = list(found.read())
    for meta, sections in read:
        journal.recovered(meta, sections, [each.head.decode() for each in sections])
    assert journal.live == sum(cost(section(key, 100)) for key in ("a", "b"))  # what is replaced counts once
    assert journal.restless
    journal.resume()
    with pytest.raises(ValueError, match="was resumed already"):
        journal.resume()
    with pytest.raises(ValueError, match="was not there when this journal was fenced"):
        journal.recovered(*read[0], ["a"])


def test_a_journal_begins_once() -> None:
    journal = Journal(OWNER, STORE)
    name, _ = journal.fence()
    with pytest.raises(ValueError, match="has begun already"):  # its fence is under way
        journal.fence()
    journal.stored(name)
    with pytest.raises(ValueError, match="has begun already"):
        journal.fence()
    with pytest.raises(ValueError, match="was fenced off by segment 7"):
        journal.overtaken(SegmentMeta(owner=OWNER, number=7, generation=0, incarnation=1, fence=7), ())


def test_a_fence_names_those_before_it_and_no_other_segment_does() -> None:
    disk = memory_disk()
    for incarnation in range(3):
        owner = Owner(disk, incarnation)
        owner.add("a", 10)
        owner.write()
    metas = [decode_segment(disk.get(name))[0] for name in disk.names("")]
    assert [(meta.number, meta.fences) for meta in metas if meta.is_fence] == [(0, ()), (2, (0,)), (4, (0, 2))]
    assert [meta.fences for meta in metas if not meta.is_fence] == [()]


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
    assert owner.disk.names("") == [segment_name(OWNER, 0), segment_name(OWNER, 2)]


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
    assert owner.journal.stored(sealed[0]) == [segment_name(OWNER, 1)]
    assert contents(owner.disk)["e"] == bytes(1_000_000)


def test_small_segments_are_joined_so_that_their_number_stays_low() -> None:
    owner = Owner(memory_disk())
    for i in range(3000):
        owner.add(f"{i}", 500)
        owner.write()
    assert len(owner.disk.names("")) < 2 * SMALL // 564 + owner.live_cost() // SMALL
    assert owner.journal.carried <= owner.journal.written
    assert contents(owner.disk).keys() == owner.live.keys()


def test_small_segments_are_joined_only_within_what_was_written_anew() -> None:
    owner = Owner(memory_disk())
    for i in range(4):
        owner.add(f"{i}", SMALL // 4)
        sealed = owner.journal.seal()
        assert sealed is not None
        owner.journal.stored(sealed[0])
    assert owner.journal.carry() == []  # there is nothing to join them with
    owner.add("new", 10)
    assert owner.journal.carry() == ["0", "1", "2", "3"]
    owner.journal.carried = 200
    assert owner.journal.carry() == []


def test_much_that_is_dead_goes_even_if_nothing_new_is_written() -> None:
    owner = Owner(memory_disk())
    owner.add("a", IDLE_RELEASE)
    owner.write()
    owner.dead("a")
    owner.settle()
    assert owner.disk.size() < 1000
    assert not owner.write()


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
