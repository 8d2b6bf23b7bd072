"""Monitor's journal on disk: state of the coordinator for its next process."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias, cast

from monitor.coordination.records import (
    MOST_EVENTS,
    OWNER,
    KeptEvent,
    Record,
    SavedJob,
    decode_record,
    encode_record,
    slot,
)
from recovery.store.interface import Store
from recovery.store.reading import take_over
from recovery.store.segments import Section
from runtime.recovery.driver import StoreClient
from runtime.recovery.store_client import ThreadedStore

Key: TypeAlias = tuple[str, bytes]


class MonitorJournal:
    """Journal of the monitor, kept small: newest record of each slot, newest events.

    Args:
        store: of the job.
        store_id: of the store.
        incarnation: of this process.
        client: what writes to the store; None: a thread of its own.
    """

    def __init__(self, store: Store, store_id: bytes, incarnation: int, client: StoreClient | None = None) -> None:
        self._client = client if client is not None else ThreadedStore(store)
        self._sections: dict[Key, Section] = {}
        self._events: deque[Key] = deque()
        self._ticket: int | None = None
        self._journal, found, self.warnings = take_over(store, OWNER, store_id, incarnation)
        newest: dict[Key, Record] = {}
        for meta, sections in found.read():
            keys = []
            for section in sections:
                record = decode_record(section.head)
                key = _key(record, section.head)
                newest[key] = record
                self._keep(key, record, section)
                keys.append(key)
            self._journal.recovered(meta, sections, keys)
        self._journal.resume()
        self._forget_events()
        for name in found.leftovers:
            self._client.delete(name)
        records = list(newest.values())
        self.saved = SavedJob.of(records)

    def write(self, ticket: int, records: tuple[Record, ...]) -> None:
        """Start writing records durably; one write is in progress at a time."""
        for record in records:
            head = encode_record(record)
            key = _key(record, head)
            self._keep(key, record, Section(head))
            self._journal.add(key, self._sections[key])
        self._forget_events()
        for key in cast(list[Key], self._journal.carry()):
            self._journal.add(key, self._sections[key])
        sealed = self._journal.seal()
        assert sealed is not None  # a write has records, and is the only one
        self._ticket = ticket
        self._client.put(*sealed)

    def written(self) -> list[int]:
        """Tickets of finished durable writes.

        Raises what went wrong with one.
        """
        tickets = []
        for name, error in self._client.take_done():
            if error is not None:
                raise error
            for old in self._journal.stored(name):
                self._client.delete(old)
            if self._ticket is not None:
                tickets.append(self._ticket)
                self._ticket = None
        return tickets

    def files(self) -> list[int]:
        """File descriptors to wait for."""
        return self._client.files()

    def close(self) -> None:
        """Finish pending writes, and close."""
        self._client.close()

    def _keep(self, key: Key, record: Record, section: Section) -> None:
        if isinstance(record, KeptEvent) and key not in self._sections:
            self._events.append(key)
        self._sections[key] = section

    def _forget_events(self) -> None:
        while len(self._events) > MOST_EVENTS:
            key = self._events.popleft()
            del self._sections[key]
            self._journal.dead(key)


def _key(record: Record, head: bytes) -> Key:
    """Key of a record: those of one slot supersede each other, events are unique."""
    here = slot(record)
    return ("event", bytes(head)) if here is None else (here, b"")
