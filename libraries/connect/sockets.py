"""Sources of lines over TCP; not re-readable.

`Socket` depends on its sender: where that fails, lines are lost, and the job must not go on as if they had not been sent.
`Listen` depends on none of those who connect: what one of them does wrong ends that one's connection, and nothing else.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from libraries.connect.lines import LineBuffer, LineEpochs
from timely.errors import SourceError
from timely.io.acceptor import Acceptor
from timely.io.arguments import above_zero, whole
from timely.io.arguments import encoding as known_encoding
from timely.io.interface import Chunk, End, Partition, Position, Wait

_RECEIVE = 1 << 18
_LEAST = 1 << 12
"""Least bytes per read of one connection; the budget is divided among them."""

MOST_OPEN = 256
"""Default limit of open connections to one `Listen`.

Its process needs descriptors for its store and for other workers too.
"""

MOST_UNFINISHED = 64 << 20
"""Limit of buffered bytes of incomplete lines, over all connections."""

_MOST_NOTES = 20

Clock = Callable[[], float]


class Socket:
    """Connects to `host`:`port` at worker 0 and reads lines until the peer closes.

    An epoch is `epoch_lines` lines or `epoch_seconds` seconds of `clock`. Lines are text in `encoding`, or
    bytes if that is None. The lines cannot be read again: `seek` to anywhere but where it stands raises
    SourceError, so recovery needs a region that logs them.

    >>> import socket, threading
    >>> server = socket.create_server(("127.0.0.1", 0))
    >>> def serve():
    ...     with server, server.accept()[0] as connection:
    ...         connection.sendall(b"to be\\nor not\\n")
    >>> threading.Thread(target=serve).start()
    >>> flow = falkirk.Dataflow()
    >>> lines = flow.source("lines", falkirk.Socket("127.0.0.1", server.getsockname()[1], epoch_lines=1)).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), ['to be']), ((1,), ['or not'])]
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
        """The connection, at worker 0.

        Looking up the host's name may block.
        """
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
        lines = ClientLines(self._name, connection, self._encoding, "Lines sent meanwhile are lost; start again.")
        return [LinePartition(self._name, lines, epochs, self._clock)]


class Listen:
    """Listens on `port` at worker 0 and reads lines of all connections.

    `port` 0 takes a free one: `address` tells which. Only this machine can connect, unless `host` says
    otherwise. With `connections=n` the input is over when n connections have come and gone; otherwise it goes
    on for good. Lines of one connection stay in order. Epochs, encoding and clock are as for `Socket`, and
    nothing can be read again either.

    A connection that breaks, ends within a line, or sends a line that is too long or not in the encoding is over: its
    lines before that count, what came of the next is dropped, and a note on standard error says so. Of more than
    `most_open` callers at a time the rest wait until one has gone; with `idle_seconds`, one who has sent no whole line for so
    long is hung up on, so that nobody keeps the others away by saying nothing.

    >>> import socket, threading
    >>> calls = falkirk.Listen(0, connections=1, epoch_lines=10)
    >>> def call():
    ...     with socket.create_connection(calls.address) as connection:
    ...         connection.sendall(b"hello\\n")
    >>> flow = falkirk.Dataflow()
    >>> lines = flow.source("calls", calls).inspect(print).capture("out")
    >>> threading.Timer(0.1, call).start()
    >>> result = falkirk.run(flow)
    hello
    """

    rereadable: ClassVar[bool] = False

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        connections: int | None = None,
        most_open: int = MOST_OPEN,
        idle_seconds: float | None = None,
        epoch_lines: int | None = None,
        epoch_seconds: float | None = None,
        encoding: str | None = "utf-8",
        clock: Clock = time.monotonic,
    ) -> None:
        self._name = f"{host}:{port}"
        self._bind = (host, whole(port, "port", 0, 65535))
        self._connections = None if connections is None else whole(connections, "connections")
        self._most_open = whole(most_open, "most_open")
        self._idle_seconds = None if idle_seconds is None else above_zero(idle_seconds, "idle_seconds")
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
        self.address = server.getsockname()[:2]
        epochs = LineEpochs(*self._epochs, self._name)
        lines = ServerLines(self._name, server, self._connections, self._encoding, self._most_open)
        lines.hang_up_on_idlers(self._idle_seconds, self._clock)
        return [LinePartition(self._name, lines, epochs, self._clock)]


