"""What may go wrong in a simulated job, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities a step, and delays in simulated seconds. After `until` nothing new goes wrong."""

    until: float = 0.0
    kill_worker: float = 0.0
    kill_monitor: float = 0.0
    kill_at_io: float = 0.0
    """At each write, publication and frame of a worker: it dies just before or just after it."""
    write_seconds: float = 0.005
    """The mean time that a write to the store takes."""


def drawn(random: Random) -> Faults:
    """Fault rates for one seed: most runs have some kinds only, so that each is met alone and together."""

    def rate(most: float) -> float:
        return random.choice((0.0, 0.2, 1.0)) * most

    return replace(
        Faults(),
        until=random.choice((0.5, 2.0, 5.0)),
        kill_worker=rate(0.01),
        kill_monitor=rate(0.004),
        kill_at_io=rate(0.01),
        write_seconds=random.choice((0.0005, 0.005, 0.05)),
    )
