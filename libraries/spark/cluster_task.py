"""A worker of a job as a task of a Spark barrier stage: what runs on the cluster.

All tasks of the stage are there or none. They find each other by one `allGather`, are linked by ZeroMQ with keys drawn for
this attempt alone, and reach the monitor and whoever runs the job over TCP. A task that dies takes the stage with it; the next
attempt's tasks take over the journals, so what is left of earlier ones can write nothing more.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from recovery.child import FILES
from recovery.child_control import TO_CHILD, Control, End, Here, ToChild, Warned, confession
from recovery.child_warm import warm_up
from recovery.child_work import capturing, work
from recovery.greeting import connect, listen
from recovery.heartbeat import Heartbeat, Voice, doing
from recovery.layout import lay_out
from recovery.monitor_link import SocketMonitorLink
from recovery.session import RecoverableSession
from recovery.store.identity import store_id
from recovery.store.interface import StoreError, StoreGone
from recovery.store.local import LocalStore
from recovery.store.reading import take_over
from recovery.store_client import ThreadedStore
from timely.drivers.inputs import Limits
from timely.drivers.job import session_stats
from timely.drivers.program import Program, unpacked
from timely.drivers.workspace import Workspace
from timely.drivers.zmq_link import ZmqLink
from timely.drivers.zmq_sockets import Keys
from timely.errors import WorkerLost
from timely.plan import compile_plan

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext


@dataclass(frozen=True, slots=True)
class ClusterTask:
    """What all tasks of an attempt are told.

    `source` is the text of the program's file. `driver` and `monitor` are where the two listen, for who knows `token`.
    """

    program: Program
    source: bytes | None
    limits: Limits
    folder: str
    store_id: bytes
    driver: tuple[str, int]
    monitor: tuple[str, int]
    token: bytes
    incarnations: tuple[int, ...]
    beat_seconds: float


def run_task(data: bytes, _: Iterator[int]) -> Iterator[int]:
    """Be the worker that this task's number says, to the end of the job. `data`: a `ClusterTask`, packed."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    task: ClusterTask = unpacked(data)
    index = context.partitionId()
    with connect(task.driver) as sock:
        sock.sendall(task.token)
        voice = Voice(sock)
        voice.tell(Here(index, task.incarnations[index], socket.gethostname(), os.getpid()))
        try:
            _Worker(task, index, context, voice).run()
        except BaseException as error:
            with suppress(OSError):
                voice.tell(confession(error))
            raise
    return iter(())


class _Meeting:
    """The addresses and public keys of all workers, gathered while each prepares itself: Spark takes a second for it."""

    def __init__(self, context: BarrierTaskContext, index: int, host: str) -> None:
        self._index = index
        public, secret = zmq.curve_keypair()
        self._secret = secret.decode()
        self._listener = listen(host)
        port = self._listener.getsockname()[1]
        mine = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
        self._said: list[str] | None = None
        self._error: Exception | None = None
        message = json.dumps([mine, public.decode()])
        self._thread = threading.Thread(target=self._gather, args=(context, message), daemon=True)
        self._thread.start()

    def link(self) -> ZmqLink:
        """The link to all other workers, which have met when this returns."""
        self._thread.join()
        if self._said is None:
            raise WorkerLost(f"Spark did not bring the workers together: {self._error}")
        addresses, public = zip(*map(json.loads, self._said))
        link = ZmqLink(self._index, addresses, Keys(self._secret, public), listener=self._listener)
        try:
            link.meet(b"falkirk", lambda worker, greeting: None)  # the monitor compares what they have built
        except BaseException as error:
            link.fail(error)
            raise
        return link

    def _gather(self, context: BarrierTaskContext, message: str) -> None:
        try:
            self._said = context.allGather(message)
        except Exception as error:
            self._error = error


class _Worker:
    """One incarnation of one worker."""

    def __init__(self, task: ClusterTask, index: int, context: BarrierTaskContext, voice: Voice) -> None:
        self._voice = voice
        self._control: Control[ToChild] = Control(voice.sock, TO_CHILD)
        self._ended = False
        self._heartbeat = Heartbeat(voice, task.beat_seconds)
        host = str(voice.sock.getsockname()[0])  # what leads to whoever runs the job leads to the other workers
        workers = len(task.incarnations)
        meeting = _Meeting(context, index, host) if workers > 1 else None
        plan = compile_plan(_program(task).build().graph, workers)
        layout = lay_out(plan)
        store = _store(task)
        journal, found, warnings = take_over(store, f"worker-{index:03d}", task.store_id, task.incarnations[index])
        for warning in warnings:
            voice.tell(Warned(warning))
        warm_up()
        client = ThreadedStore(store)
        for name in found.leftovers:
            client.delete(name)
        link = meeting.link() if meeting is not None else None
        self._monitor = SocketMonitorLink(task.monitor, self._obey, (voice.sock.fileno(),), task.token)
        self._files = client.files
        self._session = RecoverableSession(
            plan,
            layout,
            index,
            task.incarnations[index],
            link,
            self._monitor,
            client,
            journal,
            found.read(),
            task.limits,
            on_capture=capturing(plan, voice.tell),
            workspace=Workspace(Path(task.folder) / FILES, durable=True),
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
            self._ended = self._ended or isinstance(message, End)
        if self._control.ended and not self._ended:
            raise WorkerLost("whoever runs the job has gone, or has given this attempt up")


def _program(task: ClusterTask) -> Program:
    """The program as it can be built here: from its own file where that is there, from what was sent otherwise."""
    program = task.program
    if program.path is None or task.source is None:
        return program
    path = Path(program.path)
    with suppress(OSError):
        if path.read_bytes() == task.source:
            return program
    copy = Path(tempfile.mkdtemp(prefix="falkirk-program-")) / path.name
    copy.write_bytes(task.source)
    return replace(program, path=str(copy))


def _store(task: ClusterTask) -> LocalStore:
    """The store of the job. Raises StoreGone if this host does not see it."""
    advice = (
        "a job on a cluster needs a store in a folder that all hosts of the cluster share, mounted at the same place, as over "
        "NFS; object stores and HDFS cannot be used yet"
    )
    here = f"{task.folder} on {socket.gethostname()}"
    if not Path(task.folder).is_dir():
        raise StoreGone(f"there is no folder {here}: {advice}")
    store = LocalStore(task.folder)
    try:
        known = store_id(store)
    except StoreError as error:
        raise StoreGone(f"{here} is not the store of this job: {advice} ({error})") from error
    if known != task.store_id:
        raise StoreGone(f"{here} is not the store of this job: {advice}")
    return store
