"""Drawn programs in which divisions count, in simulated jobs with many small batches, rare cuts and dying workers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from falkirk.simulate.faults import Rates
from falkirk.simulate.judging import difference, shown
from falkirk.simulate.outside import Result, Violation, by_output
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from recovery.guarantees.promises import Alike, Grade
from tests.falkirk.simulate.drawn import Region, built, draw_divided, is_exact
from timely.errors import FalkirkError

RATES = Rates(until=3.0, kill=0.003, kill_io=0.001)
STEPS = 30_000
"""A run takes less than three thousand."""


@cache
def program(seed: int) -> tuple[tuple[Region, ...], Simulation]:
    """A program of `draw_divided`, and what it gives without failures."""
    regions = draw_divided(seed)
    simulation = Simulation(lambda: built(regions), 3)
    assert simulation.expected
    return regions, simulation


def wrong(seed: int, faults: int = 0) -> str | None:
    """What goes wrong with a program in one run; None: nothing does."""
    regions, simulation = program(seed)
    number = 8 * (1_001 * seed + faults) + 3  # of the eight kinds of worlds the one with short turns
    world = World(lambda: built(regions), simulation.workers, number, ())
    world.injector.rates = RATES
    world.disk.faults = replace(world.disk.faults, delay=(0.002, 0.01))
    try:
        world.run(STEPS)
        world.outside.compare(simulation.expected, simulation.alike)
        if is_exact(regions):
            _compare(world, simulation.expected)
    except FalkirkError as error:
        return str(error)
    return None


def _compare(world: World, expected: Result) -> None:
    """Hold outputs that are precise to what the program gives, even if nobody can promise that it gives it each time."""
    given, right = by_output(world.outside.result()), by_output(expected)
    for name in sorted(given.keys() | right.keys()):
        if world.outside.promised(name) == Grade.PRECISE:
            found = difference(Alike.EPOCHS, given.get(name, {}), right.get(name, {}))
            if found is not None:
                raise Violation(f"{name!r} gave{found.where} {shown(found.one)}, and must give {shown(found.other)}")
