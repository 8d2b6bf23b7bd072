"""Spark daemon of a job: owns Java or server sessions, forks a client per worker.

It is `python -m libraries.spark.daemon.daemon`, or forked. `libraries.spark.host.daemon_connection` starts it, and nobody else.

    worker ── client, which the daemon has forked for it ── Java, which the daemon has started, or a server elsewhere

Java takes long to start, so it outlives those who use it: a worker that is killed, and the client by which it speaks to Java.
Who connects to the daemon's socket is given a client: a fork of the daemon, that has PySpark imported, and so is there in
milliseconds. When a Java has died that somebody used, another one is started at once; with a *spare* there is one by then.

On a Spark Connect server a client has sessions. It tells the daemon of each before it opens it, and the daemon knows its id. So
when a client has ended, in whatever way, the daemon has another one release them: what ran in them ends on the server. No
client is told of the server until that is done.

The daemon ends with the job. Nobody who is killed can tell it, so it looks: the owner of the folder with its socket holds
a lock, and the system lets go of a lock when its process ends. Java ends with the daemon, which holds its standard input open.
The folder is open to this user only. For Java's own port a secret is needed, that the daemon and its clients know.
"""

from __future__ import annotations

import fcntl
import gc
import math
import os
import random
import select
import signal
import socket
import sys
import time
import uuid
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import msgspec

from libraries.spark.daemon.owned import Owned, OwnedJava, OwnedSail, ServerSessions, end_of
from libraries.spark.protocol import (
    ASKS,
    END,
    LEAVE,
    OPENS,
    SERVE,
    SETTLED,
    FromDaemon,
    JavaOrders,
    Orders,
    PrintedText,
    SailOrders,
    encode,
)
from runtime.control import frame

CLIENT = "libraries.spark.client.client"
NAME, CLIENT_NAME = "Spark daemon", "Spark client"
"""Process names for the operating system, of at most 15 characters."""
_CONNECT = "libraries.spark.client.connect_access"

_TICK_SECONDS = 0.25
"""Seconds between two checks for the end of the job.

No descriptor tells of that.
"""

_SHORT_SECONDS = 0.02
"""Seconds between two checks while Java starts or a client's buffer is full.

Also where no descriptor tells more.
"""

_SHOW_SECONDS = 0.5
_CHUNK = 1 << 16
_RELEASE_SECONDS = 5.0
"""Seconds to release the last sessions on a server, after the end of the job."""

_SPARE_SECONDS = 3.0
"""Seconds between the first session and the start of a spare Java.

Both at once would take twice as long.
"""


@dataclass(eq=False, slots=True)
class _Client:
    """Forked client process, and the connection for messages to it."""

    pid: int
    news: socket.socket
    ended: int | None
    """Descriptor, readable after its end; None if the system has none."""
    spark: Owned
    root: str
    sessions: int = 0
    """Number of sessions it has opened on a server."""
    knows: bool = False
    """True once the address of its Spark was sent."""
    bereft: bool = False
    """True once the end of its Spark was reported to it."""
    cleans: bool = False
    """True for a process to clean up after another one."""
    serves: bool = False
    """True for the client process of a worker."""
    unsent: bytearray = field(default_factory=bytearray)

    def tell(self, *messages: FromDaemon) -> None:
        """Send messages without blocking; unsent bytes are buffered."""
        for message in messages:
            self.unsent += frame(encode(message))
        with suppress(OSError):
            while self.unsent:
                del self.unsent[: self.news.send(self.unsent)]

    def receive(self) -> bytes:
        """Bytes received from it; empty at its end, BlockingIOError if nothing has come."""
        data = self.news.recv(64)
        self.sessions += data.count(OPENS)
        return data

    def let_go(self) -> None:
        """Close this side of its files."""
        self.news.close()
        if self.ended is not None:
            os.close(self.ended)


