"""Observations of workers, in jobs with all kinds of logged edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from falkirk.simulate.world import World
from recovery.agent.agent import Agent
from recovery.protocol import ROWS, Observe, Working
from runtime.control import JobStats
from runtime.recovery.observer import Observer
from tests.recovery.jobs import quiet
from timely.worker import restoring
from timely.worker.worker import Worker


def looks(world: World) -> Iterator[tuple[Observer, Agent]]:
    """The observer and the agent of each worker, whose sizes were just measured, every 50 steps of a job."""
    for _ in range(3_000):
        world.step()
        if world.steps % 50 == 0:
            for process in world._processes.values():
                if process is not None and process.recovery is not None:
                    process.recovery._observer._measure()
                    yield process.recovery._observer, process.recovery.agent
        if world.finished:
            break


def measured(observer: Observer, row: str) -> Any:
    """A row of what was measured, by processor."""
    return observer._sizes[ROWS.index(row) - ROWS.index("rows")]


@pytest.mark.parametrize("program", ["ahead", "long_loop", "logs"])
def test_logged_messages_are_counted_also_where_only_those_into_later_times_are(program: str) -> None:
    seen = 0
    for observer, agent in looks(quiet(program, 2)):
        logged = sum(map(len, agent.recorder.logs.values()))
        assert measured(observer, "logged").sum() == logged
        seen += bool(logged)
    assert seen


def test_what_is_kept_for_survivors_is_counted_at_its_sender() -> None:
    seen = 0
    for observer, agent in looks(quiet("rounds", 2, seed=3)):  # whose budget is plenty
        assert measured(observer, "kept_bytes").sum() == agent.recorder.shipments.size
        senders = set(np.flatnonzero(measured(observer, "kept_messages")).tolist())
        assert senders <= {edge.source for edge in agent.layout.edges if edge.kept}
        sending = {edge.source for edge in agent.layout.edges if edge.kept}
        assert {p for p, epoch in enumerate(measured(observer, "kept_from")) if epoch >= 0} == sending
        seen += bool(senders)
    assert seen


def test_what_is_done_for_an_operator_is_told_of_its_processor_also_where_several_are_fused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And of no other one; a job of an operator that nobody knows is left out."""
    observer, agent = next(looks(quiet("logs", 2)))
    plan = agent.worker.plan
    nodes = [(node.name, p) for p, processor in enumerate(plan.processors) for node in processor.nodes]
    assert len(nodes) > len(plan.processors)
    jobs = [JobStats(name, p, f"works for {name}", p, 9, 1.23) for name, p in nodes]
    monkeypatch.setattr(
        observer._session, "running_jobs", lambda: (*jobs, JobStats("nobody", 0, "", 0, 0, 0.0)), raising=False
    )
    observer.hear(Observe(1.0, 10.0))
    assert observer._counting is not None
    seen = observer._look(Observe(1.0, 10.0))
    assert seen.working == tuple(Working(p, p, f"works for {name}", p, 9, 1.2) for name, p in nodes)


def test_what_has_no_room_any_more_is_not_called_kept() -> None:
    for observer, agent in looks(quiet("rounds", 2, seed=3)):
        kept = agent.recorder.shipments
        most = max((message[1][0] for channel in kept._messages.values() for message in channel), default=None)
        if most is None:
            continue
        kept.budget = 0
        kept._make_room()
        observer._measure()
        assert measured(observer, "kept_from").max() == most + 1
        return
    raise AssertionError("nothing was kept at any look")


def test_what_waits_in_a_busy_worker_keeps_back_all_that_it_can_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of the work of a worker that is busy in a loop, what goes round is in no count of the tracker."""
    run = Worker.run
    worlds: list[World] = []
    looked = [0]

    def in_steps(worker: Worker, limit: int = 1 << 60) -> bool:
        for _ in range(limit):
            if run(worker, 1):
                return True
            for process in worlds[-1]._processes.values() if looked[0] < 500 else ():
                if process is not None and process.recovery is not None and process.recovery.agent.worker is worker:
                    check(process.recovery._observer, process.recovery.agent)
        return False

    def check(observer: Observer, agent: Agent) -> None:
        seen = observer._look(Observe(1.0, 10.0, tuple(range(len(agent.layout.processors)))))
        told = np.frombuffer(seen.numbers, dtype=np.int64).reshape(len(ROWS), -1)[:2].T.tolist()
        for p, time in restoring.look(agent.worker):
            edges = [edge for edge in agent.layout.edges if edge.source == p and edge.summary.carries(time)]
            for q, later in [(p, time), *((edge.target, edge.summary(time)) for edge in edges)]:
                looked[0] += 1
                assert tuple(told[q])[: len(later)] <= later[:2]
                assert any(all(a <= b for a, b in zip(each, later)) for each in seen.closely[q].frontier)

    monkeypatch.setattr(Worker, "run", in_steps)
    worlds.append(quiet("long_loop", 1))
    for _ in range(3_000):
        worlds[-1].step()
        if worlds[-1].finished:
            break
    assert looked[0]
