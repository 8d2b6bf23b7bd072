"""The events and effects of the coordinator that concern the supervisor of the job: they go to it and come from it as they are.

Nothing is imported here that a job without a store would not load as well.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Lost(msgspec.Struct, tag=True, frozen=True):
    """Event: a process is gone, or so it seems: nothing that it still says may become an event."""

    worker: int
    incarnation: int
    reason: str


class ProgramFailed(msgspec.Struct, tag=True, frozen=True):
    """Event: a function of the program, a source or a sink has failed on a worker. The job ends when that is noted."""

    worker: int
    text: str


class Noted(msgspec.Struct, tag=True, frozen=True):
    """Event: a worker has told the user something that belongs on the timeline."""

    worker: int
    text: str


class Respawn(msgspec.Struct, tag=True, frozen=True):
    """Effect: start a process for this worker, once an earlier one is surely dead. Its incarnation must be a higher number."""

    worker: int


class Fence(msgspec.Struct, tag=True, frozen=True):
    """Effect: kill this process and let nothing that it still writes or says count. `incarnation` -1: whichever there is."""

    worker: int
    incarnation: int
    reason: str


class TimelineEvent(msgspec.Struct, tag=True, frozen=True):
    """Effect: something for the timeline. `at` is the coordinator's time, in seconds."""

    kind: str
    at: float
    data: dict[str, Any] = {}


class Note(msgspec.Struct, tag=True, frozen=True):
    """Effect: something that the user should know, in words."""

    text: str
