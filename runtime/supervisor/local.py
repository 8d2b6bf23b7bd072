"""A dataflow on several worker processes of this host.

The caller's process does no work of its own: it starts the workers, connects each with each, compares what they built,
lets them go, and waits. When one fails or dies, it stops the others and says why; none is ever left behind.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from runtime.control import (
    GO,
    CapturedBatch,
    Hello,
    MessageReader,
    Returned,
    Stats,
    ToParent,
    WorkerFailed,
    send_bytes,
)
from runtime.host_limits import check_processes
from runtime.imports import environment_for_children
from runtime.inputs import Limits
from runtime.job import Drive, OnStats
from runtime.processes.worker import Assignment
from runtime.program import Program, packed
from runtime.workspace import Workspace
from timely import errors
from timely.data.batch import Batch
from timely.data.codec import decode, decode_batch
from timely.dataflow.fingerprint import differences, read_outline
from timely.errors import FalkirkError
from timely.time import Time

_GRACE_SECONDS = 3.0
"""Seconds that a stopped worker has to leave by itself; then it is killed."""

_ROOT_CAUSE_SECONDS = 1.0
"""Seconds to wait, when a worker reports that it lost another one, for the news of why that one ended."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a finished job: captured batches by node, the last statistics and the returned values by worker."""

    captured: dict[int, list[tuple[Time, Batch]]] = field(default_factory=dict)
    stats: dict[int, Stats] = field(default_factory=dict)
    returned: dict[int, Any] = field(default_factory=dict)


