"""Connections over TCP between the processes of one job: whoever connects says a secret first.

A unix socket in a private folder needs none. Over a network, the secret keeps strangers out who can reach the port; it does
not hide what is said from who can read the network.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from contextlib import suppress
from typing import Generic, TypeVar

TOKEN_BYTES = 32

MOST_STRANGERS = 64
"""Connections at a time whose other side has not said who it is."""

GREETING_SECONDS = 10.0
"""Seconds that the secret may take to come: it is said at once, by who knows it."""

_CONNECT_SECONDS = 5.0
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 5, 2, 4


def new_token() -> bytes:
    """A secret for one job."""
    return secrets.token_bytes(TOKEN_BYTES)


def listen(host: str) -> socket.socket:
    """A TCP socket that listens at `host`, at a port that the system chooses. Raises OSError if this is not our address."""
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=128)


def connect(address: tuple[str, int]) -> socket.socket:
    """A connection over which small messages go at once, and which notices a host that is gone. Raises OSError."""
    sock = socket.create_connection(address, _CONNECT_SECONDS)
    sock.settimeout(None)
    tune(sock)
    return sock


def tune(sock: socket.socket) -> None:
    """For either end of such a connection."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with suppress(AttributeError, OSError):  # not everywhere; then the system's patience counts
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


class Greeting:
    """Waits for the secret on one connection."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._said = bytearray()

    def hear(self, sock: socket.socket) -> bool | None:
        """True if who is there may come in; None while that is not known yet. Never blocks, and takes nothing behind it."""
        while len(self._said) < len(self._token):
            try:
                data = sock.recv(len(self._token) - len(self._said), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                return False
            if not data:
                return False
            self._said += data
        return hmac.compare_digest(bytes(self._said), self._token)


Key = TypeVar("Key")


class Strangers(Generic[Key]):
    """Connections whose other side has not said who it is: a few, and not for long. Their owner closes them."""

    def __init__(self, most: int = MOST_STRANGERS) -> None:
        self._most = most
        self._since: dict[Key, float] = {}

    def come(self, one: Key, now: float) -> list[Key]:
        """Another one; those who have to go for it, the longest there first: who belongs here has long said so."""
        self._since[one] = now
        return self._drop([each for each, _ in zip(self._since, range(len(self._since) - self._most))])

    def know(self, one: Key) -> None:
        """It is a stranger no more, or has gone."""
        self._since.pop(one, None)

    def overdue(self, now: float) -> list[Key]:
        """Those who have had their time."""
        return self._drop([each for each, since in self._since.items() if now >= since + GREETING_SECONDS])

    def _drop(self, those: list[Key]) -> list[Key]:
        for each in those:
            del self._since[each]
        return those
