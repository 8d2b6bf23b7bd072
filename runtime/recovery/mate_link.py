"""Link of a worker and its mate: segments one way, acknowledgements back.

A stream socket of the supervisor's making, one for each mate. Messages are framed MessagePack, typed; segments are those that
would go to a disk, and are checked as those are.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from recovery.agent.events import Held, MateBegan, MateEnded
from recovery.checkpoint.following import Following
from recovery.store.interface import Buffer
from recovery.store.segments import as_bytes
from runtime.control import cut, frame, put_out, take_in
from timely.data.codec.typed import Typed
from timely.errors import ProtocolError

STALLED_SECONDS = 30.0
"""Longest wait for an acknowledgement before a mate is given up."""


class Keep(msgspec.Struct, tag=True, frozen=True):
    """From a worker: keep this segment in memory."""

    name: str
    data: bytes


class Drop(msgspec.Struct, tag=True, frozen=True):
    """From a worker: a segment is not needed any more."""

    name: str


class Kept(msgspec.Struct, tag=True, frozen=True):
    """From a mate: a segment is in memory."""

    name: str


ToMate: TypeAlias = Keep | Drop

_encoder = msgspec.msgpack.Encoder()
TO_MATE: Typed[ToMate] = Typed("a message of a worker to its mate", ToMate)
OF_MATE: Typed[Kept] = Typed("a message of a mate", Kept)


class SocketMateLink:
    """Worker's end; see `runtime.recovery.driver.MateLink`."""

    def __init__(
        self, note: Callable[[str], None] = lambda text: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.note, self._clock = note, clock
        self._sock: socket.socket | None = None
        self._ready: select.epoll | None = None
        """Readable when there is something to read, or room for what is to be sent."""
        self._out, self._in = bytearray(), bytearray()
        self._events: list[MateBegan | MateEnded | Held] = []
        self._sent_at: float | None = None
        """Time of the segment not acknowledged yet."""

    def begin(self, sock: socket.socket) -> None:
        """Begin with a new mate, at the other end of `sock`."""
        self._end()
        sock.setblocking(False)
        self._sock, self._ready = sock, select.epoll()
        self._ready.register(sock, select.EPOLLIN)
        self._events.append(MateBegan())

    def hold(self, name: str, parts: Sequence[Buffer]) -> None:
        """Send a segment to be kept in memory; never blocks."""
        self._sent_at = self._clock()
        self._send(Keep(name, b"".join(map(as_bytes, parts))))

    def let_go(self, name: str) -> None:
        """Send an order to drop a segment."""
        self._send(Drop(name))

    def _send(self, message: ToMate) -> None:
        if self._sock is not None:
            self._out += frame(_encoder.encode(message))
            self._push()

    def poll(self) -> list[MateBegan | MateEnded | Held]:
        """Events since the last call."""
        if self._sock is not None:
            self._push()
        if self._sock is not None:
            there = take_in(self._sock, self._in)
            try:
                for data in cut(self._in):
                    self._events.append(Held(OF_MATE.decode(data).name))
                    self._sent_at = None
            except ProtocolError as error:  # whatever it is, it is no mate
                self.note(str(error))
                there = False
            if not there:
                self._end()
            elif self._sent_at is not None and self._clock() - self._sent_at > STALLED_SECONDS:
                self.note(
                    f"its mate has not taken a checkpoint for {STALLED_SECONDS:g} s, and is given up; checkpoints are durable "
                    "until another one has begun"
                )
                self._end()
        events, self._events = self._events, []
        return events

    def _push(self) -> None:
        if self._sock is None or self._ready is None or not self._out:
            return
        if put_out(self._sock, self._out):
            self._ready.modify(self._sock, select.EPOLLIN | (select.EPOLLOUT if self._out else 0))
        else:
            self._end()

    def _end(self) -> None:
        if self._sock is not None and self._ready is not None:
            self._ready.close()
            self._sock.close()
            self._events.append(MateEnded())
        self._sock = self._ready = self._sent_at = None
        self._out.clear()
        self._in.clear()

    def files(self) -> list[int]:
        """File descriptors to wait for, also for room to send more."""
        return [] if self._ready is None else [self._ready.fileno()]

    def close(self) -> None:
        """Close the connection."""
        self._end()


class MateEnd:
    """Mate's end; segments are kept in `following`."""

    def __init__(self, sock: socket.socket, following: Following) -> None:
        sock.setblocking(False)
        self._sock: socket.socket | None = sock
        self._following = following
        self._in, self._out = bytearray(), bytearray()
        self.ended_at: float | None = None
        """Time of the end of the connection."""

    def files(self) -> list[int]:
        """File descriptors to wait for."""
        return [] if self._sock is None else [self._sock.fileno()]

    def turn(self) -> bool:
        """Take and acknowledge messages; False if there are none.

        Raises ProtocolError or StoreCorrupt for what no worker sends.
        """
        if self._sock is None:
            return False
        there = take_in(self._sock, self._in)
        messages = cut(self._in)
        for data in messages:
            message = TO_MATE.decode(data)
            if isinstance(message, Keep):
                self._following.hold(message.name, message.data)
                self._out += frame(_encoder.encode(Kept(message.name)))
            else:
                self._following.let_go(message.name)
        if self._out:
            put_out(self._sock, self._out)
        if not there:
            with suppress(OSError):
                self._sock.close()
            self._sock, self.ended_at = None, time.monotonic()
        return bool(messages) or not there

    def drain(self) -> None:
        """Take the rest, once the worker is gone."""
        while self.turn():
            pass
        if self._sock is not None:
            self._sock.close()
        self._sock = None
