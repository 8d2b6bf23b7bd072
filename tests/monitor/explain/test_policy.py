"""Other policies held to the program that has them: the same groups, and the same cost of a death."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.options import Options
from monitor.explain.exposure import Danger, Reduced, danger, fate
from monitor.explain.measured import Rates, Window
from monitor.explain.persistence import HEAD_BYTES, cuts_a_second, persistence, places
from monitor.explain.policy import Cuts, Supposed, compare
from recovery.checkpoint.checkpoints import MOST_EVENTS
from recovery.layout import Layout, lay_out
from recovery.policy import Batch, Eager, Ephemeral, Lazy, LogHistory, Policy, Snapshot
from recovery.protocol import PERSISTED, ROWS, Exposed, Observed, Persisting, Sent
from recovery.store.journal import PLACE
from runtime.sources.limits import Limits
from tests.monitor.explain.test_exposure import Roomy, look
from tests.monitor.explain.test_what_if import agents, coordinator
from timely.dataflow.other_policies import with_policies
from timely.dataflow.plan import compile_plan
from timely.io.interface import Chunk, Partition, Wait

EPOCHS, EACH = 12, 6


class Halting:
    """Some epochs of numbers in two partitions, and then nothing more."""

    rereadable = repeats = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [HaltingPartition(part) for part in range(2) if part % workers == worker]


class HaltingPartition:
    def __init__(self, part: int) -> None:
        self.name, self.epoch = f"numbers-{part}", 0

    def read(self) -> Chunk | Wait:
        if self.epoch == EPOCHS:
            return Wait(seconds=1000.0)
        self.epoch += 1
        return Chunk(self.epoch - 1, [self.epoch * EACH + i for i in range(EACH)], self.epoch, True)

    def seek(self, position: Any) -> None:
        self.epoch = position or 0

    def ack(self, position: Any) -> None: ...

    def close(self) -> None: ...


def build(front: Policy, middle: Policy, back: Policy) -> Dataflow:
    flow = Dataflow("regions")
    with flow.region("front", policy=front):
        numbers = flow.source("numbers", Halting()).map(lambda n: n + 1)
    with flow.region("middle", policy=middle):
        pairs = numbers.map(lambda n: (n % 5, 1), name="pairs")
    with flow.region("back", policy=back):
        sums = pairs.keyed().sum(name="sums").records()
    sums.capture("out")
    return flow


def halted(flow: Callable[[], Dataflow], workers: int, seed: int) -> World:
    """The job when all that there is has been done, and nothing is under way."""
    world = Roomy(flow, workers, seed, ())
    world._limits = Limits(epochs=4, seconds=inf)
    for _ in range(20_000):
        world.step()
        there = agents(world)
        known = [upto for upto in coordinator(world).options.upto if upto is not None] if len(there) == workers else []
        if len(known) == workers and all(cut[0] >= EPOCHS for upto in known for cut in upto):
            break
    else:
        raise AssertionError(world.explain())
    for _ in range(600):
        world.step()
    return world


def cuts_of(world: World) -> Cuts:
    """Cuts that the job can go back to, by worker and group."""
    options, layout = coordinator(world).options, coordinator(world).layout
    found: list[list[list[Any]]] = [[[] for _ in layout.groups] for _ in range(layout.workers)]
    for flat in range(options.topology.count):
        info, worker = options.topology.info(flat), flat % layout.workers
        bounds = [bound for bound, _ in options.chains[flat]]
        if len(bounds) > len(found[worker][info.group]):
            found[worker][info.group] = bounds
    return found


LATE = Lazy(every=1000)
PAIRS: dict[str, tuple[Policy, Policy, Policy]] = {
    "logged": (LATE, Batch(log_outputs=True), LATE),
    "ephemeral": (Ephemeral(), Batch(), LATE),
    "cut": (LATE, LATE, Lazy(every=5)),
    "cut behind a log": (Lazy(every=3), Batch(log_outputs=True), Lazy(every=5)),
    "history": (LATE, LATE, LogHistory(every=4)),
    "snapshot": (LATE, LATE, Snapshot(every=4)),
    "eager": (Lazy(every=3), LATE, Eager()),
    "all cut": (Lazy(every=2), Lazy(every=2), Lazy(every=2)),
}


@cache
def late(workers: int) -> World:
    return halted(lambda: build(LATE, LATE, LATE), workers, 0)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", PAIRS)
def test_the_cost_of_a_death_is_that_of_the_program_with_these_policies(name: str, workers: int) -> None:
    mine, theirs = late(workers), halted(lambda: build(*PAIRS[name]), workers, 7)
    leads, options = coordinator(theirs), coordinator(mine).options
    graph = with_policies(build(LATE, LATE, LATE).graph, dict(zip(("front", "middle", "back"), PAIRS[name])))
    layout = lay_out(compile_plan(graph, workers))
    assert groups(layout) == groups(leads.layout)
    samples, reported = look(mine), look(theirs)
    supposed = Supposed(layout, options.layout, options, samples, {})
    for worker in range(workers):
        found = fate(Reduced(leads.layout), leads.options, [worker], reported)
        right = danger(worker, found, reported, None)
        assert supposed.fate(worker, cuts_of(theirs)).bounds == found.bounds, worker
        guessed = supposed.danger(worker, cuts_of(theirs))
        assert (guessed.records, guessed.back) == (right.records, right.back), worker


def groups(layout: Layout) -> list[tuple[list[str], Any]]:
    """Groups by name, with their intervals, and the logged edges."""
    found: list[tuple[list[str], Any]] = [
        ([layout.processors[p].name for p in layout.members(number)], group)
        for number, group in enumerate(layout.groups)
    ]
    logs = [edge.logged for edge in layout.edges]
    return [*found, (["logs"], logs)]


# Rates


def layout_of(front: Policy, back: Policy) -> Layout:
    return lay_out(compile_plan(build(front, front, back).graph, 1))


def observed(layout: Layout, seconds: float, *, logged: int = 0) -> Observed:
    """What a worker says after so many seconds: 10 epochs and 1,000 records a second at each operator, a cut a second."""
    count, at = len(layout.processors), int(seconds)
    numbers = np.zeros((len(ROWS), count), np.int64)
    numbers[ROWS.index("epoch")] = 10 * at
    numbers[ROWS.index("taken")] = 1000 * at
    written = np.zeros((len(PERSISTED), count), np.int64)
    sums = next(p for p, info in enumerate(layout.processors) if info.name == "sums")
    numbers[ROWS.index("rows"), sums], numbers[ROWS.index("bytes"), sums] = 500, 50_000
    written[PERSISTED.index("checkpoints")] = [at if info.chain else 0 for info in layout.processors]
    written[PERSISTED.index("heads")] = [100 * at if info.chain else 0 for info in layout.processors]
    written[PERSISTED.index("state"), sums] = 4000 * at
    written[PERSISTED.index("logs"), 0] = logged * at
    written[PERSISTED.index("batches")] = 10 * at
    sent = tuple(Sent(p, 0, 1000 * at, 10 * at, 20.0) for p in range(count))
    persisting = Persisting(written.tobytes(), at, 6000 * at, 0.01 * at, 0.002 * at, 0.0004 * at, 0.1 * at, 1e-8, sent)
    return Observed(
        0, 1, numbers.tobytes(), 0, 0, 10 * at, exposed=Exposed((0,), bytes(8 * count), 1e-5), persisting=persisting
    )


def rates_of(layout: Layout) -> Rates:
    window = Window(layout)
    for at in (10.0, 14.0, 20.0):
        window.take({0: (at, observed(layout, at))})
    return window.rates()[0]


def test_rates_are_averages_of_what_was_observed_of_one_process() -> None:
    layout = layout_of(LATE, Lazy(every=1.0))
    window = Window(layout)
    window.take({0: (10.0, observed(layout, 10))})
    assert window.rates() == {}
    window.take({0: (11.0, observed(layout, 11))})
    assert window.rates() == {}
    window.take({0: (20.0, observed(layout, 20))})
    rates = window.rates()[0]
    assert (rates.epochs, rates.segments, rates.written_bytes) == (10, 1, 6000)
    assert rates.taken.tolist() == [1000.0] * len(layout.processors)
    assert rates.sent[0, 0] == (1000, 10, 20.0)
    window.take({0: (21.0, replace(observed(layout, 2), incarnation=3))})
    assert window.rates() == {}
    window.take({0: (25.0, replace(observed(layout, 6), incarnation=3))})
    window.take({0: (100.0, replace(observed(layout, 81), incarnation=3))})
    assert window.rates() == {}  # what is older is left out


def test_logs_and_histories_cost_by_the_record_and_state_by_the_key() -> None:
    before = layout_of(Lazy(every=1.0), Lazy(every=1.0))
    rates = rates_of(before)
    same = persistence(before, places(before, before), before, rates)
    assert (same.logs, same.events) == (0, 0)
    assert same.state == pytest.approx(4000)
    assert same.checkpoints == sum(info.chain for info in before.processors)

    logs = layout_of(Batch(log_outputs=True), Lazy(every=1.0))
    found = persistence(logs, places(logs, before), before, rates)
    edges = sum(edge.logged for edge in logs.edges)
    assert edges
    assert found.logs == pytest.approx(edges * (1000 * 20.0 + 10 * (HEAD_BYTES + PLACE)))
    assert found.state == pytest.approx(4000)

    history = layout_of(Lazy(every=1.0), LogHistory(every=1.0))
    found = persistence(history, places(history, before), before, rates)
    assert found.events == pytest.approx(1000 * 20.0 + 20 * (HEAD_BYTES + PLACE))
    touched = 500 * (1 - math.exp(-1000 / 500))
    assert found.state == pytest.approx(4000 / touched * 500 * 10 / MOST_EVENTS)

    seldom, often = (layout_of(Lazy(every), Lazy(every)) for every in (5.0, 0.1))
    less, more = (persistence(plan, places(plan, before), before, rates) for plan in (seldom, often))
    assert less.state < same.state < more.state < 10 * same.state
    assert more.seconds(rates) > same.seconds(rates) > less.seconds(rates) > 0

    eager = layout_of(Lazy(every=1.0), Eager())
    number = next(number for number, group in enumerate(eager.groups) if group.eager)
    assert cuts_a_second(eager.groups[number], rates) == 10


def test_what_cannot_be_saved_or_is_not_known_is_said() -> None:
    before, after = layout_of(LATE, LATE), layout_of(Batch(log_outputs=True), LATE)
    rates = rates_of(before)
    for size, words in ((-1.0, "cannot be saved: the job would fail"), (None, "is not measured yet")):
        sent = {port: (records, batches, size) for port, (records, batches, _) in rates.sent.items()}
        found = persistence(after, places(after, before), before, dataclasses.replace(rates, sent=sent))
        assert any(words in text for text in found.unknown)
        assert found.logs == 0


def test_a_comparison_has_both_layouts_and_costs_only_if_they_were_measured() -> None:
    before, after = layout_of(LATE, LATE), layout_of(Batch(log_outputs=True), LATE)
    options = Options(before)
    options.complete(0, tuple((195,) for _ in before.groups))
    samples = {0: observed(before, 20)}
    changes = {"front": "Batch(log_outputs=True)"}
    unknown = compare(changes, after, options, samples, {}, ())
    assert unknown["workers"] is unknown["bytes"] is unknown["cpu"] is None
    assert unknown["after"]["logs"]
    assert not unknown["before"]["logs"]
    assert "some seconds" in unknown["unknown"][0]
    found = compare(changes, after, options, samples, {0: rates_of(before)}, (Danger(0, 7, 0.5, None),))
    (worker,) = found["workers"]
    assert worker["now"] == {"records": 7, "seconds": 0.5}
    assert worker["before"]["typical"]["records"] >= worker["after"]["typical"]["records"]
    assert found["bytes"]["measured"] == 6000 < found["bytes"]["after"]
    assert found["cpu"]["measured"] == 0.1 < found["cpu"]["after"]
    msgspec.json.encode(found)


def test_a_failure_leads_to_the_last_cut_of_the_group_that_is_cut_least() -> None:
    before = layout_of(LATE, LATE)
    options = Options(before)
    options.complete(0, tuple((200,) for _ in before.groups))
    samples, rates = {0: observed(before, 20)}, {0: rates_of(before)}
    records = {}
    for name, policy in {"1 s": Lazy(every=1.0), "4 s": Lazy(every=4.0), "10 epochs": Lazy(every=10)}.items():
        supposed = Supposed(layout_of(policy, policy), before, options, samples, rates)
        records[name] = [supposed.exposure(supposed.cuts(share))[0].records for share in (0.5, 1.0)]
    assert records["1 s"] == records["10 epochs"]
    assert 3 < records["4 s"][0] / records["1 s"][0] < 5
    assert all(typical < worst for typical, worst in records.values())
    logged = Supposed(layout_of(Batch(log_outputs=True), Lazy(every=4.0)), before, options, samples, rates)
    assert logged.exposure(logged.cuts(0.5))[0].records < records["4 s"][0]