class LinePartition:
    """Partition of lines from sockets, cut into epochs."""

    def __init__(self, name: str, lines: ClientLines | ServerLines, epochs: LineEpochs, clock: Clock) -> None:
        self.name = name
        self._lines = lines
        self._epochs = epochs
        self._clock = clock
        self._waiting: deque[str | bytes] = deque()

    def read(self) -> Chunk | Wait | End:
        """Read available lines or a new epoch, or a wait for either."""
        epoch = self._epochs.tick(self._clock())
        if epoch is not None:
            return Chunk(epoch, None, self._epochs.count)
        if not self._waiting:
            more = self._lines.receive()
            if more is None:
                return End()
            self._waiting.extend(more)
        if not self._waiting:
            times = (self._epochs.until_next(self._clock()), self._lines.until_idle())
            return Wait(min((each for each in times if each is not None), default=None), self._lines.fileno())
        epoch, lines, closes = self._epochs.cut(self._waiting)
        return Chunk(epoch, lines, self._epochs.count, closes)

    def seek(self, position: Position) -> None:
        """Check the position: any but the current one raises SourceError."""
        if (0 if position is None else position) != self._epochs.count:
            raise SourceError(
                f"{self.name}: lines from a socket cannot be read again (asked for line {position}, "
                f"{self._epochs.count} were read). Log what this source gives (log_outputs, or an eager or "
                "logging policy for its region)."
            )

    def ack(self, position: Position) -> None:
        """No-op: the protocol has no acknowledgements."""

    def close(self) -> None:
        """Close all sockets."""
        self._lines.close()


