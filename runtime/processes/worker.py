"""Worker process: `python -m runtime.processes.worker`, started by its supervisor.

A task on a cluster runs one inside.

With a store it prepares itself as far as it can without knowing which worker it will be: what takes long is then done when it
is needed as the replacement of one that died. It ends when its supervisor does.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from monitor.coordination.supervision import Note
from recovery.store.address import StoreAddress
from recovery.store.interface import StoreError
from runtime.control import (
    TO_CHILD,
    Begin,
    CapturedBatch,
    Control,
    Follow,
    FromChild,
    Go,
    Mated,
    Peer,
    Quit,
    Returned,
    ToChild,
    end_with,
)
from runtime.folders.scratch import join_job
from runtime.folders.workspace import Workspace
from runtime.imports import adopt_path
from runtime.links.interface import Link
from runtime.links.unix import SocketLink
from runtime.processes.allocator import keep_freed_memory
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from runtime.processes.task import MUCH, WorkerTask
from runtime.program import built, unpacked
from runtime.session.explain import print_report
from runtime.session.garbage import SELDOM
from runtime.session.job import run_session, session_stats
from runtime.session.session import Session
from runtime.session.stacks import doing
from timely.data import kernels
from timely.data.batch import Batch
from timely.data.codec import encode, encode_batch
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import Plan, compile_plan
from timely.errors import CodecError
from timely.io import Iterable
from timely.io.waiting import wait_readable
from timely.preloaded import MODULES
from timely.time import Time

if TYPE_CHECKING:
    from runtime.processes.recovery import PreparedRecovery

_SPARE_SECONDS = 1.0
"""Seconds without a task until a process counts as a spare, and warms up."""

HASTE = "haste"
"""Argument of a spare started after the loss of a worker: it warms up at once."""

_LOOK_SECONDS = 2.0


class Stopped(BaseException):
    """Request by the supervisor to end this process."""


def main() -> int:
    """Entry point of a worker process; exit code 0 unless it failed or was stopped."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(sock, sys.argv[3]), name="falkirk-end", daemon=True).start()
    join_job(sys.argv[3])
    keep_freed_memory()
    gc.set_threshold(SELDOM)
    faulthandler.enable()  # a crash in native code says where Python was
    channel = SupervisorChannel(sock)
    heartbeat = Heartbeat(channel, float(sys.argv[2]))
    control: Control[ToChild] = Control(sock, TO_CHILD)
    adopt_path()
    begun: WorkerProcess | None = None
    try:
        signal.signal(signal.SIGTERM, _stop)  # before that it ends the process, which has nothing to put in order yet
        with os.fdopen(int(sys.argv[4]), "rb") as file:
            task: WorkerTask = unpacked(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
        plan = compile_plan(task.program.build().graph, task.workers)
        recovery = prepared(task, plan)
        if recovery is not None:
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is followed live, and kept
            patience = 0.0 if HASTE in sys.argv[5:] else _SPARE_SECONDS
            wait_warm(sock, task.store.address if task.store is not None else None, patience)
            gc.freeze()  # hundreds of thousands of objects that stay: looking at them again and again takes 0.1 s each time
        begin, *early = control.read(wait=True) or [Quit()]
        if isinstance(begin, Follow) and recovery is not None:
            warm_up()
            # Its worker may have died before it could begin to follow.
            recovery.follow(begin, control.files(1)[0], None if early else sock, channel.tell)
            begin, *early = early or control.read(wait=True) or [Quit()]
        if not isinstance(begin, Begin):
            return 0
        if recovery is not None:
            from runtime.processes.stack_door import open_door  # a job without a store has no page

            open_door(sys.argv[3], begin.place.key, lambda: begun.session.worker.acting if begun is not None else None)
        peers = dict(zip(begin.peers, control.files(len(begin.peers))))
        link = SocketLink(peers, survives=task.store is not None) if task.workers > 1 else None
        worker = begun = WorkerProcess(task, plan, recovery, begin, channel, heartbeat, control, lambda: link)
        if hasattr(signal, "SIGQUIT"):
            signal.signal(signal.SIGQUIT, lambda *_: print_report(worker.session.worker))
        if task.store is None:
            channel.tell(built(plan))
            while Go() not in early:
                if not (from_parent := control.read(wait=True)):
                    return 143
                early += from_parent
        worker.obey(early)
        # From now on a request to end waits for the current turn: what a sink is doing must not be torn.
        signal.signal(signal.SIGTERM, lambda *_: worker.session.stop(Stopped()))
        worker.run()
    except Stopped:
        return 143
    except BaseException as error:
        with suppress(Stopped):  # of another worker's failure: this one may have failed at the same moment
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            channel.confess(error, begun.at if begun is not None else -1)
        return 1
    finally:
        with suppress(Stopped):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending
    return 0


class WorkerProcess:
    """One incarnation of one worker, up to the end of the job.

    `link` is made when its journal is open.
    """

    def __init__(
        self,
        task: WorkerTask,
        plan: Plan,
        recovery: PreparedRecovery | None,
        begin: Begin,
        channel: SupervisorChannel,
        heartbeat: Heartbeat,
        control: Control[ToChild],
        link: Callable[[], Link | None],
    ) -> None:
        self._tell, self._heartbeat, self._control = channel.tell, heartbeat, control
        self._drive = task.drive
        self._ended: bool | None = None if recovery is None else False
        """True once the supervisor has ended the job; None: the worker decides by itself."""
        worker, driver = (None, None) if recovery is None else recovery.open(begin, control, self.obey, channel.tell)
        self._link = link()
        self._recovery = recovery
        self.session = Session(
            plan,
            begin.place.worker,
            self._link,
            task.limits,
            worker,
            on_capture=_capturing(plan, channel.tell),
            workspace=Workspace(task.files, durable=recovery is not None, note=lambda text: channel.tell(Note(text))),
            job=task.job,
            recovery=driver,
        )
        heartbeat.describe(self._doing)

    @property
    def at(self) -> int:
        """Processor now at work; -1 if there is none."""
        node = self.session.worker.acting
        return -1 if node is None else self.session.plan.of_node.get(node.index, -1)

    def _doing(self) -> tuple[str, int, str]:
        """See `Heartbeat.describe`."""
        what, name = doing(self.session.worker.acting)
        return what, self.at, name

    def run(self) -> None:
        """Run the session until the job is over."""
        session = self.session
        over = None if self._ended is None else (lambda: bool(self._ended))
        try:
            value = run_session(session, self._drive, self._tell, over, self._heartbeat.turn)
            if self._drive is not None:
                self._tell(_returned(value))
        except BaseException:
            session.abort()
            raise
        session.close()
        self._tell(session_stats(session, done=True))

    def obey(self, messages: list[ToChild]) -> None:
        """Handle messages of the supervisor.

        To be done before those the monitor has sent meanwhile.
        """
        for message in messages:
            match message:
                case Peer(place) if isinstance(self._link, SocketLink):
                    self._link.replace(place, self._control.files(1)[0])
                case Mated() if self._recovery is not None:
                    self._recovery.link.begin(self._control.files(1)[0])
                case Quit():
                    self._ended = True


def prepared(task: WorkerTask, plan: Plan) -> PreparedRecovery | None:
    """Recovery for a job with a store, else None; its modules are loaded on demand."""
    if task.store is None:
        return None
    from runtime.processes.recovery import PreparedRecovery

    return PreparedRecovery(plan, task.store, task.limits)


def wait_warm(sock: socket.socket, address: StoreAddress | None, patience: float = _SPARE_SECONDS) -> None:
    """Wait for a task; after `patience` seconds warm up as a spare.

    It loads what it would need for a restore from the store at `address`.
    """
    if wait_readable([sock.fileno()], patience):
        return
    warm_up()
    look = 0.0
    while not wait_readable([sock.fileno()], look):
        if address is not None and _size(address) > MUCH:
            kernels.warm()
            return
        look = _LOOK_SECONDS


def _size(address: StoreAddress) -> int:
    """Bytes in the journals of workers; 0 if that cannot be found out now."""
    with suppress(StoreError), address.open() as store:
        return store.size("worker-")
    return 0


def warm_up() -> None:
    """Run a few records, and the warm-ups of libraries, to load and compile kernels."""
    flow = Dataflow("warm-up")
    words = flow.source("records", Iterable(["a", "b", "a"]))
    words.key_by(lambda word: word).count().capture("counts")
    with Session(flow) as session:
        session.run()
    for module in MODULES:
        getattr(import_module(module), "warm_up", lambda: None)()


def _capturing(plan: Plan, tell: Callable[[FromChild], None]) -> Callable[[int, Time, Batch], None]:
    """Callback for captured batches: sends them to the supervisor."""

    def captured(node: int, at: Time, batch: Batch) -> None:
        try:
            header, payload = encode_batch(batch)
        except CodecError as error:
            where = plan.graph.nodes[node]
            raise CodecError(f"capture {where.name!r} ({where.site}): {error}") from error
        tell(CapturedBatch(node, at, header, b"".join(payload)))

    return captured


def _returned(value: Any) -> Returned:
    try:
        return Returned(encode(value))
    except CodecError as error:
        raise CodecError(f"what the drive function returned cannot be sent back: {error}") from error


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


if __name__ == "__main__":
    code = main()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
