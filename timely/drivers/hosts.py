"""A dataflow on several hosts: this process runs one worker of it, started by hand or by whatever starts processes there.

There is no parent that could look after the workers, so they look after each other: all meet before one reads, each tells
the others when it fails, and each stops when another is lost.

>>> hosts = HostFile.load("hosts.toml")                                             # doctest: +SKIP
>>> run_host(Program(path="app.py"), hosts, index=0)                                # doctest: +SKIP
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import msgspec

from timely.batch import Batch
from timely.dataflow import Dataflow
from timely.drivers.child import session_stats
from timely.drivers.control import Stats
from timely.drivers.explain import report
from timely.drivers.host_file import HostEntry, HostFile, create_host_files
from timely.drivers.inputs import Limits
from timely.drivers.program import Program
from timely.drivers.session import Session
from timely.drivers.zmq_link import ZmqLink
from timely.drivers.zmq_sockets import Timing
from timely.errors import FalkirkError
from timely.fingerprint import differences, fingerprint, outline
from timely.order import Time
from timely.plan import compile_plan
from timely.wire import Capture

__all__ = ["HostEntry", "HostFile", "HostResult", "Timing", "create_host_files", "run_host"]

_STATS_SECONDS = 0.2

OnStats = Callable[[Mapping[int, Stats]], None]


@dataclass(slots=True)
class HostResult:
    """What a finished job leaves on this host: statistics, the value that `drive` returned, and captures of one worker.

    `stats` and `returned` have the worker's index as their one key, so that it can be used as `timely.run.Result` is.
    """

    seconds: float
    stats: dict[int, Stats]
    returned: dict[int, Any]
    _captured: dict[str, list[tuple[Time, Batch]]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Records that the sources of this worker read."""
        return sum(stats.records for stats in self.stats.values())

    def captured(self, capture: Capture | str) -> list[tuple[Time, Batch]]:
        """The batches that reached a capture on this worker, with their times, in order of time."""
        name = capture if isinstance(capture, str) else capture.name
        if name not in self._captured:
            raise FalkirkError(f"there is no capture {name!r}; there are: {', '.join(self._captured) or 'none'}")
        return sorted(self._captured[name], key=lambda entry: entry[0])


class _Greeting(msgspec.Struct):
    """What workers tell each other when they meet."""

    workers: int
    fingerprint: str
    outline: str


def run_host(
    program: Program | Dataflow | Callable[..., Dataflow],
    hosts: HostFile,
    index: int,
    limits: Limits | None = None,
    drive: Callable[[Session], Any] | None = None,
    on_stats: OnStats | None = None,
    timing: Timing | None = None,
    say: Callable[[str], None] | None = None,
) -> HostResult:
    """Run worker `index` of `program` in this process, with all the others of `hosts`, until all sources have ended.

    `drive(session)`, if given, runs in place of the usual loop, to feed inputs by hand. `on_stats` is called several times
    a second, with the statistics of this worker. `say` gets news while workers wait for each other (default: standard
    error). Raises what goes wrong here, and WorkerLost, which names the worker and tells its error, when it goes wrong
    elsewhere; sinks then hold whole epochs only.
    """
    if not isinstance(program, Program):
        program = Program(flow=program)
    began = time.perf_counter()
    keys = hosts.keys(index)
    link = ZmqLink(index, hosts.addresses, keys, hosts.workers[index].bind, timing, say)
    try:
        flow = program.build()
        session = Session(compile_plan(flow.graph, len(hosts.workers)), index, link, limits)
    except BaseException as error:
        link.fail(error)
        raise
    with session, _explaining(session):
        _meet(link, hosts, index, flow)
        returned = {} if drive is None else {index: drive(session)}
        _run(session, fed=drive is not None, on_stats=on_stats)
        captured = {node.name: session.captured(node.name) for node in flow.graph.of_kind("capture")}
    stats = {index: session_stats(session, done=True)}
    if on_stats is not None:
        on_stats(stats)
    return HostResult(time.perf_counter() - began, stats, returned, captured)


def _meet(link: ZmqLink, hosts: HostFile, index: int, flow: Dataflow) -> None:
    """Wait until all workers are there, and have built the same graph."""
    mine = _Greeting(len(hosts.workers), fingerprint(flow.graph), json.dumps(outline(flow.graph)))

    def check(worker: int, greeting: bytes) -> None:
        theirs = msgspec.msgpack.decode(greeting, type=_Greeting)
        if theirs.workers != mine.workers:
            raise FalkirkError(
                f"worker {worker} has a host file of {theirs.workers} workers, worker {index} one of {mine.workers}: give "
                "every host a copy of the same file"
            )
        if theirs.fingerprint != mine.fingerprint:
            (first, before), (second, after) = sorted({index: mine, worker: theirs}.items())
            changes = differences(json.loads(before.outline), json.loads(after.outline))
            raise FalkirkError(
                f"worker {second} built another dataflow than worker {first}, so they cannot work together; give every "
                "host the same program and arguments, and build without regard to the worker, to chance or to time:\n  "
                + "\n  ".join(changes)
            )

    link.meet(msgspec.msgpack.encode(mine), check)


def _run(session: Session, fed: bool, on_stats: OnStats | None) -> None:
    inputs = [node.name for node in session.plan.graph.of_kind("input")]
    if inputs and not fed:
        names = ", ".join(map(repr, inputs))
        raise FalkirkError(f"nothing feeds the input {names}: use a source, or run with drive=function")
    for name in inputs:
        session.input(name).close()
    due = time.monotonic() + _STATS_SECONDS
    while not session.worker.done:
        session.step(_STATS_SECONDS)
        if on_stats is not None and (now := time.monotonic()) >= due:
            due = now + _STATS_SECONDS
            on_stats({session.index: session_stats(session)})


@contextmanager
def _explaining(session: Session) -> Iterator[None]:
    """While inside, Ctrl-\\ prints what this worker waits for instead of ending it."""
    if not hasattr(signal, "SIGQUIT") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        print(report(session.worker), file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGQUIT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGQUIT, before)
