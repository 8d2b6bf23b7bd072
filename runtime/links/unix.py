"""Link of processes on one host: a non-blocking stream socket to each other place."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence

import pyarrow as pa

from recovery.place import Place
from runtime.links.frames import GOODBYE, LENGTH, decode_frame, encode_frame
from timely.data.messages import Frame
from timely.errors import ProtocolError, WorkerLost

_HEAD = 1 << 14
"""Size of the receive buffer for frame headers."""

_GOODBYE_SECONDS = 10.0
_SPIN_SECONDS = 50e-6
"""Seconds of polling before sleeping, with a core for each worker.

A sleep and a wake-up cost more than that.
"""


class _Peer:
    """One connection, with its partly received frame and its unsent bytes."""

    __slots__ = ("body", "filled", "goodbye", "head", "kept", "out", "place", "sock")

    def __init__(self, place: Place, sock: socket.socket) -> None:
        self.place = place
        self.sock = sock
        self.out: deque[memoryview] = deque()
        self.head = memoryview(bytearray(_HEAD))
        """Receive buffer; its first `kept` bytes are the beginning of a length."""
        self.kept = 0
        self.body: memoryview | None = None
        """Partly received frame; its first `filled` bytes are here."""
        self.filled = 0
        self.goodbye = False

    def receive(self) -> tuple[list[memoryview], bool]:
        """Receive; returns the bodies of complete frames, and True at the end."""
        bodies: list[memoryview] = []
        while True:
            into = self.head[self.kept :] if self.body is None else self.body[self.filled :]
            try:
                count = self.sock.recv_into(into)
            except BlockingIOError:
                return bodies, False
            except (ConnectionResetError, BrokenPipeError):
                return bodies, True
            if count == 0:
                return bodies, True
            if self.body is None:
                self._cut(self.kept + count, bodies)
            else:
                self.filled += count
                if self.filled == len(self.body):
                    bodies.append(self.body)
                    self.body = None
            if count < len(into) and self.body is None:
                return bodies, False

    def _cut(self, end: int, bodies: list[memoryview]) -> None:
        """Take the frames out of head[:end]; unfinished bytes stay for the next receive."""
        at, head = 0, self.head
        while end - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(head, at)
            at += LENGTH.size
            if length == 0:
                self.goodbye = True
                continue
            there = min(length, end - at)
            # Batches will be views into this memory: Arrow's pool has it at hand, where fresh memory costs page faults.
            try:
                body = memoryview(pa.allocate_buffer(length)).cast("B")
            except MemoryError:
                raise ProtocolError(
                    f"{self.place} sends {length:,} bytes at once, for which there is no memory"
                ) from None
            body[:there] = head[at : at + there]
            at += there
            if there < length:
                self.body, self.filled, self.kept = body, there, 0
                return
            bodies.append(body)
        self.kept = end - at
        head[: self.kept] = bytes(head[at:end])


class SocketLink:
    """Link over connected stream sockets, one to each other place.

    See `runtime.links.interface.Link`. With `survives` the end of a connection is no error: the supervisor notices,
    and the connection is replaced by `replace`. Until then what is sent there is dropped.
    """

    def __init__(self, sockets: Mapping[Place, socket.socket], survives: bool = False) -> None:
        self._peers: dict[Place, _Peer] = {}
        self._by_file: dict[int, _Peer] = {}
        self._spin = True
        self._poll = select.poll()
        self._survives = survives
        self._extra: set[int] = set()
        self.unsent = 0
        for place, sock in sockets.items():
            self._add(place, sock)

    def replace(self, place: Place, sock: socket.socket) -> None:
        """Replace the connection to `place` after a restart of its process.

        Unread data of the old connection is void.
        """
        old = self._peers.pop(place, None)
        if old is not None:
            self._drop(old)
            old.sock.close()
        self._add(place, sock)

    def send(self, place: Place, frame: Frame) -> None:
        peer = self._peers.get(place)
        if self._survives and (peer is None or peer.sock.fileno() not in self._by_file):
            return
        assert peer is not None
        views = [memoryview(part).cast("B") for part in encode_frame(frame)]
        if not peer.out:
            views = self._push(peer, views)
        if views:
            if not peer.out:
                self._poll.modify(peer.sock.fileno(), select.POLLIN | select.POLLOUT)
            peer.out.extend(views)
            self.unsent += sum(view.nbytes for view in views)

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        self._watch(extra)
        ready = self._poll.poll(0)
        if not ready and seconds != 0:
            ready = self._wait(seconds)
        frames: list[Frame] = []
        for file, event in ready:
            peer = self._by_file.get(file)
            if peer is None:
                continue
            if event & select.POLLOUT:
                self._drain(peer)
            if event & ~select.POLLOUT:
                self._receive(peer, frames)
        return frames

    def close(self) -> None:
        """Say goodbye and wait for the others' goodbyes, then close.

        A worker that is done early must not look like one that died.
        """
        if self._survives:
            self.abandon()
            return
        deadline = time.monotonic() + _GOODBYE_SECONDS
        for peer in self._peers.values():
            self._finish(peer, deadline)
        while any(not peer.goodbye for peer in self._peers.values()) and time.monotonic() < deadline:
            try:
                self.poll(max(0.0, deadline - time.monotonic()))
            except WorkerLost:
                break
        self.abandon()

    def abandon(self) -> None:
        """Close without a goodbye."""
        for peer in self._peers.values():
            peer.sock.close()

    def _wait(self, seconds: float | None) -> list[tuple[int, int]]:
        if self._spin:
            until = time.perf_counter() + _SPIN_SECONDS
            while time.perf_counter() < until:
                ready = self._poll.poll(0)
                if ready:
                    return ready
        return self._poll.poll(None if seconds is None else seconds * 1000)

    def _watch(self, extra: Sequence[int]) -> None:
        if not extra and not self._extra:
            return
        wanted = set(extra)
        for file in self._extra - wanted:
            self._poll.unregister(file)
        for file in wanted - self._extra:
            self._poll.register(file, select.POLLIN)
        self._extra = wanted

    def _add(self, place: Place, sock: socket.socket) -> None:
        self._peers[place] = self._by_file[sock.fileno()] = _Peer(place, sock)
        self._extra.discard(sock.fileno())  # a number that was another file's, which is closed now
        self._spin = (os.cpu_count() or 1) > len(self._peers)
        sock.setblocking(False)
        self._poll.register(sock.fileno(), select.POLLIN)

    def _drop(self, peer: _Peer) -> None:
        """Stop sending on an ended connection and drop its unsent bytes."""
        if self._by_file.pop(peer.sock.fileno(), None) is not None:
            self._poll.unregister(peer.sock.fileno())
        self.unsent -= sum(view.nbytes for view in peer.out)
        peer.out.clear()

    def _receive(self, peer: _Peer, frames: list[Frame]) -> None:
        bodies, ended = peer.receive()
        frames += [decode_frame(body, trusted=True) for body in bodies]  # of a process that our own parent has started
        if ended:
            self._drop(peer)
            if not peer.goodbye and not self._survives:
                peer.goodbye = True
                raise WorkerLost(f"{peer.place} closed its connection before the job was over")

    def _push(self, peer: _Peer, views: list[memoryview]) -> list[memoryview]:
        """Write as much as the socket takes; returns the rest."""
        while views:
            try:
                sent = peer.sock.sendmsg(views[:64])
            except BlockingIOError:
                return views
            except (BrokenPipeError, ConnectionResetError):
                return []
            while views and sent >= views[0].nbytes:
                sent -= views[0].nbytes
                views.pop(0)
            if sent:
                views[0] = views[0][sent:]
        return views

    def _drain(self, peer: _Peer) -> None:
        before = sum(view.nbytes for view in peer.out)
        left = self._push(peer, list(peer.out))
        self.unsent += sum(view.nbytes for view in left) - before
        peer.out = deque(left)
        if not left:
            self._poll.modify(peer.sock.fileno(), select.POLLIN)

    def _finish(self, peer: _Peer, deadline: float) -> None:
        if peer.sock.fileno() not in self._by_file:
            return
        peer.out.append(memoryview(GOODBYE))
        peer.sock.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            for view in peer.out:
                peer.sock.sendall(view)
        except OSError:
            pass
        finally:
            peer.out.clear()
            peer.sock.setblocking(False)
