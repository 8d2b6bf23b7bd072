"""Every crash point of a small program: each moment at which a process can die is tried, and each after each of these.

A schedule is fixed by its seed, so a run with a fault is the run without it up to that moment. So all runs with so many faults
are a tree: its root is the run without, and what follows a run is that run with one more fault, later than its last.
"""

from __future__ import annotations

from collections.abc import Iterator

from falkirk.simulate.faults import Fault
from falkirk.simulate.simulation import Counterexample, Simulation


def every_crash(simulation: Simulation, seed: int, faults: int, stride: int = 1) -> Iterator[Counterexample | None]:
    """The outcome of each run in which up to `faults` processes die, as of `Simulation.run`.

    Args:
        seed: of the schedule.
        faults: how many processes die; one more makes it some hundred times as many runs.
        stride: only each so many-th of the moments at which a fault can follow.
    """
    return _every(simulation, seed, (), 0, faults, stride)


def _every(
    simulation: Simulation, seed: int, script: tuple[Fault, ...], begin: int, faults: int, stride: int
) -> Iterator[Counterexample | None]:
    found, moments = simulation.scripted(seed, script)
    yield found
    if not faults or found is not None:
        return
    for place in range(begin, len(moments), stride):
        when, at, workers = moments[place]
        if when in ("step", "io"):
            for worker in workers:
                more = (*script, Fault(when, at, "kill", worker))
                yield from _every(simulation, seed, more, place + 1, faults - 1, stride)
        if when in ("step", "monitor io"):
            more = (*script, Fault(when, at, "kill monitor"))
            yield from _every(simulation, seed, more, place + 1, faults - 1, stride)
