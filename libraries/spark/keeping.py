"""Finding the keeper of Spark's Java for this process, or starting it (`libraries.spark.keeper`)."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from libraries.spark.class_cache import options_to_use
from libraries.spark.errors import SparkError
from libraries.spark.java import find_java
from libraries.spark.protocol import FOLDER, Orders
from libraries.spark.session import SparkOptions, environment, settings
from runtime.scratch import OWNER, Scratch, for_sockets, job_folder

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.02

_lock = threading.Lock()
_own: list[Scratch] = []
"""The folder for keepers of a process that belongs to no job with others: they end with it."""


def connect(options: SparkOptions, wanted: bytes, start: bool = True) -> socket.socket:
    """A connection to the keeper of a Spark with these options, started unless it is there, that was told what is `wanted`.

    Raises SparkError if there can be none, and OSError if there is none and none is to be started.
    """
    folder = _folder()
    address = folder / f"spark-{hashlib.sha256(repr(options).encode()).hexdigest()[:12]}"
    deadline = time.monotonic() + _START_SECONDS
    keeper: subprocess.Popen[bytes] | None = None
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
        if keeper is None or keeper.poll() == 0:  # the one before was not gone yet
            keeper = _start(options, folder, address)
        elif keeper.poll() is not None or time.monotonic() > deadline:
            with suppress(OSError):
                keeper.kill()
            said = Path(f"{address}.log").read_text(errors="replace").strip().splitlines()[-5:]
            raise SparkError("a process for Spark could not be started: " + "\n  ".join(said))
        time.sleep(_LOOK_SECONDS)


def let_go() -> None:
    """This process ends, and so do its own keepers."""
    with _lock:
        while _own:
            _own.pop().close()


def _folder() -> Path:
    """The folder for the socket, which lives as long as its owner holds a lock."""
    job = job_folder()
    if job is not None:
        return job
    with _lock:
        if not _own:
            _own.append(Scratch("spark", for_sockets()))
        return _own[0].path


def _start(options: SparkOptions, folder: Path, address: Path) -> subprocess.Popen[bytes]:
    java = find_java()
    orders = Orders(
        address=str(address),
        owner=str(folder / OWNER),
        settings=settings(options, Path(FOLDER), again=True),
        java_home=str(java.home),
        vector=java.vector,
        nice=options.nice,
        spare=options.spare,
    )
    try:
        with Path(f"{address}.log").open("ab") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "libraries.spark.keeper"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(options, java.home, java_options=options_to_use(java)),
                start_new_session=True,
            )
        assert keeper.stdin is not None
        with keeper.stdin:
            keeper.stdin.write(msgspec.msgpack.encode(orders))
    except OSError as error:
        raise SparkError(f"a process for Spark could not be started: {error}") from error
    return keeper
