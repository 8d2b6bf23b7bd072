"""The timeline of a job: each event once, when it happened, with its numbers; and those that the journal keeps."""

from __future__ import annotations

from typing import Any

from monitor.coordination.effects import Effect, Persist, Send
from monitor.coordination.intervals import OFTEN
from monitor.coordination.records import KeptEvent
from monitor.coordination.supervision import Note, TimelineEvent
from recovery.layout import GroupInfo
from recovery.place import Place
from recovery.protocol import Completed, Drained, Durable, Restored, Watermarks
from tests.monitor.coordination.coordinators import PLAN, checkpoint, join, life, memory, running, settings, xis
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.recovery.layouts import layout


class Watched(DrivenCoordinator):
    """Remembers all effects, whoever takes them."""

    def __init__(self, *args: Any) -> None:
        self.all: list[Effect] = []
        super().__init__(*args)

    def take(self) -> list[Effect]:
        given = super().take()
        self.all += given
        return given


def timeline(effects: list[Effect]) -> list[tuple[Any, ...]]:
    return [(event.kind, event.at, event.data) for event in effects if isinstance(event, TimelineEvent)]


ACCOUNT: dict[str, Any] = {
    "generation": 2,
    "failed": [0],
    "since": 3.0,
    "causes": [{"worker": 0, "reason": "killed", "words": "", "after": 0.0, "output": ""}],
    "rounds": 1,
    "phases": {"drain": 0.5, "decide": 0.0, "restore": 0.5},
    "drained": [[1, 0.5]],
    "joined": [[0, 0.5]],
    "restored": [[0, 1.0], [1, 1.0]],
    "mates": [],
    "expected": None,
    "places": [{"from": [5], "to": [5], "workers": [0, 1], "operators": [[0, 1]]}],
    "resent": [],
    "redone": [],
    "left_off": 0,
}
"""Account of the one rollback in `life`."""


def test_a_life_is_told() -> None:
    coordinator = Watched(PLAN, None, settings())
    life(coordinator)
    coordinator.take()
    first, last = {"group": 0, "epoch": 3}, {"group": 0, "epoch": -1}
    writing = {"waited": 0.0, "made": 0.0, "written": 0.0}
    assert timeline(coordinator.all) == [
        ("began", 0.0, {"workers": 2}),
        ("round", 0.0, {"round": 1, "alive": []}),
        ("decided", 0.0, {"generation": 1, "failed": [0, 1], "rolled_back": 4}),
        ("restored", 0.5, {"generation": 1, "seconds": 0.5, "start": True}),
        ("cut", 1.0, first),
        ("durable", 1.5, {"worker": 0, **first, **writing}),
        ("durable", 1.5, {"worker": 1, **first, **writing}),
        ("checkpoint", 1.5, {**first, "seconds": 0.5}),
        ("watermarks", 1.5, {"risen": 4}),
        ("safe", 1.5, {**first, "seconds": 0.5}),
        ("cut", 2.0, {"group": 0, "epoch": 5}),
        ("durable", 2.5, {"worker": 0, "group": 0, "epoch": 5, **writing}),
        ("failure", 3.0, {"worker": 0, "incarnation": 1, "reason": "killed", "output": ""}),
        ("round", 3.0, {"round": 2, "alive": [1]}),
        ("decided", 3.5, {"generation": 2, "failed": [0], "rolled_back": 4}),
        ("restored", 4.0, {"generation": 2, "seconds": 1.0, "start": False, "rollback": ACCOUNT}),
        ("cut", 4.5, last),
        ("durable", 5.0, {"worker": 0, **last, **writing}),
        ("durable", 5.0, {"worker": 1, **last, **writing}),
        ("checkpoint", 5.0, {**last, "seconds": 0.5}),
        ("watermarks", 5.0, {"risen": 4}),
        ("safe", 5.0, {**last, "seconds": 0.5}),
        ("finished", 5.5, {}),
    ]


def test_rounds_and_failures_are_kept_with_the_next_write() -> None:
    coordinator = Watched(PLAN, None, settings())
    life(coordinator)
    coordinator.take()
    writes = [effect.records for effect in coordinator.all if isinstance(effect, Persist)]
    kept = [[(each.kind, each.at) for each in records if isinstance(each, KeptEvent)] for records in writes]
    assert [each for each in kept if each] == [
        [("began", 0.0)],
        [("decided", 0.0), ("restored", 0.5)],
        [("failure", 3.0)],
        [("decided", 3.5), ("restored", 4.0)],
        [("finished", 5.5)],
    ]


