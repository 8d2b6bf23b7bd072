"""One worker goes back: which operators are made anew, from where sources read on, and what comes from memory or the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.effects import Rewind
from recovery.agent.events import Connected
from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds
from recovery.metadata import Bound, everything
from recovery.policy import AtLeastOnce, Lazy, LogHistory
from recovery.rollback.orders import RollbackPlanner, SourceOrder
from tests.recovery.agent.driven import DrivenAgents, counts, of_kind, passing
from timely.errors import FalkirkError
from timely.io import Iterable
from timely.io.memory import rows_of
from timely.operators.base import Capability, Context, Operator
from timely.state import KeyedState
from timely.time import Frontier, Time


class _Notes(Operator):
    """Keeps what it got in one epoch until the end of that, in an attribute."""

    def __init__(self) -> None:
        self.notes: dict[Time, list[int]] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.notes.setdefault(time, []).extend(batch)
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send([sum(self.notes.pop(time))])


class _Total(_Notes):
    """The same, and a total in its state."""

    def __init__(self) -> None:
        super().__init__()
        self.state = self.total = KeyedState()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.total.write(time, {"sum": self.total.read(time).get("sum", 0) + sum(self.notes[time])})
        super().on_notify(ctx, time)


class _Keeper(Operator):
    """Keeps a capability for the epoch after next, and hears which it has when it goes back."""

    def __init__(self) -> None:
        self.kept: list[Capability] = []
        self.given_back: list[Time] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        capability = ctx.retain()
        capability.downgrade((time[0] + 2,))
        self.kept.append(capability)

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        self.kept = capabilities
        self.given_back = [each.time for each in capabilities]


class _Counter(_Keeper):
    """The same, with a state."""

    def __init__(self) -> None:
        super().__init__()
        self.state = KeyedState()


class _Seen(_Total):
    """Remembers what it has seen, beside its state."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Time] = []

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.seen.append(time)
        super().on_notify(ctx, time)


