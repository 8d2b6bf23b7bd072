"""HTTP server with limits on connections and on request time."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128
"""Most connections, fewer if the process may not open that many files."""

BACKLOG = 32
"""Connections accepted by the kernel before they are counted."""

ASK_SECONDS = 10.0
"""Seconds for the whole head of a request.

They begin when the connection was made or the answer before was given.
"""

BODY_SECONDS = 10.0
STALL_SECONDS = 30.0
"""Seconds without progress by a receiving client before it is disconnected."""


def most_connections() -> int:
    """Most connections at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(MOST_CONNECTIONS, soft // 2))


class BoundedProtocol(H11Protocol):
    """Connection with limits.

    When there are too many, the one that has asked for nothing for longest makes room.
    """

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()
        if len(self.connections) > most_connections():
            idle = [each for each in self.connections if isinstance(each, BoundedProtocol) and each._waits_until]
            oldest = min(idle, key=lambda each: each._waits_until, default=self)
            oldest.transport.abort()
            self.connections.discard(oldest)  # the transport tells of its end a moment later

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.resume_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._disarm()

    def on_response_complete(self) -> None:
        self._arm()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    @property
    def _waits_until(self) -> float:
        """Deadline of its wait for a request; 0 during a request."""
        return self._deadline.when() if self._deadline is not None else 0.0

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(ASK_SECONDS, self.transport.abort)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
