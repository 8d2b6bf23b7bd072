"""`falkirk.run`: run a dataflow; with a store, it survives process deaths."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from typing import Any, Literal

from falkirk.event_log import EventLog, WorkLog
from recovery.store.address import StoreAddress, Where
from runtime.folders.scratch import Scratch
from runtime.folders.store_folder import StoreFolder
from runtime.host_limits import check_workers
from runtime.page.address import PageSocket, open_page
from runtime.page.launched import standing_page
from runtime.program import Program, check_not_loading
from runtime.run import run as run_without_store
from runtime.session.job import Drive, OnStats, Result
from runtime.sources.limits import Limits
from timely.dataflow.dataflow import Dataflow
from timely.errors import FalkirkError, at_line, naming_the_line

_MOST_SECONDS = 365 * 86_400


@naming_the_line
def run(
    program: Dataflow | Callable[..., Dataflow] | Program,
    workers: int = 1,
    limits: Limits | None = None,
    drive: Drive | None = None,
    on_stats: OnStats | None = None,
    store: Where | None = None,
    on_note: Callable[[str], None] | None = None,
    heartbeat_timeout: float = 10.0,
    monitor: Where | None = None,
    ui: bool | str = False,
    events: str | os.PathLike[str] | None = None,
    on: Any = None,
    engine: Literal["falkirk", "spark"] = "falkirk",
    accept: str | Collection[str] = (),
    mates: int = 0,
) -> Result:
    """Run `program` until all its sources have ended.

    Without a store, one worker runs in the caller's process, several in processes of their own; `drive(session)`, if given,
    runs on every worker in place of the usual loop, to feed inputs by hand. Whatever goes wrong first is raised.

    With `store`, a folder or an address such as "file:///path", all workers are processes, and so is a monitor; what a process
    that dies had done is restored from the store, and the job goes on. A job that was stopped goes on when it is run again with
    its store. What its captures held by then was handed over before, and is not handed over again.

    Args:
        limits: how far sources may be ahead.
        on_stats: called several times a second, with how far each worker is.
        on_note: called with what a user should know of the store, in words; by default it is printed on standard error.
        heartbeat_timeout: with a store, a process that gives no sign of life for so many seconds is replaced. A function of the
            program may take any time: of one that takes longer than three times that, `on_note` is told.
        monitor: with a store, where a monitor listens that was started apart (`falkirk monitor`): the path of its socket, or
            its store. The job goes on while it is away, and needs it again to save anything. None: the job starts one.
        ui: serve the job's page (docs/page.md), at any address that is free (True) or at "host:port"; `on_note` is told where.
            Without a store, a temporary one is used.
        events: with a store, a file to which what happens to the job is added, a JSON object a line (`falkirk.event_log`).
        on: with a store, a Spark cluster that the workers are to run on, as the tasks of one stage: a SparkSession, or the
            address of a master, such as "spark://host:7077" (or `libraries.spark.SparkOptions`). See docs/spark_cluster.md.
            With engine="spark": the Spark that the program is to run on.
        engine: "spark" to have Spark alone run the program, without workers of Falkirk: docs/spark_engine.md says which
            programs that can be. Over a `spark.Stream` it goes on where it was when it is run again with its store.
        accept: with a store, names of operators ("clean,parse", or a list) whose functions were changed on purpose, so that the
            job goes on. Others that are not those that wrote the store are refused. It need not be said again.
        mates: with a store, how many further processes (0 or 1) hold the durable state of each worker in memory, to take its
            place when it dies: a restart does not wait for state then (docs/recovery.md). Twice the memory for state.

    Raises:
        FalkirkError: for everything that goes wrong; sinks then hold whole epochs only.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.source("words", falkirk.Iterable(["a", "b", "a"])).key_by(str).count().capture("counts")
    >>> falkirk.run(flow).captured("counts")
    [((0,), [('a', 2), ('b', 1)])]
    """
    check_not_loading()
    note = on_note or (lambda text: print(f"note: {text}", file=sys.stderr))
    accepted = accept.split(",") if isinstance(accept, str) and accept else accept
    if accepted and (store is None or engine == "spark"):
        raise FalkirkError(at_line("accept= goes with store=: it is about the functions that wrote the store"))
    _check_mates(mates, store, on, engine, bool(ui))
    if engine == "spark":
        if workers != 1 or ui or any(each is not None for each in (drive, monitor, events)):
            raise FalkirkError(
                at_line(
                    'engine="spark" runs without workers of Falkirk: leave workers, drive, monitor, ui and events away'
                )
            )
        from libraries.spark.engine.run import run_on_spark

        return run_on_spark(program if isinstance(program, Program) else Program(flow=program), on, note, store)
    if on is not None and (store is None or monitor is not None):
        raise FalkirkError(
            at_line(
                "on= goes with store=, a folder that all hosts of the cluster share, and without monitor=: the monitor runs "
                "beside this process"
            )
        )
    if ui and drive is not None:
        raise FalkirkError(
            at_line(
                "a job whose inputs are fed by hand (drive=...) cannot have a store, and the page needs one: leave ui away"
            )
        )
    if store is None and ui:
        with closing(Scratch("store")) as scratch:
            folder = scratch.path
            note(f"the page needs a store: this run uses {folder}, which is removed at its end; give one with store=")
            return run(
                program,
                workers,
                limits,
                drive,
                on_stats,
                folder,
                on_note,
                heartbeat_timeout,
                monitor,
                ui,
                events,
                mates=mates,
            )
    if store is None:
        if monitor is not None or events is not None:
            raise FalkirkError(
                at_line("monitor= and events= go with store=: without a store there is nothing to monitor")
            )
        return run_without_store(program, workers, limits, drive, on_stats)
    check_workers(workers)
    if drive is not None:
        raise FalkirkError(
            at_line(
                "inputs that are fed by hand (drive=...) cannot be read again after a failure: use sources, or no store"
            )
        )
    if not (isinstance(heartbeat_timeout, int | float) and 0 < heartbeat_timeout <= _MOST_SECONDS):
        raise FalkirkError(
            at_line(f"heartbeat_timeout is a number of seconds above 0, at most a year, not {heartbeat_timeout!r}")
        )
    from runtime.supervisor.supervisor import Job

    if not isinstance(program, Program):
        program = Program(flow=program)
    with ExitStack() as resources:
        page = log = None
        if events is not None:
            log = resources.enter_context(closing(EventLog.open(events, note)))
            on_stats = WorkLog(log, on_stats)
        if ui:
            standing = standing_page(StoreFolder(StoreAddress.of(store))) if ui is True else None
            if standing is None:
                page = resources.enter_context(closing(_page_of(program, ui)))
                standing = page.url
            note(f"the page of the job is at {standing}")
        if on is not None:
            from libraries.spark.cluster.job import cluster_job

            return cluster_job(
                program, workers, store, on, limits, log, on_note, heartbeat_timeout, page, accepted
            ).run(on_stats)
        how = log, on_note, heartbeat_timeout, monitor, page
        job = Job(program, workers, store, limits, *how, accept=accepted, mates=mates)
        return job.run(on_stats)


def _check_mates(mates: int, store: Where | None, on: Any, engine: str, ui: bool) -> None:
    """Refuse mates without a store, and on a cluster."""
    if type(mates) is not int or mates not in (0, 1):
        raise FalkirkError(at_line(f"mates is 0 or 1, the number of mates of each worker, not {mates!r}"))
    if mates and (on is not None or engine == "spark"):
        raise FalkirkError(
            at_line(
                "mates= goes without on= and engine=: a mate is a process of this host yet, none of a Spark cluster"
            )
        )
    if mates and store is None and not ui:
        raise FalkirkError(at_line("mates= goes with store=: a mate holds what its worker has saved there"))


def _page_of(program: Program, ui: bool | str) -> PageSocket:
    """Page server of a job, listening for browsers."""
    title = os.path.basename(program.path or "") or "falkirk"
    if isinstance(ui, bool):
        return open_page(title)
    host, _, port = ui.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16):
        raise FalkirkError(at_line(f"the address of the page is host:port, such as 127.0.0.1:8642, not {ui!r}"))
    return open_page(title, host.strip("[]") or "127.0.0.1", int(port))
