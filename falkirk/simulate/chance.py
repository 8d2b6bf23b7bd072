"""Detection of clocks and random generators called by a program.

Done again, they give something else.

A run without failures is watched by Python's profiler, which hears of each call of C code, by whatever name the program has it.
Of Python's random generators it hears when they are seeded: one that was seeded in the same event gives the same again.
"""

from __future__ import annotations

import dis
import gc
import random
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from math import inf
from types import FrameType
from typing import Any

import numpy as np

from falkirk.simulate.world import World
from runtime.sources.driver import SourceDriver
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
_WITH_TIME = {time.localtime: 1, time.gmtime: 1, time.ctime: 1, time.asctime: 1, time.strftime: 2}
"""Functions with their number of arguments; with fewer, they read the clock."""
_TODAY = {"now", "utcnow", "today"}
_ENTROPY = {"urandom", "getrandom", "generate_time_safe"}
_DRAWS = {"random", "getrandbits"}
_PYTHONS = random.Random.__mro__[1]
"""C class of Python's random generators."""
_SHARED = random.random.__self__  # type: ignore[attr-defined]
"""Shared generator behind the functions of `random`."""
_NUMPYS: Any = np.random.mtrand._rand
"""Shared generator behind the functions of `numpy.random`."""
_KEPT = "a random generator that it keeps"

