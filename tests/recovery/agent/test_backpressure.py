"""Sources wait while much waits for a monitor that is away, and for a large cut that is late.

What they give during a late cut makes the next one larger, and that one later.
"""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from recovery.agent.agent import Agent
from recovery.agent.backpressure import LARGE_CUT, Backpressure
from recovery.agent.effects import Throttle
from recovery.agent.events import PieceDue
from recovery.agent.state import AgentState
from recovery.memory.records import LogEntry
from recovery.protocol import Cut
from tests.recovery.agent.driven import DrivenAgents, counts, of_kind, timed
from timely.data.batch import nbytes
from timely.operators.ends import StagedEnd
from timely.time import Frontier

LIMIT = 1000


def agents_of(most: int = LIMIT) -> tuple[DrivenAgents, Backpressure]:
    """A worker that runs, and its part that holds sources back, which heard of the monitor at time 0."""
    agents = DrivenAgents(counts, 1).begin()
    agent = agents.of[0]
    part = Backpressure(agent, agent.reports, agent.cuts, most, 10.0)
    at(agent, 0.0)
    part.received()
    return agents, part


def at(own: AgentState, now: float) -> None:
    own.now = now


def said(own: AgentState, part: Backpressure, now: float) -> list[Throttle]:
    """What the driver hears after a look at this time."""
    at(own, now)
    own.effects.clear()
    part.look()
    return of_kind(own.effects, Throttle)


def staged(agent: Agent) -> StagedEnd:
    (end,) = (each.operator for each in agent.worker.runtimes if isinstance(each.operator, StagedEnd))
    return end


def stage(agent: Agent, epoch: int, size: int) -> None:
    staged(agent).on_batch(cast(Any, None), 0, (epoch,), [b"a" * size])


def test_logs_and_staged_output_wait_and_state_does_not() -> None:
    agents, part = agents_of()
    agent = agents.of[0]
    agents.feed(0, 0, list(range(50)))
    agents.settle()
    agents.save(1)
    agents.raise_to((1,))
    assert part.bytes() == 0
    stage(agent, 1, 700)
    held = part.bytes()
    assert held >= 700
    here, gone = LogEntry(0, 0, 1, (0,), (0,), batch=["c" * 300]), LogEntry(0, 1, 1, (0,), (0,), payload=b"d" * 400)
    agent.recorder.logs.update({(0, 0): [here], (0, 1): [gone, gone]})
    assert part.bytes() == held + nbytes(["c" * 300]) + 800


def test_sources_wait_once_nothing_is_heard_of_the_monitor_and_too_much_waits() -> None:
    agents, part = agents_of()
    agent = agents.of[0]
    stage(agent, 0, 5000)
    both, none = Throttle(True, True), Throttle(False, False)
    assert said(agent, part, 9.9) == []
    assert said(agent, part, 10.0) == [both]
    assert said(agent, part, 10.1) == [], "it holds until something else is said"
    staged(agent).on_watermark(Frontier((), 1))
    assert said(agent, part, 10.4) == [], "it does not look at everything at each turn"
    assert said(agent, part, 10.5) == [none]
    stage(agent, 1, 5000)
    assert said(agent, part, 10.9) == []
    assert said(agent, part, 11.0) == [both]
    at(agent, 11.1)
    part.received()
    assert said(agent, part, 11.1) == [none]
    assert said(agent, part, 20.0) == []
    assert said(agent, part, 21.1) == [both]


def test_what_is_within_the_limit_stops_nobody() -> None:
    agents, part = agents_of()
    stage(agents.of[0], 0, 100)
    held = part.bytes()
    for most, full in ((1000, False), (held, False), (held - 1, True)):
        agents, part = agents_of(most)
        stage(agents.of[0], 0, 100)
        assert bool(said(agents.of[0], part, 10.0)) == full


def late_cut(interval: str, size: int) -> tuple[DrivenAgents, Agent, Backpressure]:
    """A worker with a cut in the making, of a group with the given processor, of which so many bytes are made."""
    agents = DrivenAgents(timed, 1).begin()
    agents.epochs(1)
    agent = agents.of[0]
    part = Backpressure(agent, agent.reports, agent.cuts, LIMIT, 1e9)
    agents.hear(0, Cut(1, agents.layout.processors[agents.named(interval)].group, (1,)))
    agents.tell(0, PieceDue(1))
    draft = agent.cuts.draft
    assert draft is not None
    draft.states[0][1].size += size
    return agents, agent, part


@given(
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=20).map(sorted),
    st.sampled_from((("second", 0.5), ("first", 3.0))),
)
def test_sources_wait_for_a_large_cut_once_it_takes_longer_than_the_interval(
    times: list[float], group: tuple[str, float]
) -> None:
    name, every = group
    _, agent, part = late_cut(name, LARGE_CUT + 1)
    holds = False
    for now in times:
        for throttle in said(agent, part, now):
            assert not throttle.everywhere, "only the worker whose cut is late"
            holds = throttle.here
        assert holds == (now - times[0] > every)
    agent.cuts.finish()
    agent.reports.gathered.clear()
    assert said(agent, part, 6.0) == [Throttle(False, False)] * holds


def test_they_do_not_wait_for_a_small_cut_however_slow_the_store_is() -> None:
    _, agent, part = late_cut("second", 1 << 20)
    assert not any(said(agent, part, float(now)) for now in range(100))


def test_where_no_seconds_were_asked_for_they_wait_after_one() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(1)
    agent = agents.of[0]
    part = Backpressure(agent, agent.reports, agent.cuts, LIMIT, 1e9)
    agents.hear(0, Cut(1, 0, (1,)))
    agents.tell(0, PieceDue(1))
    assert agent.cuts.draft is not None
    agent.cuts.draft.states[0][1].size += LARGE_CUT + 1
    assert [bool(said(agent, part, now)) for now in (1.0, 1.9, 2.1)] == [False, False, True]


def test_a_word_of_the_monitor_and_the_end_of_a_turn_come_to_it() -> None:
    """The machine's part: what it hears resets the patience, and each turn's end is a look."""
    agents = DrivenAgents(counts, 1).begin()
    agent = agents.of[0]
    agent.backpressure = Backpressure(agent, agent.reports, agent.cuts, LIMIT, 10.0)
    agents.raise_to((0,))
    agents.feed(0, 0, ["a" * 5000])
    agents.settle()
    agents.now += 20.0
    assert of_kind(agents.turn(0), Throttle) == [Throttle(True, True)]
    agents.raise_to((0,))
    assert of_kind(agents.turn(0), Throttle) == [Throttle(False, False)]
