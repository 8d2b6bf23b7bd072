"""What a part of an agent works on, without the machine and the other parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.state import AgentState, WorkerPhase
from recovery.layout import lay_out
from recovery.place import Place
from recovery.store.reading import take_over
from tests.recovery.store.owners import STORE, memory_disk
from timely.dataflow.plan import compile_plan

_Effect = TypeVar("_Effect")


def running(build: Callable[[], Dataflow], workers: int = 1) -> AgentState:
    """The state of worker 0 of a job that has just begun, with nothing before it."""
    plan = compile_plan(build().graph, workers)
    journal, _, _ = take_over(memory_disk(), "worker-000", STORE, 1)
    own = AgentState(plan, lay_out(plan), Place(0), 1, journal)
    journal.resume()
    own.worker.awaited = set()
    own.phase, own.alive, own.now = WorkerPhase.RUNNING, True, 0.0
    return own


def taken(own: AgentState, kind: type[_Effect]) -> list[_Effect]:
    """The effects of a kind since the last call, of which the others are dropped."""
    effects, own.effects = own.effects, []
    return [effect for effect in effects if isinstance(effect, kind)]


class NoReports:
    """Takes reports, and has nothing on its way to the store unless it is told so."""

    def __init__(self) -> None:
        self.gathered: list[object] = []
        self.writing = False

    def gather(self, message: object) -> None:
        self.gathered.append(message)

    def waits_for_store(self) -> bool:
        return self.writing


class NoCuts:
    """Counts what a round does to cuts."""

    def __init__(self) -> None:
        self.finished = self.dropped = 0

    def finish(self) -> None:
        self.finished += 1

    def drop(self) -> None:
        self.dropped += 1
