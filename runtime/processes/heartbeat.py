"""Heartbeats of a process, sent by a thread, so user functions may take any time.

The supervisor ends a process without heartbeats. Each heartbeat also reports the duration and work of the current
turn, for a note about a function that never returns.
"""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable

from runtime.control import Beat, FromChild, confession, tell


class SupervisorChannel:
    """Sending end of a process's connection to its supervisor, for any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._lock = threading.Lock()
        self._gone = False
        """True once a message could not be sent."""

    def tell(self, message: FromChild) -> None:
        """Send a message.

        Blocks while the supervisor does not read; raises OSError when it is gone.
        """
        with self._lock:
            try:
                tell(self.sock, message)
            except OSError:
                self._gone = True
                raise

    def confess(self, error: BaseException, processor: int = -1) -> None:
        """Report the fatal error of this process to the supervisor.

        If the supervisor is gone, to standard error, unless that is the error. `processor`: the one at work.
        """
        if self._gone and isinstance(error, OSError):
            return
        try:
            self.tell(confession(error, processor))
        except OSError:
            traceback.print_exception(error)


class Heartbeat:
    """Sender of heartbeats every `seconds` for the life of the process; never if 0."""

    def __init__(self, voice: SupervisorChannel, seconds: float) -> None:
        self._voice = voice
        self._seconds = seconds
        self._began: float | None = None
        self._doing: Callable[[], tuple[str, int, str]] = lambda: ("", -1, "")
        if seconds:
            threading.Thread(target=self._beat, name="falkirk-heartbeat", daemon=True).start()

    def turn(self) -> None:
        """Mark the beginning of a turn of the main thread."""
        self._began = time.monotonic()

    def describe(self, doing: Callable[[], tuple[str, int, str]]) -> None:
        """Set the description of current work, called by the heartbeat thread.

        It gives a text, the processor (-1: none) and the operator.
        """
        self._doing = doing

    def _beat(self) -> None:
        while True:  # the first at once: who has never been heard is given more time
            began = self._began
            busy = 0.0 if began is None else time.monotonic() - began
            try:
                self._voice.tell(Beat(busy, *(self._doing() if busy > self._seconds else ("", -1, ""))))
            except OSError:
                return  # the supervisor is gone, and this process will be
            time.sleep(self._seconds)
