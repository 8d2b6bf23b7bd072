"""Journals of a job at rest, written anew for another layout of it.

The journals of the new layout are written beside those of the former one. One write of the monitor's journal makes them the
job's; what is left of the other layout is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from monitor.coordination.handshake import refusal
from monitor.coordination.options import Options
from monitor.coordination.records import (
    KeptDecision,
    KeptEvent,
    KeptLayout,
    KeptRounds,
    KeptWatermarks,
    Record,
    SavedJob,
    Value,
)
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import Keyed
from recovery.errors import ReportError
from recovery.layout import Layout
from recovery.metadata import Bound
from recovery.place import Place, journal_of, layout_of
from recovery.protocol import Join
from recovery.store.interface import Buffer, Store
from recovery.store.reading import take_over
from recovery.store.segments import size_of
from runtime.processes.monitor_journal import MonitorJournal
from timely.errors import FalkirkError

_SEGMENT = 64 << 20
"""Least bytes of payloads in a segment, unless it is the last."""


class WritesAtOnce:
    """Store client with synchronous operations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.spent = 0.0
        self._done: list[tuple[str, Exception | None]] = []

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write a blob."""
        self._store.put(name, parts)
        self._done.append((name, None))

    def delete(self, name: str) -> None:
        """Delete a blob."""
        self._store.delete(name)

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """Blobs written since the last call."""
        done, self._done = self._done, []
        return done

    def files(self) -> list[int]:
        """File descriptors to wait for: none."""
        return []

    def close(self) -> None:
        """Nothing is pending."""


def next_layout(store: Store, before: Layout) -> int:
    """Number for a new layout, above all that the store has journals of."""
    owners = {name.partition("/")[0] for name in store.names("worker-")}
    return 1 + max(before.number, *(found for found in map(layout_of, owners) if found is not None), 0)


def next_generation(saved: SavedJob) -> int:
    """Number of a generation above all so far."""
    return 1 + max(saved.rounds, saved.decision.generation if saved.decision is not None else 0)


def options_of(saved: SavedJob, before: Layout, journals: Sequence[Checkpoints]) -> Options:
    """Options of a job at rest, from the checkpoints of its workers.

    Raises FalkirkError if the journals do not fit together.
    """
    decision = saved.decision
    options = Options(before, saved.watermarks, decision.bounds if decision is not None else None)
    for worker, checkpoints in enumerate(journals):
        xis = tuple(each.checkpoint.xi for each in checkpoints.saved())
        joins = Join(Place(worker), 0, checkpoints.generation, False, before, xis)
        try:
            wrong = refusal(joins, before, decision) or options.join(worker, xis)
        except ReportError as error:
            wrong = f"the journal of worker {worker} does not fit the others: {error}"
        if wrong is not None:
            raise FalkirkError(wrong)
        if decision is not None and joins.generation < decision.generation:
            options.cut_worker(worker, decision.bounds[worker])
    return options


def write_journal(
    store: Store,
    store_id: bytes,
    layout: Layout,
    worker: int,
    incarnation: int,
    generation: int,
    groups: Iterable[Iterable[Keyed]],
) -> None:
    """Write the journal of a worker of a new layout.

    Sections of one key are in one of the `groups`.
    """
    journal, _, _ = take_over(store, journal_of(worker, layout.number), store_id, incarnation)
    journal.resume()
    journal.generation = generation
    size = 0

    def write() -> None:
        segment = journal.seal()
        if segment is not None:
            store.put(*segment)
            journal.stored(segment[0])

    for group in groups:
        for key, section in group:
            journal.add(key, section)
            size += size_of(section.payload)
        if size >= _SEGMENT:
            write()
            size = 0
    write()


def commit(
    saved: SavedJob,
    layout: Layout,
    bounds: tuple[tuple[Bound, ...], ...],
    generation: int,
    now: float,
    kind: str,
    data: Mapping[str, Value],
) -> tuple[Record, ...]:
    """Records to make a new layout the job's, written as one.

    Args:
        bounds: those at which it begins, by worker and processor.
        kind, data: of the event in the timeline.
    """
    held = Options(layout, bounds, bounds).held(bounds, ())
    previous = saved.decision.generation if saved.decision is not None else 0
    last = max((event.n for event in saved.events), default=0)
    return (
        KeptLayout(layout),
        KeptWatermarks(bounds),
        KeptDecision(generation, previous, bounds, tuple(range(layout.workers)), held),
        KeptRounds(generation),
        KeptEvent(kind, now, dict(data), last + 1),
    )


def write_records(journal: MonitorJournal, *records: Record) -> None:
    """Write records into the monitor's journal, as one."""
    journal.write(0, records)
    journal.written()


def sweep(store: Store, number: int) -> None:
    """Delete the journals of all layouts but `number`.

    They are of former ones, and of interrupted changes."""
    for name in store.names("worker-"):
        if layout_of(name.partition("/")[0]) not in (None, number):
            store.delete(name)
