"""The next process of a worker, and its store: state, logs, full histories, and staged output."""

from __future__ import annotations

from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.effects import Perform
from recovery.agent.events import Connected
from recovery.metadata import Bound, to_frontier
from recovery.policy import Lazy, LogHistory
from tests.recovery.agent.driven import DrivenAgents, counts, logged, of_kind, passing, timed
from timely.io import Iterable
from timely.io.memory import rows_of
from timely.operators.base import Context, Operator
from timely.state import KeyedState
from timely.time import Frontier, Time


class _Remembers(Operator):
    """Sends all that it got so far. It keeps that beside any state: only a full history brings it back."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.got += batch
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send([tuple(self.got)])


class _Both(_Remembers):
    """The same, and a state beside it, which is not all."""

    def __init__(self) -> None:
        super().__init__()
        self.state = KeyedState()


class _Totals(Operator):
    """The same as a total, which it keeps in its state alone."""

    def __init__(self) -> None:
        self.state = self._total = KeyedState()

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self._total.write(time, {"sum": self._total.read(time).get("sum", 0) + sum(batch)})


def remembering() -> Dataflow:
    """A full history of an operator that keeps what nobody sees, and one of an operator that keeps all in its state."""
    flow = Dataflow("remembering")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=LogHistory(every=1)):
        numbers.unary("got", _Remembers).capture("out")
        numbers.unary("both", _Both).probe()
        numbers.unary("total", _Totals).probe()
    return flow


def without_outputs() -> Dataflow:
    """A log and a full history."""
    flow = Dataflow("without outputs")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=LogHistory(every=1)):
        numbers.unary("got", _Remembers).probe()
    return flow


def begun(build: Any, epochs: int = 4) -> DrivenAgents:
    """One worker that has read so many epochs."""
    agents = DrivenAgents(build, 1).begin()
    agents.epochs(epochs)
    return agents


def cut_all(agents: DrivenAgents, *epochs: int) -> None:
    """All groups are cut at these epochs, one after the other."""
    for epoch in epochs:
        for group in range(len(agents.layout.groups)):
            agents.cut(0, (epoch,), group)
        agents.store_all()


def comes_back(agents: DrivenAgents, bound: Bound, low: Bound = (0,)) -> list[Any]:
    """The worker dies, and its next process comes back at a bound; what it does."""
    agents.dies(0)
    agents.tell(0, Connected())
    generation = agents.of[0].checkpoints.generation + 1
    size = len(agents.layout.processors)
    made = agents.decision(
        generation, [{info.name: bound for info in agents.layout.processors}], (0,), watermarks=((low,) * size,)
    )
    effects = agents.hear(0, made)
    agents.store_all()
    agents.settle()
    return list(effects)


def rows(agents: DrivenAgents, name: str, bound: Bound) -> list[str]:
    """The state of an operator."""
    state = agents.of[0].worker.runtimes[agents.named(name)].operator.state
    assert state is not None
    runs = state.snapshot(to_frontier(bound), Frontier.empty(1))
    return sorted(repr(row) for run in runs for row in rows_of(run.batch))


def entries(agents: DrivenAgents) -> list[tuple[int, Time, Any]]:
    """All that is logged, in order."""
    return [(each.number, each.time, each.content()) for log in agents.of[0].recorder.logs.values() for each in log]


# State


@pytest.mark.parametrize("bound", [1, 2, 4])
def test_state_comes_back_as_it_was_at_any_cut(bound: int) -> None:
    agents = begun(counts)
    cut_all(agents, 1, 2, 4)
    before = rows(agents, "count", (bound,))
    assert before
    comes_back(agents, (bound,))
    assert rows(agents, "count", (9,)) == before


def test_a_cut_after_a_restart_rests_on_the_cuts_before() -> None:
    agents = begun(counts)
    cut_all(agents, 1, 2)
    comes_back(agents, (2,))
    agents.of[0].worker.input_time(0)
    for epoch in (2, 3):
        agents.feed(0, epoch, [1, 2, 100 + epoch])
    agents.settle()
    cut_all(agents, 4)
    before = rows(agents, "count", (4,))
    comes_back(agents, (4,))
    assert rows(agents, "count", (9,)) == before


@pytest.mark.parametrize("build", [counts, logged])
def test_a_new_process_knows_how_much_is_stored(build: Any) -> None:
    """It decides when state is saved anew."""

    def stored() -> list[tuple[Bound, int, int]]:
        return [(saved.bound, saved.size, saved.rows) for saved in agents.of[0].checkpoints.saved()]

    agents = begun(build)
    cut_all(agents, 1, 2, 4)
    before = stored()
    assert sum(rows for _, _, rows in before) > 30
    agents.dies(0)
    assert stored() == before


@pytest.mark.parametrize(("build", "small"), [(remembering, 6000), (without_outputs, 2000)])
def test_what_a_process_found_and_carried_on_is_found_by_the_next_one(build: Any, small: int) -> None:
    """Decisions, checkpoints with and without state, logs, histories, and what was published.

    Only state that is not at hand, here of the capture, stays where it was.
    """

    def found() -> tuple[Any, ...]:
        of = agents.of[0]
        keys = {key for key in of.checkpoints.live_keys() if key in of.journal}
        events = [[(event.order, event.time) for event in each] for each in of.recorder.histories.values()]
        logs = [each for each in entries(agents) if each[1] >= (1,)]  # W is there
        return of.checkpoints.generation, of.checkpoints.durable(), logs, events, keys

    agents = begun(build)
    cut_all(agents, 1, 3, 4)
    agents.raise_to((1,))
    agents.drain(2)
    agents.hear(0, agents.decision(2, [{info.name: (3,) for info in agents.layout.processors}]))
    agents.store_all()
    agents.settle()
    agents.dies(0)
    agents.tell(0, Connected())
    before = found()
    assert (before[0], ("applied", 2) in before[4]) == (2, True)
    assert (("published",) in before[4]) == (build is remembering)
    journal = agents.of[0].journal
    first, journal.small = journal.next_number, small
    journal.written = 1 << 20  # so much was written that it may carry
    low = ((1,),) * len(agents.layout.processors)
    back = {info.name: (3,) for info in agents.layout.processors}
    agents.hear(0, agents.decision(3, [back], (0,), watermarks=(low,)))
    agents.store_all()
    assert journal.carried
    assert journal.oldest >= first or build is remembering  # nothing rests on what was there before
    agents.dies(0)
    after = found()
    assert after[0] == 3
    assert after[1:4] == before[1:4]
    gone = {key for key in before[4] if key[0] == "log"}  # those of W, some of them
    assert after[4] >= before[4] - gone - {("applied", 2)}


def test_what_was_staged_and_not_published_is_staged_again() -> None:
    agents = begun(passing)
    cut_all(agents, 2, 3)
    effects = comes_back(agents, (3,), low=(2,))
    (performed,) = of_kind(effects, Perform)
    assert [each.time for each in performed.effects] == [(0,), (1,)]
    agents.take()
    agents.raise_to((3,))
    assert [each.time for effect in of_kind(agents.take()[0], Perform) for each in effect.effects] == [(2,)]  # type: ignore[union-attr]


# Logs


def test_logs_come_back_in_their_order_as_far_as_they_were_saved() -> None:
    agents = begun(logged)
    before = entries(agents)
    assert {time for _, time, _ in before} == {(0,), (1,), (2,), (3,)}
    cut_all(agents, 2, 3)
    agents.dies(0)
    assert entries(agents) == [each for each in before if each[1] < (3,)]


def test_what_a_decision_took_back_of_a_log_is_void_for_the_next_process() -> None:
    agents = begun(logged)
    cut_all(agents, 2, 4)
    before = entries(agents)
    agents.drain(2)
    agents.hear(0, agents.decision(2, [{info.name: (2,) for info in agents.layout.processors}]))
    journal, edge = agents.of[0].journal, next(edge.edge for edge in agents.layout.edges if edge.logged)
    assert [("log", edge, 0, (epoch,), 1) in journal for epoch in (2, 4)] == [True, False]
    assert [("cut", agents.named("in"), (epoch,)) in journal for epoch in (2, 4)] == [True, False]
    agents.store_all()
    agents.dies(0)
    assert entries(agents) == [each for each in before if each[1] < (2,)]


def test_a_cut_saves_the_logs_of_its_own_group_alone() -> None:
    agents = begun(timed)
    agents.cut(0, (2,), agents.layout.processors[agents.named("first")].group)
    agents.store_all()
    agents.dies(0)
    senders = {edge.edge: agents.layout.processors[edge.source].name for edge in agents.layout.edges}
    assert {senders[edge] for edge, _ in agents.of[0].recorder.logs} == {"first"}


def test_logs_that_are_not_needed_keep_no_segment() -> None:
    agents = begun(logged)
    cut_all(agents, 2)
    logs = [("log", edge.edge, 0, (2,), 1) for edge in agents.layout.edges if edge.logged]
    assert [key in agents.of[0].journal for key in logs] == [True]
    agents.raise_to((2,))
    assert [key in agents.of[0].journal for key in logs] == [False]


@pytest.mark.parametrize("build", [logged, remembering])
def test_what_old_segments_hold_of_logs_and_histories_moves_with_the_journal(build: Any) -> None:
    """Small segments are joined; what was in them is found all the same."""
    agents = DrivenAgents(build, 1).begin()
    agents.of[0].journal.small = 4000
    agents.epochs(12)
    cut_all(agents, *range(1, 13))
    assert agents.of[0].journal.carried
    log = entries(agents)
    histories = [
        [(event.order, event.time, event.port) for event in each] for each in agents.of[0].recorder.histories.values()
    ]
    agents.dies(0)
    assert entries(agents) == log
    found = [
        [(event.order, event.time, event.port) for event in each] for each in agents.of[0].recorder.histories.values()
    ]
    assert found == histories


# Full histories


def remembered(agents: DrivenAgents) -> list[int]:
    operator = agents.of[0].worker.runtimes[agents.named("got")].operator
    assert isinstance(operator, _Remembers)
    return operator.got


@pytest.mark.parametrize("bound", [1, 3])
def test_whatever_an_operator_keeps_comes_back_by_replay(bound: int) -> None:
    agents = begun(remembering)
    cut_all(agents, 1, 3)
    comes_back(agents, (bound,))
    assert remembered(agents) == list(range(8 * bound))
    assert rows(agents, "total", (9,))[-1] == rows(agents, "total", (bound,))[-1]


def test_a_living_operator_goes_back_by_replay_too() -> None:
    agents = begun(remembering)
    agents.drain(2)
    agents.hear(0, agents.decision(2, [{info.name: (2,) for info in agents.layout.processors}]))
    assert remembered(agents) == list(range(16))


def test_a_long_history_is_replaced_by_state_where_that_is_all_an_operator_keeps() -> None:
    """Its events go then, when W has passed it; those of an operator that keeps more are its state, and stay."""
    agents = begun(remembering, 0)
    agents.of[0].checkpoints.most_events = 2
    total, got = agents.named("total"), agents.named("got")
    for epoch in (1, 2, 3, 4):
        agents.epochs(1)
        cut_all(agents, epoch)
    bases = [agents.of[0].checkpoints.base(total, (epoch,)) for epoch in (1, 2, 3, 4)]
    assert bases == [(0,), (0,), (3,), (3,)]
    assert [agents.of[0].checkpoints.base(agents.named(name), (4,)) for name in ("got", "both")] == [(0,), (0,)]
    agents.raise_to((4,))
    history = agents.of[0].recorder.histories
    assert {event.time for event in history[total]} == {(3,)}
    assert {event.time for event in history[got]} == {(0,), (1,), (2,), (3,)}
    before = rows(agents, "total", (4,))
    comes_back(agents, (4,), low=(4,))
    assert rows(agents, "total", (9,)) == before
    assert remembered(agents) == list(range(32))
    assert {event.time for event in agents.of[0].recorder.histories[total]} == {(3,)}
