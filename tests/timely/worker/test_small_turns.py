"""Workers that are interrupted after every single batch or notification still say nothing of progress too early.

So do those that interrupt themselves, because the others may be waiting.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from libraries import differential
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential.rows import rows_of
from runtime.session import session
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from tests.timely.worker.test_worker import PROGRAMS, diamond, loop_with_notifications, nested_loops, outputs
from timely.worker.worker import Worker

TURNED = [program for program in PROGRAMS if program is not diamond]


@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("program", TURNED, ids=lambda p: p.__name__)
def test_short_turns_give_the_same_output(program: Any, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TURN", turn)
    for seed in range(4):
        assert outputs(program, 3, seed) == outputs(program, 1, seed)


@pytest.mark.parametrize("often", [1.0, 0.4])
@pytest.mark.parametrize("program", [loop_with_notifications, nested_loops], ids=lambda p: p.__name__)
def test_telling_before_notifications_gives_the_same_output(
    program: Any, often: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    take = Worker.take_frames

    def watched(worker: Worker, quiet: bool, pressed: bool = False) -> Any:
        told.append(worker.telling)
        return take(worker, quiet, pressed)

    monkeypatch.setattr(Worker, "take_frames", watched)
    for seed in range(6):
        random = Random(seed)
        monkeypatch.setattr(Session, "_late", lambda _, random=random: random.random() < often)
        assert outputs(program, 3, seed) == outputs(program, 1, seed)
    assert any(told), "no worker ever interrupted itself"


def test_others_hear_that_messages_were_taken_before_what_follows_is_begun() -> None:
    """Two workers count the same keys in a loop. Each can begin only when the other has taken what it was sent, and said so.

    Worker 0 has all that it needs when the frames of worker 1 come. It must answer before it counts, as worker 1 is idle until
    then.
    """
    flow = Dataflow("counts")
    given = differential.input_of(flow, "in")
    given.enter(flow.graph.add_scope("loop", given.scope)).count(name="count").leave().capture("out")
    cluster = Cluster(flow, 2, seed=None)
    zero, one = cluster.sessions
    for each in cluster.sessions:
        each.input("in").send([rows_of(range(20_000), range(20_000))])
        each.input("in").advance_to(1)
        each.step()

    def deliver(begin: int, end: int) -> None:
        while cluster.in_flight[begin, end]:
            cluster._deliver((begin, end))

    def waits(session: Session) -> bool:
        return "count" in [cluster.plan.processors[each].node.name for each, _ in session.worker.pending()]

    deliver(1, 0)
    deliver(0, 1)
    one.step()
    deliver(1, 0)
    zero.step()
    assert waits(zero), "it counted first"
    deliver(0, 1)
    one.step()
    zero.step()
    assert not waits(zero)
    assert not waits(one)
