"""A dataflow on several hosts: this process runs one worker of it, started by hand or by whatever starts processes there.

There is no parent that could look after the workers, so they look after each other: all meet before one reads, each tells
the others when it fails, and each stops when another is lost.

>>> hosts = HostFile.load("hosts.toml")                                             # doctest: +SKIP
>>> run_host(Program(path="app.py"), hosts, index=0)                                # doctest: +SKIP
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import msgspec

from runtime.explain import print_report
from runtime.inputs import Limits
from runtime.job import Drive, OnStats, Result, explaining, run_session, session_stats
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Timing
from runtime.program import Program
from runtime.session import Session
from runtime.supervisor.host_file import HostEntry, HostFile, create_host_files
from runtime.workspace import Workspace
from timely.data.codec.typed import Typed
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.fingerprint import differences, fingerprint, outline, read_outline
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError

_NO_FILES = (
    "an operator keeps files for all workers, and a job on several hosts has no folder that all of them see: run it on "
    "one host"
)

__all__ = ["HostEntry", "HostFile", "Timing", "create_host_files", "run_host"]


class Greeting(msgspec.Struct, frozen=True):
    """The first message of each worker to each other one."""

    workers: int
    fingerprint: str
    outline: str

    def encode(self) -> bytes:
        """It as bytes."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Greeting:
        """The greeting of another worker. Raises ProtocolError for anything else."""
        greeting = _greetings.decode(data)
        read_outline(greeting.outline)
        return greeting


_greetings: Typed[Greeting] = Typed("the greeting of another worker", Greeting)


def run_host(
    program: Program | Dataflow | Callable[..., Dataflow],
    hosts: HostFile,
    index: int,
    limits: Limits | None = None,
    drive: Drive | None = None,
    on_stats: OnStats | None = None,
    timing: Timing | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """Run worker `index` of `program` in this process, with all the others of `hosts`, until all sources have ended.

    `drive(session)`, if given, runs in place of the usual loop, to feed inputs by hand. `on_stats` is called several times
    a second, with the statistics of this worker; the result too is this worker's alone. `say` gets news while workers
    wait for each other (default: standard error). Raises what goes wrong here, and WorkerLost, which names the worker
    and tells its error, when it goes wrong elsewhere; sinks then hold whole epochs only.
    """
    if not isinstance(program, Program):
        program = Program(flow=program)
    began = time.perf_counter()
    keys = hosts.keys(index)
    link = ZmqLink(index, hosts.addresses, keys, hosts.workers[index].bind, timing, say)
    try:
        flow = program.build()
        session = Session(
            compile_plan(flow.graph, len(hosts.workers)), index, link, limits, workspace=Workspace(refused=_NO_FILES)
        )
    except BaseException as error:
        link.fail(error)
        raise
    with session, explaining(lambda: print_report(session.worker)):
        _meet(link, hosts, index, flow)
        tell = None if on_stats is None else (lambda stats: on_stats({index: stats}))
        value = run_session(session, drive, tell)
        captured = {node.name: session.captured(node.name) for node in flow.graph.of_kind("capture")}
    stats = {index: session_stats(session, done=True)}
    if on_stats is not None:
        on_stats(stats)
    return Result(time.perf_counter() - began, stats, {} if drive is None else {index: value}, captured)


def _meet(link: ZmqLink, hosts: HostFile, index: int, flow: Dataflow) -> None:
    """Wait until all workers are there, and have built the same graph."""
    mine = Greeting(len(hosts.workers), fingerprint(flow.graph), json.dumps(outline(flow.graph)))

    def check(worker: int, greeting: bytes) -> None:
        theirs = Greeting.decode(greeting)
        if theirs.workers != mine.workers:
            raise FalkirkError(
                f"worker {worker} has a host file of {theirs.workers} workers, worker {index} one of {mine.workers}: give "
                "every host a copy of the same file"
            )
        if theirs.fingerprint != mine.fingerprint:
            (first, before), (second, after) = sorted({index: mine, worker: theirs}.items())
            changes = differences(read_outline(before.outline), read_outline(after.outline))
            raise FalkirkError(
                f"worker {second} built another dataflow than worker {first}, so they cannot work together; give every "
                "host the same program and arguments, and build without regard to the worker, to chance or to time:\n  "
                + "\n  ".join(changes)
            )

    link.meet(mine.encode(), check)
