"""Incoming connections of cluster tasks, until each has identified its worker."""

from __future__ import annotations

import selectors
import time
from contextlib import suppress
from dataclasses import dataclass

from runtime.control import FROM_CHILD, Control, FromChild, Here
from runtime.processes.greeting import MOST_STRANGERS, Greeting, Strangers, listen, tune
from timely.io.acceptor import Acceptor


@dataclass(eq=False, slots=True)
class Caller:
    """Peer still to authenticate (`greeting`) or to name its worker."""

    control: Control[FromChild]
    greeting: Greeting | None


class Calls:
    """Listener at `host` for the tasks of `workers` workers, authenticated by `token`."""

    def __init__(self, host: str, token: bytes, workers: int) -> None:
        self._token = token
        self._acceptor = Acceptor(listen(host))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._acceptor.listener, selectors.EVENT_READ, None)
        self._strangers: Strangers[Caller] = Strangers(MOST_STRANGERS + workers)
        self.callers: list[Caller] = []

    def fileno(self) -> int:
        """File descriptor; readable on new connections or messages."""
        return self._selector.fileno()

    @property
    def port(self) -> int:
        """Port for connections of tasks."""
        return int(self._acceptor.listener.getsockname()[1])

    def wait(self, seconds: float) -> list[tuple[Here, Control[FromChild]]]:
        """Newly identified tasks with their connections; waits at most `seconds`.

        The caller of this function closes the connections.
        """
        for late in self._strangers.overdue(time.monotonic()):
            self._hang_up(late)
        known = []
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
            elif key.data in self.callers and (here := self._hear(key.data)) is not None:
                self._forget(key.data)
                known.append((here, key.data.control))
        return known

    def close(self) -> None:
        """Close all connections and the listener."""
        for caller in list(self.callers):
            self._hang_up(caller)
        self._acceptor.close()
        self._selector.close()

    def _hang_up(self, caller: Caller) -> None:
        self._forget(caller)
        caller.control.close()

    def _forget(self, caller: Caller) -> None:
        self.callers.remove(caller)
        self._strangers.know(caller)
        self._selector.unregister(caller.control.sock)

    def _accept(self) -> None:
        found = self._acceptor.accept()
        if found is None:
            return
        sock, _ = found
        with suppress(OSError):  # it may have gone already, which is found out when it is heard
            tune(sock)
        caller = Caller(Control(sock, FROM_CHILD), Greeting(self._token))
        self.callers.append(caller)
        self._selector.register(sock, selectors.EVENT_READ, caller)
        for oldest in self._strangers.come(caller, time.monotonic()):
            self._hang_up(oldest)

    def _hear(self, caller: Caller) -> Here | None:
        """Read a task's first message after authentication; hang up on anything else."""
        if caller.greeting is not None:
            known = caller.greeting.hear(caller.control.sock)
            if known is False:
                self._hang_up(caller)
            if not known:
                return None
            caller.greeting = None
            self._strangers.know(caller)
        here = caller.control.read_one()
        if isinstance(here, Here):
            return here
        if here is not None or caller.control.ended:
            self._hang_up(caller)
        return None
