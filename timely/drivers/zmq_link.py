"""The link of workers on several hosts: ZeroMQ over TCP, encrypted and authenticated with CURVE.

Every worker listens with one PULL socket and reaches each other worker with a PUSH socket of its own, so that the end
which sends on a connection is the one that hears when it breaks.

ZeroMQ connects again in silence after a failure, and what was under way is gone. A worker must never miss that, so each
message names the *life* of its sender and of its receiver, a random number that each process draws when it starts, and
counts from 1 on its connection: a gap, a repetition or another life is a lost worker, never a silent loss.

    message = header, body
    header  = u8 protocol version, u8 kind, u16 sender, u64 life of sender, u64 life of receiver (0: not met yet),
              u64 number (0: not counted), u64 number of the last message taken from the receiver

A frame is one message, packed; one that is longer than a few megabytes comes in parts, so that heartbeats get through.
The receiver says how far it has taken messages out of ZeroMQ, and no more than a window of bytes is under way; what does
not fit waits here, where `unsent` counts it. ZeroMQ's own limits are off, because they block or drop.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from timely.drivers.wire_format import LENGTH, decode_frame, encode_frame
from timely.errors import FalkirkError, WorkerLost
from timely.messages import Frame

PROTOCOL = 1
HEADER = struct.Struct("<BBHQQQQ")
HELLO, FRAME, PART, TAKEN, GOODBYE, FAILED = range(1, 7)

_WINDOW = 8 << 20
"""Bytes on the way to one worker before more has to wait; a quarter of it is how often the receiver says what it took."""

_PART = 4 << 20
_ZERO_COPY = 1 << 20
_TURN = 1000
"""Messages that one `poll` takes at most."""

_LOOK_SECONDS = 0.05
"""How often a worker that never waits looks at its connections."""

_REASON_SECONDS = 1.0
"""How long to wait, when a connection breaks, for the other side's last words; and for ours to get through."""

_ADVICE = "all workers must run from the same host file, made in one go"


@dataclass(frozen=True, slots=True)
class Timing:
    """Patience, in seconds.

    `meet`: until all workers have met. `silence`: a worker that answers no heartbeat for so long is lost; what follows
    from it (WorkerLost on the others) comes at most 1.2 * silence + 1 s after its last sign of life. A process that ends
    is noticed at once. `goodbye`: how long a worker that is done waits for the others to be done too.
    """

    meet: float = 60.0
    silence: float = 10.0
    goodbye: float = 10.0


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys in Z85: this worker's secret one, and the public ones of all workers in order."""

    secret: str
    public: Sequence[str]


class _Failure(msgspec.Struct):
    """The last words of a worker: which one failed first, and how."""

    worker: int
    text: str


class _Peer:
    """One other worker: the connection to it, and what is under way in either direction."""

    def __init__(self, worker: int, address: str, push: zmq.Socket[bytes]) -> None:
        self.worker = worker
        self.address = address
        self.push = push
        self.monitor = push.get_monitor_socket()
        self.state = "nobody answers there yet"
        self.connected = False
        self.life = 0
        self.greeting = b""
        self.broken_at: float | None = None
        self.goodbye_at: float | None = None
        self.sent = 0
        self.under_way: deque[tuple[int, int]] = deque()
        self.window = _WINDOW
        self.queue: deque[tuple[int, bytes]] = deque()
        self.taken = 0
        self.owed = 0
        self.parts: list[memoryview] = []

    def __str__(self) -> str:
        return f"worker {self.worker} at {self.address}"


