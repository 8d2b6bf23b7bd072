"""Starting Spark for a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from libraries.spark.host.host import SparkHost
from tests.support.processes import children, parent

_SECONDS = 180.0


def speaking_to(java: int) -> list[int]:
    """The processes that speak to a Java for workers: children of its keeper."""
    return [pid for pid in children(parent(java)) if pid != java]


@contextmanager
def started(host: SparkHost) -> Iterator[SparkHost]:
    """Wait until Spark is there; stop it in the end."""
    try:
        host.warm()
        deadline = time.monotonic() + _SECONDS
        while host.pid is None:
            assert time.monotonic() < deadline, "Spark did not start"
            time.sleep(0.1)
        yield host
    finally:
        host.stop()
