"""Events and effects shared by the coordinator and the job's supervisor.

They go to it and come from it as they are.

Nothing is imported here that a job without a store would not load as well.
"""

from __future__ import annotations

from typing import Any

import msgspec

from recovery.place import Place


class Lost(msgspec.Struct, tag=True, frozen=True):
    """Event: a process is gone, or seems so.

    Nothing that it still says may become an event. `output`: last lines that it wrote on standard error.
    """

    place: Place
    incarnation: int
    reason: str
    output: str = ""


class ProgramFailed(msgspec.Struct, tag=True, frozen=True):
    """Event: a function of the program, a source or a sink failed on a worker.

    The job ends when that is noted.

    `processor` is the one that was at work (-1: none was); `trace` is Python's, for the timeline.
    """

    place: Place
    text: str
    processor: int = -1
    trace: str = ""


class Stopping(msgspec.Struct, tag=True, frozen=True):
    """Event: the job is being stopped, by a user or a signal.

    It ends when that is noted. `by`: Ctrl-C, falkirk stop, the name of a signal.
    """

    by: str


class Saving(msgspec.Struct, tag=True, frozen=True):
    """Event: the job is to stop at a savepoint, within `seconds`, or to go on.

    Sources begin no further epoch; it ends once all that they have read is complete, saved and published. `by`: as of
    `Stopping`.
    """

    by: str
    seconds: float


class Busy(msgspec.Struct, tag=True, frozen=True):
    """Event: a worker has been in one turn for `seconds`; 0: not any more.

    `processor` is the one at work (-1: none that is known), `name` the operator (one of several in a fused chain), and `where`
    says more, in words. `read` and `newest` are the records
    and the epoch that its sources had come to before (`newest` None: they have ended); `known`: that was ever said.
    """

    place: Place
    seconds: float
    processor: int = -1
    name: str = ""
    where: str = ""
    read: int = 0
    newest: int | None = None
    known: bool = False


class MateView(msgspec.Struct, frozen=True, array_like=True):
    """Mate of a worker as its supervisor knows it, by its own last report.

    Attributes:
        state: "begins", "loads", "follows", or "none" where the worker goes on without one.
        pid: its process; 0 for none.
        memory: its resident bytes.
        epoch: the first epoch that its loaded state leaves out, of the operator furthest back; -1: none, None: unknown.
        behind: durable checkpoints not loaded, of the operator furthest back; it stays 1 behind.
        left: bytes in the store that a take-over would read now.
        begun: mates of this worker begun so far.
        seconds: that the last one took to load its worker's state; None before.
    """

    worker: int
    state: str
    pid: int = 0
    memory: int = 0
    epoch: int | None = None
    behind: int = 0
    left: int = 0
    begun: int = 0
    seconds: float | None = None


class Mates(msgspec.Struct, tag=True, frozen=True):
    """Event: mates of all workers as they are now, for display only."""

    mates: tuple[MateView, ...]


class Happened(msgspec.Struct, tag=True, frozen=True):
    """Event for the timeline, without other consequences here."""

    kind: str
    data: dict[str, Any] = {}


class Noted(msgspec.Struct, tag=True, frozen=True):
    """Event: a message of a worker to the user, for the timeline."""

    place: Place
    text: str


class Respawn(msgspec.Struct, tag=True, frozen=True):
    """Effect: start a process at this place, once an earlier one is dead.

    Its incarnation must be a higher number.
    """

    place: Place


class Fence(msgspec.Struct, tag=True, frozen=True):
    """Effect: kill this process and ignore its writes and messages.

    `incarnation` -1: whichever there is.
    """

    place: Place
    incarnation: int
    reason: str


class TimelineEvent(msgspec.Struct, tag=True, frozen=True):
    """Effect: an event for the timeline.

    `at` is the coordinator's time, in seconds.
    """

    kind: str
    at: float
    data: dict[str, Any] = {}


class Note(msgspec.Struct, tag=True, frozen=True):
    """Effect: a note for the user, in words."""

    text: str
