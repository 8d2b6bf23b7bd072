"""Logs and full histories in the journal, against a plain list of what was logged and handled."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import pytest

from recovery.checkpoint.processor_checkpoints import Key
from recovery.checkpoint.records import HistoryRecord, Logged, record_of
from recovery.checkpoint.saved_events import SavedEvents
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import NOTIFICATION, RESULT, HistoryEvent, LogEntry
from recovery.metadata import Bound
from recovery.store.segments import Section
from tests.recovery.layouts import layout
from timely.data.batch import Batch

LOGGED, KEPT, OTHER = 0, 1, 2
"""Edges of processor a: one that is logged, and one whose messages are kept while they lie behind a cut; and one of b."""


class Sections:
    """The part of a journal that saved events need."""

    def __init__(self) -> None:
        self.held: dict[Key, list[Section]] = {}

    def add(self, key: Key, section: Section) -> None:
        self.held.setdefault(key, []).append(section)

    def dead(self, key: Key) -> None:
        del self.held[key]


@dataclass
class Event:
    """A logged message, or an event of the history of processor a; `key` once it is saved, and while it is of use."""

    number: int
    edge: int | None
    receiver: int
    event: int
    time: int
    content: Any
    key: Key | None = None


def worker() -> tuple[WorkerRecorder, Sections, SavedEvents]:
    plan = layout("a chain, b chain, c chain", "a|b, a>c, b|c", 2)
    processors = (*(msgspec.structs.replace(info, history=True) for info in plan.processors[:2]), plan.processors[2])
    recorder, journal = WorkerRecorder(msgspec.structs.replace(plan, processors=processors), 0), Sections()
    return recorder, journal, SavedEvents(recorder._layout, recorder, journal)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(30))
def test_the_journal_has_what_lay_before_a_cut_and_is_still_of_use(seed: int) -> None:
    random = Random(seed)
    recorder, journal, events = worker()
    known: list[Event] = []
    cut, generation = 0, 1
    recorder.logs[OTHER, 0] = [LogEntry(OTHER, 0, 1, (50,), (50,), batch=[1])]
    recorder.histories[1].append(HistoryEvent(0, NOTIFICATION, (50,)))
    events.save(1, (60,), generation)
    of_b: set[Key] = {("log", OTHER, 0, (60,), 1), ("events", 1, (60,), 1)}
    """The fate of a is none of b's affair."""

    def happens() -> None:
        number, at = len(known) + 1, cut + random.randrange(5)
        time = at + random.randrange(4)
        if random.random() < 0.6:
            edge, receiver = random.choice([LOGGED, KEPT]), random.randrange(2)
            batch: Batch | None = [number]
            known.append(Event(number, edge, receiver, at, time, [number]))
            entry = LogEntry(edge, receiver, number, (at,), (time,), batch=batch)
            recorder.logs.setdefault((edge, receiver), []).append(entry)
        else:
            port = random.choice([0, NOTIFICATION, RESULT])
            content = {0: [number, "row"], NOTIFICATION: None, RESULT: {"n": number}}[port]
            known.append(Event(number, None, port, at, at, content))
            recorder.histories[0].append(HistoryEvent(number, port, (at,), content))

    def forget(which: Any) -> None:
        """Also in the memory of the worker."""
        for (edge, _), entries in recorder.logs.items():
            entries[:] = [entry for entry in entries if edge == OTHER or not which(known[entry.number - 1])]
        recorder.histories[0] = [event for event in recorder.histories[0] if not which(known[event.order - 1])]
        for each in known:
            each.key = None if which(each) else each.key

    gone: set[int] = set()
    for _ in range(60):
        what = random.choice(["happens"] * 6 + ["save", "save", "decide", "collect log", "collect history"])
        bound: Bound = (random.randrange(cut + 5),)
        if what == "happens":
            happens()
        elif what == "save":
            cut += random.randrange(4)
            events.save(0, (cut,), generation)
            for each in known:
                if each.number in gone or each.key is not None or each.event >= cut:
                    continue
                if each.edge is None:
                    each.key = ("events", 0, (cut,), generation)
                elif each.edge == LOGGED or each.time >= cut:
                    each.key = ("log", each.edge, each.receiver, (cut,), generation)
        elif what == "decide":
            events.cut_to(0, bound)
            void = {each.number for each in known if (each.event,) >= bound}
            forget(lambda each, void=void: each.number in void)
            gone |= void
            cut, generation = min(cut, bound[0]), generation + 1
        elif what == "collect log":
            edge, receiver = random.choice([LOGGED, KEPT]), random.randrange(2)
            events.collect_log(edge, receiver, bound)
            void = {e.number for e in known if (e.edge, e.receiver) == (edge, receiver) and (e.time,) < bound}
            assert not any((entry.time < bound) for entry in recorder.logs.get((edge, receiver), ()))
            forget(lambda each, void=void: each.number in void)
            gone |= void
        else:
            events.collect_history(0, bound)
            void = {each.number for each in known if each.edge is None and (each.event,) < bound}
            assert not any((event.time < bound) for event in recorder.histories[0])
            forget(lambda each, void=void: each.number in void)
            gone |= void
        expected: dict[Key, list[int]] = {}
        for each in known:
            if each.key is not None:
                expected.setdefault(each.key, []).append(each.number)
        assert set(events.keys()) == set(journal.held) == set(expected) | of_b

    journal.held.clear()
    for key in {**expected, **dict.fromkeys(of_b)}:
        assert events.write_again(key)
    assert not events.write_again(("log", LOGGED, 7, (0,), 1))
    again, _, loaded = worker()
    sections = [
        section for key in random.sample(list(journal.held), len(journal.held)) for section in journal.held[key]
    ]
    for section in random.sample(sections, len(sections)):
        record = record_of(section.head)
        if isinstance(record, Logged):
            loaded.load_log(record, section.payload)
        elif isinstance(record, HistoryRecord):
            loaded.load_event(record, section.payload, contents=True)
    loaded.sort()
    assert set(loaded.keys()) == set(expected) | of_b
    for edge in (LOGGED, KEPT):
        for receiver in range(2):
            left = [each for each in known if each.key is not None and (each.edge, each.receiver) == (edge, receiver)]
            entries = again.logs.get((edge, receiver), [])
            assert [(entry.number, entry.event, entry.time, entry.content(), entry.durable) for entry in entries] == [
                (each.number, (each.event,), (each.time,), each.content, True) for each in left
            ]
    history = [each for each in known if each.key is not None and each.edge is None]
    assert [(event.order, event.port, event.time, event.what, event.durable) for event in again.histories[0]] == [
        (each.number, each.receiver, (each.event,), each.content, True) for each in history
    ]
    assert again.order == max((each.number for each in history), default=0)
    loaded.save(0, (cut + 99,), generation)
    assert set(loaded.keys()) == set(expected) | of_b  # what was read is not written a second time
    events.collect_history(0, (99,))
    assert [key for key in set(events.keys()) if key[0] == "events"] == [("events", 1, (60,), 1)]
