"""A worker process: `python -m runtime.processes.worker`, started by `runtime.supervisor.local` and by nobody else."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.control import CapturedBatch, Hello, Returned, Stats, WorkerFailed, receive_bytes, send_message
from runtime.explain import print_report
from runtime.imports import adopt_path
from runtime.inputs import Limits
from runtime.job import Drive, run_session, session_stats
from runtime.links.interface import Link
from runtime.links.unix import SocketLink
from runtime.program import Program, unpacked
from runtime.session import Session
from runtime.workspace import Workspace
from timely.data.batch import Batch
from timely.data.codec import encode, encode_batch
from timely.dataflow.fingerprint import fingerprint, outline
from timely.dataflow.plan import compile_plan
from timely.errors import CodecError, FalkirkError, told
from timely.time import Time


@dataclass(frozen=True, slots=True)
class Assignment:
    """The parent's first message: the program, and who this process is."""

    program: Program
    index: int
    workers: int
    links: dict[int, int]
    """File descriptors of the sockets to the other workers."""
    limits: Limits
    drive: Drive | None
    files: Path
    """The folder for files of all workers."""
    job: str
    """The identity of the job, which is that of this run."""


class _Stopped(BaseException):
    """The parent wants this process to end."""


def main() -> int:
    """Run one worker; the exit code is 0 unless it failed or was stopped."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    data = receive_bytes(control)
    if data is None:
        return 1
    adopt_path()
    try:
        assignment: Assignment = unpacked(data)
        links = {worker: socket.socket(fileno=file) for worker, file in assignment.links.items()}
        _work(control, assignment, SocketLink(links) if links else None)
    except _Stopped:
        return 143
    except BaseException as error:
        return _fail(control, error)
    return 0


def _work(control: socket.socket, assignment: Assignment, link: Link | None) -> None:
    flow = assignment.program.build()
    plan = compile_plan(flow.graph, assignment.workers)
    lock = threading.Lock()

    def tell(message: Hello | Stats | CapturedBatch | Returned) -> None:
        with lock:
            send_message(control, message)

    def captured(node: int, at: Time, batch: Batch) -> None:
        try:
            header, payload = encode_batch(batch)
        except CodecError as error:
            where = flow.graph.nodes[node]
            raise CodecError(f"capture {where.name!r} ({where.site}): {error}") from error
        tell(CapturedBatch(node, at, header, b"".join(payload)))

    workspace = Workspace(assignment.files)
    session = Session(
        *(plan, assignment.index, link, assignment.limits),
        on_capture=captured,
        workspace=workspace,
        job=assignment.job,
    )
    if hasattr(signal, "SIGQUIT"):
        signal.signal(signal.SIGQUIT, lambda *_: print_report(session.worker))
    tell(Hello(fingerprint(flow.graph), json.dumps(outline(flow.graph))))
    if receive_bytes(control) is None:
        raise _Stopped
    threading.Thread(target=_watch_parent, args=(control,), daemon=True).start()
    _stop_between_turns(session)
    try:
        value = run_session(session, assignment.drive, tell)
        if assignment.drive is not None:
            tell(_returned(value))
        tell(session_stats(session, done=True))
    except BaseException:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the parent may say stop now, but this must be finished
        finally:
            session.abort()
        raise
    session.close()


def _returned(value: Any) -> Returned:
    try:
        return Returned(encode(value))
    except CodecError as error:
        raise CodecError(f"what the drive function returned cannot be sent back: {error}") from error


def _watch_parent(control: socket.socket) -> None:
    """End at once when the parent is gone: no process is left behind."""
    if receive_bytes(control) is None:
        os._exit(1)


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def _stop_between_turns(session: Session) -> None:
    """From now on, a request to end waits for the current turn: what a sink is doing must not be torn."""
    signal.signal(signal.SIGTERM, lambda *_: session.stop(_Stopped()))


def _fail(control: socket.socket, error: BaseException) -> int:
    kind = type(error).__name__
    text = str(error) if isinstance(error, FalkirkError) else told(error)
    try:
        send_message(control, WorkerFailed(kind, text, "".join(traceback.format_exception(error))))
    except OSError:
        traceback.print_exception(error)
    return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