def settled(coordinator: DrivenCoordinator) -> list[Effect]:
    """All effects, and what follows once all that is written is durable."""
    found: list[Effect] = []
    while given := coordinator.take():
        found += given
        for effect in given:
            if isinstance(effect, Persist):
                coordinator.stored(effect.ticket)
    return found


def test_what_stays_is_not_counted_as_rolled_back_and_trouble_begins_with_the_first_failure() -> None:
    plan = layout("a source, b chain", "a|b")
    coordinator = running(plan=plan)
    coordinator.lost(0, 1, 5.0, "killed")
    coordinator.lost(0, 2, 6.0, "killed again")
    coordinator.hear(join(0, 3, 1, layout=plan), 7.0)
    coordinator.hear(Drained(Place(1), coordinator.round, memory(0, plan)), 7.0)
    told = timeline(settled(coordinator))
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), coordinator.generation), 8.0 + worker)
    told += timeline(coordinator.take())
    account = told[-1][2].pop("rollback")
    assert [(each["worker"], each["reason"], each["after"]) for each in account["causes"]] == [
        (0, "killed", 0.0),
        (0, "killed again", 1.0),
    ]
    assert (account["rounds"], account["drained"], account["joined"]) == (2, [[1, 2.0]], [[0, 2.0]])
    assert [each for each in told if each[0] in ("decided", "restored")] == [
        ("decided", 7.0, {"generation": 3, "failed": [0], "rolled_back": 3}),
        ("restored", 9.0, {"generation": 3, "seconds": 4.0, "start": False}),
    ]


def test_w_is_told_where_it_has_risen() -> None:
    plan = layout("a source, b chain", "a|b")
    coordinator = running(plan=plan)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((3,), (3,))), 1.0)
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 1, 0, (3,), checkpoint(plan, 0, (3,))), 1.5)
    effects = settled(coordinator)
    told = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Watermarks)]
    assert told == [Send(Place(to), Watermarks(((0, w, (3,)),))) for w in range(2) for to in range(2)]
    assert [data for kind, _, data in timeline(effects) if kind == "watermarks"] == [{"risen": 1}] * 2


def test_slow_cuts_are_told_when_the_user_hears_of_them() -> None:
    coordinator = running(plan=layout("read source, count chain", "read=>count", groups=GroupInfo(None, 0.5)))
    for epoch in range(1, OFTEN + 2):
        now = 10.0 * epoch
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), 1, ((epoch,),)), now)
        for worker in range(2):
            coordinator.hear(Durable(Place(worker), 1, 0, (epoch,), xis(epoch), 0.5, 2.0, 0.25), now + 3.0)
        effects = settled(coordinator)
        slow = [data for kind, _, data in timeline(effects) if kind == "slow"]
        notes = [effect for effect in effects if isinstance(effect, Note)]
        assert len(notes) == len(slow) == (epoch == OFTEN)
        assert all("take 3.0 s" in note.text for note in notes)
        taken = {"seconds": 3.0, "waited": 0.5, "made": 2.0, "written": 0.25}
        assert not slow or slow == [{"group": 0, "epoch": epoch, "worker": 1, **taken}]


def test_the_first_cut_of_a_generation_has_no_interval() -> None:
    coordinator = running()
    told = []
    for generation, epoch in ((1, 3), (1, 4), (2, 6), (2, 7)):
        if generation > coordinator.generation:
            coordinator.lost(0, 1, epoch, "killed")
            coordinator.hear(join(0, 2, 1, durable=(*xis(3), *xis(4))), epoch)
            coordinator.hear(Drained(Place(1), coordinator.round, memory(4)), epoch)
            settled(coordinator)
            for worker in range(2):
                coordinator.hear(Restored(Place(worker), 2), epoch)
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), generation, ((epoch,),)), epoch)
        for worker in range(2):
            coordinator.hear(Durable(Place(worker), generation, 0, (epoch,), xis(epoch)), epoch)
        told += [data.get("interval") for kind, _, data in timeline(settled(coordinator)) if kind == "safe"]
    assert told == [None, 1.0, None, 1.0]
