"""Owners of journals on a store that answers at once, for the tests of journals and of reading them."""

from __future__ import annotations

import random

from falkirk.simulate.disk import SimulatedDisk
from recovery.store.journal import Key, cost
from recovery.store.reading import read_all, take_over
from recovery.store.segments import Section
from tests.support.faulty_disk import FaultyDisk

STORE = b"0123456789abcdef"
OWNER = "worker-000"


def memory_disk() -> FaultyDisk:
    return FaultyDisk(random.Random(0), lambda: 0.0)


def section(key: str, size: int) -> Section:
    return Section(key.encode(), bytes(size))


class Owner:
    """A writer with a store that answers at once, and what it must find again: the sections of every live key."""

    def __init__(self, disk: SimulatedDisk, incarnation: int = 0) -> None:
        self.disk = disk
        self.live: dict[str, Section] = {}
        self.journal, found, self.warnings = take_over(disk, OWNER, STORE, incarnation)
        for meta, sections in found.read():
            self.journal.recovered(meta, sections, [each.head.decode() for each in sections])
            self.live.update((each.head.decode(), each) for each in sections)
        self.journal.resume()
        for name in found.leftovers:
            disk.delete(name)

    def add(self, key: str, size: int) -> None:
        self.live[key] = section(key, size)
        self.journal.add(key, self.live[key])

    def dead(self, key: str) -> None:
        del self.live[key]
        self.journal.dead(key)

    def carry(self) -> list[Key]:
        keys = self.journal.carry()
        for key in keys:
            assert isinstance(key, str)
            self.journal.add(key, self.live[key])
        return keys

    def write(self) -> bool:
        """Carry, seal, put, acknowledge and delete; whether there was anything to write."""
        if not self.journal.restless:
            return False
        self.carry()
        sealed = self.journal.seal()
        if sealed is None:
            return False
        self.disk.put(*sealed)
        for name in self.journal.stored(sealed[0]):
            self.disk.delete(name)
        return True

    def settle(self) -> None:
        for _ in range(1000):
            if not self.write():
                return
        raise AssertionError("the journal never stops writing")

    def live_cost(self) -> int:
        return sum(map(cost, self.live.values()))


def contents(disk: SimulatedDisk) -> dict[str, bytes]:
    """The sections that a new incarnation reads, of each key the last."""
    return {each.head.decode(): bytes(each.payload) for _, several in read_all(disk, OWNER, STORE) for each in several}
