"""Run of a dataflow to its end: in this process, or on several worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable

from runtime.host_limits import check_workers
from runtime.program import Program
from runtime.session.explain import print_report
from runtime.session.job import Drive, OnStats, Result, explaining, run_here
from runtime.session.session import Session
from runtime.sources.limits import Limits
from runtime.supervisor.supervisor import Job
from timely.dataflow.dataflow import Dataflow
from timely.errors import naming_the_line


@naming_the_line
def run(
    program: Dataflow | Callable[..., Dataflow] | Program,
    workers: int = 1,
    limits: Limits | None = None,
    drive: Drive | None = None,
    on_stats: OnStats | None = None,
) -> Result:
    """Run `program` until all its sources have ended.

    One worker runs in the caller's process, several in processes of their own. `drive(session)`, if given, runs on every
    worker in place of the usual loop, to feed inputs by hand. `on_stats` is called several times a second.
    Raises the error of whatever went wrong first; sinks then hold whole epochs only.
    """
    check_workers(workers)
    if not isinstance(program, Program):
        program = Program(flow=program)
    if workers > 1:
        return Job(program, workers, limits=limits, drive=drive).run(on_stats)
    began = time.perf_counter()
    with (
        Session(program.build(), limits=limits) as session,
        explaining(lambda: print_report(session.worker)),
    ):
        return run_here(session, drive, on_stats, began)
