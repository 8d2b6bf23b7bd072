"""The monitor's connections to workers."""

from __future__ import annotations

import selectors
import socket
from contextlib import suppress

from recovery.child_control import cut, frame
from recovery.greeting import Greeting, tune
from recovery.protocol import Join, ToMonitor, ToWorker, decode_to_monitor, encode_message
from timely.errors import ProtocolError

_CHUNK = 1 << 18


class _Connection:
    __slots__ = ("buffer", "greeting", "incarnation", "out", "sock", "worker")

    def __init__(self, sock: socket.socket, token: bytes) -> None:
        self.sock = sock
        self.greeting: Greeting | None = Greeting(token) if token else None
        """Nothing that it says counts before."""
        self.worker = -1
        """Not known before it joins."""
        self.incarnation = -1
        self.buffer = bytearray()
        self.out = bytearray()


class WorkerConnections:
    """Connections that workers make to `listener`, a listening socket; with `token`, only of those who know it."""

    def __init__(self, selector: selectors.BaseSelector, listener: socket.socket, token: bytes = b"") -> None:
        self._selector = selector
        self._token = token
        self._listener = listener
        self._newest: dict[int, _Connection] = {}
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def send(self, worker: int, message: ToWorker) -> None:
        """A message for the process of a worker that was heard last; dropped if that is gone."""
        connection = self._newest.get(worker)
        if connection is not None:
            connection.out += frame(encode_message(message))
            self._push(connection)

    def send_all(self, message: ToWorker) -> None:
        """A message for every worker that is connected."""
        for worker in list(self._newest):
            self.send(worker, message)

    def close(self) -> None:
        """Close all connections; workers make new ones, to whoever listens next."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.data is not None and key.fileobj is not self._listener:
                key.fileobj.close()

    def _accept(self, events: int) -> list[tuple[ToMonitor, int]]:
        with suppress(BlockingIOError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                tune(sock)
            connection = _Connection(sock, self._token)
            self._selector.register(sock, selectors.EVENT_READ, lambda events: self._serve(connection, events))
        return []

    def _serve(self, connection: _Connection, events: int) -> list[tuple[ToMonitor, int]]:
        """What has come, with the incarnation of the sender."""
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
        ended = False
        try:
            while data := connection.sock.recv(_CHUNK):
                connection.buffer += data
            ended = True
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        heard = []
        for data in cut(connection.buffer):
            try:
                message = decode_to_monitor(data)
            except ProtocolError:
                if connection.worker >= 0:
                    raise
                self._forget(connection)  # nobody whom this job knows
                return []
            if isinstance(message, Join):
                connection.worker, connection.incarnation = message.worker, message.incarnation
                newest = self._newest.get(message.worker)
                if newest is None or newest.incarnation <= message.incarnation:
                    self._newest[message.worker] = connection
            heard.append((message, connection.incarnation))
        if ended:
            self._forget(connection)
        return heard

    def _forget(self, connection: _Connection) -> None:
        self._selector.unregister(connection.sock)
        connection.sock.close()
        if self._newest.get(connection.worker) is connection:
            del self._newest[connection.worker]

    def _push(self, connection: _Connection) -> None:
        waited = self._selector.get_key(connection.sock).events & selectors.EVENT_WRITE
        try:
            while connection.out:
                sent = connection.sock.send(connection.out)
                del connection.out[:sent]
        except BlockingIOError:
            pass
        except OSError:  # gone: its end is read
            connection.out.clear()
        if bool(waited) != bool(connection.out):
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
            data = self._selector.get_key(connection.sock).data
            self._selector.modify(connection.sock, events, data)
