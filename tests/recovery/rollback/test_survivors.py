"""Survivors keep what they have: whole histories of failures come out right, and without any one of the rules they do not."""

from __future__ import annotations

from typing import Any

import pytest

import recovery.fixed_point.solve as solving
from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.memory.kept_messages import KeptMessages, Suppression
from tests.recovery.rollback.survivors import PROGRAMS, UNLIMITED, Job, check
from tests.support.mutation import GONE, Change, Rules


def budget(seed: int) -> int:
    """Every fourth history has room for a few messages only."""
    return UNLIMITED if seed % 4 else 12


@pytest.mark.parametrize("name", PROGRAMS)
def test_histories_of_failures_come_out_as_without_them(name: str) -> None:
    spared = sum(check(name, seed, budget(seed)).spared for seed in range(4))
    assert spared > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_histories_of_failures(name: str) -> None:
    for seed in range(4, 2_000):
        check(name, seed, budget(seed))


RULES = Rules()


def rule(name: str, says: str, program: str, seed: int, change: Change) -> None:
    """A rule, and a history that goes wrong without it."""

    def history() -> Any:
        check(program, seed, budget(seed))
        return "right"

    RULES.add(name, says, history, "right", change)


rule(
    "suppressed",
    "what is done again is not sent to who has it",
    "later",
    1,
    Change(Suppression, "has", "holds(self.bounds[worker][processor], time)", "False"),
)
rule(
    "kept",
    "a living sender sends again what it kept",
    "exchanges",
    2,
    Change(KeptMessages, "wanted", "self._messages.get(channel, ())", "()"),
)
rule(
    "suppressed messages are kept",
    "a receiver may fail that has them now",
    "later",
    2,
    Change(
        Job,
        "send",
        "if self.keeps(e, u, v): ...",
        "self.keeps(e, u, v) and (v == u or not self.monitor.suppression.has(v, edge.target, time))",
    ),
)
rule(
    "coverage",
    "beyond the budget a sender goes back with its receiver",
    "later",
    4,
    Change(KeptMessages, "coverage", "self._coverage.get(channel)", "None"),
)
rule(
    "undone",
    "who goes back forgets what it sent later",
    "dice",
    57,
    Change(KeptMessages, "undo", "holds(bound, message[0])", "True"),
)
rule(
    "rebuilt queues",
    "a receiver that comes back has its queue from kept messages alone",
    "exchanges",
    2,
    Change(Job, "refill", "edge.info(kept=self.keeps(e, sender, u) and sender not in dead)", "edge.info(kept=False)"),
)
rule(
    "dice",
    "behind what is not the same again nobody is ahead",
    "dice",
    11,
    Change(Job, "repeats", "operator.repeats", "True"),
)
rule(
    "clock",
    "epochs that were cut by the clock are the same only where others know their ends",
    "clock",
    2,
    Change(Job, "repeats", "self.program.clock", "False"),
)
rule(
    "clock, again",
    "epochs whose ends are known are read again as they were",
    "clock",
    3,
    Change(Job, "read", "t in process.again", "False"),
)
rule(
    "clock, from W on",
    "ends are of use where none is missing since W",
    "clock",
    127,
    Change(KnownEnds, "repeats", "known.begin <= low", "True"),
)
rule(
    "clock, without a gap",
    "ends that were told before a gap are of no use behind it",
    "clock",
    127,
    Change(EpochEnds, "joined", "other.begin > self.upto or self.begin > other.upto", "False"),
)
rule(
    "within a worker",
    "nobody is ahead of a sender on its own worker, which would send again what it has",
    "later",
    4,
    Change(Job, "__init__", "u != v", "True"),
)


rule(
    "incomplete times",
    "a survivor drops what is incomplete",
    "loop",
    0,
    Change(Job, "restore", "t < bound", "True"),
)
rule(
    "coverage after a restore",
    "who came back from the store keeps nothing of before",
    "later",
    26,
    Change(Job, "restore", "process.kept.forget((e, v), lost)", "pass"),
)
rule(
    "delivered before a restore",
    "M̄ of a processor that came back is its bound",
    "later",
    23,
    Change(
        Job, "restore", "{e: self.last(bound) for e in into} if dead else process.delivered[p]", "process.delivered[p]"
    ),
)
rule(
    "completed by who is ahead",
    "a frontier that went back with others takes nothing from who is ahead",
    "later",
    18,
    Change(Job, "upto", "max(self.complete[u, p], self.processes[u].before[p])", "self.complete[u, p]"),
)


rule(
    "notified by who is ahead",
    "who came back ahead has acted on what it came back with",
    "clock",
    909,
    Change(
        Job,
        "live",
        "notified = process.acted[p]",
        "notified = self.monitor.low[flat]",
    ),
)
rule(
    "between checkpoints",
    "below what came back from the store there are checkpoints only",
    "exchanges",
    47,
    Change(Job, "is_between", "below and all(each.bound != bound for each in self.options(flat))", "False"),
)


rule(
    "logged ahead, and kept",
    "messages for later times are as good as logged while their sender lives, whether a cut lies between or not",
    "loop",
    10,
    Change(
        Job, "refill", "edge.info(kept=self.keeps(e, u, v))", "edge.info(kept=self.keeps(e, u, v) and not edge.ahead)"
    ),
)


rule(
    "fallen, and its senders",
    "a survivor that goes back takes back who sent it what it forgets, and has not kept that",
    "loop",
    0,
    Change(solving._Descent, "_fall", "self._wake(p)", GONE),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_a_history_goes_wrong(name: str) -> None:
    RULES[name].check()
