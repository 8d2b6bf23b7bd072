"""Link of workers on several hosts: ZeroMQ over TCP, encrypted with CURVE.

Every worker listens with one socket and reaches each other worker with one of its own (`runtime.links.zeromq_sockets`), so
that the end which sends on a connection is the one that hears when it breaks.

ZeroMQ connects again in silence after a failure, and what was under way is gone. A worker must never miss that, so each
message names the *life* of its sender and of its receiver, a random number that each process draws when it starts, and
counts from 1 on its connection: a gap, a repetition or another life is a lost worker, never a silent loss. Workers greet each
other until each knows that the other has its life, so that nothing is sent to a process that was there before.

    message = header, body
    header  = u8 protocol version, u8 kind, u16 worker and u32 copy of the sender, u64 life of sender, u64 life of
              receiver (0: not met yet), u64 number (0: not counted), u64 number of the last message taken from the receiver

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import zmq
from zmq.utils.monitor import recv_monitor_message

from recovery.place import Place
from runtime.links.frames import LENGTH, decode_frame, encode_frame
from runtime.links.zeromq_sockets import ADVICE, Gate, Keys, Maker, Timing
from timely.data.messages import Frame
from timely.errors import FalkirkError, ProtocolError, WorkerLost

PROTOCOL = 3
HEADER = struct.Struct("<BBHIQQQQ")
HELLO, FRAME, PART, TAKEN, GOODBYE, FAILED = range(1, 7)

_WINDOW = 8 << 20
"""Bytes in flight to one worker before further messages wait.

The receiver confirms each quarter of it.
"""

_PART = 4 << 20
_ZERO_COPY = 1 << 20
_TURN = 1000
"""Maximum number of messages taken by one `poll`."""

_LAST_WORDS = 10_000
"""Maximum length of a failure message to other workers, in bytes."""

_LOOK_SECONDS = 0.05
"""Seconds between two looks at connections by a worker that never waits."""


class _Peer:
    """Other process: the connection to its place, and messages in flight either way."""

    def __init__(self, place: Place, address: str, maker: Maker) -> None:
        self.place = place
        self.address = address
        self._maker = maker
        self.push, self.monitor = maker.connect(place, address)
        self.state = "nobody answers there yet"
        self.connected = False
        self.life = 0
        self.past = 0
        """Life (random id) of the worker's last lost process."""
        self.knows = False
        """True once the other worker has confirmed the life of this process."""
        self.greeting = b""
        self.broken_at: float | None = None
        self.missed_at: float | None = None
        """Time of the loss of its process; None if another one is there."""
        self.goodbye = False
        self.sent = 0
        self.under_way: deque[tuple[int, int]] = deque()
        self.window = _WINDOW
        self.queue: deque[tuple[int, bytes]] = deque()
        self.taken = 0
        self.unconfirmed = 0
        self.parts: list[memoryview] = []

    def __str__(self) -> str:
        return f"{self.place} at {self.address}"

    def renew(self) -> None:
        """Connect to a new process in place of a lost one.

        Messages in flight either way are void. The socket is a new one, as messages still in the old one must not
        reach the new process.
        """
        self.hang_up(0)
        self.push, self.monitor = self._maker.connect(self.place, self.address)
        self.past = self.life or self.past
        self.life = self.sent = self.taken = self.unconfirmed = 0
        self.connected = self.knows = False
        self.window = _WINDOW
        self.under_way.clear()
        self.queue.clear()
        self.parts.clear()

    def hang_up(self, linger: int) -> None:
        """Close the connection, leaving pending messages `linger` milliseconds."""
        self.push.disable_monitor()
        self.push.close(linger=linger)


