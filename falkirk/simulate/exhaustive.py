"""Exhaustive crash testing: every crash point of a small program, and sequences.

A schedule is fixed by its seed, so a run with a fault is the run without it up to that moment. So all runs with so many faults
are a tree: its root is the run without, and what follows a run is that run with one more fault, later than its last.
"""

from __future__ import annotations

from collections.abc import Iterator

from falkirk.simulate.faults import Fault
from falkirk.simulate.monitor_process import MONITOR
from falkirk.simulate.simulation import Counterexample, Simulation


def every_crash(
    simulation: Simulation, seed: int, faults: int, stride: int = 1, part: tuple[int, int] = (0, 1)
) -> Iterator[Counterexample | None]:
    """Outcomes of all runs with up to `faults` process deaths, as of `Simulation.run`.

    A process does not die where that would come to the same as at a moment before: see `Moment`.

    Args:
        seed: of the schedule.
        faults: how many processes die; one more makes it some hundred times as many runs.
        stride: only each so many-th of the deaths that can follow.
        part: (number from 0, of how many): only those runs whose first death is of this part.
    """
    return _every(simulation, seed, (), 0, faults, slice(part[0] * stride, None, part[1] * stride), stride)


def _every(
    simulation: Simulation, seed: int, script: tuple[Fault, ...], begin: int, faults: int, tried: slice, stride: int
) -> Iterator[Counterexample | None]:
    found, moments = simulation.scripted(seed, script)
    yield found
    if not faults or found is not None:
        return
    deaths = [
        (place, Fault(when, at, "kill monitor") if who == MONITOR else Fault(when, at, "kill", who))
        for place, (when, at, mortal) in enumerate(moments)
        for who in mortal
        if place >= begin
    ]
    for place, death in deaths[tried]:
        more = (*script, death)
        yield from _every(simulation, seed, more, place + 1, faults - 1, slice(None, None, stride), stride)
