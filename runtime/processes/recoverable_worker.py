"""A worker process of a job with a store: `python -m runtime.processes.recoverable_worker`, started by its supervisor only.

It prepares itself as far as it can without knowing which worker it will be: what takes long is then done when it is needed
as the replacement of one that died. It ends when its supervisor does.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recovery.layout import Layout, lay_out
from recovery.store.identity import store_id
from recovery.store.interface import StoreGone
from recovery.store.local import LocalStore
from runtime.explain import print_report
from runtime.imports import adopt_path
from runtime.inputs import Limits
from runtime.job import session_stats
from runtime.job_control import (
    TO_CHILD,
    Begin,
    Control,
    Leave,
    Peer,
    ToChild,
    Warned,
    end_with,
)
from runtime.links.unix import SocketLink
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel, doing
from runtime.processes.monitor_link import SocketMonitorLink
from runtime.processes.warm_up import warm_up
from runtime.processes.work import capturing, open_journal, work
from runtime.program import Program, unpacked
from runtime.recovery_driver import RecoveryDriver
from runtime.session import Session
from runtime.workspace import Workspace
from timely.dataflow.plan import Plan, compile_plan

FILES = "files"
"""The folder of the store in which jobs of operators keep files."""


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """The task of all workers of a job. `monitor` is the path of the socket that it listens at."""

    program: Program
    workers: int
    limits: Limits
    folder: str
    store_id: bytes
    monitor: str
    patience: float
    """Seconds that the monitor may be silent before sources pause that have much that waits for it."""


class _Stopped(BaseException):
    """The supervisor wants this process to end."""


def main() -> int:
    """Run one worker; the exit code is 0 unless it failed or was stopped."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=end_with, args=(sock, sys.argv[3]), daemon=True).start()
    voice = SupervisorChannel(sock)
    heartbeat = Heartbeat(voice, float(sys.argv[2]))
    control: Control[ToChild] = Control(sock, TO_CHILD)
    adopt_path()
    try:
        with os.fdopen(int(sys.argv[4]), "rb") as file:
            task: WorkerTask = unpacked(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
        plan = compile_plan(task.program.build().graph, task.workers)
        layout = lay_out(plan)
        warm_up()
        gc.freeze()  # hundreds of thousands of objects that stay: looking at them again and again takes 0.1 s each time
        begin, *early = control.read(wait=True) or [Leave()]
        if isinstance(begin, Begin):
            worker = WorkerProcess(control, voice, heartbeat, task, plan, layout, begin)
            worker.obey(early)
            worker.run()
    except _Stopped:
        return 143
    except BaseException as error:
        voice.confess(error)
        return 1
    return 0


class WorkerProcess:
    """One incarnation of one worker, from its beginning to the end of the job."""

    def __init__(
        self,
        control: Control[ToChild],
        voice: SupervisorChannel,
        heartbeat: Heartbeat,
        task: WorkerTask,
        plan: Plan,
        layout: Layout,
        begin: Begin,
    ) -> None:
        self._control = control
        self._tell = voice.tell
        self._heartbeat = heartbeat
        self._ended = False
        peers = dict(zip(begin.peers, control.files(len(begin.peers))))
        self._link = SocketLink(peers, survives=True) if task.workers > 1 else None
        if not Path(task.folder).is_dir():
            raise StoreGone(f"the store {task.folder} is gone; bring it back and run the job again")
        store = LocalStore(task.folder)
        if store_id(store) != task.store_id:
            raise StoreGone(f"the store {task.folder} was replaced by another one; bring it back and run the job again")
        journal, found, client = open_journal(store, task.store_id, begin.index, begin.incarnation, self._tell)
        self._monitor = SocketMonitorLink(task.monitor, lambda: self.obey(control.read()), (control.sock.fileno(),))
        self._files = client.files
        recovery = RecoveryDriver(
            plan,
            layout,
            begin.index,
            begin.incarnation,
            self._monitor,
            client,
            journal,
            found.read(),
            task.limits,
            say=lambda text: self._tell(Warned(text)),
            patience=task.patience,
        )
        self.session = Session(
            plan,
            begin.index,
            self._link,
            task.limits,
            on_capture=capturing(plan, self._tell),
            workspace=Workspace(Path(task.folder) / FILES, durable=True),
            job=task.store_id.hex(),
            recovery=recovery,
        )
        heartbeat.describe(lambda: doing(self.session.worker.acting))

    def run(self) -> None:
        """Work until the supervisor says that the job is over."""
        session = self.session
        signal.signal(signal.SIGTERM, lambda *_: session.stop(_Stopped()))
        if hasattr(signal, "SIGQUIT"):
            signal.signal(signal.SIGQUIT, lambda *_: print_report(session.worker))
        try:
            work(
                session,
                self._heartbeat,
                lambda: self._ended,
                lambda: [*self._monitor.files(), *self._files()],
                self._tell,
            )
        except BaseException:
            try:
                # The supervisor may say stop now, but this must be finished.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            finally:
                session.abort()
            raise
        session.close()
        self._tell(session_stats(session, done=True))

    def obey(self, messages: list[ToChild]) -> None:
        """Do what the supervisor says; to be done before what the monitor has said meanwhile."""
        for message in messages:
            match message:
                case Peer(worker) if self._link is not None:
                    self._link.replace(worker, self._control.files(1)[0])
                case Leave():
                    self._ended = True


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


if __name__ == "__main__":
    code = main()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
