"""Control protocol between the supervisor of a job and its processes.

Messages are small, in MessagePack, some with sockets.

Each process has a stream socket to the supervisor: a unix socket on one host, TCP from a cluster. Over a unix socket those of
other connections travel with the message that speaks of them (SCM_RIGHTS), in the order in which it names them. A message is
framed by its length, as it is between monitor, workers and page. Those of `monitor/coordination/supervision` are events and
effects of the coordinator.
"""

from __future__ import annotations

import array
import os
import select
import shutil
import socket
import struct
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

import msgspec

from monitor.coordination.supervision import (
    Busy,
    Fence,
    Happened,
    Lost,
    Mates,
    Note,
    Noted,
    ProgramFailed,
    Respawn,
    Saving,
    Stopping,
    TimelineEvent,
)
from recovery.place import Place
from recovery.store.address import StoreAddress
from timely.data.codec.typed import Typed
from timely.errors import FalkirkError, error_text
from timely.seen_functions import Functions
from timely.time import Time

_LENGTH = struct.Struct("<I")
_MOST_FILES = 250  # of one message; Linux allows 253
_CHUNK = 1 << 20
_MOST_AT_ONCE = 16 << 20
"""Limit on bytes taken from one connection before others have their turn."""
_NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Begin(msgspec.Struct, tag=True, frozen=True):
    """To a prepared process: start at this place, with a socket to each of `peers`."""

    place: Place
    incarnation: int
    peers: tuple[Place, ...]


class Follow(msgspec.Struct, tag=True, frozen=True):
    """To a prepared process: follow a worker, by a socket too, until `Begin`."""

    place: Place


class Mated(msgspec.Struct, tag=True, frozen=True):
    """To a worker: socket to its new mate."""


class CaughtUp(msgspec.Struct, tag=True, frozen=True):
    """From a mate: it has caught up with its worker's durable state, in `seconds`."""

    place: Place
    seconds: float


class Followed(msgspec.Struct, tag=True, frozen=True):
    """From a mate, at most once a second: how far it is; see `MateView`."""

    place: Place
    memory: int
    epoch: int | None
    behind: int
    left: int


class Go(msgspec.Struct, tag=True, frozen=True):
    """To a worker without a store: start, as all have built the same dataflow."""


class Peer(msgspec.Struct, tag=True, frozen=True):
    """To a worker: socket to the new process at a place.

    Unread data of the old process is void.
    """

    place: Place


class Quit(msgspec.Struct, tag=True, frozen=True):
    """To a worker: exit, as the job is finished."""


class Watch(msgspec.Struct, tag=True, frozen=True):
    """To a monitor: the job to monitor, with sockets for workers and followers.

    `awaited`: places with processes already. The monitor sends a heartbeat every `beat_seconds`.
    """

    store: StoreAddress
    incarnation: int
    layout: bytes
    """`recovery.layout.Layout` in MessagePack, opaque to jobs without a store."""
    awaited: tuple[Place, ...]
    beat_seconds: float
    token: bytes = b""
    """Secret sent first by workers; empty if no stranger can connect."""
    accept: tuple[str, ...] = ()
    """Operators allowed to have other functions than those that wrote the store."""
    copies: int = 1
    """Processes of each worker."""
    instead: str = ""
    """Reason for the end of the monitor that this one replaces; empty for the first."""


class Proposed(msgspec.Struct, tag=True, frozen=True):
    """To the monitor: answer to `Propose`: the layout, as of `Watch`, or the error."""

    number: int
    layout: bytes
    error: str = ""


class Propose(msgspec.Struct, tag=True, frozen=True):
    """From the monitor: question about the program with other policies, by region."""

    number: int
    policies: dict[str, str]


ToChild: TypeAlias = (
    Begin
    | Follow
    | Mated
    | Happened
    | Go
    | Peer
    | Quit
    | Watch
    | Lost
    | Mates
    | Noted
    | ProgramFailed
    | Stopping
    | Saving
    | Busy
    | Proposed
)