class _Later(Operator):
    """Asks to be told of an epoch to come."""

    def __init__(self) -> None:
        self.told: list[Time] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.notify_at((5,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.told.append(time)


def asking() -> Dataflow:
    flow = Dataflow("asking")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=Lazy(every=1)):
        numbers.unary("later", _Later).probe()
    return flow


def noting() -> Dataflow:
    flow = Dataflow("noting")
    with flow.region("all", policy=Lazy(every=1)):
        numbers = flow.source("in", Iterable(range(10)))
        numbers.unary("notes", _Notes, stateful=False).probe()
        numbers.unary("total", _Total).probe()
    return flow


def keeping(made: type[Operator] = _Keeper) -> Dataflow:
    flow = Dataflow("keeping")
    with flow.region("all", policy=Lazy(every=1)):
        flow.source("in", Iterable(range(10))).unary("keeper", made, holds=True).probe()
    return flow


def again() -> Dataflow:
    """A source whose records come in the current epoch when they are read again."""
    flow = Dataflow("again")
    with flow.region("front", policy=AtLeastOnce()):
        numbers = flow.source("in", Iterable(range(10)))
    numbers.distinct(name="new").capture("out")
    return flow


def two_sources() -> Dataflow:
    flow = Dataflow("two sources")
    with flow.region("all", policy=Lazy(every=1)):
        for name in ("in", "other"):
            flow.source(name, Iterable(range(10))).capture("out of " + name)
    return flow


def looping() -> Dataflow:
    """A loop that keeps what it has seen."""
    flow = Dataflow("looping")
    with flow.region("all", policy=Lazy(every=1)):
        numbers = flow.source("in", Iterable(range(10)))
        numbers.iterate(lambda s: s.map(lambda n: n // 2, name="half").distinct(name="new"), name="loop").probe()
    return flow


def planner_of(agents: DrivenAgents) -> RollbackPlanner:
    agent = agents.of[0]
    parts = agent.plan, agent.layout, agent.worker, agent.recorder, agent.checkpoints
    return RollbackPlanner(*parts, agent.attributes, agent.operator_memory, True)


def one(build: Any, epochs: int = 4, *cuts: int) -> DrivenAgents:
    """One worker that has read so many epochs, and been cut at some."""
    agents = DrivenAgents(build, 1).begin()
    agents.epochs(epochs)
    for epoch in cuts:
        for group in range(len(agents.layout.groups)):
            agents.cut(0, (epoch,), group)
        agents.store_all()
    return agents


def goes_back(
    agents: DrivenAgents, bound: Bound | None, names: Sequence[str] = (), failed: bool = False, **more: Any
) -> dict[str, SourceOrder]:
    """All processors, or those of these names, go back to a bound; from where sources go on, by name.

    `failed`: the worker is a new process, and all that it knows is in its store.
    """
    generation = agents.of[0].checkpoints.generation + 1
    if failed:
        agents.dies(0)
        agents.tell(0, Connected())
    else:
        agents.drain(generation)
    bounds = {info.name: bound for info in agents.layout.processors if not names or info.name in names}
    made = agents.decision(generation, [bounds], (0,) if failed else (), **more)  # type: ignore[list-item]
    (rewind,) = of_kind(agents.hear(0, made), Rewind)
    agents.store_all()
    agents.settle()
    return {agents.of[0].plan.graph.nodes[node].name: order for node, order in rewind.sources.items()}


def operator(agents: DrivenAgents, name: str) -> Any:
    return agents.of[0].worker.runtimes[agents.named(name)].operator


def kept(agents: DrivenAgents, name: str) -> list[Any]:
    """All that is in the state of an operator."""
    runs = operator(agents, name).state.snapshot(Frontier.top(1), Frontier.empty(1))
    return sorted((row for run in runs for row in rows_of(run.batch)), key=repr)


# Operators


def test_an_operator_without_state_is_made_anew() -> None:
    """Anything that it keeps may be of events that are rolled back, and nothing tells which."""
    agents = one(noting, 2)
    before = operator(agents, "notes")
    before.notes[9,] = [1]
    goes_back(agents, (1,))
    assert operator(agents, "notes") is not before
    assert operator(agents, "notes").notes == {}


def test_a_living_operator_with_state_goes_back_with_it_and_forgets_attributes_that_have_changed() -> None:
    agents = one(noting, 3)
    before = operator(agents, "total")
    before.notes[9,] = [1]
    goes_back(agents, (2,))
    assert operator(agents, "total") is before
    assert before.notes == {}
    assert before.total.read((5,)).get("sum") == sum(range(16))


def test_who_stays_as_it_is_keeps_everything() -> None:
    agents = one(noting, 3)
    before = operator(agents, "notes"), operator(agents, "total")
    before[1].notes[9,] = [1]
    goes_back(agents, (2,), ["in"])
    assert (operator(agents, "notes"), operator(agents, "total")) == before
    assert before[1].notes == {(9,): [1]}


@pytest.mark.parametrize("made", [_Keeper, _Counter])
def test_an_operator_that_keeps_capabilities_is_made_anew_and_hears_which_it_has(made: type[Operator]) -> None:
    """Those that it kept in epochs that are kept, for later ones. It may have a state as well."""
    agents = one(partial(keeping, made), 4)
    before = operator(agents, "keeper")
    assert [each.time for each in before.kept] == [(2,), (3,), (4,), (5,)]
    goes_back(agents, (2,))
    after = operator(agents, "keeper")
    assert after is not before
    assert after.given_back == [(2,), (3,)]
    assert sorted(time for _, time in agents.of[0].worker.held) == [(2,), (3,)]


def test_a_new_process_hears_of_the_capabilities_of_its_checkpoint() -> None:
    agents = one(keeping, 1, 1)
    agents.dies(0)
    agents.tell(0, Connected())
    back = {info.name: (1,) for info in agents.layout.processors}
    agents.hear(0, agents.decision(2, [back], (0,)))  # type: ignore[list-item]
    assert operator(agents, "keeper").given_back == [(2,)]


def test_what_is_complete_when_a_generation_begins_is_told_though_nothing_moves_any_more() -> None:
    """The source has ended, and stays so: no frontier will move, and what was asked for is due."""
    agents = one(asking, 1)
    agents.end()
    agents.settle()
    assert operator(agents, "later").told == [(5,)]
    goes_back(agents, (1,), ["later"])
    assert operator(agents, "later").told == [(5,)]


# Sources


def test_a_source_that_lives_knows_where_it_was() -> None:
    agents = one(passing, 4, 1, 2)
    assert goes_back(agents, (2,)) == {"in": (2, None, None, 2)}


def test_a_source_that_comes_back_from_a_store_is_told_where_it_was() -> None:
    agents = one(passing, 4, 1, 2)
    assert goes_back(agents, (2,), failed=True) == {"in": (2, (SourcePosition("all", 2, False, 2, 0),), None, 2)}


def test_below_where_it_came_back_from_a_store_a_source_does_not_know_either() -> None:
    agents = one(passing, 4, 1, 2)
    goes_back(agents, (2,), failed=True)
    assert goes_back(agents, (1,)) == {"in": (1, (SourcePosition("all", 1, False, 1, 0),), None, 1)}


def test_a_source_that_saved_nothing_begins_at_its_beginning() -> None:
    agents = one(passing, 4)
    assert goes_back(agents, (0,), failed=True) == {"in": (0, (), None, 0)}


def test_a_source_that_has_ended_for_good_stays_ended() -> None:
    agents = one(passing, 2)
    agents.end()
    agents.settle()
    agents.cut(0, everything(1))
    agents.store_all()
    (order,) = goes_back(agents, everything(1), failed=True).values()
    assert (order[0], order[3]) == (None, everything(1)[0])
    assert agents.of[0].worker.input_time(0) is None


def test_a_source_that_stays_goes_on_where_it_is() -> None:
    agents = one(passing, 3)
    assert goes_back(agents, (2,), ["out"]) == {}
    assert agents.of[0].worker.input_time(0) == (3,)


@pytest.mark.parametrize("failed", [True, False])
def test_a_source_is_given_the_ends_of_its_epochs_that_others_know(failed: bool) -> None:
    """Its own, and not those of the other source: it reads again as it was read before."""
    agents = DrivenAgents(two_sources, 1).begin()
    agents.feed(0, 0, [1], "other")
    agents.epochs(1)
    at = agents.named("in"), agents.named("other")
    known = [EpochEnds(0, p, 0, 3, (("all", ((0, 4 + p), (1, 9 + p))),)) for p in at]
    found = goes_back(agents, (0,), failed=failed, ends=tuple(known))
    assert (found["in"][2], found["other"][2]) == tuple(known)
    assert goes_back(agents, (0,), failed=failed)["in"][2] is None


@pytest.mark.parametrize(("bound", "current", "goes_on"), [(1, 3, 3), (3, 1, 3)])
def test_a_source_of_at_least_once_goes_on_in_the_current_epoch(bound: int, current: int, goes_on: int) -> None:
    agents = one(again, 4)
    found = goes_back(agents, (bound,), ["in"], current=current)
    assert found["in"][0] == bound
    assert found["in"][3] == goes_on
    assert agents.of[0].worker.input_time(0) == (goes_on,)


def test_other_sources_go_on_in_the_epoch_to_which_they_go_back() -> None:
    agents = one(passing, 4)
    assert goes_back(agents, (1,), current=3)["in"][3] == 1


# Between two checkpoints


def test_state_that_came_from_a_store_cannot_go_back_to_where_it_was_not_saved() -> None:
    """The run that it came back with may be one run for many times. The monitor does not decide so: outputs would be wrong."""
    agents = one(counts, 4, 1, 3)
    goes_back(agents, (3,), failed=True)
    agents.drain(3)
    back = {info.name: (2,) for info in agents.layout.processors}
    with pytest.raises(
        FalkirkError, match=r"was restored to \(3,\), and is now to go back to \(2,\).*run the job again"
    ):
        agents.hear(0, agents.decision(3, [back]))  # type: ignore[list-item]


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_it_can_go_back_to_where_it_was_saved_and_to_the_beginning(bound: int) -> None:
    agents = one(counts, 4, 1, 3)
    goes_back(agents, (3,), failed=True)
    goes_back(agents, (bound,))
    assert agents.of[0].recorder.since[agents.named("count")] == (bound,)
    assert kept(agents, "count") == kept(one(counts, bound), "count")


def test_what_keeps_nothing_and_what_is_staged_goes_back_anywhere() -> None:
    agents = one(counts, 4, 1, 3)
    goes_back(agents, (3,), failed=True)
    assert kept(agents, "out") == kept(one(counts, 3), "out") != []
    goes_back(agents, (2,), ["ones-1", "out"])
    assert agents.of[0].recorder.since[agents.named("out")] == (2,)
    assert kept(agents, "out") == kept(one(counts, 2), "out") != [], "no cut was there: it has them in memory"


def historic(made: type[Operator] = _Total) -> Dataflow:
    flow = Dataflow("historic")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=LogHistory(every=1)):
        numbers.unary("total", made).probe()
        numbers.distinct(name="new").probe()
    return flow


def test_a_full_history_goes_back_anywhere_and_is_given_again_what_comes_behind() -> None:
    agents = one(historic, 4, 1, 3)
    goes_back(agents, (2,), ["total"])
    assert operator(agents, "total").total.read((9,)).get("sum") == sum(range(32))
    agents = one(historic, 4, 1, 3)
    goes_back(agents, (3,), failed=True)
    assert operator(agents, "total").total.read((9,)).get("sum") == sum(range(24))
    goes_back(agents, (2,), ["total"])
    assert operator(agents, "total").total.read((9,)).get("sum") == sum(range(24))


@pytest.mark.parametrize("failed", [True, False])
def test_a_full_history_brings_back_state_and_attributes_whoever_wrote_the_operator(failed: bool) -> None:
    """A living operator of the user's is replayed; one of Falkirk's own, which keeps all in its state, drops what goes."""
    agents, without = one(partial(historic, _Seen), 4, 1, 3), one(partial(historic, _Seen), 2)
    goes_back(agents, (2,), ["in", "total", "new"], failed)
    assert operator(agents, "total").seen == operator(without, "total").seen == [(0,), (1,)]
    for name in ("total", "new"):
        assert kept(agents, name) == kept(without, name)


@pytest.mark.parametrize(("bound", "saved"), [((0, 0), True), ((2, 0), False), ((2, 1), False)])
def test_the_beginning_is_where_no_coordinate_has_moved(bound: Bound, saved: bool) -> None:
    """In a loop as well: the beginning of another epoch is not that of the job, and is in the store or nowhere."""
    agents = one(looping, 4, 1)
    planner = planner_of(agents)
    inner = next(p for p, info in enumerate(agents.layout.processors) if info.depth == 2 and info.chain)
    if saved:
        assert not planner._between(inner, bound)
    else:
        with pytest.raises(FalkirkError, match="where it has no checkpoint"):
            planner._between(inner, bound)
