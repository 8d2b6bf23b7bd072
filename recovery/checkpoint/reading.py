"""Checkpoints and logs of a worker's journal, read without a worker."""

from __future__ import annotations

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import key_of, record_of
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.place import journal_of
from recovery.store.interface import Store
from recovery.store.journal import Journal
from recovery.store.reading import survey


def read_checkpoints(
    store: Store, store_id: bytes, layout: Layout, worker: int, recorder: WorkerRecorder
) -> Checkpoints:
    """Checkpoints of a worker of `layout`; its logs are loaded into `recorder`.

    Nothing is changed.

    As `recovery.agent.Agent` reads them, without the content of histories.
    """
    owner = journal_of(worker, layout.number)
    found = survey(store, owner, store_id)
    read = [(meta, [(record_of(each.head), each.payload) for each in sections]) for meta, sections in found.read()]
    last = {key_of(record): meta.number for meta, records in read for record, _ in records}
    current = [each for meta, records in read for each in records if last[key_of(each[0])] == meta.number]
    checkpoints = Checkpoints(layout, recorder, Journal(owner, store_id, 0, found.newest, found.fences))
    checkpoints.load(current, contents=False)
    return checkpoints