class Built(msgspec.Struct, tag=True, frozen=True):
    """From a worker without a monitor: program built, waiting for the other workers.

    `workers`: number of workers it was built for. `outline`, in JSON, shows differences.
    """

    workers: int
    fingerprint: str
    outline: str
    functions: Functions | None = None


class JobStats(msgspec.Struct, frozen=True):
    """Progress of an operator's job or a source's query.

    `done` of `total` parts (0: it does not say), for `seconds`. `epoch` is -1 at the end of all input.
    """

    operator: str
    epoch: int
    what: str
    done: int
    total: int
    seconds: float


class Stats(msgspec.Struct, tag=True):
    """From a worker: its statistics.

    `epoch` is the oldest incomplete one here; None once all are complete.
    """

    records: int
    written: int
    epoch: int | None
    read_epoch: int | None
    queued_bytes: int
    done: bool = False
    jobs: tuple[JobStats, ...] = ()
    """Running jobs of operators, and queries of sources, with reported progress."""


class CapturedBatch(msgspec.Struct, tag=True):
    """From a worker: an encoded batch of a capture."""

    node: int
    time: Time
    header: bytes
    payload: bytes


class Returned(msgspec.Struct, tag=True):
    """From a worker: the encoded return value of its `drive` function."""

    value: bytes


class Over(msgspec.Struct, tag=True, frozen=True):
    """From the monitor: the job is done (`reason` None), or cannot go on.

    `before`: it was done in an earlier run. `lost`: it cannot go on because processes die again and again.
    """

    reason: str | None = None
    before: bool = False
    lost: bool = False


class Unable(msgspec.Struct, tag=True, frozen=True):
    """From any process: it ends because of an error.

    `known`: of a kind that is raised on purpose, with all in `text`; `processor`: the one at work, or -1.
    """

    kind: str
    text: str
    trace: str
    known: bool
    processor: int = -1


class Here(msgspec.Struct, tag=True, frozen=True):
    """From a worker started elsewhere: its place, host and process."""

    place: Place
    incarnation: int
    host: str
    pid: int


class Beat(msgspec.Struct, tag=True, frozen=True):
    """From any process: heartbeat.

    `busy`: seconds spent in the current turn; `doing`: its work, if the turn is long. Of a worker also its processor (-1:
    unknown) and the name of the operator, one of several in a chain.
    """

    busy: float
    doing: str
    processor: int = -1
    name: str = ""


FromChild: TypeAlias = (
    Beat
    | Here
    | CaughtUp
    | Followed
    | Respawn
    | Fence
    | TimelineEvent
    | Over
    | Unable
    | Note
    | Built
    | Stats
    | CapturedBatch
    | Returned
    | Propose
)

Incoming = TypeVar("Incoming")

_encoder = msgspec.msgpack.Encoder()
TO_CHILD: Typed[ToChild] = Typed("what the supervisor says", ToChild)
FROM_CHILD: Typed[FromChild] = Typed("what a process of the job says", FromChild)


def tell(sock: socket.socket, message: ToChild | FromChild, files: Sequence[socket.socket] = ()) -> None:
    """Send one message, with sockets.

    Blocks while the other side does not read. Raises OSError when it is gone.
    """
    data = frame(_encoder.encode(message))
    if files:
        sent = socket.send_fds(sock, [data], [file.fileno() for file in files])
        data = data[sent:]
    if data:
        sock.sendall(data)


def frame(data: bytes) -> bytes:
    """Frame a message for a stream: its length, then its bytes."""
    return _LENGTH.pack(len(data)) + data


def send_bytes(sock: socket.socket, data: bytes) -> None:
    """Send one framed message."""
    sock.sendall(frame(data))


def receive_bytes(sock: socket.socket) -> bytes | None:
    """Wait for one framed message; None if the other side is gone."""
    prefix = _exactly(sock, _LENGTH.size)
    return None if prefix is None else _exactly(sock, _LENGTH.unpack(prefix)[0])


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


