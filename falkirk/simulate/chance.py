"""Clocks and random generators that a program's functions and operators call: done again, they give something else.

A run without failures is watched by Python's profiler, which hears of each call of C code, by whatever name the program has it.
"""

from __future__ import annotations

import random
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from types import FrameType
from typing import Any

import numpy as np

from falkirk.simulate.world import World
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.graph import Node
from timely.errors import PACKAGES, FalkirkError, Site
from timely.operators.base import Operator
from timely.operators.stateless import Stage
from timely.worker.outbox import Outbox

_CLOCKS = {
    getattr(time, clock + form)
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for form in ("", "_ns")
} | {time.clock_gettime, time.clock_gettime_ns}
_TODAY = {"now", "utcnow", "today"}
_ENTROPY = {"urandom", "getrandom", "generate_time_safe"}
_DRAWS = {"random", "getrandbits"}
_SHARED = random.random.__self__  # type: ignore[attr-defined]
"""The generator behind the functions of `random`."""

_EVENTS = {"on_batch", "on_notify", "on_result", "on_watermark"}
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Chance:
    """Notes every call of a clock or a random generator by what operators do, as long as it is the profiler.

    `found`: a line for people by operator, kind of call and line, in the order in which they were met.
    """

    def __init__(self, world: World) -> None:
        self.found: dict[tuple[str, str], str] = {}
        self._world = world
        self._drawn = _drawn_of_numpy()

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        """Hear of a call. See `sys.setprofile`."""
        if event == "c_call" and (what := _chance(called)):
            self._note(frame, what)
        elif event == "return" and frame.f_code.co_name in _EVENTS and self._drawn != (drawn := _drawn_of_numpy()):
            self._drawn = drawn  # its functions are not told of, but what they leave behind is seen
            self._note(frame, "NumPy's shared random generator", after=True)

    def _note(self, frame: FrameType | None, what: str, after: bool = False) -> None:
        """Note a call from `frame`; `after`: it was somewhere in the event that is over now."""
        line: Site | None = None
        while frame is not None:
            known = frame.f_locals.get("self")
            if not after and line is None and _is_the_users(frame):
                line = Site(frame.f_code.co_filename, frame.f_lineno)
            if isinstance(known, Operator) and frame.f_code.co_name in _EVENTS:
                nodes = self._nodes(known, () if after else frame.f_locals.get("doing", ()))
            elif isinstance(known, Outbox) and (route := frame.f_locals.get("route")) is not None:
                nodes = [known.plan.graph.nodes[route.edge.target.node]]  # it chooses a worker for each record
            else:
                frame = frame.f_back
                continue
            if nodes and all(node.nondeterministic is None for node in nodes):
                who = str(nodes[0]) if len(nodes) == 1 else f"one of {', '.join(map(str, nodes))}"
                self.found.setdefault((who, what), f"{who} calls {what}" + ("" if line is None else f" at {line}"))
            return

    def _nodes(self, operator: Operator, doing: tuple[Stage, ...]) -> list[Node]:
        """The nodes that an operator runs; of a chain those whose stages it is doing, if that is known."""
        for process in self._world.processes:
            for runtime in process.session.worker.runtimes if process.session is not None else ():
                if runtime.operator is operator:
                    nodes = list(runtime.processor.nodes)
                    return [node for node in nodes if any(stage in doing for stage in node.stages)] or nodes
        return []


def _chance(called: Any) -> str:
    """The name of a clock or random generator; empty for any other function."""
    name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
    if name in _TODAY and isinstance(owner, type) and issubclass(owner, date):
        return f"{owner.__name__}.{name}"
    if owner is _SHARED and name in _DRAWS:
        return "the shared random generator"
    if name in _ENTROPY:
        return "the system's random generator"
    return f"time.{name}" if owner is time and called in _CLOCKS else ""


def _drawn_of_numpy() -> tuple[int, int]:
    """The state of the generator behind the functions of `numpy.random`, in brief."""
    state: Any = np.random.get_state(legacy=False)
    return int(state["state"]["pos"]), int(state["state"]["key"][0])


def _is_the_users(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] not in PACKAGES and not frame.f_code.co_filename.startswith(
        (*_LIBRARIES, "<frozen")
    )


def find_chance(build: Callable[[], Dataflow], workers: int, schedule: int) -> list[str]:
    """A line for each operator that calls clocks or random generators in a run without failures, and does not declare it."""
    world = World(build, workers, schedule, ())
    chance = Chance(world)
    before = sys.getprofile()
    sys.setprofile(chance)
    try:
        with suppress(FalkirkError):  # who asks knows already that the program does not run
            world.run()
    finally:
        sys.setprofile(before)
    return list(chance.found.values())
