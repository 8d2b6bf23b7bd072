"""Interface of stores: named blobs, durable once written, and never changed.

Nothing more is asked for than object stores give as well: a blob is written whole, only if there is none of that name, and
all readers see it whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from recovery.errors import RecoveryError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to write.

Views may have any item type, as long as they are contiguous.
"""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class Store(Protocol):
    """Blobs by name, for example "worker-000/segment-00000012".

    A name is one or more parts joined by "/"; each starts with a letter or digit, followed by letters, digits, ".", "-" or
    "_". Every operation may raise `StoreError`.
    """

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write the blob `name`, all parts in order; durable on return.

        Raises:
            AlreadyThere: if there is a blob of this name; it is left as it is. Of several writers exactly one succeeds.
            StoreError: if it could not be written. Then it is not known whether it is there.
        """
        ...

    def get(self, name: str) -> memoryview:
        """All bytes of a blob, starting at an address that is a multiple of 64.

        Raises:
            NotThere: if there is none of this name.
        """
        ...

    def names(self, prefix: str) -> list[str]:
        """Names beginning with `prefix`, sorted."""
        ...

    def delete(self, name: str) -> None:
        """Remove a blob, if there is one of this name."""
        ...

    def size(self, prefix: str = "") -> int:
        """Bytes of all blobs with names beginning with `prefix`."""
        ...


class OpenStore(Store, Protocol):
    """Opened store, as drivers use it: a context that closes it.

    Any number of processes may open one store, and threads use one `OpenStore`.
    """

    def lock(self) -> AbstractContextManager[None]:
        """Lock the store for this job while inside: other jobs are kept away.

        One process of a job does so, before the others start; those do not lock. The lock ends with the process, however
        it ends.

        Raises:
            StoreBusy: if another job has it.
        """
        ...

    def last_user(self) -> tuple[int, str] | None:
        """Last holder of the lock, living or not: process and host; None before any.

        Raises:
            StoreError: if that is not known.
        """
        ...

    def make_private(self) -> str | None:
        """Close the store to other users; returns a warning for the user, or None."""
        ...

    def close(self) -> None:
        """Release the store; it cannot be used afterwards."""
        ...

    def __enter__(self) -> OpenStore: ...

    def __exit__(self, *_: object) -> None: ...


def is_name(name: str) -> bool:
    """True for a name of a blob, see `Store`."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Raise ValueError for an invalid name of a blob."""
    if not is_name(name):
        raise ValueError(f"{name!r} is not a name for a blob; use letters, digits, '.', '-', '_', and '/' between")


class StoreError(RecoveryError):
    """Failure of an operation of the store."""


class AlreadyThere(StoreError):
    """Name already taken, by another writer or an unacknowledged write of this one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the store already has {name}: another process took over from this one, or two jobs write to one store"
        )


class NotThere(StoreError):
    """No blob of this name."""

    def __init__(self, name: str, where: str = "the store") -> None:
        super().__init__(f"{where} has no {name}")


class StoreCorrupt(StoreError):
    """Bytes in the store differ from those written.

    `torn` says that the end is missing, as after a write that was cut off; otherwise the blob is whole, but damaged.
    """

    def __init__(self, name: str, offset: int, what: str, advice: str = "", torn: bool = False) -> None:
        advice = advice or "restore it from a copy of the store, or start anew with an empty one"
        super().__init__(f"{name} is damaged at byte {offset}: {what}. It is {whose(name)}; {advice}")
        self.name = name
        self.offset = offset
        self.what = what
        self.torn = torn


def whose(name: str) -> str:
    """Description of the owner of the blob `name`, and of its content."""
    owner, inside, _ = name.partition("/")
    if not inside:
        return "what says which store this is"
    if owner == "monitor":
        return "part of the monitor's journal, which says what was decided and what is safe"
    worker = owner.removeprefix("worker-").partition(".layout-")[0]
    if owner.startswith("worker-") and worker.isdigit():
        return f"part of the journal of worker {int(worker)}, which has its checkpoints and logs"
    return f"part of the journal of {owner}"


class StoreVersion(StoreError):
    """Store in another format than this version reads."""

    def __init__(self, name: str, found: int, known: int) -> None:
        newer = found > known
        advice = (
            "use the newer version of falkirk that wrote it" if newer else "use the version of falkirk that wrote it"
        )
        super().__init__(
            f"{name} is in format {found}, and this version reads format {known}; {advice}, or another store"
        )


class StoreFull(StoreError):
    """No room left in the store."""


class StoreUnwritable(StoreError):
    """Store not writable here."""


class StoreGone(StoreError):
    """Store no longer there."""


class NoStore(StoreGone):
    """No store at an address."""

    def __init__(self, where: str) -> None:
        super().__init__(f"there is no store {where}")


class StoreBusy(StoreError):
    """Store in use by another job.

    `pid` is its process, or None where that cannot be found out.
    """

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid
