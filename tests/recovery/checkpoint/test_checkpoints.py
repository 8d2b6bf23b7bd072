"""Checkpoints: what a reader takes, what is forgotten, carried on and collected.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest

from falkirk.simulate.disk import SimulatedDisk
from recovery.checkpoint.applied import AppliedDecisions
from recovery.checkpoint.checkpoints import Checkpoints, alike
from recovery.checkpoint.processor_checkpoints import SavedCheckpoint
from recovery.checkpoint.records import (
    Applied,
    Checkpoint,
    HistoryRecord,
    Logged,
    Opening,
    Piece,
    key_of,
    record_of,
    save_batch,
)
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import NOTIFICATION, LogEntry
from recovery.metadata import Xi
from recovery.store import reading
from recovery.store.journal import Journal
from tests.recovery.layouts import layout
from tests.recovery.store.owners import OWNER, STORE, memory_disk, section
from tests.support.mutation import GONE, Change, Instead, Rules
from timely.errors import OperatorError, ProtocolError
from timely.state import KeyedState
from timely.state.shapes import PartShape, digest_of

RULES = Rules()
rule = RULES.add


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
    """The valid part of three generations: the second begins with a to 4 and b as it is, the third with a to 6 and b to 8."""
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
        Change(Checkpoints, "load", "self._applied.holds(...)", "True"),
    ),
    (
        "a checkpoint at the decision",
        SNAPSHOTS,
        Change(AppliedDecisions, "holds", "within(bound, limit)", "bound < limit"),
    ),
    (
        "void log entries",
        EVENTS,
        Change(
            Checkpoints,
            "load",
            "self._applied.keeps(self._sender[record.edge], ...)",
            "True",
        ),
    ),
    (
        "void events of histories",
        EVENTS,
        Change(Checkpoints, "load", "self._applied.keeps(record.processor, ...)", "True"),
    ),
    ("an event at the decision", EVENTS, Change(AppliedDecisions, "keeps", "holds(limit, event)", "event <= limit")),
    (
        "every later decision",
        "not only the last one",
        Change(
            AppliedDecisions,
            "_limits",
            "number > generation",
            "number > generation and number == self.generation",
        ),
    ),
    (
        "no earlier decision",
        "journal records carry the generation",
        Change(AppliedDecisions, "_limits", "number > generation", GONE),
    ),
    (
        "not its own decision",
        "journal records carry the generation",
        Change(AppliedDecisions, "_limits", "number > generation", "number >= generation"),
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
        assert checkpoints.advance(checkpoints.cut(1, (epoch,), lambda p: None, defaultdict(tuple)))
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
        AppliedDecisions,
        "forget",
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
    return len(list(checkpoints._applied.keys())) < 4


rule(
    "decisions no longer",
    "compaction of the journal: decisions go when all that they made void is gone",
    forgotten,
    True,
    Change(AppliedDecisions, "forget", "del self._records[generation], self._applied_at[generation]", "continue"),
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
        assert checkpoints.advance(checkpoints.cut(1, (epoch,), lambda p: None, defaultdict(tuple)))
        _write(disk, journal)
        checkpoints.forget_decisions()
    _, again = _checkpoints()
    read = [each for _, several in reading.read_all(disk, OWNER, STORE) for each in several]
    again.load([(record_of(each.head), each.payload) for each in read])
    keys = list(checkpoints._applied.keys())
    return [generation for _, generation in keys], again.generation


rule(
    "the newest decision stays",
    "a decision is binding: who joins again says which one was the last",
    remembered,
    ([4], 4),
    Change(AppliedDecisions, "forget", "generation < self.generation", "generation <= self.generation"),
)


def _reopened(disk: SimulatedDisk) -> tuple[Journal, Checkpoints]:
    """The reading of a journal by a new process."""
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
        draft = checkpoints.cut(1, (epoch + 1,), lambda p: state if p else None, defaultdict(tuple))
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


def collected() -> Any:
    """Five checkpoints, each whole, of which nothing goes below 4 again; what is left, and in the journal."""
    disk = memory_disk()
    journal, _, _ = reading.take_over(disk, OWNER, STORE, 1)
    journal.resume()
    _, checkpoints = _checkpoints(journal)
    for epoch in range(1, 6):
        assert checkpoints.advance(checkpoints.cut(1, (epoch,), lambda p: None, defaultdict(tuple)))
        _write(disk, journal)
    checkpoints.collect(1, (4,))
    return (
        [xi.bound[0] for xi in (saved.checkpoint.xi for saved in checkpoints.saved())],
        [epoch for epoch in range(1, 6) if ("cut", 1, (epoch,)) in journal],
    )


COLLECTED = "collect S(p, f') for f' ⊂ W(p): garbage goes, and what may be needed stays"
for _name, _old, _new in (
    ("garbage goes", "history.drop_before(first)", "history.saved[:first]"),
    ("garbage goes from the journal", "self._let_go(...)", GONE),
    ("what W rests on stays", "inside[-1]", "inside[-1] + 1"),
):
    rule(_name, COLLECTED, collected, ([4, 5], [4, 5]), Change(Checkpoints, "collect", _old, _new))


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()


def _cut(checkpoints: Checkpoints, group: int, epoch: int, state: KeyedState) -> tuple[Xi, ...]:
    """A whole cut, written into the journal."""
    draft = checkpoints.cut(group, (epoch,), lambda p: state, {})  # type: ignore[arg-type]
    while not checkpoints.advance(draft):
        pass
    return tuple(draft.xis)


def test_a_cut_that_is_asked_for_again_is_told_again_and_not_made_again() -> None:
    _, checkpoints = _reopened(memory_disk())
    first = _cut(checkpoints, 1, 3, KeyedState())
    assert [xi.bound for xi in first] == [(3,)]
    assert _cut(checkpoints, 1, 3, KeyedState()) == first
    _cut(checkpoints, 1, 5, KeyedState())
    assert _cut(checkpoints, 1, 3, KeyedState()) == first
    assert _cut(checkpoints, 1, 4, KeyedState()) == ()  # a later one is there
    assert [saved.bound for saved in checkpoints.saved()] == [(3,), (5,)]


def test_only_what_the_store_has_is_durable() -> None:
    disk = memory_disk()
    journal, checkpoints = _reopened(disk)
    xis = _cut(checkpoints, 1, 3, KeyedState())
    assert checkpoints.durable() == ()
    _write(disk, journal)
    assert checkpoints.durable() == xis


def test_written_content_is_kept_within_a_bound_and_let_go_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.checkpoint.checkpoints.RETAINED", 100)
    _, checkpoints = _checkpoints()
    made = []
    for bound in range(1, 20):
        saved = SavedCheckpoint(_saved(1, bound, 1), ("cut", 1, (bound,)), 30, sections=[section("x", 1)])
        made.append(saved)
        checkpoints._retain(saved)
        if bound % 5 == 0:
            checkpoints._release(saved.key)
            checkpoints._release(saved.key)
        assert checkpoints._retained_size == sum(each.size for each in checkpoints._retained.values()) <= 100
        assert [each for each in made if each.sections] == list(checkpoints._retained.values())
    assert [each.bound[0] for each in checkpoints._retained.values()] == [17, 18, 19]
    large = SavedCheckpoint(_saved(1, 30, 1), ("cut", 1, (30,)), checkpoints._journal.small, sections=[section("x", 1)])
    checkpoints._retain(large)
    assert not large.sections
    assert [each.bound[0] for each in checkpoints._retained.values()] == [17, 18, 19]


def test_written_content_goes_with_its_checkpoint_and_large_content_is_not_kept() -> None:
    _, checkpoints = _reopened(memory_disk())
    state = KeyedState()
    state.write((0,), {key: key for key in range(100)})
    for epoch in (1, 2, 3):
        _cut(checkpoints, 1, epoch, state)
    assert [bound[0] for _, _, bound in checkpoints._retained] == [1, 2, 3]
    checkpoints.apply(2, (None, (2,)))
    assert [bound[0] for _, _, bound in checkpoints._retained] == [1, 2]
    checkpoints._journal.small = 1
    state.write((3,), {key: -key for key in range(100)})
    _cut(checkpoints, 1, 4, state)
    assert [bool(saved.sections) for saved in checkpoints.saved()] == [True, True, False]


def test_state_that_is_saved_anew_takes_the_place_of_what_was_saved_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.checkpoint.processor_checkpoints.MANY", 3)
    _, checkpoints = _reopened(memory_disk())
    state = KeyedState()
    for epoch in range(1, 7):
        state.write((epoch,), {"k": epoch, epoch: "new"})
        _cut(checkpoints, 1, epoch + 1, state)
    assert [saved.checkpoint.since[0] for saved in checkpoints.saved()] == [2, 2, 2, 5, 5, 5]
    checkpoints.collect(1, (6,))
    assert [saved.bound[0] for saved in checkpoints.saved()] == [5, 6, 7]


def test_what_was_read_and_is_not_come_back_to_is_forgotten() -> None:
    _, checkpoints = _checkpoints()
    header, payload = save_batch(["row"])
    checkpoint = msgspec.structs.replace(_saved(1, 3, 1), since=(3,), pieces=1)
    checkpoints.load([(checkpoint, b""), (Piece(1, (3,), (((1,), 0, 1),), header), payload)])
    assert [list(run.batch) for run in checkpoints.runs(1, (3,))] == [["row"]]
    checkpoints.forget_payloads()
    assert not checkpoints.runs(1, (3,))


def test_records_of_another_program_are_refused() -> None:
    _, checkpoints = _checkpoints()
    with pytest.raises(ProtocolError, match="does not fit the program"):
        checkpoints.load([(_saved(7, 3, 1), b"")])


def test_a_checkpoint_of_a_state_of_another_shape_is_refused_with_both_sides() -> None:
    recorder, checkpoints = _checkpoints()
    plan = checkpoints._layout

    def with_state(*kinds: str) -> Layout:
        state = tuple(PartShape(place, kind) for place, kind in enumerate(kinds))
        changed = msgspec.structs.replace(plan.processors[1], state=state)
        return msgspec.structs.replace(plan, processors=(plan.processors[0], changed, *plan.processors[2:]))

    was, now = with_state("TimedBatches", "KeyedState"), with_state("KeyedState", "TimedBatches")
    saved = msgspec.structs.replace(_saved(1, 3, 1), state=digest_of(was.processors[1].state or ()))
    written = [(Opening(was), b""), (saved, b"")]
    for plan_now, error in (
        (was, None),
        (now, "was Parts.TimedBatches; KeyedState., and is Parts.KeyedState; TimedBatches."),
    ):
        again = Checkpoints(plan_now, recorder, checkpoints._journal)
        if error is None:
            again.load(written)
            continue
        with pytest.raises(OperatorError, match=error) as raised:
            again.load(written)
        info = plan.processors[1]
        assert f"{info.kind} {info.name!r} ({info.site})" in str(raised.value)
        with pytest.raises(OperatorError, match="was of another shape, and is"):
            again.load(written[1:])
    Checkpoints(now, recorder, checkpoints._journal).load([(_saved(1, 3, 1), b"")])  # of an earlier version


def test_a_cut_says_of_which_state_it_is() -> None:
    recorder, checkpoints = _checkpoints()
    plan = checkpoints._layout
    shape = (PartShape(0, "KeyedState"),)
    changed = msgspec.structs.replace(plan.processors[1], state=shape)
    plan = msgspec.structs.replace(plan, processors=(plan.processors[0], changed, *plan.processors[2:]))
    saving = Checkpoints(plan, recorder, checkpoints._journal)
    state = KeyedState()
    state.write((1,), {"a": 1})
    _cut(saving, 1, 2, state)
    assert [saved.checkpoint.state for saved in saving.saved()] == [digest_of(shape)]


def test_what_was_read_is_kept_until_w_is_where_it_was_restored() -> None:
    _, checkpoints = _checkpoints()
    header, payload = save_batch(["row"])
    state = Piece(1, (3,), (((1,), 0, 1),), header)
    checkpoint = msgspec.structs.replace(_saved(1, 3, 1), since=(3,), pieces=1)
    checkpoints.load([(_saved(1, 5, 1), b""), (checkpoint, b""), (state, payload)])
    assert [saved.bound for saved in checkpoints.saved()] == [(3,), (5,)]
    checkpoints.came_back(1, (3,))
    for low in (2, 3):
        checkpoints.forget_payloads()
        assert [list(run.batch) for run in checkpoints.runs(1, (3,))] == [["row"]]
        checkpoints.collect(1, (low,))
    assert not checkpoints.runs(1, (3,))


def test_batches_that_can_be_one_and_be_told_apart_again() -> None:
    plain, other = pa.table({"a": [1]}), pa.table({"b": [1]})
    coded = pa.table({"a": pa.array(["x"]).dictionary_encode()})
    partly = pa.table({"a": pa.array(["x"]).dictionary_encode(), "b": [1]})
    marked = plain.replace_schema_metadata({"of": "another"})
    assert alike([1], ["two"])
    assert alike(plain, pa.table({"a": [2, 3]}))
    for one, two in (
        (plain, [1]),
        ([1], plain),
        (plain, other),
        (plain, marked),
        (coded, coded),
        (partly, partly),
        (pl.DataFrame(), plain),
        (plain, pl.DataFrame()),
    ):
        assert not alike(one, two)
