"""Process of a worker on a cluster, started by its task only.

It reaches the monitor and whoever runs the job over TCP, and the other workers over ZeroMQ, at the address and with the key
that its task drew for this stage. It ends when its task does, and when nobody runs the job any more.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from libraries.spark.cluster.task import ProcessInput
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from recovery.store.interface import NoStore, StoreError, StoreGone
from runtime.control import TO_CHILD, Begin, Control, Here, ToChild, end_with
from runtime.folders.scratch import Scratch, join_job
from runtime.imports import adopt_path
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Keys, Timing
from runtime.processes.allocator import keep_freed_memory
from runtime.processes.greeting import connect, tune
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from runtime.processes.task import WorkerTask
from runtime.processes.worker import WorkerProcess, prepared
from runtime.program import Program, unpacked
from runtime.session.garbage import SELDOM
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, WorkerLost

_LOOK_SECONDS = 0.2

PATIENCE = 3
"""Heartbeat time-outs before a process of the cluster counts as dead.

This holds for the driver as for the other workers. The process's CPU time is not known there, so a call into C that
keeps Python's lock must not look like a process that hangs.
"""


@dataclass(frozen=True, slots=True)
class StageTask:
    """Task of all workers of a stage; `source` is the text of the program's file."""

    task: WorkerTask
    source: bytes | None
    beat_seconds: float
    driver: tuple[str, int]
    """Address of the driver, for peers with `token`."""
    token: bytes


def main() -> int:
    """Run one incarnation of a worker to the end of the job; exit code 0 on success."""
    to_task = socket.socket(fileno=int(sys.argv[1]))
    private, incarnation = sys.argv[3], int(sys.argv[6])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The task removes its folder itself, or is killed with all that it has started.
    threading.Thread(target=end_with, args=(to_task, ""), daemon=True).start()
    join_job(private)
    keep_freed_memory()
    gc.set_threshold(SELDOM)
    adopt_path()
    with os.fdopen(int(sys.argv[4]), "rb") as file:
        given = msgspec.msgpack.decode(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0), type=ProcessInput)
    stage: StageTask = unpacked(given.stage)
    here = Here(given.place, incarnation, socket.gethostname(), os.getpid())
    with connect(stage.driver) as sock:
        sock.sendall(stage.token)
        tune(sock)
        channel = SupervisorChannel(sock)
        channel.tell(here)
        SupervisorChannel(to_task).tell(here)
        left = threading.Event()
        control: Control[ToChild] = Control(sock, TO_CHILD)
        threading.Thread(target=_end_with, args=(control, left), daemon=True).start()
        try:
            listener = socket.socket(fileno=int(sys.argv[5]))
            assert stage.task.store is not None
            silence = PATIENCE * stage.task.store.patience
            again = incarnation != given.first
            _work(
                stage,
                Begin(given.place, incarnation, ()),
                channel,
                control,
                partial(_link, given, listener, again, silence),
            )
        except BaseException as error:
            channel.confess(error)
            return 1
        finally:
            left.set()
    return 0


def _work(
    stage: StageTask,
    begin: Begin,
    channel: SupervisorChannel,
    control: Control[ToChild],
    link: Callable[[], ZmqLink | None],
) -> None:
    task = stage.task
    heartbeat = Heartbeat(channel, stage.beat_seconds)
    plan = compile_plan(_program(task.program, stage.source).build().graph, task.workers)
    recovery = prepared(task, plan)
    assert task.store is not None
    check_shared(task.store.address, task.store.id)
    gc.freeze()  # as in any other worker's process
    WorkerProcess(task, plan, recovery, begin, channel, heartbeat, control, link).run()


def _end_with(control: Control[ToChild], left: threading.Event) -> None:
    """End this process at once on loss of the driver, or on its dismissal.

    The next process needs its place.
    """
    poll = select.poll()
    poll.register(control.sock.fileno(), getattr(select, "POLLRDHUP", 0))
    while not left.is_set():
        if (poll.poll(_LOOK_SECONDS * 1000) or control.ended) and not left.is_set():
            os._exit(1)


def _link(given: ProcessInput, listener: socket.socket, again: bool, silence: float) -> ZmqLink | None:
    """Link to the other workers; None for a single worker.

    `again`: the other workers are at work, or are being replaced as well. `silence`: see `Timing`.
    """
    if len(given.addresses) == 1:
        return None
    keys, addresses = Keys(given.secret, dict(given.public)), dict(given.addresses)
    link = ZmqLink(given.place, addresses, keys, timing=Timing(silence=silence), listener=listener, survives=True)
    try:
        link.meet(b"falkirk", lambda place, greeting: None)  # the monitor compares what they have built
    except BaseException as error:
        link.fail(error)
        if again and isinstance(error, FalkirkError):
            raise WorkerLost(str(error)) from error
        raise
    return link


def _program(program: Program, source: bytes | None) -> Program:
    """Program from its own file if unchanged here, else from the shipped source."""
    if program.path is None or source is None:
        return program
    path = Path(program.path)
    with suppress(OSError):
        if path.read_bytes() == source:
            return program
    copy = Scratch("program").path / path.name
    copy.write_bytes(source)
    return replace(program, path=str(copy))


def check_shared(address: StoreAddress, identity: bytes) -> None:
    """Raise StoreGone if this host does not see the store of the job."""
    advice = (
        "a job on a cluster needs a store in a folder that all hosts of the cluster share, mounted at the same place, as over "
        "NFS; object stores and HDFS cannot be used yet"
    )
    here = f"{address} on {socket.gethostname()}"
    try:
        with address.open() as store:
            known = store_id(store)
    except NoStore as error:
        raise StoreGone(f"there is no folder {here}: {advice}") from error
    except StoreError as error:
        raise StoreGone(f"{here} is not the store of this job: {advice} ({error})") from error
    if known != identity:
        raise StoreGone(f"{here} is not the store of this job: {advice}")
