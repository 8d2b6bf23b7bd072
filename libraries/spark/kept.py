"""The Sparks that a keeper has: a Java of its own, or sessions on a server (`libraries.spark.keeper`)."""

from __future__ import annotations

import fcntl
import os
import shlex
import struct
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec

from libraries.spark.java import Java, home_for_spark
from libraries.spark.printed import Printed
from libraries.spark.protocol import FOLDER, FromKeeper, JavaOrders, JavaUp, Release, ServerOrders, ServerUp
from runtime.scratch import Scratch

_CHUNK = 1 << 16
_PIPE_BYTES = 1 << 20


class Kept:
    """A Spark to which children speak, and what they and it print."""

    def __init__(self) -> None:
        self.printed = Printed()
        self._output, self.input = os.pipe()
        os.set_blocking(self._output, False)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.ended = False

    def greeting(self, root: str) -> FromKeeper | None:
        """The message by which a child with this root finds it; None while it is not up."""
        raise NotImplementedError

    def farewell(self, root: str, count: int) -> FromKeeper | None:
        """The message by which another child cleans up after one that opened so many sessions; None: none need do so."""
        return None

    def how_it_ended(self) -> str:
        """Its end, in words."""
        raise NotImplementedError

    def look(self) -> None:
        """Take in what was printed, whether it is up, and whether it has ended."""
        with suppress(BlockingIOError):
            while not self.ended and (data := os.read(self._output, _CHUNK)):
                self.printed.add(data)

    def end(self) -> None:
        """End it, unless it has ended."""
        if not self.ended:
            self.ended = True
            self.let_go()

    def let_go(self) -> None:
        """Close the ends of its files."""
        os.close(self._output)
        os.close(self.input)


class KeptServer(Kept):
    """The sessions of this job on a Spark Connect server. It is up from the first: children wait for the server."""

    def __init__(self, orders: ServerOrders) -> None:
        super().__init__()
        self._orders = orders

    def greeting(self, root: str) -> FromKeeper | None:
        return ServerUp(self._orders, root)

    def farewell(self, root: str, count: int) -> FromKeeper | None:
        return Release(self._orders, root, count) if count else None

    def how_it_ended(self) -> str:
        return "the connection to the Spark Connect server was ended"


class KeptJava(Kept):
    """One Java with Spark in it, started as PySpark does it in `launch_gateway`."""

    def __init__(self, orders: JavaOrders) -> None:
        super().__init__()
        self._scratch = Scratch("spark")
        folder = self._scratch.path
        self._gateway = folder / "gateway"
        self._up: JavaUp | None = None
        self._used = False
        """True once a child was told of it."""
        settings = {name: value.replace(FOLDER, str(folder)) for name, value in orders.settings.items()}
        own = "SPARK_HOME" not in os.environ and settings["spark.master"].startswith("local[")  # executors need it
        home = home_for_spark(Java(Path(orders.java_home), "", "", orders.vector), folder, installed=own)
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
        super().look()
        if self._up is None and self._gateway.exists():
            data = self._gateway.read_bytes()
            port, length = struct.unpack_from(">ii", data)
            self._up = JavaUp(self.process.pid, port, data[8 : 8 + length].decode(), self._settings)
            self._gateway.unlink()
        if not self.ended and self.process.poll() is not None:
            super().look()
            self.end()

    def greeting(self, root: str) -> FromKeeper | None:
        if self._up is None:
            return None
        used, self._used = self._used, True
        return msgspec.structs.replace(self._up, used=used)

    def end(self) -> None:
        """Kill it, unless it has ended, and take its files away."""
        if not self.ended:
            self.process.kill()
            self.process.wait()
            super().end()
            self._scratch.close()

    def let_go(self) -> None:
        super().let_go()
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def how_it_ended(self) -> str:
        code = self.process.returncode
        return "Spark's Java process " + (
            f"was killed by signal {-code}" if code < 0 else f"has ended with code {code}"
        )
