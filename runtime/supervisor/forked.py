"""Forked processes of jobs, from a preloaded server (`processes.fork_server`).

One fork server serves all jobs of this process that need the same conditions at the start of a process; what is read
later travels with each request. Where the system has no pidfds, and after the death of the server, a process is
started in the usual way.

Importing this module is quick: a command can make the server load (`prepare`) while it loads its own modules.
"""

from __future__ import annotations

import atexit
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from runtime.imports import environment_for_children
from runtime.processes import own_server
from runtime.processes.fork_server import NUMBER, Order, ordered
from timely.preloaded import MODULES

SERVER = "runtime.processes.fork_server"

_FORKS = hasattr(signal, "pidfd_send_signal") and hasattr(os, "O_PATH")
"""True if the system has pidfds and `O_PATH`."""

_READ_AT_START = (
    *("PYTHON", "LD_", "MALLOC_", "GLIBC_", "POLARS_", "ARROW_"),
    *("NUMBA_", "NPY_", "OMP_", "OPENBLAS_", "MKL_"),
)
"""Prefixes of environment variables read when an interpreter or library loads.

Not jemalloc's `_RJEM_`: Polars changes that itself when it is imported, and then no prepared server would ever be
used.
"""

_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]

_ANSWER_SECONDS = 60.0
"""Seconds for a server to load on a busy machine, before it is given up."""

_CODE_SECONDS = 5.0
"""Seconds to wait for the exit code of an ended process."""

UNKNOWN = 256
"""Stand-in for the unknown exit code of a process that outlived its fork server."""


def environment(workers: int) -> dict[str, str]:
    """Environment of workers: import path, and Polars threads by share of the cores."""
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    return {"POLARS_MAX_THREADS": threads, **os.environ, **environment_for_children()}


class ForkServerGone(Exception):
    """Loss of the fork server: it has died, or hangs."""


class Forked:
    """Process forked by a fork server, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, pidfd: int, news: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = pidfd
        self._news = news

    def stands_for(self) -> int:
        """New descriptor, readable once the process has ended."""
        return os.dup(self._pidfd)

    def poll(self) -> int | None:
        """Exit code, or None while it runs; negative for a fatal signal."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; returns its exit code.

        Raises subprocess.TimeoutExpired.
        """
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            if not ended.poll(None if timeout is None else max(0.0, timeout) * 1000):
                assert timeout is not None
                raise subprocess.TimeoutExpired(SERVER, timeout)
            self._news.settimeout(_CODE_SECONDS)
            try:
                code = self._news.recv(NUMBER.size)
            except OSError:
                code = b""
            self.returncode = NUMBER.unpack(code)[0] if len(code) == NUMBER.size else UNKNOWN
            self._news.close()
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self.returncode is None and hasattr(self, "_news"):
            self._news.close()
            os.close(self._pidfd)


class ForkOrders:
    """Client of a fork server, over a connection to it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(_ANSWER_SECONDS)

    def fork(
        self,
        module: str,
        arguments: Sequence[str | int],
        files: Sequence[int],
        environment: Mapping[str, str],
        standard: Sequence[int] = (0, 1, 2),
        detached: bool = False,
    ) -> Forked:
        """Fork one process.

        As for `start` or `start_detached`. Raises ForkServerGone, and OSError if there can be no more.
        """
        mine, theirs = socket.socketpair()
        with theirs, ExitStack() as opened:
            folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, folder)
            given = [_or_nothing(number, opened) for number in standard]
            encoded = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
            data = ordered(Order(module, tuple(arguments), encoded, _umask(), len(files), detached))
            try:
                sent = socket.send_fds(self._sock, [data], [theirs.fileno(), folder, *given, *files])
                self._sock.sendall(data[sent:])
            except OSError as error:
                mine.close()
                raise ForkServerGone from error
        mine.settimeout(_ANSWER_SECONDS)
        try:
            answer, came, _, _ = socket.recv_fds(mine, NUMBER.size, 1)
        except OSError:
            answer, came = b"", []
        if len(answer) < NUMBER.size:
            mine.close()
            raise ForkServerGone
        (pid,) = NUMBER.unpack(answer)
        if pid < 0:
            mine.close()
            raise OSError(-pid, f"{os.strerror(-pid)}: no process for {module}")
        os.set_inheritable(came[0], False)
        return Forked(pid, came[0], mine)

    def close(self) -> None:
        """Close the connection: no more processes are wanted."""
        self._sock.close()


