"""Each part of an invariant of the agent counts: a state in which only that part is broken is found, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.agent.agent import Agent
from recovery.agent.invariants import INVARIANTS
from recovery.agent.state import AGENT, WorkerPhase
from recovery.place import Place
from recovery.protocol import Cut, Durable, Restored
from tests.recovery.agent.driven import DrivenAgents, counts
from timely.data.messages import Frame

Break = Callable[[Agent], None]


def running() -> Agent:
    """Of a worker of two that has completed two epochs, and saved the first."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.save(1)
    return agents.of[0]


def finished() -> Agent:
    """Of a worker that is done."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.finish()
    assert agents.said[0].done
    return agents.of[0]


def durable(agent: Agent, generation: int) -> Durable:
    return Durable(Place(agent.index), generation, 0, (1,), ())


def journal_is_of_another_generation(agent: Agent) -> None:
    agent.journal.generation += 1


def engine_is_of_another_generation(agent: Agent) -> None:
    agent.worker.generation += 1


def round_is_older_than_the_generation(agent: Agent) -> None:
    agent.round = agent.checkpoints.generation - 1


def tells_of_a_generation_to_come(agent: Agent) -> None:
    agent.reports.gathered.append(durable(agent, agent.checkpoints.generation + 1))


def knows_of_a_decision_that_it_has_not_carried_out(agent: Agent) -> None:
    agent.noted += 1
    agent.reports.gathered.append(Restored(Place(agent.index), agent.checkpoints.generation))


def will_tell_of_a_decision_only_as_of_a_cut(agent: Agent) -> None:
    agent.noted -= 1
    agent.reports.gathered.append(durable(agent, agent.checkpoints.generation))


def makes_a_cut_in_a_pause(agent: Agent) -> None:
    agent.cuts.draft = agent.checkpoints.cut(0, (1,), lambda p: None, {})
    agent.phase = WorkerPhase.DRAINING


def is_to_make_a_cut_in_a_pause(agent: Agent) -> None:
    agent.cuts.due.append(Cut(1, 0, (1,)))
    agent.phase = WorkerPhase.DRAINING


def cuts_before_it_has_said_what_is_complete(agent: Agent) -> None:
    agent.completion.reported = None
    agent.cuts.due.append(Cut(1, 0, (1,)))


def cuts_beyond_what_is_complete(agent: Agent) -> None:
    agent.cuts.due.append(Cut(1, 0, (3,)))


def keeps_a_frame_of_this_generation(agent: Agent) -> None:
    agent.rounds.early.append(Frame(1, agent.worker.generation))


def keeps_a_frame_of_an_old_generation(agent: Agent) -> None:
    agent.rounds.early.append(Frame(1, agent.worker.generation - 1))


def w_is_below_everything_somewhere(agent: Agent) -> None:
    agent.low[1][0] = (3,)


def something_waits_at_the_end(agent: Agent) -> None:
    agent.reports.gathered.append(durable(agent, 1))


def a_first_frame_is_awaited_at_the_end(agent: Agent) -> None:
    agent.worker.awaited.add(1)


BROKEN: dict[str, list[Break]] = {
    "one_generation": [
        journal_is_of_another_generation,
        engine_is_of_another_generation,
        round_is_older_than_the_generation,
    ],
    "reports_wait_for_their_segment": [tells_of_a_generation_to_come],
    "decisions_are_noted_in_turn": [
        knows_of_a_decision_that_it_has_not_carried_out,
        will_tell_of_a_decision_only_as_of_a_cut,
    ],
    "cuts_fall_while_it_runs": [makes_a_cut_in_a_pause, is_to_make_a_cut_in_a_pause],
    "cuts_are_at_what_is_complete": [cuts_before_it_has_said_what_is_complete, cuts_beyond_what_is_complete],
    "early_frames_are_of_a_generation_to_come": [keeps_a_frame_of_this_generation, keeps_a_frame_of_an_old_generation],
    "who_is_done_needs_nothing": [
        w_is_below_everything_somewhere,
        something_waits_at_the_end,
        a_first_frame_is_awaited_at_the_end,
    ],
}


@pytest.mark.parametrize(("name", "breaks"), [(name, each) for name, several in BROKEN.items() for each in several])
def test_a_part_that_is_broken_is_found(name: str, breaks: Break) -> None:
    agent = finished() if name == "who_is_done_needs_nothing" else running()
    agent.check()
    breaks(agent)
    assert name in [each.__name__ for each in INVARIANTS if each(agent) is not None]


def test_what_only_looks_like_it_is_right() -> None:
    agent = running()
    agent.rounds.early.append(Frame(1, agent.worker.generation + 1))  # the next generation has begun elsewhere
    agent.noted -= 1
    agent.worker.awaited.add(AGENT)
    agent.reports.gathered.append(Restored(Place(agent.index), agent.checkpoints.generation))
    agent.cuts.due.append(Cut(1, 0, (2,)))
    agent.check()
    new = DrivenAgents(counts).of[0]
    new.rounds.early.append(Frame(1, 0))  # it has not begun at all
    new.check()
