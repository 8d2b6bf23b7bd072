"""Simulated jobs for scenarios: small programs, and jobs that have come to a certain point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any

from falkirk.simulate.faults import Rates
from falkirk.simulate.outside import Result
from falkirk.simulate.world import World
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.agent import Agent
from recovery.agent.effects import Effect, Report
from recovery.agent.events import Event
from recovery.place import Place
from recovery.policy import Batch, Eager, Ephemeral, Lazy, LogHistory
from recovery.protocol import ToMonitor
from runtime.session.cluster import Cluster
from runtime.sources.limits import Limits
from tests.falkirk.simulate.programs import (
    Gathering,
    Holds,
    InOrder,
    delayed_loops,
    fed_loop,
    long_loop,
    order_ahead,
    pipelined_loop,
    two_loops,
    unsteady_key,
)
from timely.io import Iterable
from timely.operators.base import Context
from timely.time import Time

STEPS = 12_000
"""A run with all rules takes less than two thousand."""


@dataclass(frozen=True)
class Faults:
    """The rates of faults; `write_seconds` is the mean time that a write takes."""

    rates: Rates
    write_seconds: float = 0.005
    in_flight: int | None = None
    """Epochs that sources read ahead; None: the world chooses."""


def quiet(program: str, workers: int, seed: int = 1) -> World:
    """A job in which nothing goes wrong unless the caller sees to it."""
    world = World(RULE_PROGRAMS[program], workers, seed, ())
    world.outside.check_acknowledged = lambda: None  # type: ignore[method-assign]  # what sources are told is no rule of rollback
    return world


@cache
def expected(program: str) -> Result:
    """The outputs of a program by time: without recovery, and without failures."""
    build = RULE_PROGRAMS[program]
    cluster = Cluster(build(), 1, None)
    cluster.run()
    found: Result = {}
    for node in build().graph.of_kind("capture"):
        for time, batch in cluster.captured(node.name):
            found.setdefault((node.name, time), []).extend(batch)
    return {key: sorted(records, key=repr) for key, records in found.items()}


def simulated(program: str, workers: int, seed: int, faults: Faults) -> str | None:
    """The fault of a simulated run: an error, another output, or that it has no end. None if it is right."""
    right = expected(program)
    world = quiet(program, workers, seed)
    world.injector.rates = faults.rates
    if faults.in_flight is not None:
        world._limits = Limits(epochs=faults.in_flight, seconds=inf)
    world.disk.faults = replace(world.disk.faults, delay=(faults.write_seconds / 5, faults.write_seconds * 2))
    try:
        world.run(STEPS)
        world.outside.compare(right)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def job(program: str, workers: int, far: int = 3) -> World:
    """A job without failures, all of whose workers run and have completed epochs before `far`."""
    world = quiet(program, workers)
    for _ in range(5_000):
        world.step()
        agents = [process.recovery.agent for process in world._processes.values() if process and process.recovery]
        if len(agents) == workers and all(
            agent.running
            and agent.completion.reported
            and min(agent.completion.reported) >= (far,)
            and not agent.reports.waits_for_store()
            for agent in agents
        ):
            return world
    raise AssertionError(world.explain())


def agent_of(world: World, worker: int) -> Agent:
    process = world._processes[Place(worker)]
    assert process is not None
    assert process.recovery is not None
    return process.recovery.agent


def tell(agent: Agent, *events: Event, now: float = 1e6) -> list[Effect]:
    """The effects of events, without a look at invariants: scenarios put agents into states of their own making."""
    return Agent.step(agent, now, *events)


def reports(effects: list[Effect]) -> list[ToMonitor]:
    return [effect.message for effect in effects if isinstance(effect, Report)]


def named(agent: Agent, name: str) -> int:
    return next(p for p, info in enumerate(agent.layout.processors) if info.name == name)


# ----------------------------------------------------------------------------------------------------------
# Programs: many short epochs and frequent cuts, so that a failure finds most processors between two of them.


def _records(count: int, of: int, step: int) -> list[int]:
    return [(i * i * step + i) % of for i in range(count)]


def _numbers(flow: Dataflow, epochs: int = 12) -> Stream:
    """Two partitions, three records an epoch and partition, of which two are read at a time."""
    parts = [_records(3 * epochs, 11, 7), _records(3 * epochs - 4, 13, 5)]
    return flow.source("in", Iterable(partitioned=parts, batch=2, epoch_every=3))


class Ahead(Gathering):
    """Sends each epoch's sum at once into the epoch after the next; says at its end how much came, and again two later."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.send_at((time[0] + 2,), [("ahead", value) for value in batch])
        super().on_batch(ctx, port, time, batch)
        ctx.notify_at((time[0] + 2,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        if values := self.gathered(time):
            self._kept.write(time, {time[0] + 2: sum(values)})
            ctx.send([("now", sum(values))])
        due = self._kept.read(time).get(time[0])
        if due is not None:
            ctx.send([("later", due)])


def tight() -> Dataflow:
    """One group, cut at every epoch."""
    flow = Dataflow("tight")
    with flow.region("all", policy=Lazy(every=1)):
        _numbers(flow).key_by(lambda x: x).count(name="count").records().capture("out")
    return flow


def keeping() -> Dataflow:
    """Two exchanges between totals, cut seldom: only what workers keep in memory spares them work."""
    flow = Dataflow("keeping")
    with flow.region("all", policy=Lazy(every=6)):
        counts = _numbers(flow).key_by(lambda x: x).count(name="first").records()
        counts.key_by(lambda pair: pair[1] % 4).count(name="second").records().capture("out")
    return flow


def by_chance() -> Dataflow:
    """Records go to other workers when they are sent again, which is declared; what is counted in the end stays the same."""
    flow = Dataflow("by chance")
    with flow.region("all", policy=Lazy(every=6)):
        somewhere = _numbers(flow).exchange(by=unsteady_key()).nondeterministic("they go anywhere")
        somewhere = somewhere.distinct(over="time", name="each")
        somewhere.map(lambda x: x % 2).exchange(by=lambda x: 0).distinct(name="once").capture("out")
    return flow


def logs() -> Dataflow:
    """A front that logs and is cut often, and two stages behind it that are cut seldom."""
    flow = Dataflow("logs")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        counts = _numbers(flow).key_by(lambda x: x).count(name="first").records()
    with flow.region("middle", policy=Lazy(every=2, log_outputs=True)):
        counts = counts.key_by(lambda pair: pair[1] % 4).count(name="second").records()
    with flow.region("back", policy=Lazy(every=5)):
        counts.key_by(lambda pair: pair[1] % 3).count(name="third").records().capture("out")
    return flow


def stateless() -> Dataflow:
    """Between a source that is cut often and a running total: operators that keep nothing, and exchanges."""
    flow = Dataflow("stateless")
    with flow.region("source", policy=Lazy(every=1)):
        source = _numbers(flow)
    with flow.region("between", policy=Ephemeral()):
        sums = source.map(lambda x: (x % 5, x)).keyed().sum(over="time", name="sum").records()
        again = sums.map(lambda pair: (pair[0] % 2, pair[1])).keyed().sum(over="time", name="again").records()
    with flow.region("batch", policy=Batch(log_outputs=True)):
        kept = again.map(lambda pair: (0, pair[1])).keyed().sum(over="time", name="kept").records()
    with flow.region("totals", policy=Lazy(every=3)):
        kept.keyed().sum(name="totals").records().capture("out")
        sums.capture("sums")
    return flow


def ahead() -> Dataflow:
    """Messages and requests into later epochs, unlogged and logged, before running counts."""
    flow = Dataflow("ahead")
    with flow.region("front", policy=Lazy(every=1)):
        said = _numbers(flow).exchange(by=lambda x: 0).unary("ahead", Ahead)
        said.key_by(lambda pair: pair[1] % 3).count(name="counts").records().capture("here")
    with flow.region("logged", policy=Lazy(every=2, log_outputs=True)):
        again = said.map(lambda pair: pair[1]).exchange(by=lambda x: 1).unary("again", Ahead)
    with flow.region("back", policy=Lazy(every=5)):
        again.key_by(lambda pair: pair[1] % 3).count(name="totals").records().capture("there")
    return flow


def rounds() -> Dataflow:
    """A loop with state of its own, cut at every epoch."""
    flow = Dataflow("rounds")
    with flow.region("all", policy=Lazy(every=1)):
        source = _numbers(flow).map(lambda x: x * 9)
        halves = source.iterate(
            lambda inner: inner.map(lambda x: x // 2).filter(bool).exchange(by=lambda x: x).distinct(name="new"),
            name="halve",
        )
        halves.key_by(lambda x: x % 5).count(name="count").records().capture("out")
    return flow


def ordered() -> Dataflow:
    """Programs that depend on the order of records: one sender, and histories that are replayed."""
    flow = Dataflow("ordered")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        source = flow.source("in", Iterable(_records(50, 97, 3), batch=1, epoch_every=4)).map(lambda x: x + 1)
    with flow.region("middle", policy=LogHistory(every=2, log_outputs=True)):
        links = source.exchange(by=lambda x: 1).unary("first", InOrder)
    with flow.region("back", policy=LogHistory(every=4)):
        links.flat_map(list).exchange(by=lambda x: 0).unary("second", InOrder).capture("out")
    return flow


def holding() -> Dataflow:
    """Capabilities for later epochs, cut at every epoch."""
    flow = Dataflow("holding")
    with flow.region("all", policy=Lazy(every=1)):
        _numbers(flow).exchange(by=lambda x: x % 2).unary("holds", Holds, holds=True).capture("out")
    return flow


def eagerly() -> Dataflow:
    """An eager region alone, and one behind it and behind a lazy one; what is behind them is cut seldom."""
    flow = Dataflow("eagerly")
    with flow.region("first", policy=Eager()):
        source = _numbers(flow).map(lambda x: (x % 5, x))
        source.capture("first")
    with flow.region("seldom", policy=Lazy(every=7)):
        sums = source.keyed().sum(name="sums").records()
    with flow.region("second", policy=Eager()):
        most = sums.concat(source).keyed().max(name="most").records()
        most.capture("second")
    with flow.region("back", policy=Lazy(every=5)):
        most.key_by(lambda pair: pair[1] % 3).count(name="third").records().capture("out")
    return flow


def entered() -> Dataflow:
    """An eager region that a lazy one sends to from all workers."""
    flow = Dataflow("entered")
    with flow.region("front", policy=Lazy(every=3)):
        source = _numbers(flow).map(lambda x: (x % 5, x))
    with flow.region("eager", policy=Eager()):
        source.keyed().max(name="most").records().capture("out")
    return flow


RULE_PROGRAMS = {
    each.__name__: each
    for each in (
        tight,
        keeping,
        by_chance,
        logs,
        stateless,
        ahead,
        rounds,
        ordered,
        holding,
        long_loop,
        fed_loop,
        two_loops,
        pipelined_loop,
        delayed_loops,
        order_ahead,
        eagerly,
        entered,
    )
}
