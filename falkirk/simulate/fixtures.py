"""Pytest fixture to test a dataflow under simulated failures.

In a `conftest.py`:

    pytest_plugins = ["falkirk.simulate.fixtures"]

and then in a test, where `build` is a function that returns the `Dataflow`:

    def test_my_flow(simulate):
        simulate(build, seeds=50)

The test fails with the seed, the faults that are needed, and the line that shows the same run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from falkirk.simulate.faults import KINDS
from falkirk.simulate.simulation import Simulation, Tally, report
from runtime.program import Program
from timely.dataflow.dataflow import Dataflow


class Simulate(Protocol):
    """The type of the fixture `simulate`."""

    def __call__(
        self,
        build: Callable[[], Dataflow],
        seeds: int = 50,
        *,
        first_seed: int = 0,
        workers: int = 2,
        faults: Sequence[str] = tuple(KINDS),
        keep: Sequence[int] | None = None,
        elsewhere: bool = True,
    ) -> Tally:
        """Run `build` under `seeds` seeds; counts of events met.

        Args:
            first_seed: the first of them.
            workers: how many workers.
            faults: kinds of faults (`falkirk.simulate.faults.KINDS`).
            keep: with one seed, only these of its faults, by number.
            elsewhere: also see that it gives the same in another process, with another PYTHONHASHSEED, when nothing fails.
        """
        ...


@pytest.fixture
def simulate() -> Simulate:
    """Run a dataflow under seeded schedules and faults; fail on any other output."""

    def run(
        build: Callable[[], Dataflow],
        seeds: int = 50,
        *,
        first_seed: int = 0,
        workers: int = 2,
        faults: Sequence[str] = tuple(KINDS),
        keep: Sequence[int] | None = None,
        elsewhere: bool = True,
    ) -> Tally:
        __tracebackhide__ = True
        simulation = Simulation(build, workers, faults, Program(flow=build) if elsewhere else None)
        for seed in range(first_seed, first_seed + seeds):
            failure = simulation.run(seed, keep)
            if failure is None:
                continue
            shortest = failure if keep is not None else simulation.shrink(failure)
            name = getattr(build, "__name__", "build")
            some = "" if tuple(faults) == tuple(KINDS) else f", faults={tuple(faults)!r}"
            kept = "" if shortest.keep is None else f", keep={list(shortest.keep)!r}"
            call = f"simulate({name}, seeds=1, first_seed={seed}, workers={shortest.workers}{some}{kept})"
            pytest.fail(report(shortest, call), pytrace=False)
        return simulation.tally

    return run
