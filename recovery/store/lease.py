"""Holder of the lock of a store in a bucket."""

from __future__ import annotations

import os
import socket

import msgspec

from recovery.store.interface import StoreError


class Holder(msgspec.Struct, frozen=True):
    """Process with a lock.

    `started` and `system` tell it from later processes of its number, and from those of other hosts.
    """

    pid: int
    host: str
    system: str
    started: str
    id: str
    beat: int = 0
    free: bool = False

    @staticmethod
    def here(id: str) -> Holder:
        """This process; `id` is random."""
        return Holder(os.getpid(), socket.gethostname(), _system(), _started(os.getpid()), id)

    def is_alive(self) -> bool:
        """True if it is a living process of this host."""
        return self._is_near() and _started(self.pid) == self.started

    def is_dead(self) -> bool:
        """True if it was a process of this host, and has ended."""
        return self._is_near() and _started(self.pid) != self.started

    def _is_near(self) -> bool:
        return bool(self.system) and self.system == _system()


def read_holder(data: bytes, where: str) -> Holder:
    """Read the lock of the store at `where`; raises StoreError if it is none."""
    try:
        return msgspec.json.decode(data, type=Holder)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreError(f"the lock in {where} does not say who uses the store: {error}") from None


def _system() -> str:
    """Running system and its space of process numbers; "" where that is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start of a process, in ticks since the system's; "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
