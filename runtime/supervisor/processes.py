"""Processes of a job: started, watched and ended by its supervisor."""

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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from recovery.place import Place
from runtime.control import FROM_CHILD, Begin, Control, FromChild, Peer, ToChild, tell
from runtime.processes.task import WorkerTask
from runtime.program import packed
from runtime.supervisor.forked import UNKNOWN, Forked, environment, start
from runtime.supervisor.liveness import Liveness, Pulse
from runtime.supervisor.output import Output, Streams

_GRACE_SECONDS = 3.0
"""Seconds for a stopped process to end by itself, before it is killed."""

_KILL_SECONDS = 5.0
"""Seconds for a killed process to die.

One that waits in the kernel, for a disk that is gone perhaps, does not: it is left behind, cut off from all others,
and its successor has fenced its journal.
"""

_TRACE_SECONDS = 1.0
"""Seconds for a hung process to write its stacks, before it is killed."""

_READ_SECONDS = 60.0
"""Seconds for a process without signs of life to read a message."""

_BEATS = 10
"""Number of heartbeats within the time-out."""

WORKER = "runtime.processes.worker"
MONITOR = "runtime.processes.monitor"

Started: TypeAlias = "Forked | subprocess.Popen[bytes]"
"""Process started by this one."""


def task_file(task: WorkerTask) -> IO[bytes]:
    """Task of all workers, in a file readable by inheriting processes only."""
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(packed(task))
    file.flush()
    return file


