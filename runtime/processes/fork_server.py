"""The process from which those of jobs are forked: `python -m runtime.processes.fork_server`.

`runtime.supervisor.forked` starts it. It imports once what workers and monitors need. A fork of it begins in milliseconds; an
interpreter that imports the same again takes more than a second of processor time, for each process of each job.

It runs no code of the user's and computes nothing: libraries start their pools of threads when they first compute, which is in
the forked processes. It ends when the process that started it has gone and all that it forked have ended.
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

PRELOADED = ("runtime.processes.worker", "runtime.processes.recovery", "runtime.processes.monitor")

_WITH_FIRST_USE = ("numpy.random", "pandas", "pyarrow.pandas_compat")
"""Modules that libraries import when they are first used: pyarrow imports all of pandas, where there is one."""

NUMBER = struct.Struct("<i")
"""A message about a process, over its own connection: its id, with a file that stands for it, or less the number of an error;
then its exit code."""

_LENGTH = struct.Struct("<I")
_MOST_FILES = 250


class Order(msgspec.Struct, frozen=True):
    """A process to be forked. With the connection that tells of it, its folder, its three standard files, and `files` more.

    `arguments`: the number n stands for the n-th of the other files, under whatever number it has there.
    """

    module: str
    arguments: tuple[str | int, ...]
    environment: dict[bytes, bytes]
    umask: int
    files: int


_ORDER = msgspec.msgpack.Decoder(Order)


@dataclass(frozen=True, slots=True)
class _Running:
    """A process that was forked, and the connection over which its end is told."""

    pid: int
    pidfd: int
    news: socket.socket


def ordered(order: Order) -> bytes:
    """The order as it goes over the connection."""
    data = msgspec.msgpack.encode(order)
    return _LENGTH.pack(len(data)) + data


class ForkServer:
    """Forks what comes over a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._running: dict[int, _Running] = {}

    def serve(self) -> None:
        """Fork and bury, until nobody is left who could want either."""
        wanted = True
        while wanted or self._running:
            for key, _ in self._selector.select():
                if key.fileobj is not self._sock:
                    self._bury(self._running.pop(key.fd))
                elif not self._obey():
                    wanted = False
                    self._selector.unregister(self._sock)

    def _obey(self) -> bool:
        """Take one order. False: there will be no more."""
        try:
            head, files, _, _ = socket.recv_fds(self._sock, _LENGTH.size, _MOST_FILES)
            for file in files:
                os.set_inheritable(file, False)  # as all files of Python's
            head += self._sock.recv(_LENGTH.size - len(head), socket.MSG_WAITALL)
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
            data = self._sock.recv(length, socket.MSG_WAITALL)
        except OSError:
            return False
        if not data or len(data) < length:
            return False
        order = _ORDER.decode(data)
        news = socket.socket(fileno=files[0])
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
                self._become(order, files[1:], news)
            running = _Running(pid, os.pidfd_open(pid), news)
            with suppress(OSError):
                socket.send_fds(news, [NUMBER.pack(pid)], [running.pidfd])
            self._running[running.pidfd] = running
            self._selector.register(running.pidfd, selectors.EVENT_READ)
        for file in files[1:]:
            os.close(file)
        return True

    def _bury(self, ended: _Running) -> None:
        """Tell how a process has ended."""
        self._selector.unregister(ended.pidfd)
        _, status = os.waitpid(ended.pid, 0)
        with suppress(OSError):
            ended.news.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))
        ended.news.close()
        os.close(ended.pidfd)

    def _become(self, order: Order, files: list[int], news: socket.socket) -> None:
        """The forked process: what is the server's is closed, what is the process's own is taken over. Never returns."""
        code = 1
        try:
            os.setpgid(0, 0)  # Ctrl-C is for the supervisor to hear
            self._selector.close()
            self._sock.close()
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


def main() -> None:
    """Import, then fork for the process at the other end of a connection."""
    for module in PRELOADED:
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
