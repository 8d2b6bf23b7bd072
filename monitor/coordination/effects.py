"""The effects of the coordinator, carried out by a driver over sockets, processes and a disk, or by a simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from monitor.coordination.records import Record
from monitor.coordination.supervision import Fence, Note, Respawn, TimelineEvent
from recovery.metadata import Bound
from recovery.protocol import Redone, Resent, ToWorker


@dataclass(frozen=True, slots=True)
class Send:
    """A message for a worker: for the process that the coordinator heard last, and for no later one."""

    worker: int
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Persist:
    """Write these durably, all or none; `Stored` tells of it. There is never more than one under way."""

    ticket: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The job is done, and its journal says so. Workers may be told to exit."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The job cannot go on; the reason is for the user. Workers should be stopped.

    `lost`: because a worker was lost again and again, not because of what the program or the store is.
    """

    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The consequences of a supposed failure (`monitor.explain.what_if`).

    Attributes:
        failed: the processors that would lose their memory: (processor, worker).
        bounds: `[worker][processor]`: where each would go back to; None for what would stay as it is.
        resent: by worker, logged messages that would be sent again.
        redone: by worker, work that would be done again; None where nobody can say, because the job is not running.
    """

    failed: tuple[tuple[int, int], ...]
    bounds: tuple[tuple[Bound | None, ...], ...]
    resent: tuple[tuple[Resent, ...], ...] = ()
    redone: tuple[tuple[Redone, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question, or why there is none."""

    number: int
    answer: Answer | str


Effect: TypeAlias = Send | Persist | Respawn | Fence | TimelineEvent | Note | Finished | Fail | Answered
