"""A mate's view of its worker's checkpoints: as if all were read anew, at a cost that goes by what is new."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import falkirk
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.following import Following
from recovery.checkpoint.gathered import HELD, GatheredCheckpoints
from recovery.checkpoint.records import Applied, Checkpoint, Opening, Piece, Record, current, key_of, newer
from recovery.layout import Layout, lay_out
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Xi, to_frontier
from recovery.place import journal_of
from recovery.store.interface import NotThere
from recovery.store.journal import Journal
from recovery.store.reading import take_over
from tests.recovery.layouts import layout
from tests.recovery.store.owners import OWNER, STORE, memory_disk
from tests.support.calls import calls
from tests.support.profile import tries
from timely.dataflow.plan import compile_plan
from timely.io.memory import rows_of
from timely.operators.base import Operator
from timely.state import KeyedState
from timely.worker.processor import build_operator

SMALL = layout("a chain, b chain", "a>b", 1)


def records_of(chance: random.Random, generation: int) -> list[Record]:
    """Of one segment: checkpoints of both processors, with pieces, and sometimes a decision."""
    found: list[Record] = [Opening(SMALL)] if chance.random() < 0.2 else []
    if chance.random() < 0.1:
        bounds = tuple(chance.choice((None, (chance.randrange(12),))) for _ in range(2))
        found.append(Applied(generation, bounds))
    for p in range(2):
        for bound in sorted({chance.randrange(1, 12) for _ in range(chance.randrange(3))}):
            since = (chance.randrange(bound + 1),)
            found.append(Checkpoint(Xi(p, (bound,), ()), chance.randrange(generation + 1), since, 1, (), ()))
            found += [Piece(p, (bound,), (((0,), "state", rows),), b"") for rows in range(chance.randrange(3))]
    return found


def read_anew(segments: dict[int, list[Record]]) -> Checkpoints:
    """Checkpoints of all segments, as whoever takes over reads them."""
    stored, held = (
        current([(n, key_of(r), (r, b"x")) for n in sorted(segments) if (n >= HELD) == memory for r in segments[n]])
        for memory in (False, True)
    )
    found = Checkpoints(SMALL, WorkerRecorder(SMALL, 0), Journal(OWNER, STORE))
    on_disk, beside = newer(stored, held)
    found.load([*on_disk, *beside], contents=False)
    return found


@pytest.mark.parametrize("seed", range(tries(60)))
def test_segments_that_come_and_go_leave_what_a_reader_of_all_finds(seed: int) -> None:
    chance = random.Random(seed)
    gathered = GatheredCheckpoints(SMALL, [0, 1], lambda segment, index: b"x")
    segments: dict[int, list[Record]] = {}
    numbers = itertools.count()
    for step in range(40):
        for _ in range(chance.randrange(1, 4)):
            if segments and chance.random() < 0.4:
                number = chance.choice(sorted(segments))
                gathered.remove(number)
                del segments[number]
            else:
                number = next(numbers) + (HELD if chance.random() < 0.5 else 0)
                segments[number] = records_of(chance, step // 4)
                gathered.add(number, [(record, 1) for record in segments[number]])
        gathered.settle()
        anew = read_anew(segments)
        for p in range(2):
            assert [(s.checkpoint, [r for r, _ in s.runs], s.rows, s.size) for s in gathered.of(p).saved] == [
                (s.checkpoint, [r for r, _ in s.runs], s.rows, s.size) for s in anew.of(p).saved
            ]


class Kept(Operator):
    """An operator that keeps something by key."""

    def __init__(self) -> None:
        self.state = KeyedState()


def program() -> falkirk.Dataflow:
    flow = falkirk.Dataflow("followed")
    with flow.region("standing", policy=falkirk.PassiveStandby(every="50ms", durable="10s")):
        numbers = flow.source("in", falkirk.Iterable([1]))
        numbers.unary("total", Kept).capture("out")
    return flow


class Sender:
    """A worker that saves its totals with each epoch, in a mate's memory and seldom durably, and the mate."""

    def __init__(self) -> None:
        self.plan = compile_plan(program().graph, 1)
        self.layout: Layout = lay_out(self.plan)
        self.disk = memory_disk()
        owner = journal_of(0, 0)
        self.journal, _, _ = take_over(self.disk, owner, STORE, 0)
        self.journal.resume()
        self.checkpoints = Checkpoints(self.layout, WorkerRecorder(self.layout, 0), self.journal)
        self.mirror = Journal.fresh("held", STORE, 0)
        self.journal.mirrored(self.mirror)
        self.p = next(p for p, info in enumerate(self.layout.processors) if info.name == "total")
        self.state = self._state(build_operator(self.plan.processors[self.p], []))
        self.following = Following(self.plan, self.layout, 0, self.disk, owner, STORE)
        self.epoch = 0
        self.checkpoints.open()
        self.write()

    @staticmethod
    def _state(operator: Operator) -> KeyedState:
        assert isinstance(operator.state, KeyedState)
        return operator.state

    def write(self) -> None:
        """Seal the next durable segment, and delete what nothing needs."""
        self.checkpoints.carry()
        if (sealed := self.journal.seal()) is not None:
            self.disk.put(*sealed)
            for name in self.journal.stored(sealed[0]):
                self.disk.delete(name)

    def cut(self) -> None:
        """Count on, save it, and send it to the mate."""
        self.state.write((self.epoch,), {f"key {self.epoch % 50}": self.epoch})
        self.epoch += 1
        group, bound = self.layout.processors[self.p].group, (self.epoch,)
        positions = {p: () for p, info in enumerate(self.layout.processors) if info.role == "source"}
        draft = self.checkpoints.cut(group, bound, lambda p: self.state if p == self.p else None, positions)
        while not self.checkpoints.advance(draft):
            pass
        self.send()

    def send(self) -> None:
        """Send what waits to the mate, and let it drop what it needs no more."""
        if (sealed := self.mirror.seal()) is not None:
            name, parts = sealed
            self.following.hold(name, b"".join(parts))
            for gone in self.mirror.stored(name):
                self.following.let_go(gone)

    def flush(self) -> None:
        """Make all durable."""
        self.journal.flush()
        self.write()

    def follow(self) -> None:
        """Let the mate load all."""
        while self.following.turn():
            pass
        assert self.following.caught_up

    def check(self) -> None:
        """The mate has loaded what was saved one checkpoint before the last."""
        loaded = self.following.loaded[self.p]
        assert loaded.at is not None
        bound = loaded.at[0]
        assert bound == (max(self.epoch - 1, 1),)
        state = self._state(build_operator(self.plan.processors[self.p], []))
        state.restore(self.following.found.of(self.p).runs(bound, lambda _: True, last=False))
        assert _rows(self._state(loaded.operator), bound) == _rows(state, bound) != []


