"""Messages between a worker process and the process that started it: small, in MessagePack, over a socket.

Only the first message goes the other way as a pickle: the program, to a process that we have just started.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

from timely.data.codec.typed import Typed
from timely.time import Time


class Hello(msgspec.Struct, tag=True):
    """A worker has built the program."""

    fingerprint: str
    outline: str
    """The graph's outline as JSON: to say what differs when fingerprints do."""


class JobStats(msgspec.Struct, frozen=True):
    """The progress of a job that an operator has started: `done` of `total` parts (0: it does not say)."""

    operator: str
    epoch: int
    what: str
    done: int
    total: int
    seconds: float


class Stats(msgspec.Struct, tag=True):
    """The statistics of a worker. `epoch` is the oldest that is not complete here; None once all are."""

    records: int
    written: int
    epoch: int | None
    read_epoch: int | None
    queued_bytes: int
    done: bool = False
    jobs: tuple[JobStats, ...] = ()
    """The jobs of operators that run and say how far they are."""


class CapturedBatch(msgspec.Struct, tag=True):
    """A batch that reached a capture, encoded."""

    node: int
    time: Time
    header: bytes
    payload: bytes


class Returned(msgspec.Struct, tag=True):
    """The value that the `drive` function of a worker returned, encoded."""

    value: bytes


class WorkerFailed(msgspec.Struct, tag=True):
    """A worker stops because of an error: the name of its class, and what it says."""

    kind: str
    text: str
    trace: str


ToParent = Hello | Stats | CapturedBatch | Returned | WorkerFailed

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder: Typed[ToParent] = Typed("what a worker process says", ToParent)

GO = b"go"
"""The one message to a worker after its program: everybody is here, begin."""


def send_bytes(sock: socket.socket, data: bytes) -> None:
    """Send one length-prefixed message."""
    sock.sendall(_LENGTH.pack(len(data)) + data)


def receive_bytes(sock: socket.socket) -> bytes | None:
    """One message; None when the other side is gone."""
    prefix = _exactly(sock, _LENGTH.size)
    if prefix is None:
        return None
    return _exactly(sock, _LENGTH.unpack(prefix)[0])


def send_message(sock: socket.socket, message: ToParent) -> None:
    """Tell the parent something."""
    send_bytes(sock, _encoder.encode(message))


class MessageReader:
    """Cuts what a socket delivers into messages, without ever waiting for the rest of one."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def read(self) -> tuple[list[ToParent], bool]:
        """The messages that are whole now, and whether the worker has closed the connection."""
        try:
            data = self.sock.recv(1 << 20)
        except (ConnectionResetError, BrokenPipeError):
            data = b""
        self._buffer += data
        messages: list[Any] = []
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(_decoder.decode(memoryview(self._buffer)[at + _LENGTH.size : end].tobytes()))
            at = end
        del self._buffer[:at]
        return messages, not data


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            data = sock.recv(min(count - len(parts), 1 << 20))
        except (ConnectionResetError, BrokenPipeError):
            return None
        if not data:
            return None
        parts += data
    return bytes(parts)