def cut(buffer: bytearray) -> list[bytes]:
    """Remove and return the complete messages at the start of `buffer`."""
    found = []
    at = 0
    while len(buffer) - at >= _LENGTH.size:
        end = at + _LENGTH.size + _LENGTH.unpack_from(buffer, at)[0]
        if len(buffer) < end:
            break
        found.append(bytes(memoryview(buffer)[at + _LENGTH.size : end]))
        at = end
    del buffer[:at]
    return found


def take_in(sock: socket.socket, buffer: bytearray) -> bool:
    """Append bytes from a non-blocking socket to `buffer`; False at its end."""
    upto = len(buffer) + _MOST_AT_ONCE
    try:
        while len(buffer) < upto:
            data = sock.recv(_CHUNK)
            if not data:
                return False
            buffer += data
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


def put_out(sock: socket.socket, buffer: bytearray) -> bool:
    """Send bytes of `buffer` to a non-blocking socket; False if it was closed.

    Sent bytes are removed from the buffer.
    """
    try:
        while buffer:
            del buffer[: sock.send(buffer)]
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


def _receive(sock: socket.socket, flags: int) -> tuple[bytes, list[int]]:
    """Receive bytes and file descriptors, with flags, unlike `socket.recv_fds`."""
    files = array.array("i")
    room = socket.CMSG_LEN(_MOST_FILES * files.itemsize)
    data, ancillary, _, _ = sock.recvmsg(_CHUNK, room, flags | _NOT_INHERITED)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    return data, list(files)


class Control(Generic[Incoming]):
    """Receiving end of a control connection."""

    def __init__(self, sock: socket.socket, decoder: Typed[Incoming]) -> None:
        self.sock = sock
        self.ended = False
        """True if the other side has closed and all its messages were read."""
        self.received = 0
        """Bytes received so far; any growth is a sign of life."""
        self._decoder = decoder
        self._buffer = bytearray()
        self._unread: list[Incoming] = []
        self._files: deque[socket.socket] = deque()

    def read(self, wait: bool = False) -> list[Incoming]:
        """Received messages; with `wait`, block for one unless the other side is gone."""
        found, self._unread = self._unread, []
        while not self.ended:
            try:
                flags = 0 if wait and not found else socket.MSG_DONTWAIT
                data, files = _receive(self.sock, flags)
            except BlockingIOError:
                break
            except (ConnectionResetError, BrokenPipeError):
                data, files = b"", []
            self._files.extend(socket.socket(fileno=file) for file in files)
            self.ended = not data
            self.received += len(data)
            self._buffer += data
            found += [self._decoder.decode(message) for message in cut(self._buffer)]
        return found

    def read_one(self) -> Incoming | None:
        """First received message, if any; the rest stays for later reads."""
        first, *self._unread = self.read() or [None]  # type: ignore[list-item]
        return first

    def files(self, count: int) -> list[socket.socket]:
        """Take `count` sockets received with the last message, or with earlier ones."""
        return [self._files.popleft() for _ in range(count)]

    def close(self) -> None:
        """Close the connection, and the sockets not taken."""
        for file in self._files:
            file.close()
        self._files.clear()
        with suppress(OSError):
            self.sock.close()


MONITOR_SOCKET, PAGE_SOCKET = "monitor", "page"
"""File names of sockets in the private folder of a supervisor."""


def end_with(sock: socket.socket, private: str) -> None:
    """Exit this process as soon as its connection to the supervisor closes.

    A supervisor that was killed leaves its private folder behind: then whichever process comes first removes it.
    """
    poll = select.poll()
    poll.register(sock.fileno(), 0)  # nothing but its end
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        pass
    if private:
        shutil.rmtree(private, ignore_errors=True)
    os._exit(1)


def confession(error: BaseException, processor: int = -1) -> Unable:
    """Message about the error ending this process; `processor`: the one at work."""
    kind, known = type(error).__name__, isinstance(error, FalkirkError)
    text = str(error) if known else error_text(error)
    return Unable(kind, text, "".join(traceback.format_exception(error)), known, processor)
