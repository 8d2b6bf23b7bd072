"""Sources wait for a large cut that is late: else what they give meanwhile makes the next one larger, and that one later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from recovery.agent.agent import Agent
from recovery.backpressure import LARGE_CUT, Backpressure


def _late_cut(**values: Any) -> tuple[SimpleNamespace, Backpressure]:
    agent = SimpleNamespace(cutting=True, cut_every=0.5, unwritten=LARGE_CUT + 1, **values)
    return agent, Backpressure(cast(Agent, agent), 1 << 20, 10.0, 0.0)


def test_sources_wait_for_a_large_cut_once_it_takes_longer_than_the_interval() -> None:
    agent, backpressure = _late_cut()
    assert [backpressure.is_late(now) for now in (1.0, 1.4, 1.6, 9.0)] == [False, False, True, True]
    agent.cutting = False
    assert not backpressure.is_late(9.1)
    agent.cutting = True
    assert [backpressure.is_late(now) for now in (9.2, 9.8)] == [False, True]


def test_they_do_not_wait_for_a_small_cut_however_slow_the_store_is() -> None:
    agent, backpressure = _late_cut()
    agent.unwritten = 1 << 20
    assert not any(backpressure.is_late(float(now)) for now in range(100))


def test_where_no_seconds_were_asked_for_they_wait_after_one() -> None:
    agent, backpressure = _late_cut()
    agent.cut_every = None
    assert [backpressure.is_late(now) for now in (1.0, 1.9, 2.1)] == [False, False, True]