class _Child:
    def __init__(self, index: int, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.index = index
        self.process = process
        self.control = control
        self.reader = MessageReader(control)
        self.hello: Hello | None = None
        self.finished = False
        self.reported = False
        """True if it said itself why it stops."""


class ProcessGroup:
    """The worker processes of one job on this host."""

    def __init__(
        self,
        program: Program,
        workers: int,
        limits: Limits | None = None,
        drive: Drive | None = None,
    ) -> None:
        check_processes(workers, workers * (workers + 1) + 100)
        self._program = program
        self._limits = limits or Limits()
        self._drive = drive
        self._children: list[_Child] = []
        self._failure: WorkerFailed | None = None
        self._failed_worker = -1
        self._workspace = Workspace()
        self.outcome = Outcome()
        self._start(workers)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers, in order."""
        return [child.process.pid for child in self._children]

    def wait(self, on_stats: OnStats | None = None) -> Outcome:
        """Wait until all workers are done.

        Raises the error of the worker that failed first, or WorkerLost when one died; the others are stopped first.
        """
        selector = selectors.DefaultSelector()
        for child in self._children:
            selector.register(child.control, selectors.EVENT_READ, child)
        try:
            while any(not child.finished for child in self._children):
                for key, _ in selector.select(timeout=0.5):
                    if self._read(key.data):
                        selector.unregister(key.data.control)
                        self._gone(key.data)
                if self._failure is not None:
                    self._raise_failure(self._failure, selector)
                if on_stats is not None and self.outcome.stats:
                    on_stats(self.outcome.stats)
            for child in self._children:
                child.process.wait()
        finally:
            self.stop()
            selector.close()
        return self.outcome

    def stop(self) -> None:
        """End all workers that still run: asked first, killed after a grace period."""
        for child in self._children:
            if child.process.poll() is None:
                child.process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.control.close()
        self._workspace.close()

    def explain(self) -> None:
        """Have every worker print what it waits for, on its standard error."""
        for child in self._children:
            if child.hello is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGQUIT)

    def _start(self, workers: int) -> None:
        links: list[dict[int, socket.socket]] = [{} for _ in range(workers)]
        for a in range(workers):
            for b in range(a + 1, workers):
                links[a][b], links[b][a] = socket.socketpair()
                for end in (links[a][b], links[b][a]):
                    with suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        job = uuid.uuid4().hex
        try:
            for index in range(workers):
                mine, theirs = socket.socketpair()
                files = {worker: sock.fileno() for worker, sock in links[index].items()}
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "runtime.processes.worker", str(theirs.fileno())],
                    pass_fds=[theirs.fileno(), *files.values()],
                    process_group=0,  # Ctrl-C is for the parent to hear, and to stop the workers in order
                    env=environment(workers),
                )
                theirs.close()
                self._children.append(_Child(index, process, mine))
                place = self._workspace.path
                assignment = Assignment(self._program, index, workers, files, self._limits, self._drive, place, job)
                program = packed(assignment)
                with suppress(OSError):  # whoever is dead already is found by wait()
                    send_bytes(mine, program)
        except BaseException:
            self.stop()
            raise
        finally:
            for ends in links:
                for sock in ends.values():
                    sock.close()

    def _hear(self, child: _Child, message: ToParent) -> None:
        match message:
            case Hello():
                child.hello = message
                self._compare(child)
            case Stats():
                self.outcome.stats[child.index] = message
                child.finished = child.finished or message.done
            case CapturedBatch(node, at, header, payload):
                batches = self.outcome.captured.setdefault(node, [])
                batches.append((at, decode_batch(header, memoryview(payload))))
            case Returned(value):
                self.outcome.returned[child.index] = decode(value)
            case WorkerFailed():
                child.reported = True
                if self._failure is None or _is_consequence(self._failure):
                    self._failure = message
                    self._failed_worker = child.index

    def _compare(self, child: _Child) -> None:
        """Let everybody go once all have built the same graph."""
        assert child.hello is not None
        first = next((o for o in self._children if o.hello is not None and o is not child), child)
        assert first.hello is not None
        if child.hello.fingerprint != first.hello.fingerprint:
            changes = differences(read_outline(first.hello.outline), read_outline(child.hello.outline))
            raise FalkirkError(
                f"worker {child.index} built another dataflow than worker {first.index}, so they cannot work together; "
                "building must not depend on the worker, on chance or on time:\n  " + "\n  ".join(changes)
            )
        if all(other.hello is not None for other in self._children):
            for other in self._children:
                with suppress(OSError):
                    send_bytes(other.control, GO)

    def _gone(self, child: _Child) -> None:
        """A worker has closed its connection: if it had nothing to say, its end is the reason why the job fails."""
        known = self._failure is not None and not _is_consequence(self._failure)
        if child.finished or child.reported or known:
            return
        code = child.process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._failure = WorkerFailed(
            "WorkerLost",
            f"worker {child.index} (process {child.process.pid}) {how} before the job was over; the job is stopped, and "
            "nothing beyond the last epochs that its sinks committed was written",
            "",
        )
        self._failed_worker = child.index

    def _read(self, child: _Child) -> bool:
        """Hear what a worker has to say; whether it has closed the connection."""
        messages, gone = child.reader.read()
        for message in messages:
            self._hear(child, message)
        return gone

    def _raise_failure(self, failure: WorkerFailed, selector: selectors.BaseSelector) -> NoReturn:
        """Raise the first failure; when that is a lost connection, the reason of the loss if it comes soon."""
        deadline = time.monotonic() + _ROOT_CAUSE_SECONDS
        while _is_consequence(failure) and time.monotonic() < deadline and selector.get_map():
            for key, _ in selector.select(timeout=0.05):
                if self._read(key.data):
                    selector.unregister(key.data.control)
                    self._gone(key.data)
            failure = self._failure or failure
        kind = getattr(errors, failure.kind, None)
        if isinstance(kind, type) and issubclass(kind, FalkirkError):
            raise kind(failure.text)
        raise FalkirkError(f"worker {self._failed_worker} failed:\n{failure.trace}")


def _is_consequence(failure: WorkerFailed) -> bool:
    """True if a worker only reports that it lost another one."""
    return failure.kind == "WorkerLost" and "closed its connection" in failure.text


def environment(workers: int) -> dict[str, str]:
    """This process's environment, its import path, and a fair share of the cores for Polars' own threads."""
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    return {"POLARS_MAX_THREADS": threads, **os.environ, **environment_for_children()}
