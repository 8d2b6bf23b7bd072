"""Checkpoints and logs of a worker's journal, read without a worker."""

from __future__ import annotations

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.saved_states import current_records
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
    checkpoints = Checkpoints(layout, recorder, Journal(owner, store_id, 0, found.newest, found.fences))
    checkpoints.load(current_records(found.read()), contents=False)
    return checkpoints
