"""A worker of a job as a task of a Spark barrier stage: what runs on the cluster.

All tasks of the stage are there or none. They find each other (`meeting`), are linked by ZeroMQ with keys drawn for
this attempt alone, and reach the monitor and whoever runs the job over TCP. A task that dies takes the stage with it; the
next attempt's tasks take over the journals, so what is left of earlier ones can write nothing more.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.store.identity import store_id
from recovery.store.interface import StoreError, StoreGone
from recovery.store.local import LocalStore
from runtime.control import TO_CHILD, Begin, Control, Here, ToChild, confession
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Keys
from runtime.processes.greeting import tune
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from runtime.processes.worker import WorkerProcess, WorkerTask, prepared
from runtime.program import Program, unpacked
from runtime.scratch import Scratch
from timely.dataflow.plan import compile_plan

if TYPE_CHECKING:
    from libraries.spark.cluster.meeting import Meeting

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """The task of all workers of an attempt. `source` is the text of the program's file."""

    task: WorkerTask
    source: bytes | None
    incarnations: tuple[int, ...]
    beat_seconds: float


def run_task(data: bytes, index: int, sock: socket.socket, meeting: Meeting) -> None:
    """Be worker `index`, to the end of the job.

    Args:
        data: a `ClusterTask`, packed.
        sock: the connection to whoever runs the job.
        meeting: finds the other workers.
    """
    tune(sock)
    cluster: ClusterTask = unpacked(data)
    task, begin = cluster.task, Begin(index, cluster.incarnations[index], ())
    channel = SupervisorChannel(sock)
    control: Control[ToChild] = Control(sock, TO_CHILD)
    left = threading.Event()
    threading.Thread(target=_end_with, args=(control, left), daemon=True).start()
    channel.tell(Here(index, begin.incarnation, socket.gethostname(), os.getpid()))
    try:
        heartbeat = Heartbeat(channel, cluster.beat_seconds)
        plan = compile_plan(_program(task.program, cluster.source).build().graph, task.workers)
        recovery = prepared(task, plan)
        assert task.store is not None
        check_shared(task.store.folder, task.store.id)
        link = partial(_link, index, meeting)
        WorkerProcess(task, plan, recovery, begin, channel, heartbeat, control, link).run()
    except BaseException as error:
        with suppress(OSError):
            channel.tell(confession(error))
        raise
    finally:
        left.set()


def _end_with(control: Control[ToChild], left: threading.Event) -> None:
    """End this process at once when whoever runs the job is gone, or has given this attempt up: the next needs its place."""
    poll = select.poll()
    poll.register(control.sock.fileno(), getattr(select, "POLLRDHUP", 0))
    while not left.is_set():
        if (poll.poll(_LOOK_SECONDS * 1000) or control.ended) and not left.is_set():
            os._exit(1)


def _link(index: int, meeting: Meeting) -> ZmqLink | None:
    met = meeting.wait()
    if len(met.addresses) == 1:
        return None
    link = ZmqLink(index, met.addresses, Keys(met.secret, met.public), listener=met.listener)
    try:
        link.meet(b"falkirk", lambda worker, greeting: None)  # the monitor compares what they have built
    except BaseException as error:
        link.fail(error)
        raise
    return link


def _program(program: Program, source: bytes | None) -> Program:
    """The program as it can be built here: from its own file where that is there, from what was sent otherwise."""
    if program.path is None or source is None:
        return program
    path = Path(program.path)
    with suppress(OSError):
        if path.read_bytes() == source:
            return program
    copy = Scratch("program").path / path.name
    copy.write_bytes(source)
    return replace(program, path=str(copy))


def check_shared(folder: str, identity: bytes) -> None:
    """Raise StoreGone if this host does not see the store of the job."""
    advice = (
        "a job on a cluster needs a store in a folder that all hosts of the cluster share, mounted at the same place, as over "
        "NFS; object stores and HDFS cannot be used yet"
    )
    here = f"{folder} on {socket.gethostname()}"
    if not Path(folder).is_dir():
        raise StoreGone(f"there is no folder {here}: {advice}")
    try:
        with LocalStore(folder) as store:
            known = store_id(store)
    except StoreError as error:
        raise StoreGone(f"{here} is not the store of this job: {advice} ({error})") from error
    if known != identity:
        raise StoreGone(f"{here} is not the store of this job: {advice}")
