"""The invariants of the agent can fail: without a rule, the one that stands for it says so. And the story is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.agent.agent import Agent
from recovery.agent.events import Connected, FromMonitor, Stored
from recovery.agent.invariants import INVARIANTS
from recovery.agent.state import WorkerPhase
from recovery.memory.records import LogEntry
from recovery.metadata import at_epoch
from recovery.place import Place
from recovery.protocol import Cut, Drain, Durable, Restored
from tests.recovery.jobs import agent_of, job, named, tell
from timely.data.messages import Frame
from timely.story import InvariantBroken

FAR = 10**6


def forgets_its_memory(agent: Agent) -> None:
    agent.alive = False


def restores_without_a_decision(agent: Agent) -> None:
    agent.worker.generation += 1


def reports_without_a_segment(agent: Agent) -> None:
    assert agent.journal.in_flight is None
    agent.reports.sealed.append(Durable(Place(agent.index), agent.checkpoints.generation, 0, (1,), ()))


def keeps_a_cut_while_it_drains(agent: Agent) -> None:
    tell(agent, FromMonitor(Drain(agent.round + 1, (Place(agent.index), Place(1 - agent.index)))))
    agent.cuts.due.append(Cut(agent.worker.generation, 0, (1,)))


def cuts_too_late(agent: Agent) -> None:
    tell(agent, FromMonitor(Cut(agent.worker.generation, 0, (FAR,))))


def drains_too_early(agent: Agent) -> None:
    agent.reports.gathered.append(Durable(Place(agent.index), agent.checkpoints.generation, 0, (1,), ()))
    agent.phase = WorkerPhase.DRAINED


def keeps_old_frames(agent: Agent) -> None:
    agent.rounds.early.append(Frame(1 - agent.index, agent.worker.generation))


def forgets_what_was_complete(agent: Agent) -> None:
    agent.recorder.since[0] = (FAR,)


def collects_too_much(agent: Agent) -> None:
    p = named(agent, "first")
    agent.low[agent.index][p] = at_epoch(FAR, agent.layout.processors[p].depth)


def forgets_what_is_noted(agent: Agent) -> None:
    agent.noted -= 1


def begins_before_its_report(agent: Agent) -> None:
    agent.noted -= 1
    agent.reports.gathered.append(Restored(Place(agent.index), agent.checkpoints.generation))


def keeps_logs(agent: Agent) -> None:
    edge = next(edge for edge in agent.layout.edges if edge.resends)
    agent.recorder.logs[edge.edge, 0] = [LogEntry(edge.edge, 0, 1, (1,), (1,))]
    agent.low[0][edge.target] = (2,)


def keeps_messages(agent: Agent) -> None:
    edge = next(edge for edge in agent.layout.edges if edge.kept)
    agent.low[1][edge.target] = (1_000,)


def ends_too_early(agent: Agent) -> None:
    agent.phase = WorkerPhase.RELEASED


BROKEN: dict[str, Callable[[Agent], None]] = {
    "memory_begins_with_a_decision": forgets_its_memory,
    "one_generation": restores_without_a_decision,
    "reports_wait_for_their_segment": reports_without_a_segment,
    "decisions_are_noted_in_turn": forgets_what_is_noted,
    "work_waits_for_the_report": begins_before_its_report,
    "cuts_fall_while_it_runs": keeps_a_cut_while_it_drains,
    "cuts_are_at_what_is_complete": cuts_too_late,
    "drained_is_durable": drains_too_early,
    "early_frames_are_of_a_generation_to_come": keeps_old_frames,
    "what_came_back_is_complete": forgets_what_was_complete,
    "watermarks_can_be_restored": collects_too_much,
    "logs_are_collected": keeps_logs,
    "kept_messages_are_collected": keeps_messages,
    "who_is_done_needs_nothing": ends_too_early,
}


def test_each_invariant_has_a_case() -> None:
    assert {each.__name__ for each in INVARIANTS} == BROKEN.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_an_agent_that_breaks_an_invariant_is_found(name: str) -> None:
    agent = agent_of(job("logs", 2), 0)
    agent.check()
    BROKEN[name](agent)
    found = [each.__name__ for each in INVARIANTS if each(agent) is not None]
    assert name in found
    with pytest.raises(InvariantBroken, match=found[0]):
        agent.check()


def test_an_internal_error_tells_what_came_before() -> None:
    agent = agent_of(job("logs", 2), 0)
    tell(agent, Connected(), now=12.5)
    with pytest.raises(ValueError, match="is not the segment") as raised:
        tell(agent, Stored("worker-000/segment-99999999"), now=13.5)
    (story,) = raised.value.__notes__
    assert "12.5: Connected()\n    -> Report(message=Join(place=(0, 0)" in story
    assert story.splitlines()[-1] == "13.5: Stored(name='worker-000/segment-99999999')"
