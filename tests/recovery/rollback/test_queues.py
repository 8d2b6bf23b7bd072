"""The fate of a message: after every rollback that can be chosen, a queue holds what its receiver needs, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

import recovery.rollback.queues
from recovery.layout import EdgeInfo
from recovery.metadata import Bound
from recovery.rollback.queues import goes_again, stays
from tests.recovery.layouts import layout
from timely.time import Time

PLAIN = layout("a chain, b chain", "a=>b", 2).edges[0]
EDGES = {
    "unlogged": replace(PLAIN, logged=False),
    "logged": replace(PLAIN, logged=True),
    "ahead": replace(PLAIN, logged=False, ahead=True),
    "logged, ahead": replace(PLAIN, logged=True, ahead=True),
}
EPOCHS = range(4)


@dataclass(frozen=True)
class Case:
    """Messages as they were sent, how many of each time were delivered, and what was chosen."""

    edge: EdgeInfo
    sent: tuple[tuple[Time, Time], ...]
    complete: int
    """All messages of the epochs before this were delivered."""
    more: int
    """The number of that epoch that were, too."""
    source: Bound | None
    target: Bound | None
    lives: bool

    def delivered(self) -> list[int]:
        """By number."""
        found = [n for n, (_, time) in enumerate(self.sent) if time < (self.complete,)]
        return found + [n for n, (_, time) in enumerate(self.sent) if time == (self.complete,)][: self.more]

    def can_be(self) -> bool:
        """True if the fixed point can choose this (section 3.5), and the processors can have come to it."""
        source, target = self.source, self.target
        if (not self.lives and source is None) or (target is not None and target > (self.complete,)):
            return False
        if source is not None and any(self.sent[n][1] >= source for n in self.delivered() if target is None):
            return False  # M̄
        if source is not None and target is not None and target > source:
            return False  # M̄, N̄
        kept = [(event, time) for event, time in self.sent if source is None or event < source]
        lost = [time for event, time in kept if not self.edge.logs(event, time)]
        if self.edge.ahead and not self.edge.logged and source is not None and source > (0,):
            lost.append((source[0] - 1,))  # what a checkpoint says of D̄
        if target is not None:
            return all(time < target for time in lost)  # D̄
        return self.lives or all(time < (self.complete,) for time in lost)  # D̄, with C(d) for ⊤

    def needed(self) -> list[int]:
        """The messages that must come to the receiver."""
        had = set(self.delivered()) if self.target is None else set()
        return [
            n
            for n, (event, time) in enumerate(self.sent)
            if n not in had
            and (self.source is None or event < self.source)
            and (self.target is None or time >= self.target)
        ]

    def come(self) -> list[int]:
        """The messages that come to it: what stays, then what is sent again and not refused."""
        had = set(self.delivered())
        rest = self.edge, self.source, self.target, self.lives
        queue = [n for n, message in enumerate(self.sent) if n not in had and stays(*rest, *message)]
        log = [n for n, message in enumerate(self.sent) if self.edge.logs(*message)]
        again = [n for n in log if goes_again(*rest, *self.sent[n])]
        return queue + [n for n in again if self.target is not None or n not in had]

    def wrong(self) -> str | None:
        """The fault of what comes."""
        needed, come = self.needed(), self.come()
        if sorted(come) != needed:
            return f"{self}: {come} come, and {needed} must"
        for epoch in range(2 * len(EPOCHS)):
            of = [n for n in come if self.sent[n][1] == (epoch,)]
            if of != sorted(of):
                return f"{self}: of epoch {epoch} come {of}"
        return None


def cases() -> Iterator[Case]:
    """All of a small kind."""
    straight = tuple(((epoch,), (epoch,)) for epoch in EPOCHS for _ in range(2))
    later = tuple(((epoch,), (epoch + more,)) for epoch in EPOCHS for more in (2, 0, 1))
    bounds: list[Bound | None] = [None, *((epoch,) for epoch in range(len(EPOCHS) + 1))]
    for kind, edge in EDGES.items():
        for sent in (straight, later) if kind != "unlogged" else (straight,):
            for complete in range(len(EPOCHS) + 1):
                for more in range(3):
                    for source in bounds:
                        for target in bounds:
                            for lives in (True, False):
                                case = Case(edge, sent, complete, more, source, target, lives)
                                if case.can_be():
                                    yield case


def test_a_queue_holds_what_its_receiver_needs_in_the_order_of_sending() -> None:
    tried = list(cases())
    wrong = [text for case in tried if (text := case.wrong()) is not None]
    assert not wrong, wrong[:3]
    assert len(tried) > 500
    for kind, edge in EDGES.items():
        of = [case for case in tried if case.edge == edge]
        assert any(case.target is None and not case.lives for case in of), kind
        assert any(case.target is not None and case.source is not None for case in of), kind


def only_of_this_worker(edge: EdgeInfo, target: Any, lives: bool, event: Time, time: Time) -> bool:
    """As if what waits of other workers stayed in the queue, and was refused when it came again."""
    return edge.logs(event, time) and not lives


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("from_log", only_of_this_worker),
        ("from_log", lambda *_: False),
        ("owed", lambda source, target, event, time: target is None or time >= target),
        ("owed", lambda source, target, event, time: source is None or event < source),
        ("from_log", lambda edge, target, lives, event, time: edge.logs(event, time) and target is not None),
    ],
)
def test_each_predicate_is_needed(name: str, instead: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list(cases())
    monkeypatch.setattr(recovery.rollback.queues, name, instead)
    assert any(case.wrong() for case in tried)
