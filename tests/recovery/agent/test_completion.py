"""Completed times of one worker: with something outside of it, on other workers or on its way, and with work that waits here.

The loop is cut between its iterations. So of its own work, and of what is outside, the iteration counts; of what waits before
it only the epoch; and what is behind it holds nothing back.
"""

from __future__ import annotations

import pytest

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.agent import Agent
from recovery.metadata import MORE, Bound
from recovery.policy import Lazy
from tests.recovery.agent.driven import DrivenAgents, looping
from timely.io import Iterable
from timely.time import Time


def by_epochs() -> Dataflow:
    """A loop that is cut between epochs only."""
    flow = Dataflow("by epochs")
    with flow.region("all", policy=Lazy(every=1)):
        numbers = flow.source("in", Iterable(range(10)))
        out = numbers.iterate(lambda inner: inner.map(abs, name="abs").distinct(name="new"), name="round")
        out.map(abs, name="same").capture("out")
    return flow


def nesting() -> Dataflow:
    """A loop in a loop; cuts are between the iterations of the outer one."""
    flow = Dataflow("nesting")
    with flow.region("loop", policy=Lazy(every=1.0, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
        out = numbers.iterate(
            lambda outer: outer.iterate(lambda inner: inner.distinct(name="deep"), name="inner").distinct(name="new"),
            name="round",
        )
    out.map(abs, name="same").capture("out")
    return flow


def divided() -> Dataflow:
    """A loop in two groups: `first` and all that has no policy of its own, and `second`, to which and from which is logged."""
    own = Lazy(every=1.0, log_outputs=True)
    flow = Dataflow("divided")
    with flow.region("loop", policy=Lazy(every=1.0, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))

        def body(inner: Stream) -> Stream:
            first = inner.distinct(name="first").policy(own)
            second = first.map(abs, name="abs").distinct(name="second").policy(own)
            return second.map(abs, name="between").distinct(name="third")

        out = numbers.iterate(body, name="round")
    out.map(abs, name="same").capture("out")
    return flow


def behind_another() -> Dataflow:
    """Two loops, each in a group of its own, one behind the other, which keeps and exchanges nothing."""
    flow = Dataflow("behind another")
    with flow.region("front", policy=Lazy(every=1.0, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
        first = numbers.iterate(lambda inner: inner.map(abs).distinct(name="first"), name="first-loop")
    with flow.region("back", policy=Lazy(every=1.0, log_outputs=True)):
        second = first.iterate(lambda inner: inner.filter(bool, name="second"), name="second-loop")
    second.map(abs, name="same").capture("out")
    return flow


def far(build: object, epoch: int = 5) -> DrivenAgents:
    """Two workers whose sources are at an epoch, and nothing else is outside."""
    agents = DrivenAgents(build).begin()  # type: ignore[arg-type]
    for before in range(epoch):
        for worker in (0, 1):
            agents.feed(worker, before, [])
    agents.settle()
    agents.of[0].completion.reported = None
    return agents


def outside(agents: DrivenAgents, name: str, *times: Time) -> None:
    """Something at these times may still leave a processor, on whatever worker."""
    agent = agents.of[0]
    place = agent.plan.processors[agents.named(name)].place
    assert place is not None
    for time in times:
        agent.worker.tracker.update(place, time, +1)


def waits(agents: DrivenAgents, name: str, *times: Time) -> None:
    """Batches at these times wait here in the queue of a processor."""
    agents.of[0].worker._ready += [((0,), 0, agents.named(name), time) for time in times]


def group_of(agents: DrivenAgents, name: str) -> int:
    return agents.layout.processors[agents.named(name)].group


def complete(agents: DrivenAgents, name: str, busy: bool = False) -> tuple[Bound, Bound]:
    """The completed bounds of a processor and of its group."""
    agent: Agent = agents.of[0]
    return agent.completion.at(agents.named(name)), agent.completion.of_groups(busy)[group_of(agents, name)]


def test_without_anything_else_all_before_the_epoch_of_the_sources_is_complete() -> None:
    agents = far(looping)
    assert complete(agents, "in") == ((5,), (5, 0))
    assert complete(agents, "new") == ((5, 0), (5, 0))
    assert complete(agents, "out") == ((5,), (5,))


def test_of_what_is_outside_in_the_loop_the_iteration_counts() -> None:
    agents = far(looping)
    outside(agents, "new", (4, 3))
    assert complete(agents, "new") == ((4, 3), (4, 3))
    assert complete(agents, "out") == ((4,), (4,))


def test_what_comes_round_again_comes_in_the_next_iteration() -> None:
    """At what stands behind the way back; in the group it may still be sent at its own."""
    agents = far(looping)
    outside(agents, "new", (4, 3))
    behind = agents.of[0].completion.at(agents.named("filter-1"))
    assert behind == (4, 4)


def test_several_epochs_that_go_round_at_once_are_kept_each_as_far_as_it_is() -> None:
    agents = far(looping)
    outside(agents, "new", (3, 3), (4, 2))
    assert complete(agents, "new") == ((3, 3, MORE, 2), (3, 3, MORE, 2))
    assert complete(agents, "out") == ((3,), (3,))


def test_of_work_that_waits_in_the_loop_the_iteration_counts_and_before_it_the_epoch() -> None:
    agents = far(looping)
    waits(agents, "new", (4, 3))
    assert complete(agents, "new") == ((4, 3), (4, 3))
    assert complete(agents, "in")[0] == (4,)
    waits(agents, "round-enter", (3,))
    assert complete(agents, "new") == ((3, 0), (3, 0))


def test_of_work_that_waits_behind_the_loop_its_processors_are_held_back_alone() -> None:
    """Nothing leads back from there; but how far the single processor is, is told by the epoch."""
    agents = far(looping)
    waits(agents, "same", (4,))
    assert complete(agents, "new")[1] == (5, 0)
    assert complete(agents, "new")[0] == (4, 0)
    assert complete(agents, "out")[0] == (4,)


def test_a_loop_that_is_cut_between_epochs_is_complete_by_epochs() -> None:
    agents = far(by_epochs)
    assert not agents.of[0].completion.within_epochs
    outside(agents, "new", (3, 3), (4, 2))
    assert complete(agents, "new") == ((3, 3), (3,))
    agents = far(by_epochs)
    waits(agents, "new", (4, 3))
    assert complete(agents, "new")[0] == (4, 0)
    assert complete(agents, "out")[0] == (4,)


def test_one_group_that_is_cut_within_epochs_is_enough() -> None:
    agents = far(looping)
    assert agents.of[0].completion.within_epochs
    assert {group.depth for group in agents.layout.groups} == {1, 2}


@pytest.mark.parametrize("build", [looping, by_epochs])
def test_what_was_reported_or_complete_before_stays_so(build: object) -> None:
    agents = far(build, 7)
    completion = agents.of[0].completion
    outside(agents, "new", (4, 3))
    new = agents.named("new")
    completion.before[new] = (6, 0)
    assert completion.at(new)[:2] >= (6, 0)
    depths = [group.depth for group in agents.layout.groups]
    completion.reported = tuple((7,) + (0,) * (depth - 1) for depth in depths)
    assert completion.at(new) == (7, 0)
    assert completion.of_groups(False) == completion.reported


def test_a_busy_worker_says_nothing_new_of_groups_that_are_cut_between_epochs() -> None:
    agents = far(looping)
    outside(agents, "new", (4, 3))
    loop, behind = (group_of(agents, name) for name in ("new", "out"))
    found = agents.of[0].completion.of_groups(True)
    assert (found[loop], found[behind]) == ((4, 3), (0,))


def test_before_all_first_frames_are_here_a_processor_has_completed_what_it_had_before() -> None:
    agents = far(looping)
    agent = agents.of[0]
    new = agents.named("new")
    agent.completion.before[new] = (2, 1)
    agent.worker.awaited = {1}
    assert agent.completion.at(new) == (2, 1)


def one_behind_the_other() -> Dataflow:
    """Two loops, each cut between its own iterations."""
    flow = Dataflow("one behind the other")
    stream = flow.source("in", Iterable(range(10)))
    for name in ("first", "second"):
        with flow.region(name, policy=Lazy(every=1.0, log_outputs=True)):
            stream = stream.iterate(lambda inner, name=name: inner.distinct(name=name), name=f"round-{name}")
    stream.capture("out")
    return flow


def test_iterations_of_a_loop_say_nothing_of_those_of_the_next_one() -> None:
    agents = far(one_behind_the_other)
    assert {group.depth for group in agents.layout.groups} == {1, 2}
    waits(agents, "first", (4, 3))
    assert complete(agents, "first")[1] == (4, 3)
    assert complete(agents, "second")[1] == (4, 0)


def test_of_work_that_waits_deeper_than_cuts_are_made_the_outer_iteration_counts() -> None:
    agents = far(nesting)
    waits(agents, "deep", (4, 3, 1))
    assert complete(agents, "new") == ((4, 3), (4, 3))
    assert complete(agents, "deep")[0] == (4, 3, 0)
    agents = far(nesting)
    outside(agents, "deep", (4, 3, 1))
    assert complete(agents, "new") == ((4, 3), (4, 3))


def test_what_leaves_another_group_of_the_same_loop_comes_at_the_time_to_which_the_way_leads() -> None:
    """From behind the group only in the next iteration, from before it in the same one."""
    agents = far(divided)
    outside(agents, "third", (4, 3))
    assert complete(agents, "third")[1] == (4, 3)
    assert complete(agents, "second")[1] == (4, 4)
    agents = far(divided)
    outside(agents, "first", (4, 3))
    assert complete(agents, "second")[1] == (4, 3)


def test_an_iteration_of_a_loop_in_front_is_none_of_this_one() -> None:
    """Whatever leaves it begins here at the first."""
    agents = far(behind_another)
    assert group_of(agents, "first") != group_of(agents, "second")
    outside(agents, "first", (4, 3))
    assert complete(agents, "first") == ((4, 3), (4, 3))
    assert complete(agents, "second") == ((4, 0), (4, 0))
