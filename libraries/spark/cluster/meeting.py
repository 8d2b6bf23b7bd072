"""Exchange of the addresses and public keys of all workers of a barrier stage.

This module travels by value, and needs nothing of ours: see `libraries.spark.cluster.start`.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

import zmq

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext


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
        self._gathered: list[str] = []
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
        addresses, public = zip(*map(json.loads, self._gathered))
        return Met(addresses, public, self._secret, self._listener)

    def _gather(self, context: BarrierTaskContext, message: str) -> None:
        try:
            self._gathered = context.allGather(message)
        except Exception as error:
            self._error = error
