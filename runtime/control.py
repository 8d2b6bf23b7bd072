"""The control protocol: messages between the supervisor of a job and its processes, small, in MessagePack, some with sockets.

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
    Lost,
    Note,
    Noted,
    ProgramFailed,
    Respawn,
    Stopping,
    TimelineEvent,
)
from timely.data.codec.typed import Typed
from timely.errors import FalkirkError, told
from timely.seen_functions import Functions
from timely.time import Time

_LENGTH = struct.Struct("<I")
_MOST_FILES = 250  # of one message; Linux allows 253
_CHUNK = 1 << 20
_MOST_AT_ONCE = 16 << 20
"""Bytes taken from one connection before others have their turn."""
_NOT_INHERITED = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Begin(msgspec.Struct, tag=True, frozen=True):
    """To a prepared process: be this worker. With a socket to each of `peers`."""

    index: int
    incarnation: int
    peers: tuple[int, ...]


class Go(msgspec.Struct, tag=True, frozen=True):
    """To a worker without a store: all have built the same dataflow, begin."""


class Peer(msgspec.Struct, tag=True, frozen=True):
    """To a worker: another one was replaced. With the socket to the new process; what is left of the old one is void."""

    worker: int


class Quit(msgspec.Struct, tag=True, frozen=True):
    """To a worker: the job is done for good, and nobody needs you any more."""


class Page(msgspec.Struct, frozen=True):
    """The page that a monitor serves; browsers connect to a socket of the supervisor's. `token` "": at loopback only.

    `hidden`: nothing is served before somebody comes.
    """

    title: str
    token: str
    hidden: bool = False


class Watch(msgspec.Struct, tag=True, frozen=True):
    """To a monitor: what it watches, with the socket that workers connect to, and that of the page if there is one.

    `awaited` are the workers whose processes are there already. It beats every `beat_seconds`.
    """

    folder: str
    incarnation: int
    layout: bytes
    """A `recovery.layout.Layout`, in MessagePack: a job without a store knows nothing of those."""
    awaited: tuple[int, ...]
    beat_seconds: float
    page: Page | None = None
    token: bytes = b""
    """The secret that workers say first, where others might connect as well."""
    accept: tuple[str, ...] = ()
    """Operators whose functions may be others than those that wrote the store."""
    instead: str = ""
    """The end of the monitor of this run whose place it takes, in words; empty for the first one."""


ToChild: TypeAlias = Begin | Go | Peer | Quit | Watch | Lost | Noted | ProgramFailed | Stopping | Busy


class Built(msgspec.Struct, tag=True, frozen=True):
    """From a worker without a monitor: it has built the program as one of `workers`, and waits until all have.

    `outline`, in JSON, tells what differs.
    """

    workers: int
    fingerprint: str
    outline: str
    functions: Functions | None = None


class JobStats(msgspec.Struct, frozen=True):
    """The progress of a job that an operator has started, or of what a source has others read.

    `done` of `total` parts (0: it does not say), for `seconds`. `epoch` is -1 at the end of all input.
    """

    operator: str
    epoch: int
    what: str
    done: int
    total: int
    seconds: float


class Stats(msgspec.Struct, tag=True):
    """From a worker: its statistics. `epoch` is the oldest that is not complete here; None once all are."""

    records: int
    written: int
    epoch: int | None
    read_epoch: int | None
    queued_bytes: int
    done: bool = False
    jobs: tuple[JobStats, ...] = ()
    """The jobs of operators, and the queries of sources, that run and say how far they are."""


class CapturedBatch(msgspec.Struct, tag=True):
    """From a worker: a batch that reached a capture, encoded."""

    node: int
    time: Time
    header: bytes
    payload: bytes


class Returned(msgspec.Struct, tag=True):
    """From a worker: what its `drive` function returned, encoded."""

    value: bytes


class Over(msgspec.Struct, tag=True, frozen=True):
    """From the monitor: the job is done (`reason` None), or cannot go on.

    `before`: it was done in an earlier run. `lost`: it cannot go on because processes die again and again.
    """

    reason: str | None = None
    before: bool = False
    lost: bool = False


class Unable(msgspec.Struct, tag=True, frozen=True):
    """From any process: it ends because of an error. `known`: of a kind that is raised on purpose; `text` says it all.

    `processor`: which one was at work; -1 if none was.
    """

    kind: str
    text: str
    trace: str
    known: bool
    processor: int = -1


class Here(msgspec.Struct, tag=True, frozen=True):
    """From a worker that somebody else has started: which one it is, and where."""

    worker: int
    incarnation: int
    host: str
    pid: int


class Beat(msgspec.Struct, tag=True, frozen=True):
    """From any process: it is alive. `busy`: for how many seconds it has been in one turn; `doing`: with what, if for long.

    Of a worker also: at which processor (-1: that is not known), and the name of the operator, one of several in a chain.
    """

    busy: float
    doing: str
    processor: int = -1
    name: str = ""


FromChild: TypeAlias = (
    Beat | Here | Respawn | Fence | TimelineEvent | Over | Unable | Note | Built | Stats | CapturedBatch | Returned
)

Heard = TypeVar("Heard")

_encoder = msgspec.msgpack.Encoder()
TO_CHILD: Typed[ToChild] = Typed("what the supervisor says", ToChild)
FROM_CHILD: Typed[FromChild] = Typed("what a process of the job says", FromChild)


def tell(sock: socket.socket, message: ToChild | FromChild, files: Sequence[socket.socket] = ()) -> None:
    """Send one message, with sockets. Blocks while the other side does not read. Raises OSError when it is gone."""
    data = frame(_encoder.encode(message))
    if files:
        sent = socket.send_fds(sock, [data], [file.fileno() for file in files])
        data = data[sent:]
    if data:
        sock.sendall(data)


def frame(data: bytes) -> bytes:
    """A message as it goes over a stream: its length first."""
    return _LENGTH.pack(len(data)) + data


def send_bytes(sock: socket.socket, data: bytes) -> None:
    """Send one message to a process that waits for it."""
    sock.sendall(frame(data))


def receive_bytes(sock: socket.socket) -> bytes | None:
    """Wait for one message; None when the other side is gone."""
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
    """Take the messages out of `buffer` that are whole."""
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
    """Append to `buffer` what a socket that does not block has received. False: the connection has ended."""
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
    """Send what a socket that does not block takes of `buffer`, and remove it there. False: the connection has ended."""
    try:
        while buffer:
            del buffer[: sock.send(buffer)]
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


def _receive(sock: socket.socket, flags: int) -> tuple[bytes, list[int]]:
    """`socket.recv_fds`, which ignores its flags, with them."""
    files = array.array("i")
    room = socket.CMSG_LEN(_MOST_FILES * files.itemsize)
    data, ancillary, _, _ = sock.recvmsg(_CHUNK, room, flags | _NOT_INHERITED)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    return data, list(files)


class Control(Generic[Heard]):
    """One end of such a connection, for reading."""

    def __init__(self, sock: socket.socket, decoder: Typed[Heard]) -> None:
        self.sock = sock
        self.ended = False
        """The other side is gone, and everything that it said has been read."""
        self.received = 0
        """Bytes so far: who sends any is alive."""
        self._decoder = decoder
        self._buffer = bytearray()
        self._unread: list[Heard] = []
        self._files: deque[socket.socket] = deque()

    def read(self, wait: bool = False) -> list[Heard]:
        """The messages that are here; with `wait`, at least one unless the other side is gone."""
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

    def read_one(self) -> Heard | None:
        """The first message that is here, if any; others that came with it are read with those that follow."""
        first, *self._unread = self.read() or [None]  # type: ignore[list-item]
        return first

    def files(self, count: int) -> list[socket.socket]:
        """The sockets that came with the message that was read last, or with the ones before."""
        return [self._files.popleft() for _ in range(count)]

    def close(self) -> None:
        """Close the connection, and sockets that nobody took."""
        for file in self._files:
            file.close()
        self._files.clear()
        with suppress(OSError):
            self.sock.close()


MONITOR_SOCKET, PAGE_SOCKET = "monitor", "page"
"""The files in the private folder of a supervisor."""


def end_with(sock: socket.socket, private: str) -> None:
    """End this process at once when the other side of its connection to the supervisor is closed.

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
    """The reason for which this process ends. `processor`: which one was at work."""
    kind, known = type(error).__name__, isinstance(error, FalkirkError)
    text = str(error) if known else told(error)
    return Unable(kind, text, "".join(traceback.format_exception(error)), known, processor)
