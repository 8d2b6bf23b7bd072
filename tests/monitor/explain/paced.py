"""Simulated jobs whose sources read at a pace, observed each second, for predictions from rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import inf
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.columns.verbs.dataflow import Dataflow
from monitor.explain.exposure import Reduced, danger, fate
from monitor.explain.measured import Rates, Window
from recovery.layout import Layout
from recovery.protocol import Observe, Observed
from runtime.sources.limits import Limits
from tests.monitor.explain.test_exposure import Roomy, look, running
from tests.monitor.explain.test_what_if import coordinator
from timely.io.interface import Chunk, Partition, Wait

EPOCHS_A_SECOND, EACH = 5, 12


class Paced:
    """Numbers in two partitions, five epochs a second, from epoch `first` on."""

    rereadable = repeats = True

    def __init__(self, clock: Callable[[], float], first: int = 0) -> None:
        self._clock, self._first = clock, first

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [PacedPartition(part, self._clock, self._first) for part in range(2) if part % workers == worker]


class PacedPartition:
    def __init__(self, part: int, clock: Callable[[], float], first: int) -> None:
        self.name, self.epoch, self._clock, self._first = f"numbers-{part}", 0, clock, first

    def read(self) -> Chunk | Wait:
        due = self.epoch / EPOCHS_A_SECOND
        if self._clock() < due:
            return Wait(seconds=due - self._clock())
        self.epoch += 1
        return Chunk(self._first + self.epoch - 1, [self.epoch * EACH + i for i in range(EACH)], self.epoch, True)

    def seek(self, position: Any) -> None:
        self.epoch = position or 0

    def ack(self, position: Any) -> None: ...

    def close(self) -> None: ...


Build = Callable[[Callable[[], float]], Dataflow]


class PacedJob:
    """Job in simulated time under one choice of policies, observed each second after its start.

    `seed`: of all chance; a multiple of 8, or the job would have other settings than most.
    """

    def __init__(self, build: Build, workers: int, seed: int) -> None:
        self.world = world = _PacedWorld(lambda: build(lambda: world.now), workers, seed, ())
        world._limits = Limits(epochs=4, seconds=inf)
        self.window = Window(self.layout)
        self.samples: dict[int, Observed] = {}
        self._random = Random(seed)
        self._due = 0.0

    @cached_property
    def layout(self) -> Layout:
        return self.world.layout

    @property
    def rates(self) -> dict[int, Rates]:
        return self.window.rates()

    def seconds(self, until: float) -> Iterator[float]:
        """Moments at random distances, about six a second, at which all workers run."""
        world, due = self.world, self.world.now
        while world.now < until:
            world.step()
            if world.now < due or not running(world, world.workers):
                continue
            due = world.now + self._random.expovariate(6.0)
            if world.now >= self._due:
                self._due = world.now + 1.0
                self.samples = look(world, sampled=False)
                self.window.take({worker: (world.now, sample) for worker, sample in self.samples.items()})
            yield world.now

    def exposure(self) -> npt.NDArray[np.float64]:
        """Records that the death of each worker would have handled again at this moment."""
        leads, samples = coordinator(self.world), look(self.world)
        held = leads.decision.returned() if leads.decision is not None else ()
        found = []
        for worker in range(leads.layout.workers):
            then = fate(Reduced(leads.layout), leads.options, [worker], samples, held)
            found.append(danger(worker, then, samples, None).records or 0)
        return np.array(found, np.float64)


class _PacedWorld(Roomy):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._hurry = 1.0
        self._small = 1 << 16

    def _open(self, process: Any) -> None:
        super()._open(process)
        if process.recovery is not None:
            observer = process.recovery._observer
            observer.hear(Observe(inf, inf))
            observer._due = inf
