"""Checkpoints and logs of a worker's journal, read without a worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import Record, current, key_of, record_of
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.place import journal_of
from recovery.store.interface import Store
from recovery.store.journal import Journal
from recovery.store.reading import survey
from recovery.store.segments import Section, SegmentMeta


def current_records(segments: Iterable[tuple[SegmentMeta, Sequence[Section]]]) -> list[tuple[Record, Any]]:
    """Records of a journal with their payloads; the last segment with a key counts."""
    read = [(meta.number, record_of(each.head), each.payload) for meta, sections in segments for each in sections]
    return current([(number, key_of(record), (record, payload)) for number, record, payload in read])


def read_checkpoints(
    store: Store, store_id: bytes, layout: Layout, worker: int, recorder: WorkerRecorder
) -> Checkpoints:
    """Checkpoints of a worker of `layout`; its logs are loaded into `recorder`.

    Nothing is changed.

    As `recovery.agent.Agent` reads them, without the content of histories.
    """
    return read_journal(store, store_id, layout, worker, recorder)[1]


def read_journal(
    store: Store, store_id: bytes, layout: Layout, worker: int, recorder: WorkerRecorder
) -> tuple[list[tuple[Record, Any]], Checkpoints]:
    """Records of a worker's journal with payloads, and its checkpoints.

    See `read_checkpoints`.
    """
    owner = journal_of(worker, layout.number)
    found = survey(store, owner, store_id)
    records = current_records(found.read())
    checkpoints = Checkpoints(layout, recorder, Journal(owner, store_id, 0, found.newest, found.fences))
    checkpoints.load(records, contents=False)
    return records, checkpoints
