"""First steps of a cluster task: connect to the driver, exchange worker addresses.

Spark takes a second to gather what the tasks say, and a Python that has just been started about as long to load the rest of
what a worker is. So this module and `meeting` travel by value, need nothing of ours at first, and both happen at the same time.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable

from libraries.spark.cluster.meeting import Meeting

_CONNECT_SECONDS = 10.0


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