class Daemon:
    """Spark daemon: owns Spark and forks client processes.

    `lock` is the file by which no other daemon has this address.
    """

    def __init__(self, orders: Orders, lock: int) -> None:
        self._orders = orders
        self._lock = lock
        self._owner = os.open(orders.owner, os.O_RDONLY | os.O_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Path(orders.address).unlink(missing_ok=True)  # of one that was killed
        self._listener.bind(orders.address)
        self._listener.listen(64)
        self._asking: list[socket.socket] = []
        """Connections without a request so far."""
        self._clients: list[_Client] = []
        self._spark = self._begun()
        self._spare: Owned | None = None
        self._spare_at = math.inf
        """Time for the start of a spare Java."""
        self._shown = 0.0
        self._wanted = True
        import_module(CLIENT)  # while Java starts
        if not isinstance(orders.what, JavaOrders):
            import_module(_CONNECT)
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Serve until the job is over."""
        while self._wanted and not self._over():
            files: list[socket.socket | int] = [
                self._listener,
                *self._asking,
                *(client.news for client in self._clients),
            ]
            files += [file for spark in self._sparks() for file in spark.files]
            files += [client.ended for client in self._clients if client.ended is not None]
            for each in select.select(files, [], [], self._patience())[0]:
                if isinstance(each, int):
                    continue  # all that it may tell of is looked at below
                self._hear(each)
                if not self._wanted:
                    return
            for client in list(self._clients):
                if os.waitpid(client.pid, os.WNOHANG) != (0, 0):
                    self._bury(client)
            self._look()

    def close(self) -> None:
        """End all client processes and Spark; repeatable."""
        self._listener.close()
        for client in [client for client in self._clients if not client.cleans]:
            self._end(client)
        deadline = time.monotonic() + _RELEASE_SECONDS
        while self._clients:  # those who clean up
            for client in list(self._clients):
                if time.monotonic() > deadline:
                    os.kill(client.pid, signal.SIGKILL)
                if os.waitpid(client.pid, os.WNOHANG) != (0, 0):
                    self._clients.remove(client)
            time.sleep(_SHORT_SECONDS / 2)
        for spark in self._sparks():
            spark.end()
        for name in (self._orders.address, f"{self._orders.address}.lock", f"{self._orders.address}.log"):
            Path(name).unlink(missing_ok=True)
        with suppress(OSError):  # its owner was killed
            os.rmdir(os.path.dirname(self._orders.address))

    def _patience(self) -> float:
        """Seconds to wait for a descriptor before the next check."""
        awaited = any(spark.starts for spark in self._sparks())
        awaited |= any(client.unsent or client.ended is None for client in self._clients)
        return _SHORT_SECONDS if awaited else _TICK_SECONDS

    def _over(self) -> bool:
        try:
            fcntl.flock(self._owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # there are no locks here
            return not os.path.exists(self._orders.owner)
        return True

    def _begun(self) -> Owned:
        match self._orders.what:
            case JavaOrders() as java:
                return OwnedJava(java)
            case SailOrders() as sail:
                return OwnedSail(sail)
            case server:
                return ServerSessions(server)

    def _sparks(self) -> list[Owned]:
        return [self._spark] if self._spare is None else [self._spark, self._spare]

    def _end(self, client: _Client) -> None:
        with suppress(OSError):
            os.kill(client.pid, signal.SIGKILL)
            os.waitpid(client.pid, 0)
        self._bury(client)

    def _bury(self, client: _Client) -> None:
        """Forget a dead client process, and fork another one to clean up after it."""
        with suppress(OSError):
            while client.receive():
                pass
        client.let_go()
        self._clients.remove(client)
        farewell = client.spark.farewell(client.root, client.sessions)
        if farewell is not None:
            self._fork(None, farewell)

    def _hear(self, each: socket.socket) -> None:
        """Handle a connection, a request, or a message from a client process."""
        if each is self._listener:
            self._asking.append(self._listener.accept()[0])
        elif each in self._asking:
            self._asking.remove(each)
            with each:
                wanted = each.recv(1)
                if wanted == SERVE:
                    self._fork(each)
                elif wanted == END:
                    self._spark.end()
                elif wanted == LEAVE:
                    self._wanted = False
                    self.close()  # before the connection, by whose end that is known
        else:
            client = next((client for client in self._clients if client.news is each), None)
            if client is None:  # it was ended a moment ago
                return
            with suppress(OSError):
                data = client.receive()
                what = self._orders.what
                if SETTLED in data and isinstance(what, JavaOrders) and what.spare and self._spare is None:
                    self._spare_at = time.monotonic() + _SPARE_SECONDS
                if ASKS in data:
                    client.spark.look()
                    client.tell(PrintedText(client.spark.printed.last_lines, kept=True))
                elif not data:
                    os.kill(client.pid, signal.SIGKILL)  # it closes this only by its end

    def _look(self) -> None:
        """Send client processes the state of their Spark, and its output."""
        lived = not self._spark.ended
        cleaning = any(client.cleans for client in self._clients)  # what others had a server do may not be over yet
        for spark in self._sparks():
            spark.look()
        show = time.monotonic() > self._shown + _SHOW_SECONDS
        if show:
            self._shown = time.monotonic()
        printed = self._spark.printed.take() if show else ""
        for client in self._clients:
            spark = client.spark
            if not (client.knows or cleaning) and (greeting := spark.greeting(client.root)) is not None:
                client.knows = True
                client.tell(greeting)
            if printed and spark is self._spark and len(client.unsent) < _CHUNK:  # who does not read misses something
                client.tell(PrintedText(printed, kept=False))
            if spark.ended and not client.bereft:
                client.bereft = True
                client.tell(PrintedText(spark.printed.last_lines, kept=True), spark.how_it_ended())
            client.tell()
        if (
            lived
            and self._spark.ended
            and any(client.knows and client.spark is self._spark for client in self._clients)
        ):
            self._replace()
        if self._spare is not None and self._spare.ended:
            self._spare.clear()
            self._spare = None  # it is not tried again before it is needed
        if self._spare is None and time.monotonic() > self._spare_at:
            self._spare_at = math.inf
            self._spare = self._spark.again()
            self._fork(None)

    def _replace(self) -> None:
        """Replace an ended Java, by the spare one if there is one."""
        ended = self._spark
        self._spark = self._spare if self._spare is not None and not self._spare.ended else ended.again()
        self._spare = None
        ended.clear()  # last, as it takes its time

    def _fork(self, connection: socket.socket | None, farewell: FromDaemon | None = None) -> None:
        """Fork a process: a worker's client, or, without a connection, a helper.

        It cleans up after another one, or has the spare Java open a session. With a connection it is the only one that has
        one, and that uses this Spark: the worker of a former one is gone, and that may be at a standstill, and go on beside it.
        """
        for each in self._sparks():
            each.look()
        if connection is not None and self._spark.ended:
            self._replace()
        if connection is not None:
            for former in [client for client in self._clients if client.serves or client.spark is self._spark]:
                if not former.cleans:
                    self._end(former)
        spares = connection is None and farewell is None and self._spare is not None
        spark = self._spare if spares and self._spare is not None else self._spark
        mine, theirs = socket.socketpair()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of threads, which libraries have, and which mind forks
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                mine.close()
                self._become_client(spark)
                code = import_module(CLIENT).main(connection, theirs)
            finally:
                os._exit(code)
        theirs.close()
        mine.setblocking(False)
        client = _Client(pid, mine, end_of(pid), spark, str(uuid.uuid4()), serves=connection is not None)
        self._clients.append(client)
        if farewell is not None:
            client.knows = client.bereft = client.cleans = True
            client.tell(farewell)

    def _become_client(self, spark: Owned) -> None:
        """Close the daemon's own files in the client.

        By some of them the end of the daemon is known.
        """
        _take_name(CLIENT_NAME)
        if not spark.ended:
            for standard in (1, 2):
                os.dup2(spark.input, standard)
        os.close(self._lock)
        os.close(self._owner)
        for each in (self._listener, *self._asking):
            each.close()
        for client in self._clients:
            client.let_go()
        for spark in self._sparks():
            if not spark.ended:
                spark.let_go()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        random.seed()
        import_module("numpy").random.seed()


def _take_name(name: str) -> None:
    """Set the process name, for system tools and `falkirk doctor --run`."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def main() -> int:
    """Run the Spark daemon of a job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which this process ends with
    _take_name(NAME)
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in path if place and place not in sys.path]  # a fork has that of its server
    orders = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Orders)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, orders.nice)
    lock = os.open(f"{orders.address}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another one is there
    daemon = Daemon(orders, lock)
    try:
        daemon.serve()
    finally:
        daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
