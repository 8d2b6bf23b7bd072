"""Worker's connection to its monitor: a stream socket, renewed when it breaks."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress

from recovery.protocol import ToMonitor, ToWorker, decode_to_worker, encode_message
from runtime.control import cut, frame, put_out, take_in
from runtime.processes.greeting import connect


class SocketMonitorLink:
    """`runtime.recovery.driver.MonitorLink` over a stream socket.

    The supervisor owns the socket that the monitor listens at, so a connection can be made also while there is no monitor:
    what is said then waits for the next one.

    Args:
        address: of that socket: the path of a unix socket, or (host, port).
        before_hearing: called after messages were received, and before anybody acts on them; also when one of `files` is ready.
        files: what else its worker should wake up for.
        token: what is said first where others might connect as well (`runtime.processes.greeting`).
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        before_hearing: Callable[[], None] = lambda: None,
        files: tuple[int, ...] = (),
        token: bytes = b"",
    ) -> None:
        self._address = address
        self._token = token
        self._before_hearing = before_hearing
        self._files = files
        self._buffer = bytearray()
        self._out = bytearray()
        self._sock: socket.socket | None = None
        self._ready = select.poll()
        """Poll object reused every turn: mostly nothing is there, for one system call."""
        for file in files:
            self._ready.register(file, select.POLLIN)
        self._connect()

    def send(self, message: ToMonitor) -> None:
        """Send a message; it waits if the socket is full, and is dropped without one."""
        if self._sock is not None:
            self._out += frame(encode_message(message))
            self._push()

    def poll(self) -> tuple[list[ToWorker], bool]:
        """Received messages, and True if the connection is a new one."""
        anew = self._sock is None and self._connect()
        if self._out:
            self._push()
        if not anew and self._sock is not None and not self._ready.poll(0):
            return [], False
        self._receive()
        messages = [decode_to_worker(data) for data in cut(self._buffer)]
        self._before_hearing()
        return messages, anew

    def files(self) -> list[int]:
        """File descriptors to wait for."""
        return [*self._files, *([] if self._sock is None else [self._sock.fileno()])]

    def close(self) -> None:
        """Send pending messages, and close the connection."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.settimeout(1.0)
                self._sock.sendall(self._out)
            self._drop()

    def _connect(self) -> bool:
        try:
            self._sock = _connected(self._address)
        except OSError:  # nobody listens, or too many wait: later
            return False
        self._ready.register(self._sock, select.POLLIN)
        self._out += self._token
        self._push()  # at once: who says nothing is a stranger
        return self._sock is not None

    def _receive(self) -> None:
        if self._sock is not None and not take_in(self._sock, self._buffer):
            self._drop()

    def _push(self) -> None:
        if self._sock is not None and not put_out(self._sock, self._out):
            self._drop()

    def _drop(self) -> None:
        """Close a broken connection, dropping partly received and unsent messages."""
        if self._sock is not None:
            self._ready.unregister(self._sock)
            self._sock.close()
        self._sock = None
        self._buffer.clear()
        self._out.clear()


def _connected(address: str | tuple[str, int]) -> socket.socket:
    if not isinstance(address, str):
        sock = connect(address)
        sock.setblocking(False)
        return sock
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock
