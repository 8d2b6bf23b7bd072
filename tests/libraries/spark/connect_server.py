"""A real Spark Connect server on this machine, on the loopback interface: started, killed, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from libraries.spark.setup.class_cache import options_to_use
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import SparkOptions, environment
from tests.libraries.spark.standalone import started_program, until

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = r"Spark Connect server started at: .*?:(\d+)"


class ConnectServer:
    """The server. Its files and its log are in `folder`; the one that is started again has the same port.

    `python` is what it starts Python processes with, and `settings` are more settings of its Spark.
    """

    def __init__(
        self,
        folder: Path,
        python: str = sys.executable,
        master: str = "local[2,4]",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._master = master
        self._python = python
        self._settings = dict(settings or {})
        self._port = 0
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For `SparkOptions(connect=)`."""
        return f"sc://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        java = find_java()
        variables = environment(
            SparkOptions(), home_for_spark(java, self._folder, installed=self._master.startswith("local["))
        )
        variables["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {options_to_use(java)}".strip()
        variables |= {"SPARK_CONNECT_MODE": "0", "SPARK_NO_DAEMONIZE": "1", "PYSPARK_PYTHON": self._python}
        told = {
            "spark.master": self._master,
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.local.dir": str(self._folder / "local"),
        } | self._settings
        arguments = [part for name, value in told.items() for part in ("--conf", f"{name}={value}")]
        self._starts += 1
        name = f"connect-{self._starts}"
        arguments = ["org.apache.spark.deploy.SparkSubmit", "--class", _CLASS, *arguments, "spark-internal"]
        self.process = started_program(self._folder, name, arguments, variables)
        self._port = int(until(self._folder / f"{name}.log", _STARTED, self.process)[1])

    def kill(self) -> None:
        """Kill it, as the system would."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Have it end by itself, as who stops a service does; after half a minute it is killed."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.kill()  # with all that it has started

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Inside it is started again whenever it has ended, as a service is; the list is of its exit codes."""
        ended: list[int] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                assert self.process is not None
                if (code := self.process.poll()) is not None:
                    ended.append(code)
                    self.kill()
                    self.start()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield ended
        finally:
            over.set()
            thread.join()


RUNNERS = ["local", "connect"]
"""Where regions run: on a Java of the job's own, or on a Spark Connect server."""


@contextmanager
def server_for(runner: str, folder: Path, **arguments: Any) -> Iterator[ConnectServer | None]:
    """A server for the runner "connect", whose files are in `folder`; None for "local"."""
    if runner == "local":
        yield None
        return
    pytest.importorskip("grpc", reason="the extra falkirk[connect] is not installed")
    (folder / "server").mkdir()
    with connect_server(folder / "server", **arguments) as server:
        yield server


@contextmanager
def connect_server(folder: Path, **arguments: Any) -> Iterator[ConnectServer]:
    """One that runs, and is killed in the end. The arguments are those of `ConnectServer`."""
    server = ConnectServer(folder, **arguments)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill()
