"""Temporary parts of the simulator: a disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from falkirk.simulate.faults import Faults
from recovery.records import record_of
from recovery.store.interface import AlreadyThere
from recovery.store.journal import Journal
from recovery.store.segments import decode_segment

Ticket = int


class SimulatedDisk:
    def __init__(self, random: Random, faults: Faults) -> None:
        self.random = random
        self.faults = faults
        self.files: dict[str, bytes] = {}
        self.now = 0.0
        self.under_way: dict[tuple[int, int], list[tuple[float, str, bytes]]] = {}
        self.done: dict[tuple[int, int], list[tuple[str, Exception | None]]] = {}

    def begin(self, owner: tuple[int, int], name: str, parts: Any) -> None:
        data = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
        at = self.now + self.random.expovariate(1 / self.faults.write_seconds)
        self.under_way.setdefault(owner, []).append((at, name, data))

    def advance(self, now: float) -> None:
        self.now = now
        for owner, puts in self.under_way.items():
            while puts and puts[0][0] <= now:
                _, name, data = puts.pop(0)
                error: Exception | None = None
                if name in self.files:
                    error = AlreadyThere(name)
                else:
                    self.files[name] = data
                self.done.setdefault(owner, []).append((name, error))

    def take_done(self, owner: tuple[int, int]) -> list[tuple[str, Exception | None]]:
        return self.done.pop(owner, [])

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def crash(self, owner: tuple[int, int]) -> None:
        for _, name, data in self.under_way.pop(owner, []):
            if self.random.random() < 0.5 and name not in self.files:
                self.files[name] = data
        self.done.pop(owner, None)


def read_journal(
    disk: SimulatedDisk, owner: str, store_id: bytes, incarnation: int, decode: Callable[[Any], Any] = record_of
) -> tuple[Journal, list[tuple[Any, Any]]]:
    from recovery.records import key_of

    names = sorted(name for name in disk.files if name.startswith(owner + "/"))
    if not names:
        return Journal(owner, store_id, incarnation), []
    read = [decode_segment(memoryview(disk.files[name])) for name in names]
    newest = read[-1][0]
    journal = Journal(owner, store_id, incarnation, newest)
    name, parts = journal.fence()
    disk.files[name] = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
    journal.stored(name)
    needed = {*newest.needed_numbers(), newest.number}
    read = [(meta, sections) for meta, sections in read if meta.number in needed]
    if owner == "monitor":
        records = [(decode(section.head), section.payload) for _, sections in read for section in sections]
        from monitor.records import slot

        last: dict[Any, Any] = {}
        count = 0
        for meta, sections in read:
            for section in sections:
                record = decode(section.head)
                key = slot(record)
                if key is None:
                    count += 1
                    key = f"old-{incarnation}-{count}"
                last[key] = (meta, key, section)
        for meta, _ in read:
            journal.recovered(meta, [(key, section) for m, key, section in last.values() if m is meta])
        return journal, records
    latest: dict[Any, int] = {}
    for meta, sections in read:
        for section in sections:
            latest[key_of(decode(section.head))] = meta.number
    kept = []
    for meta, sections in read:
        mine = []
        for section in sections:
            record = decode(section.head)
            if latest[key_of(record)] == meta.number:
                kept.append((record, section.payload))
                mine.append((key_of(record), section))
        journal.recovered(meta, mine)
    return journal, kept
