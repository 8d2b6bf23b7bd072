"""Saved log messages and history events, one key for each processor and cut.

They live in the recorder. Here is what of them is in the journal, to be written again, narrowed and let go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recovery.checkpoint.processor_checkpoints import Key
from recovery.checkpoint.records import HistoryRecord, Logged, key_of, save_batch, saving, section
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import NOTIFICATION, HistoryEvent, LogEntry
from recovery.metadata import Bound, holds
from recovery.store.journal import Journal, cost
from timely.data.codec import decode, decode_batch, encode


class SavedEvents:
    """Persisted logs and full histories of `recorder`."""

    def __init__(self, layout: Layout, recorder: WorkerRecorder, journal: Journal) -> None:
        self._layout = layout
        self._recorder = recorder
        self._journal = journal
        self._logs: dict[Key, list[LogEntry]] = {}
        self._histories: dict[Key, list[HistoryEvent]] = {}
        self._edges = {edge.edge: edge for edge in layout.edges}
        self.logged, self.happened = [0] * len(layout.processors), [0] * len(layout.processors)
        """Bytes saved of logs and of histories, by processor."""

    def keys(self) -> Iterator[Key]:
        """Keys still in use."""
        yield from self._logs
        yield from self._histories

    # Saving

    def save(self, p: int, bound: Bound, generation: int) -> None:
        """Write new log messages and events of processor `p` within the cut `bound`."""
        info = self._layout.processors[p]
        with saving(info):
            self._save_logs(p, bound, generation)
            if info.history:
                self._save_history(p, bound, generation)

    def _save_logs(self, p: int, bound: Bound, generation: int) -> None:
        for (index, receiver), entries in self._recorder.logs.items():
            edge = self._edges[index]
            if edge.source != p:
                continue
            fresh = [entry for entry in entries if not entry.durable and holds(bound, entry.event)]
            if not edge.logged:  # the receiver never goes below `bound` then
                fresh = [entry for entry in fresh if not holds(bound, entry.time)]
            if fresh:
                key = ("log", index, receiver, bound, generation)
                self._logs[key] = fresh
                self.logged[p] += self._write_log(key)

    def _save_history(self, p: int, bound: Bound, generation: int) -> None:
        fresh = [event for event in self._recorder.histories[p] if not event.durable and holds(bound, event.time)]
        if fresh:
            key = ("events", p, bound, generation)
            self._histories[key] = fresh
            self.happened[p] += self._write_history(key)

    def write_again(self, key: Key) -> bool:
        """Write the remaining events of `key` again; False if the key is unknown."""
        if key in self._logs:
            self._write_log(key)
        elif key in self._histories:
            self._write_history(key)
        else:
            return False
        return True

    def _write_log(self, key: Key) -> int:
        """Write the messages of a key; returns what they cost."""
        size = 0
        for entry in self._logs[key]:
            if entry.batch is not None and not entry.header:
                entry.header, entry.payload = save_batch(entry.batch)
            entry.durable = True
            content = (entry.edge, entry.receiver, entry.number, entry.event, entry.time, entry.header)
            made = section(Logged(*content, key[-2], key[-1]), entry.payload)
            self._journal.add(key, made)
            size += cost(made)
        return size

    def _write_history(self, key: Key) -> int:
        """Write the events of a key; returns what they cost."""
        size = 0
        for event in self._histories[key]:
            event.durable = True
            header, payload = b"", b""
            if event.port >= 0:
                header, payload = save_batch(event.what)
            elif event.port != NOTIFICATION:
                payload = encode(event.what)
            record = HistoryRecord(key[1], event.order, event.port, event.time, header, key[-2], key[-1])
            made = section(record, payload)
            self._journal.add(key, made)
            size += cost(made)
        return size

    # Restoring

    def load_log(self, record: Logged, payload: Any) -> None:
        """Restore a logged message read from the journal."""
        entry = LogEntry(record.edge, record.receiver, record.number, record.event, record.time, record.header, payload)
        entry.durable = True
        self._recorder.recall(entry)
        self._logs.setdefault(key_of(record), []).append(entry)

    def load_event(self, record: HistoryRecord, payload: Any, contents: bool) -> None:
        """Restore an event read from the journal; without `contents`, no batch."""
        content = None
        if not contents:
            pass
        elif record.port >= 0:
            content = decode_batch(record.header, payload)
        elif record.port != NOTIFICATION:
            content = decode(payload)
        event = HistoryEvent(record.order, record.port, record.time, content, durable=True)
        self._recorder.histories[record.processor].append(event)
        self._recorder.order = max(self._recorder.order, record.order)
        self._histories.setdefault(key_of(record), []).append(event)

    def sort(self) -> None:
        """Sort restored messages and events into their order."""
        for entries in self._recorder.logs.values():
            entries.sort(key=lambda entry: entry.number)
        for events in self._recorder.histories.values():
            events.sort(key=lambda event: event.order)

    # Letting go

    def cut_to(self, p: int, bound: Bound) -> None:
        """Drop messages and events of processor `p` outside `bound`, after a decision."""
        for key in [key for key in self._logs if self._edges[key[1]].source == p]:
            self._narrow(self._logs, key, [entry for entry in self._logs[key] if holds(bound, entry.event)])
        for key in [key for key in self._histories if key[1] == p]:
            self._narrow(self._histories, key, [event for event in self._histories[key] if holds(bound, event.time)])

    def collect_history(self, p: int, base: Bound) -> None:
        """Drop events contained in the state saved at `base`."""
        self._recorder.histories[p] = [event for event in self._recorder.histories[p] if not holds(base, event.time)]
        for key in [key for key in self._histories if key[1] == p]:
            self._narrow(self._histories, key, [event for event in self._histories[key] if not holds(base, event.time)])

    def collect_log(self, edge: int, receiver: int, low: Bound) -> None:
        """Collect a logged edge's entries within `low`, W of its receiver."""
        entries = self._recorder.logs.get((edge, receiver))
        if not entries or not any(holds(low, entry.time) for entry in entries):
            return
        self._recorder.logs[edge, receiver] = [entry for entry in entries if not holds(low, entry.time)]
        for key in [key for key in self._logs if key[1:3] == (edge, receiver)]:
            self._narrow(self._logs, key, [entry for entry in self._logs[key] if not holds(low, entry.time)])

    def _narrow(self, keys: dict[Key, list[Any]], key: Key, left: list[Any]) -> None:
        """Keep only `left` of the records saved under `key`."""
        keys[key] = left
        if not left:
            del keys[key]
            self._journal.dead(key)