class ZmqLink:
    """Link of the process at `place` to those at `addresses`, over ZeroMQ.

    See `runtime.links.interface.Link`.

    `addresses`, by place, are `tcp://host:port`, or `ipc://path` on one host; `bind` is where this process listens if that is
    not its own address; `listener` is a TCP socket that listens there already, for who let the system choose the port. Without
    `keys` nothing is encrypted and anybody may connect: for ipc:// in a private folder only.
    It listens from the start; call `meet` before anything else.

    With `survives` a worker that is lost is no error: somebody else starts another process at its address, with its key, and
    until that says hello what is sent there is dropped. WorkerLost follows all the same where none comes within `timing.meet`,
    or where the old one answers again: then the network had failed, and what was under way is lost.
    """

    def __init__(
        self,
        place: Place,
        addresses: Mapping[Place, str],
        keys: Keys | None = None,
        bind: str | None = None,
        timing: Timing | None = None,
        listener: socket.socket | None = None,
        survives: bool = False,
    ) -> None:
        if keys is None and not all(address.startswith("ipc://") for address in addresses.values()):
            raise FalkirkError("workers that talk over a network need keys: make them with create_host_files()")
        self.place = place
        self.unsent = 0
        self._name = f"{place} at {addresses[place]}"
        self._timing = timing or Timing()
        self._keys = keys
        self._survives = survives
        self._life = int.from_bytes(os.urandom(8), "little") | 1
        self._greeting: bytes | None = None
        self._met = self._leaving = self._closed = False
        self._inbox: list[Frame] = []
        self._verdict = ""
        self._look_at = 0.0
        self._extra: set[int] = set()
        self._poller = zmq.Poller()
        self._context = zmq.Context()
        maker = Maker(self._context, place, keys, self._timing, any("[" in address for address in addresses.values()))
        try:
            self._gate = Gate(self._context, keys, self._say)
            self._pull = maker.listen(bind or addresses[place], listener)
            self._peers = {
                other: _Peer(other, address, maker) for other, address in addresses.items() if other != place
            }
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._by_monitor = {peer.monitor: peer for peer in self._peers.values()}
        for sock in (self._gate.sock, self._pull, *self._by_monitor):
            self._poller.register(sock, zmq.POLLIN)

    # Meeting

    def meet(self, greeting: bytes, check: Callable[[Place, bytes], None]) -> None:
        """Send `greeting` to every other worker, and wait for theirs.

        `check(place, greeting)` raises when they cannot work together. Raises FalkirkError when a worker has not come
        in time or refuses this one's key, WorkerLost when one fails meanwhile.
        """
        self._greeting = greeting
        end = time.monotonic() + self._timing.meet
        report_at = time.monotonic() + min(2.0, self._timing.meet / 2)
        unchecked = dict(self._peers)
        for peer in self._peers.values():
            if peer.connected:
                self._greet(peer)
        while waiting := [peer for peer in self._peers.values() if not (peer.knows and peer.connected)]:
            now = time.monotonic()
            news = "; ".join(f"waiting for {peer}: {peer.state}" for peer in waiting)
            if now > end:
                raise FalkirkError(
                    f"{self.place} has waited {self._timing.meet:g} s for all workers to meet: {news}. Start all "
                    "workers within that time, and see that hosts and firewalls let each reach every other's port"
                )
            if now > report_at:
                report_at = now + 5.0
                self._say(news)
            self._inbox += self._wait(min(report_at, end) - now + 0.01)
            for place in [place for place, peer in unchecked.items() if peer.life]:
                check(place, unchecked.pop(place).greeting)
        self._met = True
        for peer in self._peers.values():
            self._confirm(peer)

    # The link

    def send(self, place: Place, frame: Frame) -> None:
        peer = self._peers[place]
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
        return self._wait(seconds, extra)

    def close(self) -> None:
        """Say goodbye and wait a while for the others' goodbyes, then close.

        A worker that is done early must not look like one that died.

        Raises WorkerLost when another worker dies before it is done, even though this one is. With `survives` there is nobody
        to wait for: this is called when the job is over everywhere.
        """
        if self._closed:
            return
        if self._survives:
            self._shut(0.0)
            return
        deadline = time.monotonic() + self._timing.goodbye
        self._leaving = True
        try:
            for peer in self._peers.values():
                while peer.queue:
                    self._push_next(peer)
                self._push(peer, *self._packed(peer, GOODBYE, ()))
            while any(not peer.goodbye for peer in self._peers.values()) and time.monotonic() < deadline:
                self._wait(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            self.fail(error)
            raise
        self._shut(self._timing.goodbye)

    def abandon(self) -> None:
        """Close because of the error being handled, and send its text to the others."""
        self.fail(sys.exc_info()[1] or FalkirkError("it gave up"))

    def fail(self, error: BaseException) -> None:
        """Close because of `error`, and send its text to the reachable workers."""
        if self._closed:
            return
        text = str(error) if isinstance(error, FalkirkError) else f"{type(error).__name__}: {error}"
        if isinstance(error, KeyboardInterrupt):
            text = "it was stopped by Ctrl-C"
        words = (self._verdict or f"{self._name} failed: {text}").encode(errors="replace")[:_LAST_WORDS]
        for peer in self._peers.values() if not self._survives else ():
            with suppress(zmq.ZMQError):
                peer.push.send(self._header(peer, FAILED, 0) + words, zmq.NOBLOCK)
        self._shut(self._timing.last_words)

    # Sending

    def _post(self, peer: _Peer, kind: int, *parts: Any) -> None:
        if not peer.life:  # its process is lost, and what it is sent with it
            return
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
        return HEADER.pack(PROTOCOL, kind, *self.place, self._life, peer.life, number, peer.taken)

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
        """Confirm received messages after enough bytes, once all workers have met.

        Before that senders must wait.
        """
        if peer.unconfirmed >= _WINDOW // 4 and self._met and not self._leaving:
            peer.unconfirmed = 0
            with suppress(zmq.Again):
                peer.push.send(self._header(peer, TAKEN, 0), zmq.NOBLOCK)

    # Receiving

    def _wait(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        """Receive for up to `seconds`; any event on a connection ends the wait."""
        wanted = set(extra)
        for file in self._extra - wanted:
            self._poller.unregister(file)
        for file in wanted - self._extra:
            self._poller.register(file, zmq.POLLIN)
        self._extra = wanted
        now = time.monotonic()
        self._look_at = now + _LOOK_SECONDS
        alarms = [at + self._timing.last_words for peer in self._peers.values() if (at := peer.broken_at) is not None]
        if self._met:
            alarms += [at + self._timing.meet for peer in self._peers.values() if (at := peer.missed_at) is not None]
        if seconds is not None:
            alarms.append(now + seconds)
        timeout = None if not alarms else max(0, int((min(alarms) - now) * 1000 + 0.999))
        ready = [sock for sock, _ in self._poller.poll(timeout)]
        frames = self._receive() if self._pull in ready else []
        for sock in ready:
            if sock is self._gate.sock:
                self._gate.answer()
            elif sock in self._by_monitor:
                self._hear(self._by_monitor[sock])
        for peer in self._peers.values():
            if peer.broken_at is not None and time.monotonic() >= peer.broken_at + self._timing.last_words:
                self._bury(peer)
            if self._met and peer.missed_at is not None and time.monotonic() >= peer.missed_at + self._timing.meet:
                self._lose(peer, f"was lost, and for {self._timing.meet:g} s no other process has taken its place")
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
            raise FalkirkError(
                f"{self._name} speaks version {PROTOCOL} of the workers' protocol, but another worker speaks version "
                f"{view[0] if len(view) else 0}: install the same version of Falkirk on all hosts"
            )
        _, kind, worker, copy, life, receiver, number, taken = HEADER.unpack_from(view)
        sender = Place(worker, copy)
        peer = self._peers.get(sender)
        if peer is None or (self._keys is not None and message.get("User-Id") != self._keys.public[sender]):
            raise FalkirkError(f"a message claims to be from {sender} but came with another's key: {ADVICE}")
        if receiver not in (0, self._life):
            return  # meant for a process that was here before this one
        body = view[HEADER.size :]
        if kind == HELLO:
            self._welcome(peer, life, receiver, bytes(body))
        elif kind == FAILED:
            self._verdict = bytes(body[:_LAST_WORDS]).decode(errors="replace") or f"{peer} failed"
            raise WorkerLost(self._verdict)
        elif life == peer.life:
            if kind != TAKEN:
                self._count(peer, number, len(view))
            self._taken_by(peer, taken)
            if kind == FRAME:
                if peer.parts:
                    body = memoryview(b"".join((*peer.parts, body)))
                    peer.parts.clear()
                try:
                    frames.append(decode_frame(body))
                except ProtocolError as error:
                    self._lose(peer, f"has sent what is no frame: {error}")
            elif kind == PART:
                peer.parts.append(body)
            elif kind == GOODBYE:
                peer.goodbye = True
                peer.broken_at = None

    def _welcome(self, peer: _Peer, life: int, receiver: int, greeting: bytes) -> None:
        if peer.life and life != peer.life:
            if not self._survives:
                self._lose(peer, "was started again while the job was running; start all workers again")
            self._miss(peer)
        if life == peer.past:
            self._lose(peer, "could not be reached for a while, and what was under way is lost")
        news = life != peer.life
        peer.life, peer.greeting, peer.missed_at = life, greeting, None
        if not peer.connected:
            peer.state = "it has said hello, but cannot be reached from here"
        peer.knows |= receiver == self._life
        if (news or receiver != self._life) and self._greeting is not None:
            self._greet(peer)

    def _count(self, peer: _Peer, number: int, size: int) -> None:
        if number != peer.taken + 1:
            self._lose(peer, f"cannot be heard any more without a gap: message {number} came after {peer.taken}")
        peer.taken = number
        peer.unconfirmed += size
        self._confirm(peer)

    def _taken_by(self, peer: _Peer, taken: int) -> None:
        under_way = peer.under_way
        while under_way and under_way[0][0] <= taken:
            peer.window += under_way.popleft()[1]
        while peer.queue and peer.window > 0:
            self._push_next(peer)

    # Trouble

    def _hear(self, peer: _Peer) -> None:
        """Handle an event of the connection to `peer`."""
        event = recv_monitor_message(peer.monitor)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            peer.connected = True
            peer.state = "it is there, but has not said hello yet"
            if self._greeting is not None and not peer.knows:
                self._greet(peer)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise FalkirkError(f"{peer} refuses the key of {self.place}: {ADVICE}")
        elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
            if self._survives and event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                return  # somebody listens there for a process that has died, or has not come yet
            peer.state = f"what answers there does not have the key that the host file gives for it ({ADVICE})"
        elif event == zmq.EVENT_DISCONNECTED and peer.connected:
            peer.connected = False
            peer.state = "it was there, but has gone"
            self._break(peer)

    def _break(self, peer: _Peer) -> None:
        """Handle a broken connection: a failure only if no goodbye is still to be read."""
        if self._survives:
            self._miss(peer)
        elif peer.life and not peer.goodbye and peer.broken_at is None:
            peer.broken_at = time.monotonic()

    def _bury(self, peer: _Peer) -> None:
        if self._pull.poll(0):
            return
        # The text goes to other workers, who may have lost none: so it names the loser and the lost one.
        others = [each for each in self._peers.values() if not each.goodbye]
        if len(others) > 1 and all(each.broken_at is not None for each in others):
            lost = f"all others, workers {', '.join(str(each.place).removeprefix('worker ') for each in others)},"
            why = "the network of its host failed, or all of them ended"
        else:
            lost, why = str(peer), "that process ended, its host went down, or the network between the two failed"
        self._verdict = (
            f"{self._name} has lost {lost} before the job was over: {why} (silence is noticed after about "
            f"{self._timing.silence:g} s)"
        )
        raise WorkerLost(self._verdict)

    def _miss(self, peer: _Peer) -> None:
        """Prepare for a new process of a lost worker, with `survives`."""
        self.unsent -= sum(len(message) for _, message in peer.queue)
        self._poller.unregister(peer.monitor)
        del self._by_monitor[peer.monitor]
        peer.renew()
        self._by_monitor[peer.monitor] = peer
        self._poller.register(peer.monitor, zmq.POLLIN)
        peer.missed_at = time.monotonic()

    def _lose(self, peer: _Peer, what: str) -> NoReturn:
        self._verdict = f"{peer} {what}"
        raise WorkerLost(self._verdict)

    def _say(self, text: str) -> None:
        print(f"{self.place}: {text}", file=sys.stderr, flush=True)

    def _shut(self, linger: float) -> None:
        """Close everything; messages to live workers have `linger` seconds to leave."""
        self._closed = True
        for peer in self._peers.values():
            while peer.monitor.poll(0):
                event = recv_monitor_message(peer.monitor)["event"]
                if event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
                    peer.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if not self._met:  # the connection may be in the making: to who has said hello, or before we ever looked
                peer.connected |= peer.life != 0 or self._greeting is None
            peer.hang_up(int(linger * 1000) if peer.connected else 0)
        self._context.destroy(linger=0)
