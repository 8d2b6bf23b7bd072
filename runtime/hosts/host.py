"""Run of a dataflow on several hosts: this process runs one of the workers.

There is no parent that could look after the workers, so they look after each other: all meet before one reads, each tells
the others when it fails, and each stops when another is lost.

>>> hosts = HostFile.load("hosts.toml")                                             # doctest: +SKIP
>>> run_host(Program(path="app.py"), hosts, index=0)                                # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from recovery.place import Place
from runtime.control import Built
from runtime.folders.workspace import Workspace
from runtime.hosts.host_file import HostEntry, HostFile, create_host_files
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Timing
from runtime.program import Program, built, check_alike
from runtime.session.explain import print_report
from runtime.session.job import Drive, OnStats, Result, explaining, run_here
from runtime.session.session import Session
from runtime.sources.limits import Limits
from timely.data.codec.typed import Typed
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.fingerprint import read_outline
from timely.dataflow.plan import Plan, compile_plan
from timely.errors import FalkirkError

_NO_FILES = (
    "an operator keeps files for all workers, and a job on several hosts has no folder that all of them see: run it on "
    "one host"
)

__all__ = ["HostEntry", "HostFile", "Timing", "create_host_files", "run_host"]


_GREETING: Typed[Built] = Typed("the greeting of another worker", Built)


def read_greeting(data: bytes) -> Built:
    """Decode the first message of another worker.

    Raises ProtocolError for anything else.
    """
    greeting = _GREETING.decode(data)
    read_outline(greeting.outline)
    return greeting


def run_host(
    program: Program | Dataflow | Callable[..., Dataflow],
    hosts: HostFile,
    index: int,
    limits: Limits | None = None,
    drive: Drive | None = None,
    on_stats: OnStats | None = None,
    timing: Timing | None = None,
) -> Result:
    """Run worker `index` of `program` in this process until all sources have ended.

    `drive(session)`, if given, runs in place of the usual loop, to feed inputs by hand. `on_stats` is called several times
    a second, with the statistics of this worker; the result too is this worker's alone. Raises what goes wrong here, and
    WorkerLost, which names the worker and tells its error, when it goes wrong elsewhere; sinks then hold whole epochs only.
    """
    if not isinstance(program, Program):
        program = Program(flow=program)
    began = time.perf_counter()
    keys = hosts.keys(index)
    link = ZmqLink(Place(index), hosts.addresses, keys, hosts.workers[index].bind, timing)
    try:
        plan = compile_plan(program.build().graph, len(hosts.workers))
        session = Session(plan, index, link, limits, workspace=Workspace(refused=_NO_FILES))
    except BaseException as error:
        link.fail(error)
        raise
    with session, explaining(lambda: print_report(session.worker)):
        _meet(link, plan, Place(index))
        return run_here(session, drive, on_stats, began)


def _meet(link: ZmqLink, plan: Plan, here: Place) -> None:
    """Wait until all workers are connected and have built the same graph."""
    mine = built(plan)

    def check(place: Place, greeting: bytes) -> None:
        theirs = read_greeting(greeting)
        if theirs.workers != mine.workers:
            raise FalkirkError(
                f"{place} has a host file of {theirs.workers} workers, {here} one of {mine.workers}: give "
                "every host a copy of the same file"
            )
        check_alike(
            {here: mine, place: theirs},
            "give every host the same program and arguments, and build without regard to the worker, to chance or to time",
        )

    link.meet(msgspec.msgpack.encode(mine), check)
