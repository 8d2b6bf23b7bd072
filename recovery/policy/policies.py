"""Fault-tolerance policies for regions and single operators.

    with flow.region("front", policy=Ephemeral()):
        ...
    counts = words.count().policy(Lazy(every="500ms"))

What each costs and gives is in docs/recovery.md; the regimes are those of Isard and Abadi, *Falkirk Wheel*, section 1 and
Figure 1. Below its words each says in which traits it differs (`recovery.policy.traits`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recovery.policy.traits import Every, Policy, Saves, interval
from timely.errors import GraphError, at_line


@dataclass(frozen=True, slots=True)
class Ephemeral(Policy):
    """Persist nothing, and keep nothing from one time to the next.

    Whatever was under way is read again from the source, which hears of an acknowledgement only when its records have
    left the region and what became of them is safe.

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["to", "be"]))
    >>> with flow.region("front", policy=falkirk.Ephemeral()):
    ...     lengths = words.map(len)
    >>> seen = lengths.capture("lengths")
    >>> falkirk.run(flow).captured("lengths")
    [((0,), [2, 2])]
    """

    saves = Saves.NOTHING
    clients_retry = True


@dataclass(frozen=True, slots=True)
class Batch(Policy):
    """Keep nothing from one time to the next; persist outputs if `log_outputs`.

    Logged outputs are a firewall: a failure behind them never makes this region, or what is before it, work again
    (like the lineage cut of a persisted RDD; section 4.1).

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["to", "be"]))
    >>> with flow.region("front", policy=falkirk.Batch(log_outputs=True)):
    ...     lengths = words.map(len)
    >>> seen = lengths.capture("lengths")
    >>> falkirk.run(flow).captured("lengths")
    [((0,), [2, 2])]
    """

    saves = Saves.MESSAGES
    log_outputs: bool = False


@dataclass(frozen=True, slots=True)
class Lazy(Policy):
    """Save state incrementally at complete times, `every` so often, while running.

    After a failure at most the work since the last checkpoint is done again.

    Raises:
        GraphError: `every` is neither a positive number nor a duration.

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["a", "b", "a"]))
    >>> with flow.region("counts", policy=falkirk.Lazy(every=2.0)):
    ...     counts = words.key_by(str).count()
    >>> seen = counts.capture("counts")
    >>> falkirk.run(flow).captured("counts")
    [((0,), [('a', 2), ('b', 1)])]
    """

    every: Every = 1.0
    log_outputs: bool = False

    def __post_init__(self) -> None:
        interval(self.every)


@dataclass(frozen=True, slots=True)
class LogHistory(Policy):
    """Persist every delivered batch and notification; restore state by replay.

    Writes are made `every` so often.

    For deterministic operators that have no checkpoint code. The history grows until the operator's state, if it keeps
    it in `state`, is saved in its place (section 4.1).

    Raises:
        GraphError: `every` is neither a positive number nor a duration.

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["a", "b", "a"]))
    >>> with flow.region("counts", policy=falkirk.LogHistory(log_outputs=True)):
    ...     counts = words.key_by(str).count()
    >>> seen = counts.capture("counts")
    >>> falkirk.run(flow).captured("counts")
    [((0,), [('a', 2), ('b', 1)])]
    """

    saves = Saves.EVENTS
    every: Every = 1.0
    log_outputs: bool = False

    def __post_init__(self) -> None:
        interval(self.every)


@dataclass(frozen=True, slots=True)
class Eager(Policy):
    """Persist state, logs and staged outputs at every epoch, before others see them.

    A region is saved as soon as an epoch is complete.

    Each worker commits by itself, and all epochs that it completes while a commit is written go into the next one. What has
    left the region is never taken back because of a failure inside (section 2.1, exactly-once streaming).

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["a", "b", "a"]))
    >>> with flow.region("counts", policy=falkirk.Eager()):
    ...     counts = words.key_by(str).count()
    >>> seen = counts.capture("counts")
    >>> falkirk.run(flow).captured("counts")
    [((0,), [('a', 2), ('b', 1)])]
    """

    log_outputs: ClassVar[bool] = True
    logs_inputs = True
    commits_per_worker = True
    gated = True


@dataclass(frozen=True, slots=True)
class Snapshot(Policy):
    """Save a region as one, `every` so often, at an epoch complete in all of it.

    Later epochs go on meanwhile.

    What enters and what leaves it is logged, so it is saved at its own interval, goes back to its last snapshot as one, and
    nobody in front works again for it (consistent cuts, as those of Chandy and Lamport; section 2.1).

    Raises:
        GraphError: `every` is neither a positive number nor a duration.

    >>> flow = falkirk.Dataflow()
    >>> moves = flow.source("moves", falkirk.Iterable([("nut", 5), ("nut", -2)]))
    >>> with flow.region("stock", policy=falkirk.Snapshot(every="10s")):
    ...     stock = moves.keyed().sum().records()
    >>> seen = stock.capture("stock")
    >>> falkirk.run(flow).captured("stock")
    [((0,), [('nut', 3)])]
    """

    every: Every = 1.0
    log_outputs: ClassVar[bool] = True
    logs_inputs = True
    saved_together = True

    def __post_init__(self) -> None:
        interval(self.every)


@dataclass(frozen=True, slots=True)
class AtLeastOnce(Policy):
    """Persist positions of sources only; resend in the current epoch.

    No other operator goes back because of this region.

    What was under way is read again and sent *in the current epoch*, not in the one in which it was sent first. So those behind
    keep what they have, and may count some records twice (section 2.1, at-least-once streaming).

    >>> flow = falkirk.Dataflow()
    >>> with flow.region("front", policy=falkirk.AtLeastOnce()):
    ...     birds = flow.source("sightings", falkirk.Iterable(["wren", "owl", "wren"])).map(str.title)
    >>> seen = birds.distinct().capture("species")
    >>> falkirk.run(flow).captured("species")
    [((0,), ['Wren', 'Owl'])]
    """

    saves = Saves.NOTHING
    anew = True


@dataclass(frozen=True, slots=True)
class Amnesia(Policy):
    """Persist nothing, and lose state with its worker: go on empty, at once.

    Nobody in front works again for what is behind, so input is acknowledged when it has passed the region. Which times of
    which outputs are incomplete is declared: in the result, on the page, and to sinks with a method `incomplete` (gap recovery
    of Hwang and others, section 4).

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["a", "b", "a"]))
    >>> with flow.region("trends", policy=falkirk.Amnesia()):
    ...     counts = words.key_by(str).count()
    >>> seen = counts.capture("counts")
    >>> falkirk.run(flow).captured("counts")
    [((0,), [('a', 2), ('b', 1)])]
    """

    saves = Saves.NOTHING
    gap = True


@dataclass(frozen=True, slots=True)
class PassiveStandby(Policy):
    """Save state into the memory of a mate, and durably only at times.

    The first `every` so often, as `Lazy` does to the store, the second at intervals of `durable`.

    Needs mates (`falkirk run --mates 1`, `falkirk.run(..., mates=1)`). When a worker dies its mate goes on from the last
    checkpoint in its memory, and output in the region goes out once mates have what it comes from. If a worker dies with its
    mate, the job goes back to what is durable: nothing is lost, and output since then goes out again. A worker without a mate
    saves every checkpoint durably, as `Lazy(every)` does (Hwang and others, section 5.1).

    Raises:
        GraphError: `every` is neither a positive number nor a duration, or `durable` is no duration above it.

    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["a", "b", "a"]))
    >>> with flow.region("counts", policy=falkirk.PassiveStandby(every="50ms", durable="10s")):
    ...     counts = words.key_by(str).count()
    >>> seen = counts.capture("counts")
    >>> falkirk.run(flow).captured("counts")
    [((0,), [('a', 2), ('b', 1)])]
    """

    every: Every = "50ms"
    durable: Every = "10s"
    log_outputs: bool = False

    def __post_init__(self) -> None:
        every = interval(self.every)
        if self.durable is None or (seconds := interval(self.durable).seconds) is None:
            raise GraphError(
                at_line(
                    f'durable={self.durable!r}: give the time between durable checkpoints, such as "10s": sources are '
                    "acknowledged by these, and a worker that dies with its mate goes back to the last one"
                )
            )
        if every.seconds is not None and seconds <= every.seconds:
            raise GraphError(
                at_line(
                    f"durable={self.durable!r} is not longer than every={self.every!r}: give Lazy(every={self.durable!r}), "
                    "whose checkpoints are all durable"
                )
            )


POLICIES = (Ephemeral, Batch, Lazy, LogHistory, Eager, Snapshot, AtLeastOnce, Amnesia, PassiveStandby)

DEFAULT = Lazy()
"""Policy of operators without one."""
