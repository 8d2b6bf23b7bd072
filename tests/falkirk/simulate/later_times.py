"""Operators of one's own that keep records until a later epoch, in each way in which the engine lets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Policy
from timely.io import Iterable
from timely.operators.base import Capability, Context, Operator
from timely.state import Parts, State, TimedBatches, TimedValues
from timely.time import Time

AHEAD = 3
"""The number of epochs for which records are kept."""


class Waits(Operator):
    """Sends what came in an epoch `AHEAD` epochs later.

    Args:
        kind: of the state: "batches", "values", or "parts" for both.
        under: the time that it is kept under: the "event"'s own, or the one at which it is "due".
        capability: keep the right to send then; otherwise only the notification is asked for.
    """

    def __init__(self, kind: str, under: str, capability: bool) -> None:
        self._batches, self._values = TimedBatches(), TimedValues()
        self._kind, self._under, self._capability = kind, under, capability
        states: dict[str, State] = {
            "batches": self._batches,
            "values": self._values,
            "parts": Parts(self._batches, self._values),
        }
        self.state = states[kind]
        self.held: dict[Time, Capability] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        due = (time[0] + AHEAD,)
        if self._capability and due not in self.held:
            self.held[due] = ctx.retain(due)
        place = time if self._under == "event" else due
        if self._kind != "values":
            self._batches.add(place, batch)
        if self._kind != "batches":
            values = self._values.at(place)
            for word in batch:
                values[word] = values.get(word, 0) + 1
        ctx.notify_at(due)

    def on_notify(self, ctx: Context, time: Time) -> None:
        place = time if self._under == "due" else (time[0] - AHEAD,)
        words = [word for batch in self._batches.pop(place) for word in batch]
        words += sorted(self._values.pop(place).items())
        if self._capability:
            capability = self.held.pop(time)
            capability.send(words)
            capability.drop()
        else:
            ctx.send(words)

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        self.held = {capability.time: capability for capability in capabilities}


class Repeats(Waits):
    """The same, and says that done again it gives the same."""

    repeats = True


class Gathers(Waits):
    """Keeps the records of several epochs under the one in which all of them are due."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self._batches.add(time if self._under == "event" else _due(time), batch)
        if self._capability and _due(time) not in self.held:
            self.held[_due(time)] = ctx.retain(_due(time))
        ctx.notify_at(_due(time))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        due = _due(time)
        values = self._values.at(due)  # in order, for an epoch that is complete comes after those before it
        values["epochs"] = (*values.get("epochs", ()), time[0])
        if time != due:
            return
        places = [time] if self._under == "due" else [(at,) for at in range(max(0, time[0] - AHEAD), time[0] + 1)]
        words = [word for place in places for batch in self._batches.pop(place) for word in batch]
        ctx.send([*sorted(words), *self._values.pop(time).items()])
        for capability in self.held.values():
            if capability.time == time:
                capability.drop()
        self.held.pop(time, None)


def _due(time: Time) -> Time:
    return (time[0] + AHEAD - time[0] % (AHEAD + 1),)


def waiting(make: Callable[[], Operator], policy: Policy, holds: bool, size: int = 40) -> Dataflow:
    """Words from two partitions that wait, behind an exchange and in front of one, and a running count of them."""
    flow = Dataflow("waiting")
    first = [f"w{(i * i * 7) % 11}" for i in range(size)]
    second = [f"w{(i * 5) % 13}" for i in range(size - 8)]
    with flow.region("front", policy=Batch(log_outputs=True)):
        source = flow.source("in", Iterable(partitioned=[first, second], batch=2, epoch_every=4))
        words = source.exchange(by=lambda word: word)
    with flow.region("waits", policy=policy):
        kept = words.unary("waits", make, holds=holds)
    kept.capture("out")
    kept.key_by(str).count(name="count").records().capture("counts")
    return flow