def _rows(state: KeyedState, bound: tuple[int, ...]) -> list[str]:
    runs: list[Any] = state.snapshot(to_frontier(bound), to_frontier((0,)))
    return sorted(repr((run.slot, run.part, row)) for run in runs for row in rows_of(run.batch))


def test_the_cost_of_a_held_segment_goes_by_what_is_new() -> None:
    sender, costs = Sender(), []
    sender.follow()
    for _ in range(400):
        sender.cut()
        costs.append(calls(sender.follow))
    sender.check()
    assert len(sender.following.segments) > 400
    early, late = sorted(costs[20:60]), sorted(costs[-40:])
    assert late[20] < 1.5 * early[20]


def test_what_becomes_durable_and_is_let_go_is_not_loaded_again() -> None:
    sender, costs = Sender(), []
    sender.follow()
    for cut in range(1, 401):
        sender.cut()
        sender.follow()
        if cut % 40 == 0:
            sender.flush()
            costs.append(calls(sender.follow))
            sender.check()
            assert sender.following.progress.behind <= 1
            assert sender.following.kept < 100, "what is loaded is left in the store"
        if cut % 100 == 0:
            low = (sender.epoch - 1,)
            sender.checkpoints.collect(sender.p, low)
    assert costs[-1] < 1.5 * costs[1]


def test_a_mate_that_holds_everything_is_not_behind() -> None:
    sender = Sender()
    for _ in range(30):
        sender.cut()
    sender.following.turn()
    assert (sender.following.progress.behind, sender.following.caught_up) == (0, False)
    assert sender.following.progress.left > 0
    sender.flush()
    sender.cut()
    sender.cut()  # now the mate has let go of what is durable
    while sender.following.step():
        pass
    sender.following.turn()
    assert sender.following.progress.behind > 20, "what it neither holds nor has loaded"
    sender.follow()
    assert sender.following.progress.behind == 0


def test_nothing_held_counts_before_what_was_durable_earlier_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest segment is deleted between two looks, as a later one has replaced it."""
    sender = Sender()
    sender.cut()
    sender.follow()
    for _ in range(3):
        sender.cut()
    sender.flush()
    sender.cut()
    sender.cut()
    real, times = sender.disk.get, []

    def get(name: str) -> memoryview:
        times.append(name)
        if len(times) == 1:
            raise NotThere(name)
        return real(name)

    monkeypatch.setattr(sender.disk, "get", get)
    sender.following.turn()
    assert not sender.following.caught_up
    sender.follow()
    sender.check()
