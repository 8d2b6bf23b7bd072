"""Sparks owned by the Spark daemon: a Java, a Sail, or sessions on a server.

The daemon is `libraries.spark.daemon.daemon`.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import struct
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from libraries.spark.daemon import sail_server
from libraries.spark.daemon.output import ProcessOutput
from libraries.spark.protocol import (
    FOLDER,
    FromDaemon,
    JavaOrders,
    JavaUp,
    Release,
    SailOrders,
    ServerOrders,
    ServerUp,
    SparkEnded,
)
from libraries.spark.setup.java import Java, home_for_spark
from runtime.folders.scratch import Scratch

_CHUNK = 1 << 16
_PIPE_BYTES = 1 << 20
_SIGNALS = 128
"""Offset in a shell's exit code, added to the signal number of a killed command."""


class Owned:
    """Spark owned by the daemon, with the output of its processes."""

    def __init__(self) -> None:
        self.printed = ProcessOutput()
        self._output, self.input = os.pipe()
        os.set_blocking(self._output, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.ended = False

    @property
    def files(self) -> list[int]:
        """Descriptors, readable on new output or state."""
        return [] if self.ended else [self._output]

    @property
    def starts(self) -> bool:
        """True while it starts up, without a descriptor for the event."""
        return False

    def again(self) -> Owned:
        """Replacement of the same kind."""
        raise NotImplementedError

    def greeting(self, root: str) -> FromDaemon | None:
        """Message with its address for a client with this root; None while it is not up."""
        raise NotImplementedError

    def farewell(self, root: str, count: int) -> FromDaemon | None:
        """Message for the cleanup of sessions after a client; None if there are none.

        The client has opened `count` sessions.
        """
        return None

    def how_it_ended(self) -> SparkEnded:
        """Message about its end."""
        raise NotImplementedError

    def look(self) -> None:
        """Update the output, and the state: up, or ended."""
        with suppress(BlockingIOError):
            while not self.ended and (data := os.read(self._output, _CHUNK)):
                self.printed.add(data)

    def end(self) -> None:
        """End it, unless it has ended."""
        if not self.ended:
            self.ended = True
            self.let_go()

    def let_go(self) -> None:
        """Close its pipes."""
        os.close(self._output)
        os.close(self.input)

    def clear(self) -> None:
        """Remove its leftover files, after its end."""


def end_of(pid: int) -> int | None:
    """Descriptor, readable after the end of this client process; None if unsupported."""
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None


class Start(NamedTuple):
    """Command line and environment of a Java, with `FOLDER` for its folder."""

    arguments: list[str]
    environment: dict[str, str]

    @classmethod
    def of(cls, pid: int, folder: str) -> Start | None:
        """Command line and environment of a process; None if the system hides them."""
        try:
            texts = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
        except OSError:
            return None
        _, *arguments = (os.fsdecode(each).replace(folder, FOLDER) for each in texts[0].split(b"\0")[:-1])
        if not arguments or not arguments[0].startswith("-"):  # it is a script, which has Java as a client
            return None
        pairs = (os.fsdecode(each).replace(folder, FOLDER).partition("=") for each in texts[1].split(b"\0")[:-1])
        return cls(arguments, {name: value for name, _, value in pairs})

    def in_folder(self, java: str, folder: str) -> tuple[list[str], dict[str, str]]:
        """Command and environment for another process, in its own folder."""
        arguments = [each.replace(FOLDER, folder) for each in self.arguments]
        return [java, *arguments], {name: value.replace(FOLDER, folder) for name, value in self.environment.items()}


class ServerSessions(Owned):
    """Sessions of this job on a Spark Connect server; up from the start.

    Clients wait for the server.
    """

    def __init__(self, orders: ServerOrders) -> None:
        super().__init__()
        self._orders = orders

    def again(self) -> Owned:
        return ServerSessions(self._orders)

    def greeting(self, root: str) -> FromDaemon | None:
        return ServerUp(self._orders, root)

    def farewell(self, root: str, count: int) -> FromDaemon | None:
        return Release(self._orders, root, count) if count else None

    def how_it_ended(self) -> SparkEnded:
        return SparkEnded("the connection to the Spark Connect server was ended", killed=True)


class OwnedProcess(Owned):
    """Process started by the daemon, with a folder; it ends with its standard input."""

    called: str
    process: subprocess.Popen[bytes]

    def __init__(self) -> None:
        super().__init__()
        self._scratch = Scratch("spark")
        self._ending: int | None = None
        self._up: JavaUp | ServerUp | None = None

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self.input, stderr=self.input, env=environment
        )
        self._ending = end_of(self.process.pid)

    @property
    def files(self) -> list[int]:
        return super().files + ([] if self.ended or self._ending is None else [self._ending])

    @property
    def starts(self) -> bool:
        return self._up is None and not self.ended

    def look(self) -> None:
        super().look()
        if not self.ended and self.process.poll() is not None:
            super().look()
            super().end()

    def end(self) -> None:
        """Kill it unless it has ended, and remove its files."""
        if not self.ended:
            self.process.kill()
            self.process.wait()
            super().end()
        self.clear()

    def clear(self) -> None:
        self._scratch.close()

    def let_go(self) -> None:
        super().let_go()
        if self._ending is not None:
            os.close(self._ending)
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def how_it_ended(self) -> SparkEnded:
        code = self.process.returncode
        number = -code if code < 0 else code - _SIGNALS  # of what a shell had started
        if number > 0:
            return SparkEnded(f"{self.called} was killed by signal {number}", killed=True)
        return SparkEnded(f"{self.called} has ended with code {code}")


