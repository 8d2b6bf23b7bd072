"""Simulated jobs come to every corner of a rollback: each is counted, for what no run enters no run proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from falkirk.simulate.world import World
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound
from recovery.protocol import Decision
from recovery.rollback.orders import RollbackPlanner
from tests.falkirk.simulate.often import often
from tests.falkirk.simulate.programs import PROGRAMS
from timely.data.messages import Message
from timely.time import Time
from timely.worker.restoring import ResentBatch, RestoredProcessor


class Counted:
    """Counts while `patch` lasts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._went_to: dict[tuple[WorkerRecorder, int], Bound] = {}
        self._patch = patch
        self._around(RollbackPlanner, "_resend", self._resent)
        self._around(RollbackPlanner, "_restore", self._restored)
        self._around(RollbackPlanner, "_keeps", self._kept)
        self._around(WorkerRecorder, "taken", self._taken)
        self._around(Checkpoints, "_collect_history", self._collected)

    def _around(self, owner: type, name: str, count: Callable[..., None]) -> None:
        inner = getattr(owner, name)

        def outer(self: Any, *args: Any) -> Any:
            found = inner(self, *args)
            return count(self, found, *args) or found

        self._patch.setattr(owner, name, outer)

    def _resent(
        self,
        of: RollbackPlanner,
        found: tuple[list[ResentBatch], list[tuple[int, Message]]],
        decision: Decision,
        remembers: bool,
    ) -> None:
        local, remote = found
        self.counts["again to itself"] += len(local)
        for receiver, _ in remote:
            who = "one that lives" if remembers else "one that died"
            whom = "one that died" if receiver in decision.failed else "one that lives"
            self.counts[f"again by {who} to {whom}"] += 1

    def _restored(
        self, of: RollbackPlanner, found: RestoredProcessor, p: int, bound: Bound, remembers: bool, lowest: bool
    ) -> None:
        place = of._recorder, p
        if remembers and bound < self._went_to.get(place, bound):
            self.counts["lower the second time"] += 1
        if remembers and bound < of._recorder.since[p]:
            self.counts["lower than it came back from its store"] += 1
        self._went_to[place] = bound

    def _kept(
        self, of: RollbackPlanner, found: Callable[..., bool], decision: Decision, remembers: bool
    ) -> Callable[..., bool]:
        def keeps(index: int, sender: int, event: Time, time: Time) -> bool:
            stays = found(index, sender, event, time)
            if sender != of._worker.index:
                self.counts[f"another's message {'stays' if stays else 'goes'}"] += 1
            return stays

        return keeps

    def _collected(self, of: Checkpoints, found: int, p: int, low: Bound, last: int) -> None:
        self.counts["a history gives way to state"] += any(of.base(p, low))

    def _taken(self, of: WorkerRecorder, found: bool, *_: Any) -> None:
        self.counts["refused"] += not found


@cache
def right(program: str) -> Any:
    world = World(PROGRAMS[program], 3, -1, ())
    world.run()
    return world.outside.result()


def run(program: str, seed: int) -> None:
    """One job with many failures."""
    world = often(PROGRAMS[program], 3, seed)
    world.run()
    world.outside.compare(right(program))


WAYS = {
    "one_way": (
        "again to itself",
        "again by one that lives to one that died",
        "again by one that died to one that lives",
        "another's message stays",
        "refused",
    ),
    "order_of_logs": ("again by one that lives to one that lives", "another's message stays", "another's message goes"),
    "order_ahead": ("again to itself", "again by one that lives to one that lives", "another's message goes"),
    "mixed": ("a history gives way to state",),
    "ordered_histories": ("a history gives way to state", "again to itself"),
    "unsteady": ("lower the second time", "lower than it came back from its store", "refused"),
}


LONG = ("unsteady",)
"""Programs of which forty runs and more are needed."""


@pytest.mark.check
@pytest.mark.parametrize("program", [pytest.param(each, marks=[pytest.mark.soak] * (each in LONG)) for each in WAYS])
def test_a_program_comes_to_what_it_is_there_for(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for seed in range(60):
        run(program, seed)
        if seed >= 4 and all(counted.counts[what] for what in WAYS[program]):
            return
    pytest.fail(f"after 60 runs: {dict(counted.counts)}")
