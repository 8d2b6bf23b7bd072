"""The records of the monitor's journal: written, read, and the newest of each."""

from __future__ import annotations

import msgspec
import pytest

from monitor.coordination.records import (
    KeptDecision,
    KeptEvent,
    KeptFinished,
    KeptLayout,
    KeptRounds,
    KeptWatermarks,
    Record,
    SavedJob,
    decode_record,
    encode_record,
    slot,
)
from recovery.metadata import NEVER
from tests.recovery.layouts import LINE, layout
from timely.errors import ProtocolError

RECORDS: list[Record] = [
    KeptLayout(layout(*LINE)),
    KeptWatermarks((((0,), (NEVER,)), ((3,), (2, 0)))),
    KeptDecision(4, 2, (((0,), None), ((NEVER,), (2, 0))), (1,)),
    KeptEvent("failure", 1.5, {"worker": 1, "reason": "killed", "more": [1, None, {"a": 2.5}]}),
    KeptRounds(1000),
    KeptFinished(),
]


@pytest.mark.parametrize("record", RECORDS)
def test_records_come_back(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_anything_else_is_no_record() -> None:
    with pytest.raises(ProtocolError):
        decode_record(msgspec.msgpack.encode({"type": "decision", "generation": "x"}))


def test_the_newest_of_each_slot_counts() -> None:
    newer = KeptDecision(6, 4, (((1,),),), ())
    saved = SavedJob.of([*RECORDS[:4], newer, KeptEvent("decided", 2.0)])
    assert saved.decision == newer
    assert saved.layout == layout(*LINE)
    assert [event.kind for event in saved.events] == ["failure", "decided"]
    assert not saved.finished
    assert SavedJob.of(RECORDS).finished
    assert slot(newer) == slot(RECORDS[2])
    assert len({slot(record) for record in RECORDS}) == len(RECORDS)


def test_an_empty_journal_says_nothing() -> None:
    assert SavedJob.of([]) == SavedJob()
    assert SavedJob.of([KeptEvent("failure", 1.5, {})]).rounds == 0
