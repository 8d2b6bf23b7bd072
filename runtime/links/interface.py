"""Interface of links between a worker's driver and the other workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recovery.place import Place
from timely.data.messages import Frame


class Link(Protocol):
    """Connections to the processes at all other places.

    Frames of one sender arrive in order, each once, or the link reports a lost worker.

    `send` never blocks: what the transport does not take at once waits in memory, and `unsent` says how much. Sources
    pause while that is too much, so it stays bounded.
    """

    def send(self, place: Place, frame: Frame) -> None:
        """Send a frame to the process at `place`."""

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        """Received frames; waits up to `seconds` (None: for ever) if there are none.

        A readable file of `extra` ends the wait, too.

        Raises WorkerLost when a worker's connection closes before it said that it was done.
        """

    @property
    def unsent(self) -> int:
        """Number of bytes waiting for the transport."""

    def close(self) -> None:
        """Say goodbye to the others and close all connections."""

    def abandon(self) -> None:
        """Close all connections at once after a failure, so that the others notice."""
