"""ZeroMQ sockets between workers: encrypted, authenticated, with heartbeats.

They have no limits, which would drop messages.

A worker listens with one PULL socket and reaches each other worker with a PUSH socket. CURVE proves both ends: who
connects must hold a secret key whose public half is in the host file, and who listens the one that belongs to it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zmq
from zmq.utils import z85

from recovery.place import Place
from timely.errors import FalkirkError

ADVICE = "all workers must use copies of one host file, and each its own secret key"


@dataclass(frozen=True, slots=True)
class Timing:
    """Time limits of a link, in seconds.

    `meet`: until all workers have met. `silence`: a worker that answers no heartbeat for so long is lost; the others
    stop at most 1.2 * silence + last_words after its last sign of life. `last_words`: how long a broken connection waits
    for the other side's reason before it counts as lost, and how long our own reason has to get through. `goodbye`: how
    long a worker that is done waits for the others to be done too.
    """

    meet: float = 60.0
    silence: float = 10.0
    last_words: float = 1.0
    goodbye: float = 10.0


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys in Z85: this process's secret key, and all public keys by place."""

    secret: str
    public: Mapping[Place, str]


class Gate:
    """Authenticator of connections: ZeroMQ's handler for handshakes (ZAP, RFC 27).

    It must exist before anything listens in its context: without one, ZeroMQ lets everybody in.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys | None, say: Callable[[str], None]) -> None:
        self._known = frozenset(keys.public.values() if keys else ())
        self._say = say
        self._refused: set[str] = set()
        self.sock = context.socket(zmq.REP)
        self.sock.bind("inproc://zeromq.zap.01")

    def answer(self) -> None:
        """Answer one pending authentication request."""
        version, request, _, address, _, mechanism, *credentials = self.sock.recv_multipart()
        key = z85.encode(credentials[0]) if mechanism == b"CURVE" else b""
        known = key.decode() in self._known
        status = [b"200", b"OK", key] if known else [b"400", b"unknown key", b""]
        self.sock.send_multipart([version, request, *status, b""])
        host = address.decode()
        if not known and host not in self._refused:
            self._refused.add(host)
            self._say(f"refused a connection from {host}: its key is not in the host file")


class Maker:
    """Factory of the sockets of the process at `place`."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], place: Place, keys: Keys | None, timing: Timing, ipv6: bool
    ) -> None:
        self._context = context
        self._place = place
        self._keys = keys
        self._timing = timing
        self._ipv6 = ipv6

    def listen(self, address: str, listener: socket.socket | None = None) -> zmq.Socket[bytes]:
        """PULL socket listening at `address`, on the socket `listener` if one is given.

        Raises FalkirkError when this host has no such address or the port is taken.
        """
        pull = self._socket(zmq.PULL)
        if listener is not None:
            pull.setsockopt(zmq.USE_FD, listener.detach())
        if self._keys is not None:
            pull.curve_server = True
            pull.zap_domain = b"falkirk"
        try:
            pull.bind(_interface(address))
        except (zmq.ZMQError, OSError) as error:
            raise FalkirkError(
                f"{self._place} cannot listen at {address}: {error}; give it an address of this host and a free "
                "port (and `bind` in the host file, if others reach it by another address)"
            ) from error
        return pull

    def connect(self, place: Place, address: str) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        """PUSH socket to `place`, and a socket for the events of its connection.

        It connects as soon as that process listens.
        """
        push = self._socket(zmq.PUSH)
        if self._keys is not None:
            push.curve_serverkey = self._keys.public[place].encode()
        push.connect_timeout = 3000
        push.reconnect_ivl = 50
        push.reconnect_ivl_max = 200
        monitor = push.get_monitor_socket()  # before it connects, which may be done at once
        try:
            push.connect(address)
        except zmq.ZMQError as error:
            raise FalkirkError(f"the address {address} of {place} cannot be used: {error}") from error
        return push, monitor

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        sock = self._context.socket(kind)
        sock.ipv6 = self._ipv6
        sock.sndhwm = sock.rcvhwm = 0
        sock.handshake_ivl = 10_000
        silence = int(self._timing.silence * 1000)
        sock.heartbeat_ivl = silence // 5
        sock.heartbeat_timeout = sock.heartbeat_ttl = silence
        if self._keys is not None:
            sock.curve_secretkey = self._keys.secret.encode()
            sock.curve_publickey = self._keys.public[self._place].encode()
        return sock


def _interface(address: str) -> str:
    """Address with its host name resolved: ZeroMQ listens at numbers only."""
    if not address.startswith("tcp://"):
        return address
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if host == "*":
        return address
    number = str(socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0][4][0])
    return f"tcp://[{number}]:{port}" if ":" in number else f"tcp://{number}:{port}"
