"""Predictions of other policies from a job that runs, held to simulated runs of jobs that have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from libraries.columns.verbs.dataflow import Dataflow
from monitor.explain.measured import of_all
from monitor.explain.policy import TYPICAL, WORST, Supposed, compare
from recovery.layout import lay_out
from recovery.policy import Batch, Eager, Lazy, LogHistory, Policy, Snapshot
from tests.monitor.explain.paced import Build, Paced, PacedJob
from tests.monitor.explain.test_what_if import coordinator
from timely.dataflow.other_policies import with_policies
from timely.dataflow.plan import compile_plan

PLAIN = Lazy(every=1.0)
WARM, MEASURED = 6, 12
"""Seconds of a run that are left out, and that are measured."""

Chosen = tuple[Policy, Policy]


def sums(front: Policy, back: Policy) -> Build:
    def build(clock: Callable[[], float]) -> Dataflow:
        flow = Dataflow("sums")
        with flow.region("front", policy=front):
            pairs = flow.source("numbers", Paced(clock)).map(lambda n: (n % 40, 1), name="pairs")
        with flow.region("back", policy=back):
            totals = pairs.keyed().sum(name="sums").records()
        totals.capture("out")
        return flow

    return build


def meetings(front: Policy, back: Policy) -> Build:
    """Two sources; one of them with state of its own before they meet."""

    def build(clock: Callable[[], float]) -> Dataflow:
        flow = Dataflow("meetings")
        with flow.region("front", policy=front):
            few = flow.source("few", Paced(clock)).map(lambda n: (n % 10, n), name="few-pairs")
            many = flow.source("many", Paced(clock)).flat_map(
                lambda n: [(n % 10, i) for i in range(3)], name="many-pairs"
            )
        with flow.region("back", policy=back):
            seen = many.keyed().count(name="seen").records()
            met = few.concat(seen).key_by(lambda pair: pair[0]).count(name="met").records()
        met.capture("out")
        return flow

    return build


def rounds(front: Policy, back: Policy) -> Build:
    """A loop behind a map."""

    def build(clock: Callable[[], float]) -> Dataflow:
        flow = Dataflow("rounds")
        with flow.region("front", policy=front):
            numbers = flow.source("numbers", Paced(clock)).map(lambda n: n % 50, name="small")
        with flow.region("back", policy=back):
            halves = numbers.iterate(
                lambda inner: inner.map(lambda n: n // 2).filter(bool).exchange(by=lambda n: n).distinct(name="new"),
                name="halve",
            )
            counts = halves.key_by(lambda n: n % 5).count(name="count").records()
        counts.capture("out")
        return flow

    return build


def apart(front: Policy, back: Policy) -> Build:
    """Two regions that have nothing to do with each other; the sources of one are 300 epochs ahead."""

    def build(clock: Callable[[], float]) -> Dataflow:
        flow = Dataflow("apart")
        for region, policy, first in (("front", front, 300), ("back", back, 0)):
            with flow.region(region, policy=policy):
                numbers = flow.source(f"{region}-numbers", Paced(clock, first))
                counts = numbers.key_by(lambda n: n % 20).count(name=f"{region}-counts").records()
            counts.capture(f"{region}-out")
        return flow

    return build


PROGRAMS = {"apart": apart, "sums": sums, "meetings": meetings, "rounds": rounds}
CHOICES: dict[str, Chosen] = {
    "same": (PLAIN, PLAIN),
    "front logs": (Batch(log_outputs=True), PLAIN),
    "history": (PLAIN, LogHistory(every=1.0)),
    "snapshot": (PLAIN, Snapshot(every=1.0)),
    "back eager": (PLAIN, Eager()),
    "all eager": (Eager(), Eager()),
    "seldom": (Lazy(every=4.0), Lazy(every=4.0)),
    "often": (Lazy(every=0.3), PLAIN),
    "logs, seldom": (Batch(log_outputs=True), Lazy(every=4.0)),
}


@cache
def plain(program: str, workers: int) -> PacedJob:
    """The job that is asked."""
    found = PacedJob(PROGRAMS[program](PLAIN, PLAIN), workers, 0)
    for _ in found.seconds(20):
        pass
    return found


def predicted(program: str, workers: int, name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
    """Records of each worker's death, typical and worst, and bytes a second; means over some seconds of the plain job."""
    job = plain(program, workers)
    chosen = dict(zip(("front", "back"), CHOICES[name]))
    graph = with_policies(PROGRAMS[program](PLAIN, PLAIN)(lambda: 0.0).graph, chosen)
    layout = lay_out(compile_plan(graph, workers))
    typical, worst, sizes = [], [], []
    for _ in job.seconds(job.world.now + 3):
        options = coordinator(job.world).options
        supposed = Supposed(layout, job.layout, options, job.samples, job.rates)
        for seen, share in ((typical, TYPICAL), (worst, WORST)):
            seen.append([each.records for each in supposed.exposure(supposed.cuts(share))])
        sizes.append(compare({}, layout, options, job.samples, job.rates, ())["bytes"]["after"])
    return np.mean(typical, axis=0), np.mean(worst, axis=0), float(np.mean(sizes))


def measured(program: str, workers: int, name: str) -> tuple[npt.NDArray[np.float64], float]:
    """Records that each worker's death would have handled again, at random moments of a run, and its bytes a second."""
    job = PacedJob(PROGRAMS[program](*CHOICES[name]), workers, 16)
    for _ in job.seconds(WARM):
        pass
    records = np.array([job.exposure() for _ in job.seconds(WARM + MEASURED)])
    return records, of_all(job.rates.values())[0]


WITHOUT = {
    "meetings": ("all eager",),  # simulated processes do not keep up with two joined eager regions
    "rounds": ("back eager", "all eager"),  # loops cannot be in one
    "apart": ("front logs", "back eager", "all eager", "logs, seldom"),  # state cannot be in Batch
}
RUNS = [
    (program, name, workers)
    for program in PROGRAMS
    for name in CHOICES
    for workers in (1, 2)
    if name not in WITHOUT.get(program, ())
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("program", "name", "workers"), RUNS)
def test_records_and_bytes_are_those_of_a_run_with_the_policies(program: str, name: str, workers: int) -> None:
    typical, worst, size = predicted(program, workers, name)
    records, written = measured(program, workers, name)
    for guess, seen in ((typical, records.mean(axis=0)), (worst, np.percentile(records, 95, axis=0))):
        assert (seen > 0).all()
        assert (guess / seen > 0.4).all(), (guess, seen)
        assert (guess / seen < 2).all(), (guess, seen)
    assert 0.5 < size / written < 2.5, (size, written)
