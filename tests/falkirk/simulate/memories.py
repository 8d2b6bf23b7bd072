"""A program whose operators keep all kinds of things beside their `state`, into which recovery looks, as far as it can."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from types import CellType
from typing import Any

import numpy as np

from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Lazy, LogHistory
from tests.falkirk.simulate.programs import words
from timely.operators.base import Context, Operator
from timely.state import KeyedState, Parts, TimedBatches
from timely.time import Time


class Slotted:
    """Keeps what it keeps in slots, one of them its own, and one without a value."""

    __slots__ = ("__own", "name", "unset")

    def __init__(self, name: str) -> None:
        self.name = name
        self.__own = [name]

    def tell(self) -> list[str]:
        """What it was made with."""
        return self.__own


class Open:
    """Has a slot, and all else that it is given."""

    __slots__ = ("__dict__", "first")

    def __init__(self) -> None:
        self.first = 1
        self.second = [2]


def scaled(n: int, by: int = 1, *, shift: int = 0) -> int:
    """A function with defaults of both kinds."""
    return n * by + shift


scaled.units = ("words",)  # type: ignore[attr-defined]


def closed_over(kept: Any) -> Callable[[], Any]:
    """A function that closes over something."""
    return lambda: kept


def own() -> Any:
    """An object that is met twice."""
    same = Slotted("same")
    return [same, same, {"of": same}]


KINDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: [1, 1.5, "a", b"b", None, True, Decimal("1.1"), range(3)],
    "containers": lambda: (
        (),
        [1, (2,)],
        deque([3], 4),
        {"a": [4]},
        OrderedDict(b=5),
        Counter("aab"),
        defaultdict(list),
    ),
    "sets": lambda: [{1, 2}, frozenset("ab"), bytearray(b"c")],
    "objects": lambda: [Slotted("a"), Open(), own()],
    "functions": lambda: [
        scaled,
        closed_over([1]),
        Slotted("b").tell,
        len,
        [1].count,
        partial(scaled, by=2),
        CellType(),
    ],
    "constants": lambda: [Slotted, np, LogHistory],
    "unclear set": lambda: {(1, 2)},
    "unclear array": lambda: np.arange(3),
    "much": lambda: list(range(1000)),
    "very many letters": lambda: {chr(n) for n in range(1000)},
    "long bytes": lambda: bytearray(1000),
    "deep": lambda: [[n] * 40 for n in range(40)],
}


class Counts(Operator):
    """Counts words in its state, and keeps something else that it never changes."""

    repeats_over = "time"

    shared = ("of the class", [1])

    def __init__(self, make: Callable[[], Any]) -> None:
        self._now = TimedBatches()
        self._known = KeyedState()
        self.state = Parts(self._now, self._known)
        self.kept = make()

    @staticmethod
    def longer(word: str, by: int = 0) -> int:
        """A static method with a default."""
        return len(word) + by

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        if len(self._now.add(time, batch)) == 1:
            ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        counts = Counter(word for batch in self._now.pop(time) for word in batch)
        known = self._known.read(time)
        now = {word: known.get(word, 0) + n for word, n in counts.items()}
        self._known.write(time, now)
        ctx.send(sorted(now.items()))


class Notices(Counts):
    """Keeps what it has met last in an attribute as well, which a history brings back."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.last = time
        self.times = [*getattr(self, "times", []), time][-3:]
        super().on_notify(ctx, time)


def memories() -> Dataflow:
    """Each kind under a full history, and those that can be compared under checkpoints, where they may stay as they are."""
    flow = Dataflow("memories")
    source = words(flow).exchange(by=lambda word: word, name="spread")
    for name, make in KINDS.items():
        source.unary(f"replayed {name}", partial(Counts, make)).policy(LogHistory(every=1)).capture(f"{name} again")
        source.unary(f"saved {name}", partial(Counts, make)).policy(Lazy(every=2)).capture(f"{name} still")
    source.unary("notices", partial(Notices, list)).policy(LogHistory(every=1)).capture("noticed")
    return flow
