"""Run a dataflow to its end: in the caller's process, or on several worker processes."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from timely.batch import Batch
from timely.dataflow import Dataflow
from timely.drivers.child import session_stats
from timely.drivers.control import Stats
from timely.drivers.explain import report
from timely.drivers.inputs import Limits
from timely.drivers.processes import ProcessGroup
from timely.drivers.program import Program
from timely.drivers.session import Session
from timely.errors import FalkirkError
from timely.order import Time
from timely.plan import compile_plan
from timely.wire import Capture

_STATS_SECONDS = 0.2

OnStats = Callable[[Mapping[int, Stats]], None]


@dataclass(slots=True)
class Result:
    """What a finished job leaves behind."""

    seconds: float
    stats: dict[int, Stats]
    returned: dict[int, Any]
    _captured: dict[str, list[tuple[Time, Batch]]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Records that the sources read, on all workers."""
        return sum(stats.records for stats in self.stats.values())

    def captured(self, capture: Capture | str) -> list[tuple[Time, Batch]]:
        """The batches that reached a capture, with their times, in order of time; of all workers."""
        name = capture if isinstance(capture, str) else capture.name
        if name not in self._captured:
            raise FalkirkError(f"there is no capture {name!r}; there are: {', '.join(self._captured) or 'none'}")
        return sorted(self._captured[name], key=lambda entry: entry[0])


def run(
    program: Dataflow | Callable[..., Dataflow] | Program,
    workers: int = 1,
    limits: Limits | None = None,
    drive: Callable[[Session], Any] | None = None,
    on_stats: OnStats | None = None,
) -> Result:
    """Run `program` until all its sources have ended.

    One worker runs in the caller's process, several in processes of their own. `drive(session)`, if given, runs on every
    worker in place of the usual loop, to feed inputs by hand. `on_stats` is called several times a second.
    Raises the error of whatever went wrong first; sinks then hold whole epochs only.
    """
    if workers < 1:
        raise FalkirkError(f"a job needs at least one worker, not {workers}")
    if not isinstance(program, Program):
        program = Program(flow=program)
    began = time.perf_counter()
    flow = program.build()
    names = {node.index: node.name for node in flow.graph.of_kind("capture")}
    if workers == 1:
        return _run_here(flow, names, limits, drive, on_stats, began)
    compile_plan(flow.graph, workers)
    group = ProcessGroup(program, workers, limits, drive)
    with _explaining(group.explain):
        outcome = group.wait(on_stats)
    captured = {name: outcome.captured.get(index, []) for index, name in names.items()}
    return Result(time.perf_counter() - began, outcome.stats, outcome.returned, captured)


def _run_here(
    flow: Dataflow,
    names: dict[int, str],
    limits: Limits | None,
    drive: Callable[[Session], Any] | None,
    on_stats: OnStats | None,
    began: float,
) -> Result:
    with (
        Session(flow, limits=limits) as session,
        _explaining(lambda: print(report(session.worker), file=sys.stderr, flush=True)),
    ):
        returned: dict[int, Any] = {}
        if drive is not None:
            returned[0] = drive(session)
            for node in flow.graph.of_kind("input"):
                session.input(node.name).close()
        elif any(flow.graph.of_kind("input")):
            names_of = ", ".join(repr(node.name) for node in flow.graph.of_kind("input"))
            raise FalkirkError(f"nothing feeds the input {names_of}: use a source, or run with drive=function")
        due = time.monotonic() + _STATS_SECONDS
        while not session.done:
            session.step(_STATS_SECONDS)
            if on_stats is not None and (now := time.monotonic()) >= due:
                due = now + _STATS_SECONDS
                on_stats({0: session_stats(session)})
        stats = {0: session_stats(session, done=True)}
        if on_stats is not None:
            on_stats(stats)
        captured = {name: session.captured(name) for name in names.values()}
    return Result(time.perf_counter() - began, stats, returned, captured)


@contextmanager
def _explaining(show: Callable[[], None]) -> Iterator[None]:
    """While inside, Ctrl-\\ prints what the job waits for instead of ending it."""
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
