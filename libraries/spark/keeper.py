"""The keeper of Spark's Java: `python -m libraries.spark.keeper`, started by `libraries.spark.host` and by nobody else.

    worker ── child, which the keeper has forked for it ── Java, which the keeper has started

Java takes long to start, so it outlives those who use it: a worker that is killed, and the child by which it speaks to Java.
Who connects to the keeper's socket is given a child: a fork of the keeper, that has PySpark imported, and so is there in
milliseconds. When Java has died, the next one who connects has it started anew. With a *spare* another one is there by then.

The keeper ends with the job. Nobody who is killed can tell it, so it looks: the owner of the folder with its socket holds
a lock, and the system lets go of a lock when its process ends. Java ends with the keeper, which holds its standard input open.
The folder is open to this user only. For Java's own port a secret is needed, that the keeper and its children know.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec

from libraries.spark.java import Java, home_for_spark
from libraries.spark.printed import Printed
from libraries.spark.protocol import (
    END,
    FOLDER,
    LEAVE,
    SERVE,
    FromKeeper,
    JavaEnded,
    JavaUp,
    Orders,
    PrintedText,
    encode,
)
from runtime.control import frame
from runtime.scratch import Scratch

CHILD = "libraries.spark.child"

_TICK_SECONDS = 0.05
_SHOW_SECONDS = 0.5
_CHUNK = 1 << 16
_PIPE_BYTES = 1 << 20


class _Java:
    """One Java with Spark in it, started as PySpark does it in `launch_gateway`."""

    def __init__(self, orders: Orders) -> None:
        self._scratch = Scratch("spark")
        folder = self._scratch.path
        self._gateway = folder / "gateway"
        self.printed = Printed()
        self._output, self.input = os.pipe()
        os.set_blocking(self._output, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.up: JavaUp | None = None
        self.used = False
        """True once a child was told of it."""
        self.ended = False
        settings = {name: value.replace(FOLDER, str(folder)) for name, value in orders.settings.items()}
        home = home_for_spark(Java(Path(orders.java_home), "", "", orders.vector), folder)
        spark = find_spec("pyspark")
        root = os.environ.get("SPARK_HOME") or os.path.dirname((spark and spark.origin) or "")
        told = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        self.process = subprocess.Popen(
            [f"{root}/bin/spark-submit", *told, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))],
            stdin=subprocess.PIPE,
            stdout=self.input,
            stderr=self.input,
            env=os.environ
            | {
                "JAVA_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._gateway),
            },
        )
        self._settings = settings

    def look(self) -> None:
        """Take in what was printed, whether it is up, and whether it has ended."""
        self._read()
        if self.up is None and self._gateway.exists():
            data = self._gateway.read_bytes()
            port, length = struct.unpack_from(">ii", data)
            self.up = JavaUp(self.process.pid, port, data[8 : 8 + length].decode(), self._settings)
            self._gateway.unlink()
        if not self.ended and self.process.poll() is not None:
            self._read()
            self.end()

    def end(self) -> None:
        """Kill it, unless it has ended, and take its files away."""
        if self.ended:
            return
        self.ended = True
        self.process.kill()
        self.process.wait()
        self.let_go()
        self._scratch.close()

    def let_go(self) -> None:
        """Close the ends of its files."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        os.close(self._output)
        os.close(self.input)

    def how_it_ended(self) -> str:
        """Its end, in words that follow its name."""
        code = self.process.returncode
        return f"was killed by signal {-code}" if code < 0 else f"has ended with code {code}"

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while not self.ended and (data := os.read(self._output, _CHUNK)):
                self.printed.add(data)


@dataclass(eq=False, slots=True)
class _Child:
    """A child of the keeper's, and the connection by which it hears of its Java."""

    pid: int
    news: socket.socket
    java: _Java
    knows: bool = False
    """True once it was told where its Java is."""
    bereft: bool = False
    """True once it was told that its Java has ended."""
    unsent: bytearray = field(default_factory=bytearray)

    def tell(self, *messages: FromKeeper) -> None:
        """Send what there is to be sent, as far as it is taken."""
        for message in messages:
            self.unsent += frame(encode(message))
        with suppress(OSError):
            while self.unsent:
                del self.unsent[: self.news.send(self.unsent)]


