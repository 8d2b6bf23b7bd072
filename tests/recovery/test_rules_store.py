"""Rules of rollback: what a journal must not give back, and what of it may not be missing. The table is in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from falkirk.simulate.disk import SimulatedDisk
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import Applied, Checkpoint, HistoryRecord, Logged, key_of, record_of
from recovery.metadata import Xi
from recovery.recorder import NOTIFICATION, LogEntry, WorkerRecorder
from recovery.store import identity, reading, segments
from recovery.store.interface import StoreError
from recovery.store.journal import Journal
from recovery.store.segments import FORMAT, SegmentMeta, encode_segment, segment_name
from tests.recovery.layouts import layout
from tests.recovery.store.owners import OWNER, STORE, Owner, contents, memory_disk, section
from tests.support.mutation import GONE, Change, Instead, Rule
from timely.state import KeyedState

RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change | Instead) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- what decisions make void


def _checkpoints(journal: Journal | None = None) -> tuple[WorkerRecorder, Checkpoints]:
    """Of a worker with a processor that logs and has a full history, and one that saves its state."""
    plan = layout("a chain, b chain", "a|b", 1)
    plan = msgspec.structs.replace(
        plan, processors=(msgspec.structs.replace(plan.processors[0], history=True), plan.processors[1])
    )
    recorder = WorkerRecorder(plan, 0)
    return recorder, Checkpoints(plan, recorder, journal or Journal(OWNER, STORE))


def _saved(p: int, bound: int, generation: int) -> Checkpoint:
    return Checkpoint(Xi(p, (bound,), ((0,),) if p == 0 else ()), generation, (bound,), 0, (), ())


def read_again() -> Any:
    """What counts of three generations: the second begins with a to 4 and b as it is, the third with a to 6 and b to 8."""
    recorder, checkpoints = _checkpoints()
    found: list[Any] = [Applied(2, ((4,), None)), Applied(3, ((6,), (8,)))]
    found += [_saved(0, *each) for each in ((4, 1), (5, 1), (6, 2), (8, 2), (7, 3))]
    found += [_saved(1, *each) for each in ((8, 1), (9, 1))]
    events = [(3, 1), (4, 1), (5, 2), (6, 2), (6, 3)]
    for number, (event, generation) in enumerate(events, 1):
        found.append(Logged(0, 0, number, (event,), (event,), b"", (9,), generation))
        found.append(HistoryRecord(0, number, NOTIFICATION, (event,), b"", (9,), generation))
    checkpoints.load([(record, b"") for record in found])
    return (
        [(xi.processor, xi.bound[0]) for xi in (saved.checkpoint.xi for saved in checkpoints.saved())],
        [entry.event[0] for entry in recorder.logs.get((0, 0), ())],
        [event.time[0] for event in recorder.histories[0]],
    )


def numbered_on() -> Any:
    """The log of three processes of a worker, each of which sends once to itself for epoch 5."""
    found: list[Any] = []
    for process in range(3):
        recorder, checkpoints = _checkpoints()
        checkpoints.load([(record, b"") for record in found])
        recorder.kept(0, (process,), (5,), [process])
        entry = recorder.logs[0, 0][-1]
        found.append(Logged(0, 0, entry.number, entry.event, entry.time, b"", (9,), process))
    recorder, checkpoints = _checkpoints()
    checkpoints.load([(record, b"") for record in found])
    return [entry.event[0] for entry in recorder.logs[0, 0]], len({record.number for record in found})


def as_by_a_new_one(self: WorkerRecorder, entry: LogEntry) -> None:
    self.logs.setdefault((entry.edge, entry.receiver), []).append(entry)


rule(
    "numbers of what stays within a worker",
    "logs keep the order of sending, over all processes of a worker",
    numbered_on,
    ([0, 1, 2], 3),
    Instead(WorkerRecorder, "recall", as_by_a_new_one),
)


READ = ([(0, 4), (0, 6), (0, 7), (1, 8)], [3, 5, 6], [3, 5, 6])
SNAPSHOTS = "a reader ignores Ξ and snapshots not ⊆ every later decision"
EVENTS = "a reader ignores log entries, and events of histories, whose event time lies outside a later decision"
for _name, _says, _change in (
    (
        "void checkpoints, read again",
        SNAPSHOTS,
        Change(Checkpoints, "load", "self._holds(...)", "True"),
    ),
    ("a checkpoint at the decision", SNAPSHOTS, Change(Checkpoints, "_holds", "bound <= limit", "bound < limit")),
    (
        "void log entries",
        EVENTS,
        Change(
            Checkpoints,
            "load",
            "self._keeps(self._sender[record.edge], ...)",
            "True",
        ),
    ),
    (
        "void events of histories",
        EVENTS,
        Change(Checkpoints, "load", "self._keeps(record.processor, ...)", "True"),
    ),
    ("an event at the decision", EVENTS, Change(Checkpoints, "_keeps", "event < limit", "event <= limit")),
    (
        "every later decision",
        "not only the last one",
        Change(
            Checkpoints,
            "_limits",
            "number > generation",
            "number > generation and number == self.generation",
        ),
    ),
    (
        "no earlier decision",
        "journal records carry the generation",
        Change(Checkpoints, "_limits", "number > generation", GONE),
    ),
    (
        "not its own decision",
        "journal records carry the generation",
        Change(Checkpoints, "_limits", "number > generation", "number >= generation"),
    ),
):
    rule(_name, _says, read_again, READ, _change)


def _write(disk: SimulatedDisk, journal: Journal) -> None:
    sealed = journal.seal()
    assert sealed is not None
    disk.put(*sealed)
    for name in journal.stored(sealed[0]):
        disk.delete(name)


def decided_twice() -> Any:
    """A decision made the checkpoint at 5 void, which is still in a segment; another decision, which says nothing of it."""
    disk = memory_disk()
    journal, _, _ = reading.take_over(disk, OWNER, STORE, 1)
    journal.resume()
    _, checkpoints = _checkpoints(journal)
    checkpoints.open()
    for epoch in (3, 5):
        assert checkpoints.advance(checkpoints.cut(1, (epoch,), lambda p: None, lambda p, epoch: ()))
    _write(disk, journal)
    for generation, bound in ((2, (3,)), (3, None), (4, None)):
        checkpoints.apply(generation, (None, bound))
        _write(disk, journal)
        checkpoints.forget_decisions()
    _, again = _checkpoints()
    again.load(
        [
            (record_of(each.head), each.payload)
            for _, several in reading.read_all(disk, OWNER, STORE)
            for each in several
        ]
    )
    return [xi.bound for xi in (saved.checkpoint.xi for saved in again.saved())]


rule(
    "decisions as long as needed",
    "a decision is kept as long as something that it made void can be read",
    decided_twice,
    [(3,)],
    Change(
        Checkpoints,
        "forget_decisions",
        "self._journal.oldest >= at",
        GONE,
    ),
)


def forgotten() -> Any:
    """The only segment with what an old decision made void is gone: so is the decision."""
    disk = memory_disk()
    journal, _, _ = reading.take_over(disk, OWNER, STORE, 1)
    journal.resume()
    _, checkpoints = _checkpoints(journal)
    for generation in range(2, 8):
        checkpoints.apply(generation, (None, None))
        _write(disk, journal)
        checkpoints.forget_decisions()
    return len(checkpoints._applied) < 4


rule(
    "decisions no longer",
    "compaction of the journal: decisions go when all that they made void is gone",
    forgotten,
    True,
    Change(Checkpoints, "forget_decisions", "del self._applied[generation], self._applied_at[generation]", "continue"),
)


def remembered() -> Any:
    """Nothing but the newest decision is left of what was decided; of which one is known when the journal is read again."""
    disk = memory_disk()
    journal, _, _ = reading.take_over(disk, OWNER, STORE, 1)
    journal.resume()
    _, checkpoints = _checkpoints(journal)
    for generation in range(2, 5):
        checkpoints.apply(generation, (None, None))
        _write(disk, journal)
        checkpoints.forget_decisions()
    for epoch in (1, 2, 3):
        assert checkpoints.advance(checkpoints.cut(1, (epoch,), lambda p: None, lambda p, epoch: ()))
        _write(disk, journal)
        checkpoints.forget_decisions()
    _, again = _checkpoints()
    read = [each for _, several in reading.read_all(disk, OWNER, STORE) for each in several]
    again.load([(record_of(each.head), each.payload) for each in read])
    return sorted(checkpoints._applied), again.generation


rule(
    "the newest decision stays",
    "a decision is binding: who joins again says which one was the last",
    remembered,
    ([4], 4),
    Change(Checkpoints, "forget_decisions", "generation < self.generation", "generation <= self.generation"),
)


def _reopened(disk: SimulatedDisk) -> tuple[Journal, Checkpoints]:
    """What a new process makes of a journal."""
    journal, found, _ = reading.take_over(disk, OWNER, STORE, 2)
    _, checkpoints = _checkpoints(journal)
    read = [(meta, [each for each in several if each.head != b"waste"]) for meta, several in found.read()]
    checkpoints.load([(record_of(each.head), each.payload) for _, several in read for each in several])
    for meta, several in found.read():
        keys = [None if each.head == b"waste" else key_of(record_of(each.head)) for each in several]
        journal.recovered(meta, several, keys)
    journal.resume()
    return journal, checkpoints


def saved_anew(restarts: bool = False) -> Any:
    """Of an old segment little is live: the state that it begins with. Whether it goes, and what the state is then."""
    disk = memory_disk()
    journal, _, _ = reading.take_over(disk, OWNER, STORE, 1)
    journal.resume()
    _, checkpoints = _checkpoints(journal)
    state = KeyedState()
    journal.add(("waste",), section("waste", 800_000))
    first = journal.next_number
    for epoch in range(1, 5):
        state.write((epoch,), {"k": epoch, epoch: "new"})
        draft = checkpoints.cut(1, (epoch + 1,), lambda p: state if p else None, lambda p, epoch: ())
        while not checkpoints.advance(draft):
            pass
        _write(disk, journal)
        if epoch == 1 and restarts:
            journal, checkpoints = _reopened(disk)
        checkpoints.collect(1, (epoch + 1,))
        journal.dead(("waste",))
        checkpoints.carry()
    _, again = _checkpoints()
    read = [each for _, several in reading.read_all(disk, OWNER, STORE) for each in several]
    again.load([(record_of(each.head), each.payload) for each in read])
    back = KeyedState()
    back.restore(again.runs(1, (5,)))
    return journal.oldest > first, dict(back.read((4,)))


FEW = "a store takes a few times what is live: a segment that is mostly dead is not kept for the increments that rest on it"
ANEW = (True, {"k": 4, 1: "new", 2: "new", 3: "new", 4: "new"})
rule("state is written again", FEW, saved_anew, ANEW, Change(Checkpoints, "_carry_cut", "self._write(...)", GONE))
rule(
    "state is saved anew",
    FEW,
    lambda: saved_anew(restarts=True),
    ANEW,
    Change(Checkpoints, "_carry_cut", "self._of[p].unwieldy = True", GONE),
)


# ---------------------------------------------------------------------------------- damage


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
    """What a new incarnation does, and how it reads what it finds."""
    _, found, _ = reading.take_over(disk, OWNER, STORE, 1, acknowledged)
    list(found.read())


def _end(number: int) -> int:
    """How long segment `number` is."""
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
    """Which damages a new incarnation gets over."""
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
    "its own name": Change(reading, "_read", "(meta.owner, meta.number) != (owner, number)", "False"),
    "none is missing": Change(reading.Survey, "read", "self._check_unchanged()", "continue\nself._check_unchanged()"),
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
    """What a folder is that is empty, a store, something else, a store of another version, or of a damaged name."""
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


# ---------------------------------------------------------------------------------- deleting


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


def collected() -> Any:
    """Five checkpoints, each whole, of which nothing goes below 4 again; what is left, and in the journal."""
    disk = memory_disk()
    journal, _, _ = reading.take_over(disk, OWNER, STORE, 1)
    journal.resume()
    _, checkpoints = _checkpoints(journal)
    for epoch in range(1, 6):
        assert checkpoints.advance(checkpoints.cut(1, (epoch,), lambda p: None, lambda p, epoch: ()))
        _write(disk, journal)
    checkpoints.collect(1, (4,))
    return (
        [xi.bound[0] for xi in (saved.checkpoint.xi for saved in checkpoints.saved())],
        [epoch for epoch in range(1, 6) if ("cut", 1, (epoch,)) in journal],
    )


COLLECTED = "collect S(p, f') for f' ⊂ W(p): garbage goes, and what may be needed stays"
for _name, _old, _new in (
    ("garbage goes", "del history.saved[:first]", GONE),
    ("garbage goes from the journal", "self._let_go(...)", GONE),
    ("what W rests on stays", "inside[-1]", "inside[-1] + 1"),
):
    rule(_name, COLLECTED, collected, ([4, 5], [4, 5]), Change(Checkpoints, "collect", _old, _new))


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
