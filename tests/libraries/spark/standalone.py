"""A real Spark cluster on this machine: a master and workers, on the loopback interface."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from libraries.spark.setup.class_cache import options_to_use
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import SparkOptions, environment

_HOME = Path(pyspark.__file__).parent
_SECONDS = 120.0


def started_program(
    folder: Path, name: str, arguments: list[str], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A program of Spark, with a log of its name."""
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(_HOME / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )


def until(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
    """Wait until the log of a process has something, which this is."""
    deadline = time.monotonic() + _SECONDS
    while True:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found
        assert process.poll() is None, text[-2000:]
        assert time.monotonic() < deadline, text[-2000:]
        time.sleep(0.05)


@contextmanager
def standalone_cluster(folder: Path, workers: int, cores: int = 1) -> Iterator[str]:
    """The address of its master, while it runs. Logs are in `folder`."""
    java = find_java()
    variables = environment(SparkOptions(), home_for_spark(java, folder))
    # Master, workers and executors live as shortly as other Sparks of the tests do (tests/conftest.py).
    variables["JDK_JAVA_OPTIONS"] = f"{os.environ['SPARK_SUBMIT_OPTS']} {options_to_use(java)}".strip()
    del variables["PYTHONPATH"]  # what the job needs must come with it
    variables |= {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_DAEMON_MEMORY": "256m"}
    processes = []
    try:
        master = started_program(
            folder,
            "master",
            ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"],
            variables,
        )
        processes.append(master)
        address = until(folder / "master.log", r"Starting Spark master at (spark://\S+)", master)[1]
        for number in range(workers):
            options = ["--host", "127.0.0.1", "--cores", str(cores), "--memory", f"{600 * cores}m", "--webui-port", "0"]
            options += ["--work-dir", str(folder / f"work-{number}")]
            worker = started_program(
                folder, f"worker-{number}", ["org.apache.spark.deploy.worker.Worker", *options, address], variables
            )
            processes.append(worker)
        for number, worker in enumerate(processes[1:]):
            until(folder / f"worker-{number}.log", "Successfully registered with master", worker)
        yield address
    finally:
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
