"""First steps of a cluster task: connect to the driver, exchange worker addresses.

Spark takes a second to gather what the tasks say, and a Python that has just been started about as long to load the rest of
what a worker is. So this module travels by value, needs nothing of ours, and both happen at the same time.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import zmq

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext

_CONNECT_SECONDS = 10.0


class Met(NamedTuple):
    """Workers of an attempt: addresses, public keys; this worker's secret and socket.

    Addresses and public keys are in the order of workers.
    """

    addresses: tuple[str, ...]
    public: tuple[str, ...]
    secret: str
    listener: socket.socket


class Meeting:
    """Exchange of all workers' addresses; `host` is the address of this one."""

    def __init__(self, context: BarrierTaskContext, host: str) -> None:
        public, secret = zmq.curve_keypair()
        self._secret = secret.decode()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        port = self._listener.getsockname()[1]
        mine = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        self._said: list[str] = []
        self._error: Exception | None = None
        message = json.dumps([mine, public.decode()])
        self._thread = threading.Thread(target=self._gather, args=(context, message), daemon=True)
        self._thread.start()

    def wait(self) -> Met:
        """Addresses and keys of all workers; blocks until all have begun.

        Raises ConnectionError if Spark fails to gather them.
        """
        self._thread.join()
        if self._error is not None:
            raise ConnectionError(f"Spark did not bring the workers together: {self._error}")
        addresses, public = zip(*map(json.loads, self._said))
        return Met(addresses, public, self._secret, self._listener)

    def _gather(self, context: BarrierTaskContext, message: str) -> None:
        try:
            self._said = context.allGather(message)
        except Exception as error:
            self._error = error


def begin(driver: tuple[str, int], token: bytes, stage: bytes, orders: bytes, numbers: Iterable[int]) -> Iterable[int]:
    """Run the worker for this task's partition number until the job ends.

    Args:
        driver: where whoever runs the job listens, for who knows `token`.
        stage, orders: see `libraries.spark.cluster.task.run_task`.
        numbers: what the stage iterates over; only that there is one for each task matters.
    """
    from pyspark import BarrierTaskContext

    # Spark names what it has brought here by relative paths; programs may go elsewhere, and messages name files.
    sys.path[:] = map(os.path.abspath, sys.path)
    context = BarrierTaskContext.get()
    with socket.create_connection(driver, _CONNECT_SECONDS) as sock:
        sock.settimeout(None)
        sock.sendall(token)
        # What leads to whoever runs the job leads to the other workers.
        meeting = Meeting(context, str(sock.getsockname()[0]))
        from libraries.spark.cluster.task import run_task

        run_task(stage, orders, context.partitionId(), context.cpus(), sock, meeting)
    return ()
