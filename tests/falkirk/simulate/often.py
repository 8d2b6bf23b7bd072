"""Simulated jobs whose workers die at work, at I/O, and often again while others recover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from falkirk.simulate.faults import Rates
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow

OFTEN = Rates(until=3.0, kill=0.002, kill_io=0.003, in_rounds=8.0)


def often(build: Callable[[], Dataflow], workers: int, seed: int) -> World:
    """A job with many failures, cuts in quick succession, and a slow disk."""
    world = World(build, workers, seed, ())
    world._hurry = 0.01
    world.disk.faults = replace(world.disk.faults, delay=(0.002, 0.02))
    world.injector.rates = OFTEN
    return world
