"""Temporary parts of the simulator: a disk."""

from __future__ import annotations

from random import Random
from typing import Any

from falkirk.simulate.faults import Faults
from recovery.store.interface import AlreadyThere, NotThere
from recovery.store.memory import aligned_memory

Ticket = int


class SimulatedDisk:
    """A disk in memory, whose writes take time and may be cut off by the death of their process."""

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

    def put(self, name: str, parts: Any) -> None:
        if name in self.files:
            raise AlreadyThere(name)
        self.files[name] = b"".join(bytes(memoryview(part).cast("B")) for part in parts)

    def get(self, name: str) -> memoryview:
        if name not in self.files:
            raise NotThere(name)
        data = self.files[name]
        room = aligned_memory(len(data))
        room[:] = data
        return room

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def size(self, prefix: str = "") -> int:
        return sum(len(data) for name, data in self.files.items() if name.startswith(prefix))
