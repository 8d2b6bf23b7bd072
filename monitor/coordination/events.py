"""The events of the coordinator: what its driver tells it. The time comes with each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from monitor.coordination.supervision import Busy, Happened, Lost, Noted, ProgramFailed, Stopping
from recovery.protocol import ToMonitor


@dataclass(frozen=True, slots=True)
class Began:
    """The process of the monitor is there. The first event of all, and given once."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of a worker; `incarnation` of the process that sent it, where the driver knows."""

    message: ToMonitor
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The write of the `Persist` with this ticket is durable."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed: wanted several times in the shortest interval that matters, after all messages that have arrived."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody asks what follows if the processors `failed`, as (processor, worker), lost their memory now."""

    number: int
    failed: tuple[tuple[int, int], ...]


Event: TypeAlias = Began | Heard | Lost | Noted | ProgramFailed | Stopping | Busy | Happened | Stored | Ticked | Asked
