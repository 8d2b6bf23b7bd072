"""The processes of a job, as its supervisor starts, hears and ends them."""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TypeAlias

from runtime.control import FROM_CHILD, Begin, Control, FromChild, Peer, ToChild, tell
from runtime.processes.worker import WorkerTask
from runtime.program import packed
from runtime.supervisor.forked import UNKNOWN, Forked, environment, start
from runtime.supervisor.liveness import Liveness, Pulse

_GRACE_SECONDS = 3.0
"""Seconds that a stopped process has to leave by itself; then it is killed."""

_KILL_SECONDS = 5.0
"""Seconds that a process may take to die. One that waits in the kernel, for a disk that is gone perhaps, does not: it is left
behind, cut off from everybody, and its successor has fenced its journal."""

_READ_SECONDS = 60.0
"""Seconds that a process without signs of life may take to read what it is told."""

_BEATS = 10
"""Number of times a process beats within the time-out."""

WORKER = "runtime.processes.worker"
MONITOR = "runtime.processes.monitor"

Started: TypeAlias = "Forked | subprocess.Popen[bytes]"
"""A process that this one has started."""


def task_file(task: WorkerTask) -> IO[bytes]:
    """The task of all workers, in a file that only processes can read that inherit it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(packed(task))
    file.flush()
    return file


@dataclass(eq=False, slots=True)
class Child:
    """One process: a worker, a spare that may become one (`worker` -1), or a monitor."""

    module: str
    process: Started | None
    """None: somebody else has started it, and it ends when it likes."""
    control: Control[FromChild]
    pidfd: int | None
    pulse: Pulse
    worker: int = -1
    incarnation: int = -1
    failed: bool = False
    """True if it said itself why it ends."""
    ready: bool = False
    """True if it can be asked what it waits for."""
    hung: str = ""
    """The reason for which it was ended, if it had hung."""

    @property
    def pid(self) -> int:
        return self.pulse.pid

    def tell(self, message: ToChild, files: list[socket.socket] | None = None) -> None:
        """Tell it something; if it is dead, that is found out elsewhere. Who does not read for long has hung, and is killed."""
        try:
            tell(self.control.sock, message, files or [])
        except BlockingIOError:
            if self.process is not None:
                self.process.kill()
            self.control.ended = True
        except OSError:
            pass

    def explain(self) -> None:
        """Have it print what it waits for, on its standard error."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)

    def how_it_ended(self) -> str:
        """The end of the process, in words that follow its name."""
        if self.hung:
            return f"{self.hung}, and was killed"
        code = self.process.returncode if self.process is not None else None
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        if code == UNKNOWN:
            return "ended, after the process that had started it"
        return f"ended with exit code {code}"


def link_to(child: Child, begin: Begin, others: list[Child]) -> None:
    """Let a process begin as a worker, and connect it with those of others, which are told before it can say anything."""
    ends: list[socket.socket] = []
    for other in others:
        one, end = socket.socketpair()
        for each in (one, end):
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with one:
            other.tell(Peer(begin.index), [one])
        ends.append(end)
    child.tell(begin, ends)
    for end in ends:
        end.close()


