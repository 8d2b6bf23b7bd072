"""Fork server of job processes: `python -m runtime.processes.fork_server`.

`runtime.supervisor.forked` starts it. It imports once what workers and monitors need. A fork of it begins in milliseconds; an
interpreter that imports the same again takes more than a second of processor time, for each process of each job.

It runs no code of the user's and computes nothing: libraries start their pools of threads when they first compute, which is in
the forked processes. These can ask it for others in turn. It ends when the process that started it has gone and all that it
forked have ended.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import struct
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import msgspec

from runtime.processes import own_server
from timely.preloaded import MODULES, preload

PRELOADED = ("runtime.processes.worker", "runtime.processes.recovery", "runtime.processes.monitor")

_WITH_FIRST_USE = ("numpy.random", "pandas", "pyarrow.pandas_compat")
"""Modules imported lazily by libraries: pyarrow imports pandas, if installed."""

NUMBER = struct.Struct("<i")
"""Message about a forked process, on its own connection.

First its id, with a pidfd, or a negative error number; later its exit code.
"""

_LENGTH = struct.Struct("<I")
_MOST_FILES = 250


class Order(msgspec.Struct, frozen=True):
    """Request to fork a process.

    Sent with the connection for messages about it, its folder, its three standard files, and `files` more.
    `arguments`: the number n stands for the n-th of the other files, under whatever number it has there. `detached`: it
    is a session of its own, which no signal to a group hits, and has no connection to this server.
    """

    module: str
    arguments: tuple[str | int, ...]
    environment: dict[bytes, bytes]
    umask: int
    files: int
    detached: bool = False


_ORDER = msgspec.msgpack.Decoder(Order)


@dataclass(frozen=True, slots=True)
class _Running:
    """Forked process, and the connection for the message about its end."""

    pid: int
    pidfd: int
    news: socket.socket


def ordered(order: Order) -> bytes:
    """Encode a request for its connection."""
    data = msgspec.msgpack.encode(order)
    return _LENGTH.pack(len(data)) + data


class ForkServer:
    """Server of fork requests, from one connection and from forked processes."""

    def __init__(self, sock: socket.socket) -> None:
        self._asking: set[socket.socket] = {sock}
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._running: dict[int, _Running] = {}

    def serve(self) -> None:
        """Fork and reap processes until no requester and no process is left."""
        while self._asking or self._running:
            for key, _ in self._selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    self._bury(self._running.pop(key.fd))
                elif not self._obey(key.fileobj):
                    self._selector.unregister(key.fileobj)
                    self._asking.remove(key.fileobj)
                    key.fileobj.close()
            if not self._asking:
                _let_go_of_standard_files()

    def _obey(self, sock: socket.socket) -> bool:
        """Handle one request; False if the connection has ended."""
        try:
            head, files, _, _ = socket.recv_fds(sock, _LENGTH.size, _MOST_FILES)
            for file in files:
                os.set_inheritable(file, False)  # as all files of Python's
            head += sock.recv(_LENGTH.size - len(head), socket.MSG_WAITALL)
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
            data = sock.recv(length, socket.MSG_WAITALL)
        except OSError:
            return False
        if not data or len(data) < length:
            return False
        order = _ORDER.decode(data)
        news = socket.socket(fileno=files[0])
        mine, theirs = (None, None) if order.detached else socket.socketpair()
        try:
            with warnings.catch_warnings():
                # Threads there are: of allocators and NumPy, which mind forks, and one of Polars, which removes spilled files.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            news.send(NUMBER.pack(-(error.errno or 1)))
            news.close()
        else:
            if pid == 0:
                if mine is not None:
                    mine.close()
                own_server.sock = theirs
                self._become(order, files[1:], news)
            if mine is not None:
                self._asking.add(mine)
                self._selector.register(mine, selectors.EVENT_READ)
            running = _Running(pid, os.pidfd_open(pid), news)
            with suppress(OSError):
                socket.send_fds(news, [NUMBER.pack(pid)], [running.pidfd])
            self._running[running.pidfd] = running
            self._selector.register(running.pidfd, selectors.EVENT_READ)
        if theirs is not None:
            theirs.close()
        for file in files[1:]:
            os.close(file)
        return True

    def _bury(self, ended: _Running) -> None:
        """Report the exit code of an ended process."""
        self._selector.unregister(ended.pidfd)
        _, status = os.waitpid(ended.pid, 0)
        with suppress(OSError):
            ended.news.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))
        ended.news.close()
        os.close(ended.pidfd)

    def _become(self, order: Order, files: list[int], news: socket.socket) -> None:
        """Turn this forked process into the requested one; never returns.

        The server's files are closed, and the process's own put into place.
        """
        code = 1
        try:
            if order.detached:
                os.setsid()
            else:
                os.setpgid(0, 0)  # Ctrl-C is for the supervisor to hear
            self._selector.close()
            for each in self._asking:
                each.close()
            news.close()
            for other in self._running.values():
                other.news.close()
                os.close(other.pidfd)
            folder, *standard = files[:4]
            for number, file in enumerate(standard):
                os.dup2(file, number)
            os.fchdir(folder)
            for file in files[:4]:
                os.close(file)
            os.umask(order.umask)
            os.environb.clear()
            os.environb.update(order.environment)
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty())  # type: ignore[union-attr]
            import_module("numpy").random.seed()  # each its own chance; Python's `random` sees to that by itself
            with suppress(OSError):  # by this name it is known to tools of the system
                Path("/proc/self/comm").write_text(order.module.rpartition(".")[2])
            own = files[4:]
            sys.argv = [order.module, *(str(own[each]) if isinstance(each, int) else each for each in order.arguments)]
            code = import_module(order.module).main()
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _let_go_of_standard_files() -> None:
    """Replace the standard files by /dev/null.

    A reader of the job's output must not wait for this process, which outlives the job for a moment.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def main() -> None:
    """Entry point: import the modules, then serve fork requests."""
    preload(sys.argv[2:])
    for module in (*PRELOADED, *MODULES):
        import_module(module)
    for module in _WITH_FIRST_USE:
        with suppress(ImportError):
            import_module(module)
    gc.collect()
    gc.freeze()  # what is shared with the forked processes stays shared: their collections do not touch it
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
