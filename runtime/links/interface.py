"""The interface of links, over which a worker's driver exchanges frames with the other workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from timely.data.messages import Frame


class Link(Protocol):
    """Connections to all other workers. Frames of one sender arrive in order, each once, or the link says it is broken.

    `send` never blocks: what the transport does not take at once waits in memory, and `unsent` says how much. Sources
    pause while that is too much, so it stays bounded.
    """

    def send(self, worker: int, frame: Frame) -> None:
        """Pass a frame on to `worker`."""

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        """The frames that have come; waits up to `seconds` (None: for ever) for one, or until a file of `extra` is ready.

        Raises WorkerLost when a worker's connection closes before it said that it was done.
        """

    @property
    def unsent(self) -> int:
        """Bytes that wait for the transport."""

    def close(self) -> None:
        """Say goodbye to the others and close all connections."""

    def abandon(self) -> None:
        """The job failed: close all connections at once, so that the others notice."""
