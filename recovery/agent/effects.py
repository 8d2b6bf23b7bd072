"""Effects of the agent, carried out by its driver in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from recovery.place import Place
from recovery.protocol import ToMonitor
from recovery.rollback.orders import SourceOrder
from recovery.store.interface import Buffer
from timely.data.messages import Effect as EngineEffect
from timely.data.messages import Frame


class Report(msgspec.Struct, frozen=True):
    """Send a message to the monitor.

    Without a connection it is dropped: `Connected` leads to all that matters once more.
    """

    message: ToMonitor


class SendFrame(msgspec.Struct, frozen=True):
    """Send a frame to the process at another place."""

    place: Place
    frame: Frame


class Put(msgspec.Struct, frozen=True):
    """Write a segment; `Stored` reports completion.

    There is never more than one in flight.
    """

    name: str
    parts: Sequence[Buffer]


class Delete(msgspec.Struct, frozen=True):
    """Delete a segment at some time."""

    name: str


class Hold(msgspec.Struct, frozen=True):
    """Send a segment to the mate's memory; `Held` reports completion.

    There is never more than one in flight.
    """

    name: str
    parts: Sequence[Buffer]


class LetGo(msgspec.Struct, frozen=True):
    """Have the mate forget a segment at some time."""

    name: str


class Perform(msgspec.Struct, frozen=True):
    """Carry out effects of operators, above all released output.

    They come before a `Put` that records them as done.
    """

    effects: list[EngineEffect]


class Rewind(msgspec.Struct, frozen=True):
    """Rewind sources, by node, after a rollback; end jobs that nothing waits for.

    Until the next `Run` all frames come to the agent.
    """

    sources: Mapping[int, SourceOrder]


class Acknowledge(msgspec.Struct, frozen=True):
    """Acknowledge all epochs of a source, by node, before `epoch`.

    They will never be read again.
    """

    node: int
    epoch: int


class Run(msgspec.Struct, frozen=True):
    """Run the worker, once all first frames of this generation are here.

    From now on frames of this generation go to the engine (`recovery.agent.events.for_the_engine`). Before the first turn the
    engine begins the generation (`timely.worker.restoring.resume`).
    """

    generation: int


class Halt(msgspec.Struct, frozen=True):
    """Run the worker no longer, until the next `Run`.

    `done`: all is complete, persisted and released, and the monitor knows. Only a rollback can follow.
    """

    done: bool = False


class ReadBefore(msgspec.Struct, frozen=True):
    """Have sources begin no epoch from `epoch` on; NEVER: no limit any more.

    None: none that is not begun; `Stood` is the answer.
    """

    epoch: int | None


class Save(msgspec.Struct, frozen=True):
    """Make pieces of cuts between turns, by `PieceDue`, until `Saved` says `over`.

    Attributes:
        every: seconds wanted between two cuts; None: unspecified.
        sources: `PieceDue` must bring the positions of these (processor, epoch): after all epochs before that one.
        at_once: in this very turn, as one piece.
    """

    every: float | None
    sources: tuple[tuple[int, int], ...] = ()
    at_once: bool = False


class Saved(msgspec.Struct, frozen=True):
    """Count of the rows of a finished piece; `over`: it was the last one."""

    rows: int
    over: bool


class Throttle(msgspec.Struct, frozen=True):
    """Pause the sources `here`, and `everywhere` those of all workers, or no longer."""

    here: bool
    everywhere: bool


class Fail(msgspec.Struct, frozen=True):
    """Fail this worker: it cannot take part, for a reason shown to the user."""

    reason: str


Effect: TypeAlias = (
    Report
    | SendFrame
    | Put
    | Delete
    | Hold
    | LetGo
    | Perform
    | Rewind
    | Acknowledge
    | Run
    | Halt
    | ReadBefore
    | Save
    | Saved
    | Throttle
    | Fail
)
