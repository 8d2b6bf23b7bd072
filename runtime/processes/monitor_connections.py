"""Monitor's connections to workers; bad input on one ends that connection only."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

from recovery.place import Place
from recovery.protocol import Join, ToMonitor, ToWorker, decode_to_monitor, encode_message
from runtime.control import cut, frame, put_out, take_in
from runtime.processes.greeting import MOST_STRANGERS, Greeting, Strangers, tune
from timely.errors import ProtocolError
from timely.io.acceptor import Acceptor


class _Connection:
    __slots__ = ("buffer", "greeting", "incarnation", "out", "place", "sock")

    def __init__(self, sock: socket.socket, token: bytes) -> None:
        self.sock = sock
        self.greeting: Greeting | None = Greeting(token) if token else None
        """Check of the secret, before any message counts; None after it."""
        self.place: Place | None = None
        """Place of the process; None until it joins."""
        self.incarnation = -1
        self.buffer = bytearray()
        self.out = bytearray()


class WorkerConnections:
    """Connections of workers' processes to the monitor, accepted at `listener`.

    With `token`, only of those that know it.

    Args:
        token: "" where only processes of this user get through.
        processes: how many there are.
        say: gets what the user should know.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        token: bytes = b"",
        processes: int = 0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._selector = selector
        self._token = token
        self._say = say
        self._acceptor = Acceptor(listener)
        self._newest: dict[Place, _Connection] = {}
        """Connection of the newest process at each place."""
        self._unjoined: Strangers[_Connection] = Strangers(MOST_STRANGERS + processes)
        """Connections before `Join`: a process reads its journal first, for any time."""
        self._ungreeted: Strangers[_Connection] = Strangers(MOST_STRANGERS + processes)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def send(self, place: Place, message: ToWorker) -> None:
        """Send a message to the newest process at a place; dropped if there is none."""
        connection = self._newest.get(place)
        if connection is not None:
            connection.out += frame(encode_message(message))
            self._push(connection)

    def send_all(self, message: ToWorker) -> None:
        """Send a message to every connected process."""
        for place in list(self._newest):
            self.send(place, message)

    def close(self) -> None:
        """Close all connections; workers connect again, to the next monitor."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.data is not None:
                key.fileobj.close()
        self._acceptor.close()

    def tick(self) -> None:
        """Close connections without the secret in time."""
        for late in self._ungreeted.overdue(time.monotonic()):
            self._forget(late)

    def _accept(self, events: int) -> list[tuple[ToMonitor, int]]:
        found = self._acceptor.accept()
        if found is not None:
            sock, _ = found
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                tune(sock)
            connection = _Connection(sock, self._token)
            self._selector.register(sock, selectors.EVENT_READ, lambda events: self._serve(connection, events))
            now = time.monotonic()
            if self._token:
                self._ungreeted.come(connection, now)
            for oldest in self._unjoined.come(connection, now):
                self._forget(oldest)
        return []

    def _serve(self, connection: _Connection, events: int) -> list[tuple[ToMonitor, int]]:
        """Messages received on a connection, with the sender's incarnation."""
        if connection.sock.fileno() < 0:  # hung up on since it was found ready
            return []
        if events & selectors.EVENT_WRITE:
            self._push(connection)
        if not events & selectors.EVENT_READ:
            return []
        if connection.greeting is not None:
            known = connection.greeting.hear(connection.sock)
            if known is None:
                return []
            if not known:
                self._forget(connection)
                return []
            connection.greeting = None
            self._ungreeted.know(connection)
        ended = not take_in(connection.sock, connection.buffer)
        received = []
        for data in cut(connection.buffer):
            try:
                message = decode_to_monitor(data)
            except ProtocolError as error:
                who = "somebody" if connection.place is None else str(connection.place)
                self._say(f"{who} said to the monitor what is no message, and was hung up on: {error}")
                ended = True
                break
            if isinstance(message, Join):
                connection.place, connection.incarnation = message.place, message.incarnation
                self._unjoined.know(connection)
                newest = self._newest.get(message.place)
                if newest is None or newest.incarnation <= message.incarnation:
                    self._newest[message.place] = connection
            received.append((message, connection.incarnation))
        if ended:
            self._forget(connection)
        return received

    def _forget(self, connection: _Connection) -> None:
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._ungreeted.know(connection)
        self._unjoined.know(connection)
        if connection.place is not None and self._newest.get(connection.place) is connection:
            del self._newest[connection.place]

    def _push(self, connection: _Connection) -> None:
        waited = self._selector.get_key(connection.sock).events & selectors.EVENT_WRITE
        if not put_out(connection.sock, connection.out):  # gone: its end is read
            connection.out.clear()
        if bool(waited) != bool(connection.out):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
            data = self._selector.get_key(connection.sock).data
            self._selector.modify(connection.sock, events, data)
