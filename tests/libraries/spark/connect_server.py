"""A real Spark Connect server on this machine, on the loopback interface: started, killed, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from libraries.spark.process.class_cache import options_to_use
from libraries.spark.process.java import find_java, home_for_spark
from libraries.spark.process.session import SparkOptions, environment
from tests.libraries.spark.standalone import started_program, until

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = r"Spark Connect server started at: .*?:(\d+)"


class ConnectServer:
    """The server. Its files and its log are in `folder`; the one that is started again has the same port.

    `python` is what it starts Python processes with.
    """

    def __init__(self, folder: Path, python: str = sys.executable, master: str = "local[2,4]") -> None:
        self._folder = folder
        self._master = master
        self._python = python
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
        }
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


@contextmanager
def connect_server(folder: Path, **arguments: str) -> Iterator[ConnectServer]:
    """One that runs, and is killed in the end. The arguments are those of `ConnectServer`."""
    server = ConnectServer(folder, **arguments)
    try:
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill()