class ZmqLink:
    """Connections of worker `index` to all others at `addresses`; see `timely.drivers.link.Link`.

    Addresses are `tcp://host:port`, or `ipc://path` on one host; `bind` is where this worker listens if that is not its
    own address. Without `keys` nothing is encrypted and anybody may connect: for ipc:// in a private folder only.
    Listens from the start; call `meet` before anything else. `say` gets news for the user while workers wait.
    """

    def __init__(
        self,
        index: int,
        addresses: Sequence[str],
        keys: Keys | None = None,
        bind: str | None = None,
        timing: Timing | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if keys is None and not all(address.startswith("ipc://") for address in addresses):
            raise FalkirkError("workers that talk over a network need keys: make them with create_host_files()")
        self.index = index
        self.addresses = list(addresses)
        self.unsent = 0
        self.timing = timing or Timing()
        self._say = say or self._print
        self._keys = keys
        self._life = int.from_bytes(os.urandom(8), "little") | 1
        self._context = zmq.Context()
        self._greeting: bytes | None = None
        self._met = False
        self._closed = False
        self._inbox: list[Frame] = []
        self._refused: set[str] = set()
        self._verdict: _Failure | None = None
        self._look_at = 0.0
        self._extra: set[int] = set()
        self._poller = zmq.Poller()
        self._peers: dict[int, _Peer] = {}
        try:
            self._gate = self._open_gate()
            self._pull = self._listen(bind or addresses[index])
            for worker, address in enumerate(addresses):
                if worker != index:
                    self._peers[worker] = self._connect(worker, address)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._by_monitor = {peer.monitor: peer for peer in self._peers.values()}
        for sock in (self._gate, self._pull, *self._by_monitor):
            self._poller.register(sock, zmq.POLLIN)

    # Meeting

    def meet(self, greeting: bytes, check: Callable[[int, bytes], None]) -> None:
        """Send `greeting` to every other worker, and wait until each has sent its own.

        `check(worker, greeting)` raises when they cannot work together. Raises FalkirkError when a worker has not come
        in time or refuses this one's key.
        """
        self._greeting = greeting
        began = time.monotonic()
        report_at = began + min(2.0, self.timing.meet / 2)
        unchecked = dict(self._peers)
        for peer in self._peers.values():
            if peer.connected:
                self._greet(peer)
        while waiting := [peer for peer in self._peers.values() if not (peer.life and peer.connected)]:
            now = time.monotonic()
            news = "; ".join(f"waiting for {peer}: {peer.state}" for peer in waiting)
            if now > began + self.timing.meet:
                raise FalkirkError(
                    f"worker {self.index} has waited {self.timing.meet:g} s for the others ({news}); start all "
                    "workers within that time, and see that hosts and firewalls let each reach each other's port"
                )
            if now > report_at:
                report_at = now + 5.0
                self._say(news)
            self._inbox += self._wait(min(report_at, began + self.timing.meet) - now + 0.01)
            for worker in [worker for worker, peer in unchecked.items() if peer.life]:
                check(worker, unchecked.pop(worker).greeting)
        self._met = True
        for peer in self._peers.values():
            self._confirm(peer)

    # The link

    def send(self, worker: int, frame: Frame) -> None:
        peer = self._peers[worker]
        first, *blocks = encode_frame(frame)
        rest = first[LENGTH.size :]
        size = len(rest) + sum(memoryview(block).nbytes for block in blocks)
        if size <= _PART:
            self._post(peer, FRAME, rest, *blocks)
            return
        body = memoryview(b"".join((rest, *blocks)))
        for at in range(0, size, _PART):
            self._post(peer, PART if at + _PART < size else FRAME, body[at : at + _PART])

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        if self._inbox:
            frames, self._inbox = self._inbox, []
            return frames
        frames = self._receive()
        if frames or seconds == 0:
            if time.monotonic() >= self._look_at:
                frames += self._wait(0.0, extra)
            return frames
        for peer in self._peers.values():
            if peer.goodbye_at is not None and time.monotonic() > peer.goodbye_at + self.timing.silence:
                self._lose(peer, "left as if the job were over, but there is work that waits for it")
        return self._wait(seconds, extra)

    def close(self) -> None:
        """Say goodbye, and wait a while until everyone has: who is done early must not look like who died.

        Raises WorkerLost when a worker dies before it is done, though this one is.
        """
        if self._closed or not self._met:
            return  # before `meet` there is nobody to say goodbye to: `fail` says why
        deadline = time.monotonic() + self.timing.goodbye
        try:
            for peer in self._peers.values():
                while peer.queue:
                    self._push_next(peer)
                self._push(peer, *self._packed(peer, GOODBYE, ()))
            while any(peer.goodbye_at is None for peer in self._peers.values()) and time.monotonic() < deadline:
                self._wait(deadline - time.monotonic())
        except BaseException as error:
            self.fail(error)
            raise
        self._shut(self.timing.goodbye)

    def fail(self, error: BaseException) -> None:
        """Tell the others, as far as they can be reached, why this worker stops, and close."""
        if self._closed:
            return
        text = str(error) if isinstance(error, FalkirkError) else f"{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, KeyboardInterrupt):
            text = "it was stopped by Ctrl-C"
        words = msgspec.msgpack.encode(self._verdict or _Failure(self.index, text[:10_000]))
        for peer in self._peers.values():
            with suppress(zmq.ZMQError):
                peer.push.send(self._header(peer, FAILED, 0) + words, zmq.NOBLOCK)
        self._shut(_REASON_SECONDS)

    # Sending

    def _post(self, peer: _Peer, kind: int, *parts: Any) -> None:
        number, message = self._packed(peer, kind, parts)
        if peer.queue or peer.window <= 0:
            peer.queue.append((number, message))
            self.unsent += len(message)
        else:
            self._push(peer, number, message)

    def _packed(self, peer: _Peer, kind: int, parts: Sequence[Any]) -> tuple[int, bytes]:
        peer.sent += 1
        return peer.sent, b"".join((self._header(peer, kind, peer.sent), *parts))

    def _header(self, peer: _Peer, kind: int, number: int) -> bytes:
        peer.owed = 0
        return HEADER.pack(PROTOCOL, kind, self.index, self._life, peer.life, number, peer.taken)

    def _push(self, peer: _Peer, number: int, message: bytes) -> None:
        try:
            peer.push.send(message, zmq.NOBLOCK, copy=len(message) < _ZERO_COPY)
        except zmq.Again:
            self._break(peer)  # ZeroMQ has given this connection up
            return
        peer.under_way.append((number, len(message)))
        peer.window -= len(message)

    def _push_next(self, peer: _Peer) -> None:
        number, message = peer.queue.popleft()
        self.unsent -= len(message)
        self._push(peer, number, message)

    def _greet(self, peer: _Peer) -> None:
        assert self._greeting is not None
        with suppress(zmq.Again):
            peer.push.send(self._header(peer, HELLO, 0) + self._greeting, zmq.NOBLOCK)

    def _confirm(self, peer: _Peer) -> None:
        """Say how much was taken, if that is worth a message and the job has begun: until then senders must wait."""
        if peer.owed >= _WINDOW // 4 and self._met:
            with suppress(zmq.Again):
                peer.push.send(self._header(peer, TAKEN, 0), zmq.NOBLOCK)

    # Receiving

    def _wait(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        """Take what comes within `seconds`, or nothing; anything that happens to a connection ends the wait too."""
        wanted = set(extra)
        for file in self._extra - wanted:
            self._poller.unregister(file)
        for file in wanted - self._extra:
            self._poller.register(file, zmq.POLLIN)
        self._extra = wanted
        now = time.monotonic()
        self._look_at = now + _LOOK_SECONDS
        alarms = [at + _REASON_SECONDS for peer in self._peers.values() if (at := peer.broken_at) is not None]
        alarms += [at + self.timing.silence for peer in self._peers.values() if (at := peer.goodbye_at) is not None]
        if seconds is not None:
            alarms.append(now + seconds)
        timeout = None if not alarms else max(0.0, min(alarms) - now) * 1000
        ready = [sock for sock, _ in self._poller.poll(timeout)]
        frames: list[Frame] = []
        if self._pull in ready:
            frames = self._receive()
        for sock in ready:
            if sock is self._gate:
                self._admit()
            elif sock in self._by_monitor:
                self._hear(self._by_monitor[sock])
        for peer in self._peers.values():
            if peer.broken_at is not None and time.monotonic() > peer.broken_at + _REASON_SECONDS:
                self._lose(
                    peer,
                    "was lost before the job was over: its process ended, its host went down, or the network failed for "
                    f"{self.timing.silence:g} s",
                )
        return frames

    def _receive(self) -> list[Frame]:
        frames: list[Frame] = []
        for _ in range(_TURN):
            try:
                message = self._pull.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            self._take(message, frames)
        return frames

    def _take(self, message: zmq.Frame, frames: list[Frame]) -> None:
        view = message.buffer
        if len(view) < HEADER.size or view[0] != PROTOCOL:
            version = view[0] if len(view) else 0
            raise FalkirkError(
                f"a worker speaks version {version} of the protocol, and worker {self.index} version {PROTOCOL}: install "
                "the same version of Falkirk on all hosts"
            )
        _, kind, sender, life, receiver, number, taken = HEADER.unpack_from(view)
        peer = self._peers.get(sender)
        if peer is None or (self._keys is not None and message.get("User-Id") != self._keys.public[sender]):
            raise FalkirkError(f"a message claims to be from worker {sender}, but has another worker's key: {_ADVICE}")
        if receiver not in (0, self._life):
            return  # meant for a process that was here before this one
        body = view[HEADER.size :]
        if kind == HELLO:
            self._welcome(peer, life, bytes(body))
        elif kind == FAILED:
            self._give_up(msgspec.msgpack.decode(body, type=_Failure))
        elif life == peer.life:
            if kind != TAKEN:
                self._count(peer, number, len(view))
            self._taken_by(peer, taken)
            if kind == FRAME:
                if peer.parts:
                    body = memoryview(b"".join((*peer.parts, body)))
                    peer.parts.clear()
                frames.append(decode_frame(body))
            elif kind == PART:
                peer.parts.append(body)
            elif kind == GOODBYE:
                peer.goodbye_at = time.monotonic()
                peer.broken_at = None

    def _welcome(self, peer: _Peer, life: int, greeting: bytes) -> None:
        if peer.life and life != peer.life:
            self._lose(peer, "was started again while the job was running; start all workers again")
        peer.life, peer.greeting = life, greeting
        peer.state = "it has said hello, but cannot be reached from here"

    def _count(self, peer: _Peer, number: int, size: int) -> None:
        if number != peer.taken + 1:
            self._lose(peer, f"lost messages on the way: number {number} came after {peer.taken}")
        peer.taken = number
        peer.owed += size
        self._confirm(peer)

    def _taken_by(self, peer: _Peer, taken: int) -> None:
        under_way = peer.under_way
        while under_way and under_way[0][0] <= taken:
            peer.window += under_way.popleft()[1]
        while peer.queue and peer.window > 0:
            self._push_next(peer)

    # Trouble

    def _hear(self, peer: _Peer) -> None:
        """News of the connection to `peer`."""
        event = recv_monitor_message(peer.monitor)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            peer.connected = True
            peer.state = "it is there, but has not said hello yet"
            if self._greeting is not None and not self._met:
                self._greet(peer)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise FalkirkError(f"{peer} refuses the key of worker {self.index}: {_ADVICE}")
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
            peer.state = f"what answers there does not have the key that the host file gives for it ({_ADVICE})"
        elif event == zmq.EVENT_DISCONNECTED and peer.connected:
            peer.connected = False
            peer.state = "it was there, but has gone"
            self._break(peer)

    def _break(self, peer: _Peer) -> None:
        if peer.life and peer.goodbye_at is None and peer.broken_at is None:
            peer.broken_at = time.monotonic()

    def _lose(self, peer: _Peer, what: str) -> NoReturn:
        self._verdict = _Failure(peer.worker, f"{peer} {what}")
        raise WorkerLost(self._verdict.text)

    def _give_up(self, failure: _Failure) -> NoReturn:
        """Another worker failed, or heard of one that did."""
        self._verdict = failure
        who = f"worker {failure.worker} at {self.addresses[failure.worker]}"
        text = failure.text if failure.text.startswith(who) else f"{who} failed: {failure.text}"
        raise WorkerLost(text)

    def _admit(self) -> None:
        """Answer ZeroMQ's question whether a key may connect (ZAP, ZeroMQ RFC 27)."""
        version, request, _, address, _, mechanism, *credentials = self._gate.recv_multipart()
        key = z85.encode(credentials[0]) if mechanism == b"CURVE" else b""
        known = self._keys is not None and key.decode() in self._keys.public
        status = [b"200", b"OK", key] if known else [b"400", b"unknown key", b""]
        self._gate.send_multipart([version, request, *status, b""])
        host = address.decode()
        if not known and host not in self._refused:
            self._refused.add(host)
            self._say(f"refused a connection from {host}: its key is not in the host file")

    def _print(self, text: str) -> None:
        print(f"worker {self.index}: {text}", file=sys.stderr, flush=True)

    # Sockets

    def _open_gate(self) -> zmq.Socket[bytes]:
        gate = self._context.socket(zmq.REP)
        gate.bind("inproc://zeromq.zap.01")
        return gate

    def _listen(self, address: str) -> zmq.Socket[bytes]:
        pull = self._socket(zmq.PULL)
        if self._keys is not None:
            pull.curve_server = True
            pull.zap_domain = b"falkirk"
        try:
            pull.bind(_interface(address))
        except (zmq.ZMQError, OSError) as error:
            raise FalkirkError(
                f"worker {self.index} cannot listen at {address}: {error}; give it an address of this host and a free "
                "port (`bind` in the host file, when others reach it by another address)"
            ) from error
        return pull

    def _connect(self, worker: int, address: str) -> _Peer:
        push = self._socket(zmq.PUSH)
        if self._keys is not None:
            push.curve_serverkey = self._keys.public[worker].encode()
        push.connect_timeout = 3000
        push.reconnect_ivl = 50
        push.reconnect_ivl_max = 1000
        peer = _Peer(worker, address, push)
        try:
            push.connect(address)
        except zmq.ZMQError as error:
            raise FalkirkError(f"worker {worker} cannot have the address {address}: {error}") from error
        return peer

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.ipv6 = any("[" in address for address in self.addresses)
        sock.sndhwm = sock.rcvhwm = 0
        silence = int(self.timing.silence * 1000)
        sock.heartbeat_ivl = silence // 5
        sock.heartbeat_timeout = sock.heartbeat_ttl = silence
        if self._keys is not None:
            sock.curve_secretkey = self._keys.secret.encode()
            sock.curve_publickey = self._keys.public[self.index].encode()
        return sock

    def _shut(self, linger: float) -> None:
        self._closed = True
        for peer in self._peers.values():
            peer.push.disable_monitor()
            peer.push.close(linger=int(linger * 1000) if peer.broken_at is None else 0)
        self._context.destroy(linger=0)


def _interface(address: str) -> str:
    """The address with its host name resolved: ZeroMQ listens at numbers only."""
    if not address.startswith("tcp://"):
        return address
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    if host == "*":
        return address
    number = str(socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][4][0])
    return f"tcp://[{number}]:{port}" if ":" in number else f"tcp://{number}:{port}"
