"""Lines over TCP as input. Nothing that came over a socket can be read again."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from timely.errors import SourceError
from timely.io.arguments import encoding as known_encoding
from timely.io.arguments import whole
from timely.io.interface import Chunk, End, Partition, Position, Wait
from timely.io.lines import LineBuffer, LineEpochs

_RECEIVE = 1 << 18

Clock = Callable[[], float]


class Socket:
    """Connects to `host`:`port` and reads lines, until the other side closes. Worker 0 does.

    An epoch is `epoch_lines` lines or `epoch_seconds` seconds of `clock`. Lines are text in `encoding`, or
    bytes if that is None. The lines cannot be read again: `seek` to anywhere but where it stands raises
    SourceError, so recovery needs a region that logs them.
    """

    rereadable: ClassVar[bool] = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        epoch_lines: int | None = None,
        epoch_seconds: float | None = None,
        encoding: str | None = "utf-8",
        clock: Clock = time.monotonic,
    ) -> None:
        self._address = (host, whole(port, "port", most=65535))
        self._name = f"{host}:{port}"
        self._epochs = (epoch_lines, epoch_seconds)
        LineEpochs(*self._epochs, self._name)  # complain where the user wrote it
        self._encoding = known_encoding(encoding)
        self._clock = clock

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """The connection, at worker 0. Looking up the host's name may block."""
        if worker != 0:
            return []
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise SourceError(f"{self._name}: this address is not known: {error}. Check host and port.") from error
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):  # `read` will see the failure
            connection.connect(address)
        epochs = LineEpochs(*self._epochs, self._name)
        return [LinePartition(self._name, ClientLines(self._name, connection, self._encoding), epochs, self._clock)]


class Listen:
    """Listens on `port` and reads the lines of everyone who connects. Worker 0 does.

    `port` 0 takes a free one: `address` tells which. Only this machine can connect, unless `host` says
    otherwise. With `connections=n` the input is over when n connections have come and gone; otherwise it goes
    on for good. Lines of one connection stay in order. Epochs, encoding and clock are as for `Socket`, and
    nothing can be read again either.
    """

    rereadable: ClassVar[bool] = False

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        connections: int | None = None,
        epoch_lines: int | None = None,
        epoch_seconds: float | None = None,
        encoding: str | None = "utf-8",
        clock: Clock = time.monotonic,
    ) -> None:
        self._name = f"{host}:{port}"
        self._bind = (host, whole(port, "port", 0, 65535))
        self._connections = None if connections is None else whole(connections, "connections")
        self._epochs = (epoch_lines, epoch_seconds)
        LineEpochs(*self._epochs, self._name)
        self._encoding = known_encoding(encoding)
        self._clock = clock
        self.address: tuple[str, int] | None = None

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """The listening socket, at worker 0."""
        if worker != 0:
            return []
        try:
            server = socket.create_server(
                self._bind, family=socket.AF_INET6 if ":" in self._bind[0] else socket.AF_INET
            )
        except OSError as error:
            raise SourceError(
                f"{self._name}: cannot listen here: {error.strerror or error}. Is the port in use? Port 0 "
                "takes a free one."
            ) from error
        server.setblocking(False)
        self.address = server.getsockname()[:2]
        epochs = LineEpochs(*self._epochs, self._name)
        lines = ServerLines(self._name, server, self._connections, self._encoding)
        return [LinePartition(self._name, lines, epochs, self._clock)]