@dataclass(eq=False, slots=True)
class Child:
    """Process of a job: a worker, a mate, a spare or the monitor.

    Mates and spares have no `place`.
    """

    module: str
    process: Started | None
    """None if the process was started elsewhere, and ends when it likes."""
    control: Control[FromChild]
    pidfd: int | None
    pulse: Pulse
    place: Place | None = None
    incarnation: int = -1
    mate_of: int | None = None
    """Followed worker, now or before; None for others than mates."""
    caught_up: bool = False
    """True if it has had the durable state of that worker."""
    failed: bool = False
    """True if it has sent the error that ends it."""
    ready: bool = False
    """True if it can print a report of pending work."""
    hung: str = ""
    """Description of its silence, if it was killed as hung."""
    streams: Streams | None = None
    """Output of the process, if kept."""
    words: str = ""
    """Last lines on standard error of an ended process; of a hung one also its stacks."""

    @property
    def pid(self) -> int:
        return self.pulse.pid

    def tell(self, message: ToChild, files: list[socket.socket] | None = None) -> None:
        """Send a message; errors of a dead process are ignored.

        A process that does not read for long has hung, and is killed.
        """
        try:
            tell(self.control.sock, message, files or [])
        except BlockingIOError:
            if self.process is not None:
                self.process.kill()
            self.control.ended = True
        except OSError:
            pass

    @property
    def where(self) -> str:
        """Name of its place, for files."""
        if self.module == MONITOR:
            return "monitor"
        if self.place is not None:
            return self.place.key
        return "spare" if self.mate_of is None else Place(self.mate_of, 1).key

    def explain(self) -> None:
        """Make it print its report of pending work, on its standard error."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)

    def how_it_ended(self) -> str:
        """End of the process, as text after its name."""
        if self.hung:
            return f"{self.hung}, and was killed"
        code = self.process.returncode if self.process is not None else None
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        if code == UNKNOWN:
            return "ended, after the process that had started it"
        return f"ended with exit code {code}"


def link_to(child: Child, begin: Begin, others: list[Child]) -> None:
    """Start a process as a worker, connected to `others`.

    Those get their sockets before it can send anything.
    """
    ends: list[socket.socket] = []
    for other in others:
        one, end = socket.socketpair()
        for each in (one, end):
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with one:
            other.tell(Peer(begin.place), [one])
        ends.append(end)
    child.tell(begin, ends)
    for end in ends:
        end.close()


class Children:
    """All processes of a job, local or not; a context that ends them.

    `wait` waits for all.

    Args:
        workers: how many share the machine.
        timeout: seconds without a sign of life after which a process has hung; endless: they give no signs of life.
        private: the folder of the supervisor, which the processes remove when they outlive it.
        logs: the folder where the last lines of their output are kept; None: nowhere.
    """

    def __init__(self, workers: int, timeout: float = math.inf, private: str = "", logs: Path | None = None) -> None:
        self._output = Output(logs)
        self.private = private
        self.liveness = Liveness(timeout, time.monotonic())
        self._environment = environment(workers)
        self._selector = selectors.DefaultSelector()
        self.all: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._output.close()
        self._selector.close()

    @property
    def beat_seconds(self) -> float:
        """Seconds between two heartbeats of a process; 0: there are none."""
        return self.liveness.timeout / _BEATS if math.isfinite(self.liveness.timeout) else 0.0

    def start(self, module: str, files: list[int], *more: str) -> Child:
        """Start a process.

        Its arguments: a connection to here, seconds between heartbeats, `private`, `files`, and `more`.
        """
        mine, theirs = socket.socketpair()
        streams = self._output.open()
        standard = (0, 1, 2) if streams is None else (0, *streams.files)
        with theirs, ExitStack() as opened:
            if streams is not None:
                opened.callback(streams.close_files)
            arguments: list[str | int] = [0, str(self.beat_seconds), self.private, *range(1, 1 + len(files)), *more]
            process = start(module, arguments, [theirs.fileno(), *files], self._environment, standard)
        pidfd: int | None = None
        if isinstance(process, Forked):
            pidfd = process.stands_for()
        elif hasattr(os, "pidfd_open"):
            with suppress(OSError):
                pidfd = os.pidfd_open(process.pid)
        child = Child(module, process, Control(mine, FROM_CHILD), pidfd, _pulse(process.pid), streams=streams)
        if streams is not None:
            streams.started(process.pid, lambda: child.where)
        return self._add(child)

    def meet(self, module: str, control: Control[FromChild], pid: int | None, patience: float = 1.0) -> Child:
        """Include a process started elsewhere, over a connection to it.

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
        """Wait up to `seconds` for messages or ends; returns the processes with any."""
        ready = dict.fromkeys(key.data for key, _ in self._selector.select(seconds))
        for each in ready:
            if not isinstance(each, Child):
                each()
        return [each for each in ready if isinstance(each, Child)]

    def attend(self, file: int, ready: Callable[[], None]) -> None:
        """Call `ready` from `wait` whenever a file is readable."""
        self._selector.register(file, selectors.EVENT_READ, ready)

    def hung(self) -> list[Child]:
        """Hung processes.

        To be called when all that could be read has been.
        """
        now = time.monotonic()
        silent = self.liveness.hung([(child.pulse, child.control.received) for child in self.all], now)
        found = [child for child in self.all if child.pulse in silent]
        for child in found:
            child.hung = f"gave no sign of life for {now - child.pulse.alive:.1f} s"
        return found

    def silent(self) -> list[tuple[Child, float]]:
        """Silent processes with an excuse, and the seconds of their silence.

        To be called after `hung`.
        """
        now = time.monotonic()
        return [(child, now - child.pulse.last_message) for child in self.all if child.pulse.excuse]

    def over(self, child: Child) -> bool:
        """True if a process has ended, or cannot be reached any more."""
        process = child.process
        if process is None:
            return child.control.ended
        if child.control.ended and process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        return child.control.ended or process.poll() is not None

    def end(self, child: Child) -> list[FromChild]:
        """Kill a child process if it runs, and forget it; returns its last messages."""
        stacks = ""
        if child.process is not None:
            if child.process.poll() is None:
                if child.hung:
                    from runtime.page.doors import traced  # few jobs need it

                    stacks = traced(self.private, child.pid, _TRACE_SECONDS)
                child.process.kill()
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(_KILL_SECONDS)
        if child.streams is not None:
            child.words = "\n".join(filter(None, [self._output.end(child.streams, child.how_it_ended()), stacks]))
        answers = child.control.read()
        self._selector.unregister(child.control.sock)
        if child.pidfd is not None:
            self._selector.unregister(child.pidfd)
            os.close(child.pidfd)
        child.control.close()
        self.all.remove(child)
        return answers

    def stop(self) -> None:
        """End all processes: first by request, then by force after a grace period."""
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
