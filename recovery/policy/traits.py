"""Traits of a policy.

Sections are those of Isard and Abadi, *Falkirk Wheel*, unless another source is named.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from timely.errors import GraphError, at_line

Every: TypeAlias = int | float | str | dt.timedelta
"""Checkpoint interval: epochs as int; seconds as float, text or timedelta.

A text is such as "500ms".
"""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Interval:
    """`epochs` or `seconds`, whichever is not None."""

    epochs: int | None = None
    seconds: float | None = None


def interval(every: Every) -> Interval:
    """Convert `every` to an `Interval`; raise GraphError for an invalid one.

    >>> interval(100), interval("250 ms").seconds
    (Interval(epochs=100, seconds=None), 0.25)
    """
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return Interval(epochs=every)
    seconds: float | None = None
    if isinstance(every, float):
        seconds = every
    elif isinstance(every, dt.timedelta):
        seconds = every.total_seconds()
    elif isinstance(every, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", every)
        if found and found[2] in _UNITS:
            seconds = float(found[1]) * _UNITS[found[2]]
    if seconds is None or not 0 < seconds < float("inf"):
        raise GraphError(
            at_line(
                f"every={every!r}: give a positive number of epochs (int), seconds (float), a timedelta, or a text such as "
                '"500ms", "1s", "5m"'
            )
        )
    return Interval(seconds=seconds)


class Saves(IntEnum):
    """Upper limit of the persisted content of an operator (Table 1).

    Each includes those before it.
    """

    NOTHING = 0
    """Neither state nor messages: any frontier can be restored (section 3.4)."""
    MESSAGES = 1
    """Logged messages L(e, f), and no state (stateless, section 4.1)."""
    STATE = 2
    """State S(p, f) at complete times, incrementally (section 4.1)."""
    EVENTS = 3
    """The history H(p), done again until state takes its place (section 4.1)."""


class Policy:
    """Record of constant traits.

    A policy sets those in which it differs. They are read when a graph, a layout or a worker is made.
    """

    __slots__ = ()

    saves: ClassVar[Saves] = Saves.STATE
    """Upper limit of the persisted content of an operator (Table 1)."""
    logs_inputs: ClassVar[bool] = False
    """Log of all input from outside the region (section 2.1).

    Nobody in front then works again for it, or is cut as often as it is.
    """
    saved_together: ClassVar[bool] = False
    """One cut for all of the region (distributed snapshots, section 2.1)."""
    commits_per_worker: ClassVar[bool] = False
    """A cut by each worker at each epoch (exactly-once streaming, section 2.1)."""
    gated: ClassVar[bool] = False
    """A wait of outputs until their cause is durable (exactly-once, section 2.1).

    The engine, which knows no policies, reads it for its gates (`timely.dataflow.graph.Region`).
    """
    anew: ClassVar[bool] = False
    """New epochs for input read again (at-least-once streaming, section 2.1).

    The engine and the runtime, which know no policies, read it for sources.
    """
    clients_retry: ClassVar[bool] = False
    """Trust in clients to resend without an answer (ephemeral, section 1)."""
    gap: ClassVar[bool] = False
    """Return without state, at the completed frontier (amnesia).

    Nobody makes again for others what it had sent: incomplete times are declared. Hwang and others, *High-Availability
    Algorithms for Distributed Stream Processing*, section 4.
    """

    @property
    def every(self) -> Every | None:
        """The interval between cuts, or None (lazy checkpoints, section 4.1)."""
        return None

    @property
    def durable(self) -> Every | None:
        """The interval between durable cuts; None: each is (passive standby).

        Others are in the memory of a mate, and outputs go out once they are. Hwang and others, *High-Availability Algorithms
        for Distributed Stream Processing*, section 5.1.
        """
        return None

    @property
    def log_outputs(self) -> bool:
        """Log of outputs of the region, or operator: a firewall (section 4.1)."""
        return False

    # Traits that follow from others

    @property
    def name(self) -> str:
        """The name, for people and for stores."""
        return type(self).__name__

    @property
    def as_one(self) -> bool:
        """Unity of a region: all in it is persisted in one way (section 2.1)."""
        return self.saved_together or self.commits_per_worker or self.gated

    @property
    def firm(self) -> bool:
        """Certainty of seen output: it is never made again (section 2.1).

        Each commit of a worker holds, whatever others do: so it is where all in the region comes from sources there, or from
        other such regions.
        """
        return self.gated and self.commits_per_worker

    @property
    def by_time(self) -> bool:
        """Indifference to the order of times (selective rollback, section 2.3).

        What an operator has done at each time is known by when things came and went, in whatever order times were handled.
        """
        return not (self.saves == Saves.EVENTS or self.as_one or self.anew)

    @property
    def shares_state(self) -> bool:
        """Permission to read each other's state, restored alike (section 2.3)."""
        return self.by_time and self.saves == Saves.STATE
