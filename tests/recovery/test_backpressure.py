"""Sources wait while much waits for a monitor that is away, and for a large cut that is late.

What they give during a late cut makes the next one larger, and that one later.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from recovery.agent.agent import Agent
from recovery.agent.backpressure import LARGE_CUT, Backpressure
from recovery.memory.records import LogEntry
from timely.data.batch import nbytes
from timely.operators.base import Operator
from timely.operators.ends import StagedEnd
from timely.state import TimedBatches
from timely.time import Frontier


def _late_cut(**values: Any) -> tuple[SimpleNamespace, Backpressure]:
    agent = SimpleNamespace(cutting=True, cut_every=0.5, unwritten=LARGE_CUT + 1, **values)
    return agent, Backpressure(cast(Agent, agent), 1 << 20, 10.0, 0.0)


def test_sources_wait_for_a_large_cut_once_it_takes_longer_than_the_interval() -> None:
    agent, backpressure = _late_cut()
    assert [backpressure.is_late(now) for now in (1.0, 1.4, 1.5, 1.6, 9.0)] == [False, False, False, True, True]
    agent.cutting = False
    assert not backpressure.is_late(9.1)
    agent.cutting = True
    assert [backpressure.is_late(now) for now in (9.2, 9.8)] == [False, True]


def test_they_do_not_wait_for_a_small_cut_however_slow_the_store_is() -> None:
    for size in (1 << 20, LARGE_CUT):
        agent, backpressure = _late_cut()
        agent.unwritten = size
        assert not any(backpressure.is_late(float(now)) for now in range(100))


def test_where_no_seconds_were_asked_for_they_wait_after_one() -> None:
    agent, backpressure = _late_cut()
    agent.cut_every = None
    assert [backpressure.is_late(now) for now in (1.0, 1.9, 2.1)] == [False, False, True]


class _Counts(Operator):
    """Its state is saved, and waits for nobody."""

    def __init__(self) -> None:
        self.state = TimedBatches()
        self.state.add((0,), [b"x" * 5000])


def _waiting(
    *operators: Operator, logs: dict[tuple[int, int], list[LogEntry]] | None = None, most: int = 1000
) -> Backpressure:
    runtimes = [SimpleNamespace(operator=operator) for operator in operators]
    agent = SimpleNamespace(
        worker=SimpleNamespace(runtimes=runtimes), recorder=SimpleNamespace(logs=logs or {}), cutting=False
    )
    return Backpressure(cast(Agent, agent), most, 10.0, 0.0)


def _staged(*texts: bytes) -> StagedEnd:
    end = StagedEnd(0, True, [])
    end.on_batch(cast(Any, None), 0, (0,), list(texts))
    return end


def test_logs_and_staged_output_wait_and_state_does_not() -> None:
    assert _waiting(_Counts()).bytes() == 0
    assert _waiting(_Counts(), _staged(b"a" * 700), _staged(b"b" * 900)).bytes() >= 1600
    here, gone = LogEntry(0, 0, 1, (0,), (0,), batch=["c" * 300]), LogEntry(0, 1, 1, (0,), (0,), payload=b"d" * 400)
    assert _waiting(logs={(0, 0): [here], (0, 1): [gone, gone]}).bytes() == nbytes(["c" * 300]) + 800


def test_sources_wait_once_nothing_is_heard_of_the_monitor_and_too_much_waits() -> None:
    end = _staged(b"a" * 5000)
    backpressure = _waiting(end)
    assert not backpressure.is_full(9.9)
    assert backpressure.is_full(10.0)
    end.on_watermark(Frontier((), 1))
    assert backpressure.is_full(10.4), "it does not look at everything at each turn"
    assert not backpressure.is_full(10.5)
    end.on_batch(cast(Any, None), 0, (1,), [b"a" * 5000])
    assert not backpressure.is_full(10.9)
    assert backpressure.is_full(11.0)
    backpressure.heard(11.1)
    assert not backpressure.is_full(20.0)
    assert backpressure.is_full(21.1)


def test_what_is_within_the_limit_stops_nobody() -> None:
    held = _waiting(_staged(b"a" * 100)).bytes()
    for most, full in ((1000, False), (held, False), (held - 1, True)):
        assert _waiting(_staged(b"a" * 100), most=most).is_full(10.0) == full
