"""Saved states of all workers, for readers beside the job.

A group's cuts have common bounds, so an operator's state at one bound is the union of its workers' states there. Nothing
is decoded before it is asked for, and the journals stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import Record, key_of, record_of
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta
from timely.state.interface import Runs


def current_records(segments: Iterable[tuple[SegmentMeta, Sequence[Section]]]) -> list[tuple[Record, Any]]:
    """Records of a journal with their payloads; the last segment with a key counts."""
    read = [(meta, [(record_of(each.head), each.payload) for each in sections]) for meta, sections in segments]
    last = {key_of(record): meta.number for meta, records in read for record, _ in records}
    return [each for meta, records in read for each in records if last[key_of(each[0])] == meta.number]


class SavedStates:
    """States in the journals of a store, by processor and bound.

    `journals`: of each worker in order, unread, with its current records. Raises FalkirkError for damaged records.
    """

    def __init__(self, layout: Layout, journals: Sequence[tuple[Journal, Sequence[tuple[Record, Any]]]]) -> None:
        self._workers: list[Checkpoints] = []
        for worker, (journal, records) in enumerate(journals):
            checkpoints = Checkpoints(layout, WorkerRecorder(layout, worker), journal)
            checkpoints.load(records, contents=False)
            self._workers.append(checkpoints)

    def bounds(self, processor: int) -> list[Bound]:
        """Bounds with a checkpoint on every worker, ascending."""
        of_workers = [
            {saved.bound for saved in checkpoints.saved() if saved.checkpoint.xi.processor == processor}
            for checkpoints in self._workers
        ]
        return sorted(set.intersection(*of_workers))

    def runs(self, processor: int, bound: Bound) -> list[Runs]:
        """Runs of the state at one of its `bounds`, by worker."""
        return [checkpoints.runs(processor, bound) for checkpoints in self._workers]