class Children:
    """All processes of a job, those that others have started included. `wait` hears them all. A context that ends them.

    Args:
        workers: how many share the machine.
        timeout: seconds without a sign of life after which a process has hung; endless: they give no signs of life.
        private: the folder of the supervisor, which the processes remove when they outlive it.
    """

    def __init__(self, workers: int, timeout: float = math.inf, private: str = "") -> None:
        self.private = private
        self.liveness = Liveness(timeout, time.monotonic())
        self._environment = environment(workers)
        self._selector = selectors.DefaultSelector()
        self.all: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._selector.close()

    @property
    def beat_seconds(self) -> float:
        """Seconds between two signs of life of a process; 0: there are none."""
        return self.liveness.timeout / _BEATS if math.isfinite(self.liveness.timeout) else 0.0

    def start(self, module: str, files: list[int], *more: str) -> Child:
        """Start a process. Its arguments: a connection to here, how often to beat, `private`, `files`, and `more`."""
        mine, theirs = socket.socketpair()
        with theirs:
            arguments: list[str | int] = [0, str(self.beat_seconds), self.private, *range(1, 1 + len(files)), *more]
            process = start(module, arguments, [theirs.fileno(), *files], self._environment)
        pidfd: int | None = None
        if isinstance(process, Forked):
            pidfd = process.stands_for()
        elif hasattr(os, "pidfd_open"):
            with suppress(OSError):
                pidfd = os.pidfd_open(process.pid)
        return self._add(Child(module, process, Control(mine, FROM_CHILD), pidfd, _pulse(process.pid)))

    def meet(self, module: str, control: Control[FromChild], pid: int | None, patience: float = 1.0) -> Child:
        """Hear a process that somebody else has started as well, over a connection to it.

        `pid` is None on another host, where its processor time is not known: `patience` is in time-outs.
        """
        return self._add(Child(module, None, control, None, _pulse(-1 if pid is None else pid, patience)))

    def _add(self, child: Child) -> Child:
        timeout = self.liveness.timeout if math.isfinite(self.liveness.timeout) else _READ_SECONDS
        sock, pidfd = child.control.sock, child.pidfd
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeout) + 1, 0))
        self.all.append(child)
        self._selector.register(sock, selectors.EVENT_READ, child)
        if pidfd is not None:
            self._selector.register(pidfd, selectors.EVENT_READ, child)
        return child

    def wait(self, seconds: float) -> list[Child]:
        """Wait for news of any of them, at most so long; who may have some."""
        ready = dict.fromkeys(key.data for key, _ in self._selector.select(seconds))
        for each in ready:
            if not isinstance(each, Child):
                each()
        return [each for each in ready if isinstance(each, Child)]

    def attend(self, file: int, ready: Callable[[], None]) -> None:
        """Have `wait` call `ready` whenever there is something to read in a file."""
        self._selector.register(file, selectors.EVENT_READ, ready)

    def hung(self) -> list[Child]:
        """Those that have hung, and are not heard any more. To be called when all that could be read has been."""
        now = time.monotonic()
        silent = self.liveness.hung([(child.pulse, child.control.received) for child in self.all], now)
        found = [child for child in self.all if child.pulse in silent]
        for child in found:
            child.hung = f"gave no sign of life for {now - child.pulse.alive:.1f} s"
        return found

    def silent(self) -> list[tuple[Child, float]]:
        """Those that are alive without a word, and for how many seconds. After `hung`."""
        now = time.monotonic()
        return [(child, now - child.pulse.heard) for child in self.all if child.pulse.excuse]

    def over(self, child: Child) -> bool:
        """True if it has ended, or can no longer be told anything (then it is ended)."""
        process = child.process
        if process is None:
            return child.control.ended
        if child.control.ended and process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        return child.control.ended or process.poll() is not None

    def end(self, child: Child) -> list[FromChild]:
        """Kill it if it is still there and a child of ours, and forget it; what it had said at last."""
        if child.process is not None:
            if child.process.poll() is None:
                child.process.kill()
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(_KILL_SECONDS)
        said = child.control.read()
        self._selector.unregister(child.control.sock)
        if child.pidfd is not None:
            self._selector.unregister(child.pidfd)
            os.close(child.pidfd)
        child.control.close()
        self.all.remove(child)
        return said

    def stop(self) -> None:
        """End all: asked first, killed after a grace period."""
        for child in self.all:
            if child.process is not None and child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for child in list(self.all):
            if child.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, deadline - time.monotonic()))
            self.end(child)


def _pulse(pid: int, patience: float = 1.0) -> Pulse:
    now = time.monotonic()
    return Pulse(pid, now, now, patience)
