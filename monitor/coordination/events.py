"""Events of the coordinator, sent by its driver.

The time comes with each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from monitor.coordination.supervision import Busy, Happened, Lost, Noted, ProgramFailed, Saving, Stopping
from monitor.explain.exposure import Danger, Fate
from recovery.place import Place
from recovery.protocol import ToMonitor


@dataclass(frozen=True, slots=True)
class Began:
    """First event, given once: the monitor's process has started."""


@dataclass(frozen=True, slots=True)
class FromWorker:
    """Message of a worker's process, with its `incarnation` if known."""

    message: ToMonitor
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected cost and fate of each worker's death, for a rollback's account."""

    by_worker: Mapping[int, tuple[Danger, Fate]]


@dataclass(frozen=True, slots=True)
class Stored:
    """The `Persist` of this ticket is durable."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed.

    Wanted several times in the shortest interval that matters, after all messages that have arrived.
    """


@dataclass(frozen=True, slots=True)
class Asked:
    """Question: consequences if processors, as (processor, worker), failed now.

    They would lose their memory.
    """

    number: int
    failed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Hurried:
    """Order: cut every group as soon as it has something new, once."""


@dataclass(frozen=True, slots=True)
class Restarting:
    """Order: end the process at a place, for another one to take it."""

    place: Place
    reason: str


Event: TypeAlias = (
    Began
    | FromWorker
    | Lost
    | Noted
    | ProgramFailed
    | Stopping
    | Saving
    | Busy
    | Happened
    | Expected
    | Stored
    | Ticked
    | Asked
    | Hurried
    | Restarting
)
