"""TCP connections between the processes of one job, begun with a shared secret.

A unix socket in a private folder needs none. Over a network, the secret keeps strangers out who can reach the port;
it does not encrypt the connection.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from contextlib import suppress
from typing import Generic, TypeVar

TOKEN_BYTES = 32

MOST_STRANGERS = 64
"""Maximum number of connections without a valid secret so far."""

GREETING_SECONDS = 10.0
"""Seconds for the secret to arrive: it is sent at once."""

_CONNECT_SECONDS = 5.0
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 5, 2, 4


def new_token() -> bytes:
    """Secret for one job."""
    return secrets.token_bytes(TOKEN_BYTES)


def listen(host: str) -> socket.socket:
    """TCP socket listening at `host`, at a free port.

    Raises OSError if this is not our address.
    """
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=128)


def connect(address: tuple[str, int]) -> socket.socket:
    """TCP connection with small delays and detection of a lost host.

    Raises OSError.
    """
    sock = socket.create_connection(address, _CONNECT_SECONDS)
    sock.settimeout(None)
    tune(sock)
    return sock


def tune(sock: socket.socket) -> None:
    """Set the options of either end: no delay, and keep-alive probes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with suppress(AttributeError, OSError):  # not everywhere; then the system's patience counts
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


class Greeting:
    """Check of the shared secret on one connection."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._data = bytearray()

    def hear(self, sock: socket.socket) -> bool | None:
        """Receive the secret: True if it is right, False if wrong, None if incomplete.

        Never blocks, and takes nothing behind it.
        """
        while len(self._data) < len(self._token):
            try:
                data = sock.recv(len(self._token) - len(self._data), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                return False
            if not data:
                return False
            self._data += data
        return hmac.compare_digest(bytes(self._data), self._token)


Key = TypeVar("Key")


class Strangers(Generic[Key]):
    """Unauthenticated connections: limited in number and time.

    Their owner closes them.
    """

    def __init__(self, most: int = MOST_STRANGERS) -> None:
        self._most = most
        self._since: dict[Key, float] = {}

    def come(self, one: Key, now: float) -> list[Key]:
        """Add a connection; returns the oldest ones beyond the limit, to be closed."""
        self._since[one] = now
        return self._drop([each for each, _ in zip(self._since, range(len(self._since) - self._most))])

    def know(self, one: Key) -> None:
        """Remove a connection: authenticated, or closed."""
        self._since.pop(one, None)

    def overdue(self, now: float) -> list[Key]:
        """Remove and return connections out of time."""
        return self._drop([each for each, since in self._since.items() if now >= since + GREETING_SECONDS])

    def _drop(self, those: list[Key]) -> list[Key]:
        for each in those:
            del self._since[each]
        return those