class Keeper:
    """Keeps Java, and forks children for those who connect. `lock` is the file by which no other keeper has this address."""

    def __init__(self, orders: Orders, lock: int) -> None:
        self._orders = orders
        self._lock = lock
        self._owner = os.open(orders.owner, os.O_RDONLY | os.O_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        Path(orders.address).unlink(missing_ok=True)  # of one that was killed
        self._listener.bind(orders.address)
        self._listener.listen(64)
        self._asking: list[socket.socket] = []
        """Connections whose first byte has not come."""
        self._children: list[_Child] = []
        self._java = _Java(orders)
        self._spare: _Java | None = None
        self._shown = 0.0
        self._wanted = True
        import_module(CHILD)  # while Java starts
        gc.collect()
        gc.freeze()

    def keep(self) -> None:
        """Do so until the job is over."""
        while self._wanted and not self._over():
            heard = [self._listener, *self._asking, *(child.news for child in self._children)]
            for each in select.select(heard, [], [], _TICK_SECONDS)[0]:
                self._hear(each)
                if not self._wanted:
                    return
            for child in list(self._children):
                if os.waitpid(child.pid, os.WNOHANG) != (0, 0):
                    child.news.close()
                    self._children.remove(child)
            self._look()

    def close(self) -> None:
        """End all. May be called again."""
        self._listener.close()
        for child in self._children:
            with suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)
        for java in self._javas():
            java.end()
        for name in (self._orders.address, f"{self._orders.address}.lock", f"{self._orders.address}.log"):
            Path(name).unlink(missing_ok=True)
        with suppress(OSError):  # its owner was killed
            os.rmdir(os.path.dirname(self._orders.address))

    def _over(self) -> bool:
        try:
            fcntl.flock(self._owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # there are no locks here
            return not os.path.exists(self._orders.owner)
        return True

    def _javas(self) -> list[_Java]:
        return [self._java] if self._spare is None else [self._java, self._spare]

    def _hear(self, each: socket.socket) -> None:
        """Somebody connects, says what it wants, or asks what was printed."""
        if each is self._listener:
            self._asking.append(self._listener.accept()[0])
        elif each in self._asking:
            self._asking.remove(each)
            with each:
                wanted = each.recv(1)
                if wanted == SERVE:
                    self._fork(each)
                elif wanted == END:
                    self._java.end()
                elif wanted == LEAVE:
                    self._wanted = False
                    self.close()  # before the connection, by whose end that is known
        else:
            child = next(child for child in self._children if child.news is each)
            with suppress(OSError):
                if each.recv(64):
                    child.java.look()
                    child.tell(PrintedText(child.java.printed.kept, kept=True))
                else:
                    os.kill(child.pid, signal.SIGKILL)  # it closes this only by its end

    def _look(self) -> None:
        """Tell the children what has become of their Javas, and what was printed."""
        for java in self._javas():
            java.look()
        show = time.monotonic() > self._shown + _SHOW_SECONDS
        if show:
            self._shown = time.monotonic()
        printed = self._java.printed.take() if show else ""
        for child in self._children:
            java = child.java
            if java.up is not None and not child.knows:
                child.knows = True
                child.tell(msgspec.structs.replace(java.up, used=java.used))
                java.used = True
            if printed and java is self._java and len(child.unsent) < _CHUNK:  # who does not read misses something
                child.tell(PrintedText(printed, kept=False))
            if java.ended and not child.bereft:
                child.bereft = True
                child.tell(PrintedText(java.printed.kept, kept=True), JavaEnded(java.how_it_ended()))
            child.tell()
        if self._spare is not None and self._spare.ended:
            self._spare = None  # it is not tried again before it is needed

    def _fork(self, connection: socket.socket | None) -> None:
        """A child for a connection; without one, a child that has the spare Java open a session, and ends."""
        for each in self._javas():
            each.look()
        if connection is not None and self._java.ended:
            self._java = self._spare if self._spare is not None and not self._spare.ended else _Java(self._orders)
            self._spare = None
        java = self._java if connection is not None or self._spare is None else self._spare
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
                self._become_child(java)
                code = import_module(CHILD).main(connection, theirs)
            finally:
                os._exit(code)
        theirs.close()
        mine.setblocking(False)
        self._children.append(_Child(pid, mine, java))
        if connection is not None and self._orders.spare and self._spare is None:
            self._spare = _Java(self._orders)
            self._fork(None)

    def _become_child(self, java: _Java) -> None:
        """Let go of what is the keeper's own: by some of it the end of the keeper is known."""
        for standard in (1, 2):
            os.dup2(java.input, standard)
        os.close(self._lock)
        os.close(self._owner)
        for each in (self._listener, *self._asking, *(child.news for child in self._children)):
            each.close()
        for each_java in self._javas():
            if not each_java.ended:
                each_java.let_go()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        random.seed()
        import_module("numpy").random.seed()


def main() -> None:
    """Keep Java for a job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which this process ends with
    orders = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Orders)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, orders.nice)
    lock = os.open(f"{orders.address}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another one is there
    keeper = Keeper(orders, lock)
    try:
        keeper.keep()
    finally:
        keeper.close()


if __name__ == "__main__":
    main()