class ClientLines:
    """Lines of one connection; `broken` is the advice if it breaks."""

    def __init__(
        self, name: str, connection: socket.socket, encoding: str | None, broken: str = "Only this connection is over."
    ) -> None:
        self.name = name
        self._broken = broken
        self._connection = connection
        self._buffer = LineBuffer(name, encoding)
        self._over = False

    def fileno(self) -> int:
        """File descriptor to wait on."""
        return self._connection.fileno()

    def until_idle(self) -> float | None:
        """None: the sender is never disconnected for idling."""
        return None

    @property
    def waiting(self) -> int:
        """Bytes of the incomplete line."""
        return self._buffer.waiting

    @property
    def wrong(self) -> SourceError | None:
        """Known error of the next `receive`, if any."""
        return self._buffer.wrong

    def receive(self, most: int = _RECEIVE) -> Sequence[str | bytes] | None:
        """Lines received so far, maybe none; None after the end of the connection.

        Raises SourceError when it broke, or sent an invalid line.

        Raises SourceError when it broke, or said what it must not.
        """
        if self._over:
            return None
        if self.wrong is not None:
            raise self.wrong
        try:
            data = self._connection.recv(most)
        except BlockingIOError:
            return []
        except ConnectionRefusedError as error:
            raise SourceError(f"{self.name}: nobody listens there. Start the sender first.") from error
        except OSError as error:
            raise SourceError(
                f"{self.name}: the connection broke: {error.strerror or error}. {self._broken}"
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
    """Lines of all accepted connections."""

    def __init__(
        self, name: str, server: socket.socket, expected: int | None, encoding: str | None, most_open: int = MOST_OPEN
    ) -> None:
        self._name = name
        self._acceptor = Acceptor(server)
        self._expected = expected
        self._encoding = encoding
        self._most_open = most_open
        self._accepted = 0
        self._notes = 0
        self._open: dict[socket.socket, ClientLines] = {}
        self._idle_seconds: float | None = None
        self._clock: Clock = time.monotonic
        self._last_data: dict[socket.socket, float] = {}
        """Time of each connection's last line or arrival, longest idle first."""
        # A selector has a descriptor of its own, readable when any of its sockets is.
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)
        self._accepting = True

    def fileno(self) -> int | None:
        """File descriptor to wait on; None if the system's selector has none."""
        descriptor = getattr(self._selector, "fileno", None)
        return None if descriptor is None else int(descriptor())

    def hang_up_on_idlers(self, seconds: float | None, clock: Clock) -> None:
        """Set the idle timeout for connections without a whole line; None: no timeout."""
        self._idle_seconds, self._clock = seconds, clock

    def until_idle(self) -> float | None:
        """Seconds until the next idle timeout; None if there is none."""
        if self._idle_seconds is None or not self._last_data:
            return None
        return max(0.0, next(iter(self._last_data.values())) + self._idle_seconds - self._clock())

    def receive(self) -> Sequence[str | bytes] | None:
        """Lines received on any connection; None after the last expected connection."""
        lines: list[str | bytes] = []
        most = max(_LEAST, _RECEIVE // max(1, len(self._open)))
        for key, _ in self._selector.select(timeout=0):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is self._acceptor.listener:
                self._accept()
            elif connection in self._open:
                more = self._receive(connection, most)
                if more and connection in self._open:
                    del self._last_data[connection]
                    self._last_data[connection] = self._clock()
                lines.extend(more)
        while self.until_idle() == 0.0:
            idler = next(iter(self._last_data))
            self._note(
                f"{self._open[idler].name}: no line has come for {self._idle_seconds:g} s; the connection is over."
            )
            self._hang_up(idler)
        if not lines and self._accepted == self._expected and not self._open:
            return None
        return lines

    def _receive(self, connection: socket.socket, most: int) -> Sequence[str | bytes]:
        client = self._open[connection]
        wrong: SourceError | None
        try:
            more = client.receive(most)
            wrong = client.wrong
        except SourceError as error:
            more, wrong = None, error
        if wrong is not None:
            self._note(str(wrong))
        if more is None or wrong is not None:
            self._hang_up(connection)
            return more or ()
        while sum(each.waiting for each in self._open.values()) > MOST_UNFINISHED:
            longest = max(self._open, key=lambda sock: self._open[sock].waiting)
            self._note(
                f"{self._name}: {len(self._open)} connections have sent {MOST_UNFINISHED >> 20} MiB of lines without an end; "
                "the one with the longest is over."
            )
            self._hang_up(longest)
        return more

    def _hang_up(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._last_data[connection]
        self._open.pop(connection).close()
        if not self._accepting and self._accepted != self._expected:
            self._accepting = True
            self._selector.register(self._acceptor.listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        found = self._acceptor.accept()
        if found is None:
            return
        connection, peer = found
        connection.setblocking(False)
        self._accepted += 1
        who = f"{self._name}, connection {self._accepted} from {peer[0]}:{peer[1]}"
        self._open[connection] = ClientLines(who, connection, self._encoding)
        self._last_data[connection] = self._clock()
        self._selector.register(connection, selectors.EVENT_READ)
        over = self._accepted == self._expected
        if over or len(self._open) >= self._most_open:
            self._accepting = False
            self._selector.unregister(self._acceptor.listener)
        if over:
            self._acceptor.close()

    def _note(self, text: str) -> None:
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            print(f"note: {text}", file=sys.stderr)
        if self._notes == _MOST_NOTES:
            print(f"note: {self._name}: no more is said of connections that end like these", file=sys.stderr)

    def close(self) -> None:
        """Close the listening socket and all connections."""
        self._selector.close()
        for lines in self._open.values():
            lines.close()
        self._open.clear()
        self._last_data.clear()
        self._acceptor.close()
