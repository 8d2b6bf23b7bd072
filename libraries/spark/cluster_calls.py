"""The connections that tasks on the cluster make to whoever runs the job."""

from __future__ import annotations

import selectors
import time
from contextlib import suppress
from dataclasses import dataclass

from runtime.control import FROM_CHILD, Control, FromChild, Here, ToChild, tell
from runtime.processes.greeting import MOST_STRANGERS, Greeting, Strangers, listen, tune
from runtime.supervisor.liveness import Pulse
from timely.io.acceptor import Acceptor


@dataclass(eq=False, slots=True)
class Caller:
    """One task, from when it has said which worker it is (`here`)."""

    control: Control[FromChild]
    greeting: Greeting | None
    pulse: Pulse
    here: Here | None = None
    failed: bool = False
    """True if it said itself why it ends."""

    @property
    def worker(self) -> int:
        """The index of its worker; -1 as long as it has not said so."""
        return -1 if self.here is None else self.here.worker

    def explain(self) -> None:
        """It cannot be asked: its standard error is on another host."""

    def tell(self, message: ToChild) -> None:
        """Tell it something; if it is gone, that is found out elsewhere."""
        with suppress(OSError):
            tell(self.control.sock, message)


class Calls:
    """Listens at `host` for the tasks of `workers` workers, which know `token`."""

    def __init__(self, host: str, token: bytes, workers: int) -> None:
        self._token = token
        self._acceptor = Acceptor(listen(host))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._acceptor.listener, selectors.EVENT_READ, None)
        self._strangers: Strangers[Caller] = Strangers(MOST_STRANGERS + workers)
        self.callers: list[Caller] = []

    def fileno(self) -> int:
        """The file that is readable when there is news."""
        return self._selector.fileno()

    @property
    def port(self) -> int:
        """The port to which tasks connect."""
        return int(self._acceptor.listener.getsockname()[1])

    def wait(self, seconds: float) -> list[tuple[Caller, FromChild]]:
        """The messages of known callers, in order; waits for news for at most `seconds`."""
        said: list[tuple[Caller, FromChild]] = []
        for late in self._strangers.overdue(time.monotonic()):
            self.hang_up(late)
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
            elif key.data in self.callers:
                said += [(key.data, message) for message in self._hear(key.data)]
        return said

    def hang_up(self, caller: Caller) -> None:
        """Close the connection: the task then ends by itself."""
        self.callers.remove(caller)
        self._strangers.know(caller)
        self._selector.unregister(caller.control.sock)
        caller.control.close()

    def close(self) -> None:
        """Close everything."""
        for caller in list(self.callers):
            self.hang_up(caller)
        self._acceptor.close()
        self._selector.close()

    def _accept(self) -> None:
        found = self._acceptor.accept()
        if found is None:
            return
        sock, _ = found
        with suppress(OSError):  # it may have gone already, which is found out when it is heard
            tune(sock)
        now = time.monotonic()
        caller = Caller(Control(sock, FROM_CHILD), Greeting(self._token), Pulse(-1, now, now))
        self.callers.append(caller)
        self._selector.register(sock, selectors.EVENT_READ, caller)
        for oldest in self._strangers.come(caller, now):
            self.hang_up(oldest)

    def _hear(self, caller: Caller) -> list[FromChild]:
        if caller.greeting is not None:
            known = caller.greeting.hear(caller.control.sock)
            if known is False:
                self.hang_up(caller)
            if not known:
                return []
            caller.greeting = None
            self._strangers.know(caller)
        messages = caller.control.read()
        caller.pulse.heard = time.monotonic()
        for message in messages:
            if isinstance(message, Here):
                caller.here = message
        if caller.control.ended:
            self.hang_up(caller)
        return messages if caller.here is not None else []
