"""Main loop, statistics and result of a session, for every way to run a job."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from runtime.control import Stats
from runtime.session.garbage import sought_seldom
from runtime.session.session import Session
from timely.data.batch import Batch
from timely.dataflow.graph import captured_as
from timely.dataflow.wire import Capture
from timely.errors import FalkirkError, OperatorError, naming_the_line
from timely.time import INF, Time, visible

STATS_SECONDS = 0.2
"""Seconds between two statistics reports of a worker."""

OnStats = Callable[[Mapping[int, Stats]], None]
Drive = Callable[[Session], Any]


@dataclass(slots=True)
class Result:
    """The result of a finished job; `stats` and `returned` are by worker.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.source("items", falkirk.Iterable([1, 2])).capture("out")
    >>> result = falkirk.run(flow)
    >>> result.records, result.captured("out")
    (2, [((0,), [1, 2])])
    """

    seconds: float
    stats: dict[int, Stats]
    returned: dict[int, Any]
    _captured: dict[str, list[tuple[Time, Batch]]] = field(default_factory=dict)
    incomplete: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)
    """Incomplete epochs by output: the first and the last, None if it never ends.

    Only failures under Amnesia leave any: what lies outside of them is as without a failure.
    """

    @property
    def records(self) -> int:
        """Number of records read by sources, on all workers."""
        return sum(stats.records for stats in self.stats.values())

    @naming_the_line
    def captured(self, capture: Capture | str) -> list[tuple[Time, Batch]]:
        """Batches of a capture on all workers, with their times, in order of time.

        Raises:
            FalkirkError: there is no such capture.
        """
        name = capture if isinstance(capture, str) else capture.name
        name = name if name in self._captured else captured_as(name)
        if name not in self._captured:
            name = name.removesuffix(captured_as(""))
            raise FalkirkError(f"there is no capture {name!r}; there are: {', '.join(self._captured) or 'none'}")
        return [(visible(at), batch) for at, batch in sorted(self._captured[name], key=lambda entry: entry[0])]


def run_session(
    session: Session,
    drive: Drive | None,
    on_stats: Callable[[Stats], None] | None,
    over: Callable[[], bool] | None = None,
    on_turn: Callable[[], None] | None = None,
) -> Any:
    """Run a session to the end of its job; returns the value of `drive`.

    `drive(session)` feeds the inputs by hand; what it leaves open is closed, and the job seen through: other workers may
    still need this one. `over` tells the end, where a worker that is done may be needed again; `on_turn` is called before each
    turn. Raises FalkirkError when there are inputs and nobody who feeds them.
    """
    returned = drive(session) if drive is not None else None
    inputs = [node.name for node in session.plan.graph.of_kind("input")]
    if inputs and drive is None:
        nodes = ", ".join(map(str, session.plan.graph.of_kind("input")))
        raise FalkirkError(f"nothing feeds the {nodes}: use a source, or run with drive=function")
    for name in inputs:
        session.input(name).close()
    due = time.monotonic() + STATS_SECONDS
    while not (session.done if over is None else over()):
        if on_turn is not None:
            on_turn()
        try:
            session.step(STATS_SECONDS)
        except SystemExit as error:  # with which the process would end as if all were done
            raise OperatorError(
                f"{session.worker.acting or 'the program'} called sys.exit({error.code!r}) while the job was not done: "
                "raise an error to stop it"
            ) from error
        if on_stats is not None and (now := time.monotonic()) >= due:
            due = now + STATS_SECONDS
            on_stats(session_stats(session))
    return returned


def run_here(session: Session, drive: Drive | None, on_stats: OnStats | None, began: float) -> Result:
    """Run a session in this process to the end of its job; returns the result.

    The session is closed, and the result is that of its worker only.
    """
    index = session.index
    tell = None if on_stats is None else (lambda stats: on_stats({index: stats}))
    with sought_seldom():
        value = run_session(session, drive, tell)
    captured = {node.name: session.captured(node.name) for node in session.plan.graph.of_kind("capture")}
    session.close()
    stats = {index: session_stats(session, done=True)}
    session.forget()
    if on_stats is not None:
        on_stats(stats)
    return Result(time.perf_counter() - began, stats, {} if drive is None else {index: value}, captured)


def session_stats(session: Session, done: bool = False) -> Stats:
    """Statistics of the session."""
    worker = session.worker
    times = [worker.input_time(node.index) for node in worker.plan.graph.of_kind("source", "input")]
    live = [at[0] for at in times if at is not None]
    open_epochs = [least[0] for ends in worker.plan.ends.values() for w in ends for least in worker.tracker.frontier(w)]
    return Stats(
        records=sum(source.records for source in session.sources),
        written=session.written,
        epoch=None if done else min((epoch for epoch in open_epochs if epoch < INF), default=None),
        read_epoch=min(live, default=None),
        queued_bytes=worker.queued_bytes,
        done=done,
        jobs=session.running_jobs(),
    )


@contextmanager
def explaining(show: Callable[[], None]) -> Iterator[None]:
    """Context in a job: Ctrl-\\ shows pending work instead of ending the process."""
    if not hasattr(signal, "SIGQUIT") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        show()

    before = signal.signal(signal.SIGQUIT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGQUIT, before)