class LinePartition:
    """Lines from sockets, cut into epochs."""

    def __init__(self, name: str, lines: ClientLines | ServerLines, epochs: LineEpochs, clock: Clock) -> None:
        self.name = name
        self._lines = lines
        self._epochs = epochs
        self._clock = clock
        self._waiting: deque[str | bytes] = deque()

    def read(self) -> Chunk | Wait | End:
        """Lines that are here, the beginning of an epoch, or the wait for either."""
        epoch = self._epochs.tick(self._clock())
        if epoch is not None:
            return Chunk(epoch, None, self._epochs.count)
        if not self._waiting:
            more = self._lines.receive()
            if more is None:
                return End()
            self._waiting.extend(more)
        if not self._waiting:
            return Wait(self._epochs.until_next(self._clock()), self._lines.fileno())
        epoch, lines, closes = self._epochs.cut(self._waiting)
        return Chunk(epoch, lines, self._epochs.count, closes)

    def seek(self, position: Position) -> None:
        """Only to where it stands: raises SourceError for any other position."""
        if (0 if position is None else position) != self._epochs.count:
            raise SourceError(
                f"{self.name}: lines from a socket cannot be read again (asked for line {position}, "
                f"{self._epochs.count} were read). Log what this source gives (log_outputs, or an eager or "
                "logging policy for its region)."
            )

    def ack(self, position: Position) -> None:
        """The protocol has no acknowledgements: nothing to do."""

    def close(self) -> None:
        """Close all sockets."""
        self._lines.close()


class ClientLines:
    """Lines of one connection that we opened."""

    def __init__(self, name: str, connection: socket.socket, encoding: str | None) -> None:
        self._name = name
        self._connection = connection
        self._buffer = LineBuffer(name, encoding)
        self._over = False

    def fileno(self) -> int:
        """What to wait on."""
        return self._connection.fileno()

    def receive(self) -> Sequence[str | bytes] | None:
        """Lines that have come; none if there are none yet; None when the connection is over."""
        if self._over:
            return None
        try:
            data = self._connection.recv(_RECEIVE)
        except BlockingIOError:
            return []
        except ConnectionRefusedError as error:
            raise SourceError(f"{self._name}: nobody listens there. Start the sender first.") from error
        except OSError as error:
            raise SourceError(
                f"{self._name}: the connection broke: {error.strerror or error}. Lines sent meanwhile are "
                "lost; start again."
            ) from error
        if data:
            return self._buffer.feed(data)
        self._over = True
        self._buffer.finish()
        return None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class ServerLines:
    """Lines of all connections that others opened."""

    def __init__(self, name: str, server: socket.socket, expected: int | None, encoding: str | None) -> None:
        self._name = name
        self._server = server
        self._expected = expected
        self._encoding = encoding
        self._accepted = 0
        self._open: dict[socket.socket, ClientLines] = {}
        # A selector has a descriptor of its own, readable when any of its sockets is.
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)

    def fileno(self) -> int | None:
        """What to wait on; None where the system's selector has no descriptor."""
        descriptor = getattr(self._selector, "fileno", None)
        return None if descriptor is None else int(descriptor())

    def receive(self) -> Sequence[str | bytes] | None:
        """Lines that have come on any connection; None when all expected connections are over."""
        lines: list[str | bytes] = []
        for key, _ in self._selector.select(timeout=0):
            if key.fileobj is self._server:
                self._accept()
                continue
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            more = self._open[connection].receive()
            if more is None:
                self._selector.unregister(connection)
                self._open.pop(connection).close()
            else:
                lines.extend(more)
        if not lines and self._accepted == self._expected and not self._open:
            return None
        return lines

    def _accept(self) -> None:
        try:
            connection, peer = self._server.accept()
        except (BlockingIOError, ConnectionError):  # it gave up before we came
            return
        connection.setblocking(False)
        self._accepted += 1
        who = f"{self._name}, connection {self._accepted} from {peer[0]}:{peer[1]}"
        self._open[connection] = ClientLines(who, connection, self._encoding)
        self._selector.register(connection, selectors.EVENT_READ)
        if self._accepted == self._expected:
            self._selector.unregister(self._server)
            self._server.close()

    def close(self) -> None:
        """Close the listening socket and all connections."""
        self._selector.close()
        for lines in self._open.values():
            lines.close()
        self._open.clear()
        self._server.close()
