"""Journals that are damaged, incomplete or somebody else's; and segments that must stay.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import recovery.fixed_point.solve
import recovery.rollback.orders
import recovery.rollback.queues
import recovery.store.reading
from falkirk.simulate.disk import SimulatedDisk
from recovery.store import identity, reading, segments
from recovery.store.interface import AlreadyThere, StoreCorrupt, StoreError, StoreVersion
from recovery.store.interface import whose as whose_blob
from recovery.store.journal import Journal
from recovery.store.segments import FORMAT, Section, SegmentMeta, encode_segment, segment_name
from tests.recovery.jobs import quiet
from tests.recovery.store.owners import OWNER, STORE, Owner, contents, memory_disk, section
from tests.support.mutation import GONE, Change, Rules

RULES = Rules()
rule = RULES.add


def fenced() -> Any:
    """The process that was given up writes on, after its successor has taken the journal over."""
    world = quiet("tight", 1)
    old, _, _ = recovery.store.reading.take_over(world.disk, "worker-000", b"simulated-store!", 1)
    old.resume()
    recovery.store.reading.take_over(world.disk, "worker-000", b"simulated-store!", 2)
    old.add("late", Section(b"late"))
    sealed = old.seal()
    assert sealed is not None
    try:
        world.disk.put(*sealed)
    except AlreadyThere:
        return "refused"
    return "written"


rule(
    "fenced writes",
    "writes of fenced incarnations are refused",
    fenced,
    "refused",
    Change(recovery.store.reading, "take_over", "store.put(...)", GONE),
)


def _journal() -> SimulatedDisk:
    """The fence is segment 0; segments 1 to 4 are needed; 4 is the newest."""
    owner = Owner(memory_disk())
    for key in "abcd":
        owner.add(key, 70_000)
        owner.write()
    return owner.disk


def _copy(disk: SimulatedDisk, number: int, change: Callable[[bytearray], None], into: int | None = None) -> None:
    data = bytearray(disk.get(segment_name(OWNER, number)))
    change(data)
    target = segment_name(OWNER, number if into is None else into)
    if target in disk.names(""):
        disk.delete(target)
    disk.put(target, [bytes(data)])


def _flip(at: int) -> Callable[[bytearray], None]:
    def flip(data: bytearray) -> None:
        data[at] ^= 1

    return flip


def _cut_off(data: bytearray) -> None:
    del data[len(data) // 2 :]


def _of_another_store(disk: SimulatedDisk) -> None:
    meta = SegmentMeta(owner=OWNER, number=3, generation=0, incarnation=0, fence=0)
    disk.delete(segment_name(OWNER, 3))
    disk.put(segment_name(OWNER, 3), encode_segment(meta, [section("c", 10)], b"another store..."))


def _go_on(disk: SimulatedDisk, acknowledged: int = -1) -> None:
    """The steps of a new incarnation, and its reading of what it finds."""
    _, found, _ = reading.take_over(disk, OWNER, STORE, 1, acknowledged)
    list(found.read())


def _end(number: int) -> int:
    """The length of segment `number`."""
    return len(_journal().get(segment_name(OWNER, number)))


DAMAGES: dict[str, tuple[Callable[[SimulatedDisk], None], int]] = {
    "nothing": (lambda disk: None, 4),
    "a payload": (lambda disk: _copy(disk, 3, _flip(30_000)), -1),
    "its head": (lambda disk: _copy(disk, 3, _flip(77)), -1),
    "its start": (lambda disk: _copy(disk, 3, _flip(50)), -1),
    "its end": (lambda disk: _copy(disk, 3, _flip(_end(3) - 1)), -1),
    "another store": (_of_another_store, -1),
    "another name": (lambda disk: _copy(disk, 4, lambda data: None, into=3), -1),
    "one is missing": (lambda disk: disk.delete(segment_name(OWNER, 3)), -1),
    "an older one is cut off": (lambda disk: _copy(disk, 3, _cut_off), -1),
    "a newer one is cut off": (lambda disk: _copy(disk, 4, _cut_off, into=5), 4),
    "an acknowledged one is cut off": (lambda disk: _copy(disk, 4, _cut_off), 4),
    "an acknowledged one is missing": (lambda disk: disk.delete(segment_name(OWNER, 4)), 4),
    "the newest has decayed": (lambda disk: _copy(disk, 4, _flip(30_000)), -1),
    "two are cut off": (lambda disk: [_copy(disk, 4, _cut_off, into=at) for at in (5, 6)] and None, -1),
    "the fence is missing": (lambda disk: disk.delete(segment_name(OWNER, 0)), -1),
}


def damaged() -> Any:
    """The damages that a new incarnation gets over."""
    found = []
    for name, (harm, acknowledged) in DAMAGES.items():
        disk = _journal()
        harm(disk)
        try:
            _go_on(disk, acknowledged)
        except StoreError:
            continue
        found.append(name)
        found += [each for each in disk.names("") if each.endswith(".damaged")]
    return found


CHECKSUMS = "checksums; torn tails are cut off at the last good record; nothing else is"
for _name, _change in {
    "checksum of a section": Change(reading, "decode_segment", "zlib.crc32(view[at:following]) != crc", "False"),
    "checksum of the table": Change(reading, "decode_segment", "zlib.crc32(described) != index_crc", "False"),
    "checksum of the start": Change(
        segments,
        "_read_prefix",
        "zlib.crc32(...) != _CRC.unpack_from(...)[0]",
        "False",
    ),
    "mark of the end": Change(segments, "_check_end", "magic != _END", "False"),
    "id of the store": Change(segments, "_read_prefix", "store_id is not None and its_store != store_id", "False"),
    "its own name": Change(reading, "read_segment", "(meta.owner, meta.number) != (owner, number)", "False"),
    "none is missing": Change(reading.Survey, "read", "problems.append(StoreCorrupt(...))", GONE),
    "only a torn tail": Change(reading, "survey", "not error.torn", GONE),
    "only one torn tail": Change(reading, "survey", "torn is not None", GONE),
    "all that was acknowledged": Change(
        reading, "survey", "acknowledged > (newest.number if newest is not None else -1)", "False"
    ),
    "a torn tail is set aside": Change(reading, "_set_aside", "store.put(...)", GONE),
    "fences stay": Change(
        reading,
        "_fences",
        "raise StoreCorrupt(...) from None",
        "return ()",
    ),
}.items():
    rule(_name, CHECKSUMS, damaged, ["nothing", "a newer one is cut off", f"{segment_name(OWNER, 5)}.damaged"], _change)


def whose() -> Any:
    """The kind of a folder that is empty, a store, something else, a store of another version, or of a damaged name."""
    found: list[Any] = []
    texts = [b"", b'{"type":"falkirk-store","version":99,"id":"MDEyMzQ1Njc4OWFiY2RlZg=="}', b"{}"]
    texts.append(b'{"type":"falkirk-store","version":%d,"id":"MDEyMw=="}' % FORMAT)
    for text in texts:
        disk = memory_disk()
        disk.put(identity.NAME if text else "holiday.jpg", [text])
        try:
            found.append(identity.store_id(disk))
        except StoreError as error:
            found.append(type(error).__name__)
    disk = memory_disk()
    found += [identity.store_id(disk), identity.make_store_id(disk, STORE), identity.make_store_id(disk, b"a" * 16)]
    return found


WHOSE = "a changed program against an old store, a store of something else: a clear error"
for _name, _change in {
    "only a store": Change(identity, "store_id", "not others", "True"),
    "of this version": Change(identity, "store_id", "identity.version != FORMAT", "False"),
    "with a whole id": Change(identity, "store_id", "len(identity.id) != 16", "False"),
    "one id for ever": Change(identity, "make_store_id", "known is not None", "False"),
}.items():
    rule(
        _name,
        WHOSE,
        whose,
        ["StoreError", "StoreVersion", "StoreCorrupt", "StoreCorrupt", None, STORE, STORE],
        _change,
    )


def deleted() -> Any:
    """After each write the process dies: whether all that was live is found again, and a new one goes on."""
    disk = memory_disk()
    owner = Owner(disk)
    found = []
    for step in range(12):
        owner.add(f"{step % 5}", 30_000 + step)
        if step % 4 == 3:
            owner.dead(f"{step % 5}")
            owner.add("other", step)
        owner.carry()
        sealed = owner.journal.seal()
        assert sealed is not None
        durable = {key: bytes(each.payload) for key, each in owner.live.items()}
        disk.put(*sealed)
        for name in owner.journal.stored(sealed[0]):
            disk.delete(name)
        read = contents(disk)
        found.append(all(read.get(key) == payload for key, payload in durable.items()))
    fences = reading.survey(disk, OWNER, STORE).fences
    return found, fences, len(disk.names("")) < 9


DELETED = "nothing is deleted that any failure scenario could need: a segment goes after a later one leaves it out"
for _name, _change in {
    "segments with live keys stay": Change(
        Journal, "_seal", "stored.live.keys() <= costs.keys()", "len(stored.live) <= 1"
    ),
    "segments go": Change(
        Journal,
        "stored",
        "[segment_name(self.owner, released) for released in sealed.releases]",
        "[]",
    ),
}.items():
    rule(_name, DELETED, deleted, ([True] * 12, (0,), True), _change)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("store", "what says which store this is"),
        ("monitor/00", "part of the monitor's journal"),
        ("worker-003/00", "part of the journal of worker 3, which has its checkpoints and logs"),
        ("worker-x/00", "part of the journal of worker-x"),
        ("12/00", "part of the journal of 12"),
        ("other/00", "part of the journal of other"),
    ],
)
def test_an_error_says_whose_the_damaged_blob_is_and_what_to_do(name: str, owner: str) -> None:
    assert whose_blob(name).startswith(owner)
    assert f"It is {whose_blob(name)}; restore it from a copy of the store" in str(StoreCorrupt(name, 7, "bits differ"))
    assert str(StoreCorrupt(name, 7, "bits differ", "do this")).endswith("; do this")


def test_a_store_of_another_format_says_which_version_to_use() -> None:
    assert "use the newer version" in str(StoreVersion("a", 3, 2))
    assert "use the version of falkirk that wrote it" in str(StoreVersion("a", 2, 3))
