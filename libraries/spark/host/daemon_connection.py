"""Connection of this process to the Spark daemon, started on demand.

The daemon is `libraries.spark.daemon.daemon`.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import astuple
from importlib.util import find_spec
from pathlib import Path

import msgspec

from libraries.spark.errors import SparkError
from libraries.spark.protocol import FOLDER, JavaOrders, Orders, SailOrders, ServerOrders
from libraries.spark.setup.class_cache import options_to_use
from libraries.spark.setup.java import find_java
from libraries.spark.setup.options import SparkOptions, environment, python_path, session_settings, settings
from libraries.spark.setup.sail import VARIABLE, sail_python
from libraries.spark.versions import check_version, installed
from runtime.folders.scratch import OWNER, Scratch, for_sockets, job_folder
from runtime.supervisor.forked import Forked, start_detached

DAEMON = "libraries.spark.daemon.daemon"

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.02
_SERVER_SECONDS = 300.0
"""Seconds to wait for an unresponsive Spark Connect server."""

_NEEDED = ("grpc", "grpc_status", "zstandard")

_lock = threading.Lock()
_own: list[Scratch] = []
"""Private folder for the daemons of a process without a job; they end with it."""


def connect(options: SparkOptions, wanted: bytes, start: bool = True) -> socket.socket:
    """Connect to the daemon for these options, started if needed; sends `wanted`.

    Raises SparkError if there can be none, and OSError if there is none and none is to be started.
    """
    folder = _folder()
    address = folder / f"spark-{hashlib.sha256(repr(astuple(options)).encode()).hexdigest()[:12]}"
    deadline = time.monotonic() + _START_SECONDS
    daemon: Forked | subprocess.Popen[bytes] | None = None
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(address))
            sock.sendall(wanted)
            return sock
        except OSError:
            sock.close()
            if not start:
                raise
        if daemon is None or daemon.poll() == 0:  # the one before was not gone yet
            daemon = _start(options, folder, address)
        elif daemon.poll() is not None or time.monotonic() > deadline:
            with suppress(OSError):
                daemon.kill()
            lines = Path(f"{address}.log").read_text(errors="replace").strip().splitlines()[-5:]
            raise SparkError("a process for Spark could not be started: " + "\n  ".join(lines))
        time.sleep(_LOOK_SECONDS)


def end_daemons() -> None:
    """End the Spark daemons of this process, when it ends."""
    with _lock:
        while _own:
            _own.pop().close()


def _folder() -> Path:
    """Folder for the daemon's socket; it lasts as long as its owner holds a lock."""
    job = job_folder()
    if job is not None:
        return job
    with _lock:
        if not _own:
            _own.append(Scratch("spark", for_sockets()))
        return _own[0].path


def _start(options: SparkOptions, folder: Path, address: Path) -> Forked | subprocess.Popen[bytes]:
    check_version(installed())
    what, variables = (_sail if options.sail else _server if options.remote else _java)(options)
    orders = Orders(address=str(address), owner=str(folder / OWNER), nice=options.nice, what=what)
    reads, writes = os.pipe()
    try:
        with open(writes, "wb") as sent:
            with open(reads, "rb") as received, Path(f"{address}.log").open("ab") as log:
                daemon = _started((received.fileno(), log.fileno(), log.fileno()), variables)
            sent.write(msgspec.msgpack.encode(orders))
    except OSError as error:
        raise SparkError(f"a process for Spark could not be started: {error}") from error
    return daemon


def _started(standard: tuple[int, int, int], variables: dict[str, str]) -> Forked | subprocess.Popen[bytes]:
    """Start the daemon: forked from a preloaded process if there is one."""
    forked = start_detached(DAEMON, standard, variables)
    if forked is not None:
        return forked
    orders, log, _ = standard
    command = [sys.executable, "-m", DAEMON]
    return subprocess.Popen(command, stdin=orders, stdout=log, stderr=log, env=variables, start_new_session=True)


def _java(options: SparkOptions) -> tuple[JavaOrders, dict[str, str]]:
    java = find_java()
    made = settings(options, Path(FOLDER))
    orders = JavaOrders(settings=made, java_home=str(java.home), vector=java.vector, spare=options.spare)
    return orders, environment(options, java.home, java_options=options_to_use(java))


def _sail(options: SparkOptions) -> tuple[SailOrders, dict[str, str]]:
    python = sail_python()
    if python is None:
        raise SparkError(
            "SparkOptions(sail=True) needs Sail, which is not installed: pip install 'falkirk[sail]', or name a Python that "
            f"has pysail and pyspark-client by the variable {VARIABLE}"
        )
    server, variables = _server(options)
    return SailOrders(python, msgspec.structs.replace(server, sail=True)), variables


def _server(options: SparkOptions) -> tuple[ServerOrders, dict[str, str]]:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        asked = "sail=True" if options.sail else f"connect={options.server!r}"
        raise SparkError(
            f"SparkOptions({asked}) needs packages that are not installed ({', '.join(missing)}): "
            "pip install 'falkirk[connect]'"
        )
    orders = ServerOrders(
        url=options.connect or "",
        seconds=_SERVER_SECONDS if options.start_limit is None else options.start_limit,
        settings=session_settings(options),
        shared=options.shared,
    )
    # By the first of these PySpark's functions know that there is no Java.
    return orders, dict(os.environ) | {"SPARK_CONNECT_MODE_ENABLED": "1", "PYTHONPATH": python_path()}