class ForkClient(ForkOrders):
    """Fork server started by this process, and its client.

    The server ends when it is asked for no more, and the forked processes have ended.

    Args:
        environment: in which it is started.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        mine, theirs = socket.socketpair()
        super().__init__(mine)
        with theirs:
            arguments = [sys.executable, "-P", "-m", SERVER, str(theirs.fileno()), *MODULES]
            self._process = subprocess.Popen(arguments, pass_fds=[theirs.fileno()], process_group=0, env=environment)

    def alive(self) -> bool:
        """True while the server runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the unresponsive server."""
        self._process.kill()


_lock = threading.Lock()
_kept: list[tuple[object, ForkClient]] = []
"""Running servers with the circumstances of their start, last used one at the end."""
_MOST_SERVERS = 2
"""Maximum number of servers.

Jobs with one worker and with several give Polars other numbers of threads.
"""
_leaving: list[ForkClient] = []
"""Servers no longer used, until they have ended."""


def prepare(environment: Mapping[str, str]) -> None:
    """Start loading a fork server, if there is none, for processes needed soon."""
    if _FORKS:
        with _lock, suppress(OSError):
            _server(environment)


def start(
    module: str,
    arguments: Sequence[str | int],
    files: Sequence[int],
    environment: Mapping[str, str],
    standard: Sequence[int] = (0, 1, 2),
) -> Forked | subprocess.Popen[bytes]:
    """Start a process with `main()` of a module, in a process group of its own.

    Args:
        module: by its name.
        arguments: for its `sys.argv`; a number n is replaced by what the n-th of `files` is called there.
        files: descriptors that it inherits.
        environment: whole.
        standard: descriptors of its three standard files; those of this process, unless others are given.

    Raises:
        OSError: if there can be no more processes.
    """
    if _FORKS:
        with _lock:
            server = _server(environment)
            try:
                return server.fork(module, arguments, files, environment, standard)
            except ForkServerGone:
                server.kill()
    named = [str(files[each]) if isinstance(each, int) else each for each in arguments]
    command = [sys.executable, "-P", "-m", module, *named]
    stdin, stdout, stderr = (None if file == number else file for number, file in enumerate(standard))
    return subprocess.Popen(
        command,
        pass_fds=files,
        process_group=0,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


def start_detached(module: str, standard: Sequence[int], environment: Mapping[str, str]) -> Forked | None:
    """Fork a process with `main()` of a module, in a session of its own.

    It is forked by the server that has forked this process.

    It may outlive this process. None where no server has forked this one, or where it has died.

    Args:
        module: by its name.
        standard: descriptors of its three standard files.
        environment: whole.

    Raises:
        OSError: if there can be no more processes.
    """
    if own_server.sock is None:
        return None
    with _lock, suppress(ForkServerGone):
        return ForkOrders(own_server.sock).fork(module, (), (), environment, standard, detached=True)
    return None


def _server(environment: Mapping[str, str]) -> ForkClient:
    """Fork server for an environment, started if need be."""
    now = _circumstances(environment)
    found = [each for each in _kept if each[0] == now and each[1].alive()] or [(now, ForkClient(environment))]
    others = [each for each in _kept if each[0] != now]
    _kept[:] = others[1 - _MOST_SERVERS :] + found
    for _, server in others[: 1 - _MOST_SERVERS]:
        server.close()
        _leaving.append(server)
    _leaving[:] = [each for each in _leaving if each.alive()]
    return _kept[-1][1]


def _circumstances(environment: Mapping[str, str]) -> object:
    """Everything inherited at a process's start and not set by a request."""
    read = {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS}
    return (
        os.getpid(),
        sys.executable,
        read,
        limits,
        os.nice(0),
        os.sched_getaffinity(0),
        os.getresuid(),
        os.getgroups(),
    )


def _umask() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))


def _or_nothing(number: int, opened: ExitStack) -> int:
    """Standard file descriptor, or one of /dev/null if this process has none."""
    try:
        os.fstat(number)
    except OSError:
        number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        opened.callback(os.close, number)
    return number


@atexit.register
def _close() -> None:
    while _kept:
        _kept.pop()[1].close()
