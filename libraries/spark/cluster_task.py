"""A worker of a job as a task of a Spark barrier stage: what runs on the cluster.

All tasks of the stage are there or none. They find each other (`cluster_meeting`), are linked by ZeroMQ with keys drawn for
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
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.layout import lay_out
from recovery.store.identity import store_id
from recovery.store.interface import StoreError, StoreGone
from recovery.store.local import LocalStore
from runtime.inputs import Limits
from runtime.job import session_stats
from runtime.job_control import TO_CHILD, Control, Here, Leave, ToChild, Warned, confession
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Keys
from runtime.processes.greeting import tune
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel, doing
from runtime.processes.monitor_link import SocketMonitorLink
from runtime.processes.recoverable_worker import FILES
from runtime.processes.work import capturing, open_journal, work
from runtime.program import Program, unpacked
from runtime.recovery_driver import RecoveryDriver
from runtime.scratch import Scratch
from runtime.session import Session
from runtime.workspace import Workspace
from timely.dataflow.plan import compile_plan
from timely.errors import WorkerLost

if TYPE_CHECKING:
    from libraries.spark.cluster_meeting import Meeting, Met

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """The task of all workers of an attempt.

    `source` is the text of the program's file. `monitor` is where that listens, for who knows `token`.
    """

    program: Program
    source: bytes | None
    limits: Limits
    folder: str
    store_id: bytes
    monitor: tuple[str, int]
    token: bytes
    incarnations: tuple[int, ...]
    beat_seconds: float
    patience: float
    """As for `runtime.processes.recoverable_worker.WorkerTask`."""


def run_task(data: bytes, index: int, sock: socket.socket, meeting: Meeting) -> None:
    """Be worker `index`, to the end of the job.

    Args:
        data: a `ClusterTask`, packed.
        sock: the connection to whoever runs the job.
        meeting: finds the other workers.
    """
    tune(sock)
    task: ClusterTask = unpacked(data)
    voice = SupervisorChannel(sock)
    left = threading.Event()
    threading.Thread(target=_end_with, args=(sock, left), daemon=True).start()
    voice.tell(Here(index, task.incarnations[index], socket.gethostname(), os.getpid()))
    try:
        _Worker(task, index, meeting, voice).run()
    except BaseException as error:
        with suppress(OSError):
            voice.tell(confession(error))
        raise
    finally:
        left.set()


def _end_with(sock: socket.socket, left: threading.Event) -> None:
    """End this process at once when whoever runs the job is gone, or has given this attempt up: the next needs its place."""
    poll = select.poll()
    poll.register(sock.fileno(), getattr(select, "POLLRDHUP", 0))
    while not left.is_set():
        if poll.poll(_LOOK_SECONDS * 1000) and not left.is_set():
            os._exit(1)


class _Worker:
    """One incarnation of one worker."""

    def __init__(self, task: ClusterTask, index: int, meeting: Meeting, voice: SupervisorChannel) -> None:
        self._voice = voice
        self._control: Control[ToChild] = Control(voice.sock, TO_CHILD)
        self._ended = False
        self._heartbeat = Heartbeat(voice, task.beat_seconds)
        plan = compile_plan(_program(task).build().graph, len(task.incarnations))
        layout = lay_out(plan)
        store = shared_store(task.folder, task.store_id)
        journal, found, client = open_journal(store, task.store_id, index, task.incarnations[index], voice.tell)
        met = meeting.wait()
        link = _link(index, met) if len(met.addresses) > 1 else None
        self._monitor = SocketMonitorLink(task.monitor, self._obey, (voice.sock.fileno(),), task.token)
        self._files = client.files
        recovery = RecoveryDriver(
            plan,
            layout,
            index,
            task.incarnations[index],
            self._monitor,
            client,
            journal,
            found.read(),
            task.limits,
            say=lambda text: voice.tell(Warned(text)),
            patience=task.patience,
        )
        self._session = Session(
            plan,
            index,
            link,
            task.limits,
            on_capture=capturing(plan, voice.tell),
            workspace=Workspace(Path(task.folder) / FILES, durable=True),
            job=task.store_id.hex(),
            recovery=recovery,
        )
        self._heartbeat.describe(lambda: doing(self._session.worker.acting))

    def run(self) -> None:
        """Work until the job is over."""
        session = self._session
        try:
            work(
                session,
                self._heartbeat,
                lambda: self._ended,
                lambda: [*self._monitor.files(), *self._files()],
                self._voice.tell,
            )
        except BaseException:
            session.abort()
            raise
        session.close()
        self._voice.tell(session_stats(session, done=True))

    def _obey(self) -> None:
        for message in self._control.read():
            self._ended = self._ended or isinstance(message, Leave)
        if self._control.ended and not self._ended:
            raise WorkerLost("whoever runs the job has gone, or has given this attempt up")


def _link(index: int, met: Met) -> ZmqLink:
    link = ZmqLink(index, met.addresses, Keys(met.secret, met.public), listener=met.listener)
    try:
        link.meet(b"falkirk", lambda worker, greeting: None)  # the monitor compares what they have built
    except BaseException as error:
        link.fail(error)
        raise
    return link


def _program(task: ClusterTask) -> Program:
    """The program as it can be built here: from its own file where that is there, from what was sent otherwise."""
    program = task.program
    if program.path is None or task.source is None:
        return program
    path = Path(program.path)
    with suppress(OSError):
        if path.read_bytes() == task.source:
            return program
    copy = Scratch("program").path / path.name
    copy.write_bytes(task.source)
    return replace(program, path=str(copy))


def shared_store(folder: str, identity: bytes) -> LocalStore:
    """The store of the job. Raises StoreGone if this host does not see it."""
    advice = (
        "a job on a cluster needs a store in a folder that all hosts of the cluster share, mounted at the same place, as over "
        "NFS; object stores and HDFS cannot be used yet"
    )
    here = f"{folder} on {socket.gethostname()}"
    if not Path(folder).is_dir():
        raise StoreGone(f"there is no folder {here}: {advice}")
    store = LocalStore(folder)
    try:
        known = store_id(store)
    except StoreError as error:
        raise StoreGone(f"{here} is not the store of this job: {advice} ({error})") from error
    if known != identity:
        raise StoreGone(f"{here} is not the store of this job: {advice}")
    return store