_SEEDING = {random.Random.seed.__code__, random.Random.setstate.__code__}
_EVENTS = {name for name in vars(Operator) if name.startswith("on_")}
_READING = {"partitions", "read", "read_until", "seek"}
"""Methods of a user's source with permission to wait by a clock."""
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Chance:
    """Profiler to record calls of clocks and random generators, by operator.

    `found`: a line for people by operator, kind of call and line, in the order in which they were met.
    """

    def __init__(self, world: World) -> None:
        self.found: dict[tuple[str, str], str] = {}
        self._world = world
        self._seeded: set[int] = set()
        """Identities of generators seeded in this event."""
        self._sown: set[int] = set()
        """Identities of generators seeded by a source; it begins anew when read again."""
        self._searched: list[object] = []
        """Sessions already searched for generators of NumPy."""
        self._drawn: list[tuple[Any, str]] = []
        """NumPy generators with their last known states.

        Their calls are invisible to the profiler; a changed state shows them.
        """

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        """Profile function: record a call.

        See `sys.setprofile`.
        """
        if event == "c_call":
            if what := self._chance(frame, called):
                self._note(frame, what)
        elif event == "call":
            if frame.f_code in _SEEDING:
                self._seed(frame)
            elif frame.f_code.co_name in _EVENTS:
                self._search()
        elif event == "return" and frame.f_code.co_name in _EVENTS:
            self._seeded.clear()
            for at, (generator, state) in enumerate(self._drawn):
                if state != (now := _state_of(generator)):
                    self._drawn[at] = generator, now
                    shared = generator is _NUMPYS
                    self._note(frame, "NumPy's shared random generator" if shared else _KEPT, after=True)

    def _chance(self, frame: FrameType, called: Any) -> str:
        """The name of a clock or random generator; empty for any other function."""
        name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
        if name in _TODAY and isinstance(owner, type) and issubclass(owner, date):
            return f"{owner.__name__}.{name}"
        if name in _DRAWS and isinstance(owner, _PYTHONS):
            if owner is _SHARED:
                return "the shared random generator"
            return "" if id(owner) in self._seeded | self._sown else _KEPT
        if name in _ENTROPY:
            return "the system's random generator"
        if owner is time and (called in _CLOCKS or _arguments(frame) < _WITH_TIME.get(called, 0)):
            return f"time.{name}"
        return ""

    def _seed(self, frame: FrameType) -> None:
        """Record the seeding of a Python generator."""
        generator = frame.f_locals.get("self")
        if isinstance(generator, random.SystemRandom):
            return
        if frame.f_locals.get("a", generator) is None:
            self._note(frame, "a random generator without a seed")
        within = frame.f_back
        while within is not None:
            known = within.f_locals.get("self")
            if isinstance(known, Operator) and within.f_code.co_name in _EVENTS:
                self._seeded.add(id(generator))
                return
            if isinstance(known, SourceDriver):
                self._sown.add(id(generator))
                return
            within = within.f_back

    def _search(self) -> None:
        """Find the program's NumPy generators after a worker process starts."""
        sessions: list[object] = [process.session for process in self._world.processes]
        if sessions == self._searched:
            return
        self._searched = sessions
        kinds = (np.random.Generator, np.random.RandomState)
        # by type: `isinstance` asks an object for its class, which one that stands for another that is gone refuses
        generators = [each for each in gc.get_objects() if issubclass(type(each), kinds) and each is not _NUMPYS]
        self._drawn = [(generator, _state_of(generator)) for generator in (_NUMPYS, *generators)]

    def _note(self, frame: FrameType | None, what: str, after: bool = False) -> None:
        """Record a call from `frame`.

        `after`: it was somewhere in the event that is over now.
        """
        line: Site | None = None
        doing: tuple[Stage, ...] = ()
        paces = False
        collecting = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        while frame is not None:
            if frame.f_code in collecting:
                return  # of whoever watches Python's collector, which comes at a moment of its own
            known = frame.f_locals.get("self")
            if not after and _is_the_users(frame):
                line = line or Site(frame.f_code.co_filename, frame.f_lineno)
                paces = paces or frame.f_code.co_name in _READING
            nodes: list[Node] = []
            if isinstance(known, Operator) and frame.f_code.co_name in _EVENTS:
                doing = doing or (() if after else frame.f_locals.get("doing", ()))
                nodes = self._nodes(known, doing)
            elif isinstance(known, Outbox) and (route := frame.f_locals.get("route")) is not None:
                nodes = [known.plan.graph.nodes[route.edge.target.node]]  # it chooses a worker for each record
            elif isinstance(known, SourceDriver) and line is not None and not (paces and "random" not in what):
                nodes = [known.node]
            if nodes:
                self._found(nodes, what, line)
                return
            frame = frame.f_back

    def _found(self, nodes: list[Node], what: str, line: Site | None) -> None:
        if all(node.nondeterministic is None for node in nodes):
            who = str(nodes[0]) if len(nodes) == 1 else f"one of {', '.join(map(str, nodes))}"
            self.found.setdefault((who, what), f"{who} calls {what}" + ("" if line is None else f" at {line}"))

    def _nodes(self, operator: Operator, doing: tuple[Stage, ...]) -> list[Node]:
        """Nodes run by an operator; of a fused chain, those of the current stages.

        Empty if the operator is a part of another one, which runs it.
        """
        for process in self._world.processes:
            for runtime in process.session.worker.runtimes if process.session is not None else ():
                if runtime.operator is operator:
                    nodes = list(runtime.processor.nodes)
                    return [node for node in nodes if any(stage in doing for stage in node.stages)] or nodes
        return []


def _arguments(frame: FrameType) -> float:
    """Number of arguments of a frame's current call; infinite if unknown."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if code[at] == dis.opmap["CALL"] else inf


def _state_of(generator: Any) -> str:
    """The state of a generator of NumPy, in brief."""
    state = generator.get_state(legacy=False) if hasattr(generator, "get_state") else generator.bit_generator.state
    if isinstance(state["state"], dict) and "pos" in state["state"]:
        return f"{state['state']['pos']} {state['state']['key'][0]}"
    return repr(state)


def _is_the_users(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] not in PACKAGES and not frame.f_code.co_filename.startswith(
        (*_LIBRARIES, "<frozen")
    )


def find_chance(build: Callable[[], Dataflow], workers: int, schedule: int) -> list[str]:
    """Undeclared calls of clocks or random generators, one line per operator.

    Found by a run without failures.
    """
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
