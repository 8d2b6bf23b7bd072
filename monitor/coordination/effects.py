"""Effects of the coordinator, carried out by a driver or a simulator.

A driver does so over sockets, processes and a disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from monitor.coordination.records import Record
from monitor.coordination.supervision import Fence, Note, Respawn, TimelineEvent
from monitor.explain.mates import TakeOver
from recovery.metadata import Bound
from recovery.place import Place
from recovery.protocol import Redone, Resent, ToWorker


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the process at a place.

    It is for the process that the coordinator knows, and for no later one.
    """

    place: Place
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Persist:
    """Write records durably, all or none; `Stored` reports completion.

    There is never more than one in flight.
    """

    ticket: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """Job finished, and its journal says so.

    Workers may be ordered to exit.
    """


@dataclass(frozen=True, slots=True)
class Fail:
    """Job cannot go on, for a reason shown to the user.

    Workers should be stopped. `lost`: the cause is repeated loss of a worker, neither the program nor the store.

    `lost`: because a worker was lost again and again, not because of what the program or the store is.
    """

    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Consequences of a supposed failure (`monitor.explain.what_if`).

    Attributes:
        failed: the processors that would lose their memory: (processor, worker).
        bounds: `[worker][processor]`: where each would go back to; None for what would stay as it is.
        resent: by worker, logged messages that would be sent again.
        redone: by worker, work that would be done again; None where nobody can say, because the job is not running.
        mates: of failed workers, that would take over.
    """

    failed: tuple[tuple[int, int], ...]
    bounds: tuple[tuple[Bound | None, ...], ...]
    resent: tuple[tuple[Resent, ...], ...] = ()
    redone: tuple[tuple[Redone, ...], ...] | None = None
    mates: tuple[TakeOver, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer to a question, or the reason for none."""

    number: int
    answer: Answer | str


Effect: TypeAlias = Send | Persist | Respawn | Fence | TimelineEvent | Note | Finished | Fail | Answered
