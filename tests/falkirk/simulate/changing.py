"""Simulated jobs whose program is changed while they are at rest, among all other faults.

The variants of a program differ in what nobody sees outside: operators that pass everything on, names, branches without
output, policies. So the outputs are those of any of them, without faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from falkirk.simulate.outside import Violation
from falkirk.simulate.process import Killed, WritesAtIO
from falkirk.simulate.world import STORE_ID, World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.metadata import within
from recovery.policy import Batch, Lazy, LogHistory
from recovery.policy.traits import Policy
from runtime.page.recorded import read_saved
from runtime.supervisor.upgrading import CannotUpgrade, plan_upgrade, upgrade
from tests.falkirk.simulate.moving import Ages, pairs
from timely.dataflow.plan import compile_plan
from timely.io import Memory
from timely.operators.channels import Exchange

RATE = 0.004
"""Chance of a change at each step."""


@dataclass(frozen=True)
class Variant:
    """One form of a program; `names` are those of its operators by their names in the first form."""

    build: Callable[[], Dataflow]
    names: Mapping[str, str] = field(default_factory=dict)


class ChangingWorld(World):
    """A simulated job whose program is now and then changed to another of `variants`."""

    def __init__(self, variants: Sequence[Variant], workers: int, seed: int, kinds: Sequence[str]) -> None:
        self._chance = Random(f"changes {seed}")
        self._variants, self._variant, self._next = variants, 0, 0
        self.changes = 0
        self.refused: list[str] = []
        super().__init__(variants[0].build, workers, seed, kinds)

    def step(self) -> None:
        super().step()
        if self.now < 4.0 and not self.finished and self._chance.random() < RATE:
            self._next = self._chance.randrange(len(self._variants))
            self._stop_job(self.now)

    def _start_monitor(self) -> None:
        if self._next != self._variant:
            try:
                self._change()
            except CannotUpgrade as error:
                self.refused.append(str(error))
                self._next = self._variant
            except Killed:
                self.note("killed while it changed")
                self._monitor_at = self.now + self._random.random() * 0.5
                return
        super()._start_monitor()

    def _change(self) -> None:
        former, now = self._variants[self._variant].names, self._variants[self._next].names
        renames = {former.get(name, name): now.get(name, name) for name in {**former, **now}}
        store = WritesAtIO(self.disk, lambda: self.at_io(0))
        build = self._variants[self._next].build
        try:
            if read_saved(self.disk, STORE_ID).layout is not None:
                plan = plan_upgrade(store, STORE_ID, self._laid_out(build), renames, self._next_incarnation)
                self.note("changes", what=[(change.fate, change.name) for change in plan.changes])
                upgrade(store, STORE_ID, plan, self._next_incarnation, self.now)
        finally:
            self._adopt_program(renames)

    def _laid_out(self, build: Callable[[], Dataflow]) -> Callable[[int], Any]:
        return lambda workers: self._layout(compile_plan(self.outside.isolated(build().graph, self), workers))

    def _adopt_program(self, renames: Mapping[str, str]) -> None:
        """Go on with the program in the store."""
        saved = read_saved(self.disk, STORE_ID)
        if saved.layout is not None and saved.layout.number == self.layout.number:
            return
        self.changes += 1
        low = {(worker, self.layout.processors[p].name): bound for (worker, p), bound in self.checks.low.items()}
        self._variant, self._build = self._next, self._variants[self._next].build
        self.layout = self._layout(self._plan())
        if saved.layout is None:
            return
        self.layout = saved.layout
        assert saved.watermarks is not None
        names = {info.name: p for p, info in enumerate(saved.layout.processors)}
        for (worker, name), bound in low.items():
            p = names.get(renames.get(name, name))
            if p is not None and not within(bound, saved.watermarks[worker][p]):
                raise Violation(f"the change takes {name} of worker {worker} below {bound}, which was safe")
        self.checks.__init__()  # type: ignore[misc]


def drawn(seed: int) -> list[Variant]:
    """A program and variants of it."""
    random = Random(f"changing {seed}")
    lines = random.randint(1, 3)
    keeping = [random.choice(("sum", "count", "distinct", "ages", "columns", "history")) for _ in range(lines)]
    return [_variant(keeping, Random(f"variant {seed}/{at}") if at else None) for at in range(3)]


def _variant(keeping: Sequence[str], random: Random | None) -> Variant:
    """One form of a program of some lines, each with an operator that keeps something; None: the first form."""
    numbers = count()

    def chance(share: float = 0.5) -> bool:
        return random is not None and random.random() < share

    names = {f"keeps {at}": f"renamed {at}" for at in range(len(keeping)) if chance(0.3)}
    choices = [[chance() for _ in range(6)] for _ in keeping]
    others: tuple[Policy, ...] = (Lazy(1), Lazy(3), Lazy(2, log_outputs=True))
    policies: list[Policy] = [Lazy(2) if random is None else random.choice(others) for _ in keeping]

    def passing(stream: Any, wanted: bool) -> Any:
        return stream.map(_same, name=f"passes {next(numbers)}") if wanted else stream

    def build() -> Dataflow:
        nonlocal numbers
        numbers = count()
        flow = Dataflow("changing")
        with flow.region("front", policy=Batch(log_outputs=choices[0][5])):
            front = passing(pairs(flow), choices[0][4])
        for at, what in enumerate(keeping):
            before, after, branch, more, *_ = choices[at]
            policy = LogHistory(2) if what == "history" else policies[at]
            with flow.region(f"line {at}", policy=policy):
                kept = _keeps(passing(front, before), what, names.get(f"keeps {at}", f"keeps {at}"))
                kept = passing(kept, after)
                kept.to(Memory(), name=f"out {at}")
                if branch:
                    extra = kept.map(_one, name=f"ones {at}").unary(f"counts {at}", Ages, Exchange())
                    extra.filter(_none, name=f"drops {at}").capture(f"nothing {at}")
                if more:
                    kept.filter(_none, name=f"drops more {at}").to(Memory(), name=f"nothing more {at}")
        return flow

    return Variant(build, names)


def _same(record: Any) -> Any:
    return record


def _none(record: Any) -> bool:
    return False


def _keeps(stream: Any, what: str, name: str) -> Any:
    match what:
        case "sum":
            return stream.keyed().sum(name=name).records()
        case "count" | "history":
            return stream.keyed().count(name=name).records()
        case "distinct":
            return stream.map(_short, name=f"short {what} of {name[-1]}").distinct(name=name)
        case "ages":
            return stream.unary(name, Ages, Exchange())
        case _:
            import polars as pl

            from libraries.columns import agg

            columns = stream.map(_row, name=f"rows of {name[-1]}").to_columns({"k": pl.Int64, "v": pl.Int64})
            return (
                columns.group_by("k")
                .agg(over="scope", name=name, total=agg.sum("v"))
                .to_records(name=f"records of {name[-1]}")
            )


def _short(pair: Any) -> Any:
    return pair[0], pair[1] % 5


def _one(record: Any) -> Any:
    return 0, 1


def _row(pair: Any) -> Any:
    return {"k": pair[0], "v": pair[1]}