class OwnedSail(OwnedProcess):
    """Sail process, with the sessions of this job on it."""

    called = "Sail's process"

    def __init__(self, orders: SailOrders) -> None:
        super().__init__()
        self._orders = orders
        self._port = self._scratch.path / "port"
        environment = {"RUST_LOG": "error"} | os.environ
        del environment["PYTHONPATH"]  # its Python may be another one
        self._run([orders.python, str(Path(sail_server.__file__)), str(self._port)], environment)

    def again(self) -> Owned:
        return OwnedSail(self._orders)

    def look(self) -> None:
        if self._up is None and self._port.exists():
            url = f"sc://127.0.0.1:{self._port.read_text()}"
            self._up = ServerUp(msgspec.structs.replace(self._orders.server, url=url), "", self.process.pid)
        super().look()

    def greeting(self, root: str) -> FromDaemon | None:
        return None if self._up is None else msgspec.structs.replace(self._up, root=root)

    def farewell(self, root: str, count: int) -> FromDaemon | None:
        if self.ended or not count or not isinstance(self._up, ServerUp):
            return None
        return Release(self._up.server, root, count)


class OwnedJava(OwnedProcess):
    """Java process with Spark, started as by PySpark's `launch_gateway`.

    PySpark starts a shell, and that a Java that says how the one of Spark is to be started. One in the place of another, whose
    `start` is given, is started as that one was, without these.
    """

    called = "Spark's Java process"

    def __init__(self, orders: JavaOrders, start: Start | None = None) -> None:
        super().__init__()
        self._orders = orders
        self._start = start
        folder = self._scratch.path
        self._gateway = folder / "gateway"
        self._used = False
        """True once its address was sent to a client."""
        settings = {name: value.replace(FOLDER, str(folder)) for name, value in orders.settings.items()}
        own = "SPARK_HOME" not in os.environ and settings["spark.master"].startswith("local[")  # executors need it
        home = home_for_spark(Java(Path(orders.java_home), "", "", orders.vector), folder, installed=own)
        spark = find_spec("pyspark")
        root = os.environ.get("SPARK_HOME") or os.path.dirname((spark and spark.origin) or "")
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        command, environment = [f"{root}/bin/spark-submit", *options, *arguments], {**os.environ, "SPARK_HOME": root}
        if start is not None:
            command, environment = start.in_folder(f"{home}/bin/java", str(folder))
        own_variables = {
            "JAVA_HOME": str(home),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._gateway),
        }
        self._run(command, environment | own_variables)
        self._settings = settings

    def again(self) -> Owned:
        return OwnedJava(self._orders, self._start if self._up is not None else None)

    def look(self) -> None:
        if self._up is None and self._gateway.exists():
            data = self._gateway.read_bytes()
            port, length = struct.unpack_from(">ii", data)
            self._up = JavaUp(self.process.pid, port, data[8 : 8 + length].decode(), self._settings)
            self._gateway.unlink()
            self._start = self._start or Start.of(self.process.pid, str(self._scratch.path))
        super().look()

    def greeting(self, root: str) -> FromDaemon | None:
        if self._up is None:
            return None
        used, self._used = self._used, True
        return msgspec.structs.replace(self._up, used=used)
