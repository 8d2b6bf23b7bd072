"""Drawn data of a job for its history: frames of a day as a real job would give them, and options at each rise of W."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from monitor.coordination.options import Options, OptionsRecord
from monitor.history.frames import NUMBERS, Frame
from monitor.history.scales import COUNT, RATE, SHARE, SIZE
from recovery.layout import Layout
from recovery.metadata import Bound, at_epoch
from tests.monitor.web.programs import wide_layout

START = 1_700_000_000_000


@cache
def layout_of(operators: int, workers: int) -> Layout:
    return wide_layout(operators, workers)


def frames(operators: int, workers: int, seconds: int, seed: int = 1) -> Iterator[Frame]:
    """A frame a second: loads that wander and follow the day, cuts every 2 s, a rollback now and then."""
    rng = np.random.default_rng(seed)
    usual = rng.lognormal(6, 2, operators)
    share = usual / usual.sum()
    states = rng.lognormal(10, 3, operators)
    load, wander, read = 1.0, np.ones(operators), 0
    for second in range(seconds):
        load += 0.02 * (1.0 + 0.4 * np.sin(second / 13_000) - load) + rng.normal(0, 0.005)
        wander += 0.05 * (1 - wander) + rng.normal(0, 0.01, operators)
        rates = usual * load * wander * (rng.random(operators) < 0.99)
        rates = np.round(rates, -1)  # as the view says them: two digits, smoothed
        lag = rng.poisson(0.3, operators)
        states *= 1 + rng.normal(0, 0.0002, operators)
        back = rng.random() < 1 / 7200
        unsafe = 1 + second % 2 + (3 if back else 0)
        read += int(rates.sum())
        top = second * 2
        numbers = dict.fromkeys(NUMBERS, 0) | {
            "at": START + second * 1000 + int(rng.integers(0, 30)),
            "generation": 1,
            "phase": 4,
            "top": top,
            "newest": top,
            "slowest": top,
            "open": top - int(lag.max()),
            "low": top - unsafe,
            "read": read,
            "rate": round(float(rates.sum()), -3),
            "p50": int(rng.normal(200, 5)),
            "p99": int(rng.normal(600, 30)),
            "covered": 1000,
        }
        of_workers = np.zeros((12, workers), np.uint8)
        of_workers[1] = 1
        of_workers[5] = RATE.encode(rates.sum() / workers * rng.normal(1, 0.02, workers))
        of_workers[6] = SHARE.encode(np.clip(0.5 * load * rng.normal(1, 0.02, workers), 0, 1))
        of_workers[8] = SIZE.encode(np.full(workers, states.sum() / workers))
        of_workers[10] = SIZE.encode(np.full(workers, 1e6 * load) * rng.normal(1, 0.02, workers))
        of_operators = np.stack(
            [
                COUNT.encode(lag),
                COUNT.encode(np.full(operators, unsafe)),
                RATE.encode(rates),
                SHARE.encode(np.round(np.clip(share * load * wander, 0, 1), 2)),
                SIZE.encode(states),
            ]
        )
        yield Frame(tuple(int(numbers[name]) for name in NUMBERS), of_operators, of_workers)


def options_at(layout: Layout, epoch: int) -> OptionsRecord:
    """Options after a cut of all groups at `epoch`, with one checkpoint above W at every third processor."""
    options = Options(layout)
    topology = options.topology
    low: list[Bound] = []
    chains = []
    for flat in range(topology.count):
        info = topology.info(flat)
        bound = at_epoch(epoch, info.depth)
        low.append(bound)
        ports = topology.outgoing[flat // layout.workers]
        cuts = [epoch, epoch + 2] if flat % 3 == 0 else [epoch]
        made = [
            (
                at_epoch(cut, info.depth),
                tuple(
                    (0,) * layout.edges[e].summary.result_depth
                    if layout.edges[e].logged
                    else at_epoch(cut, layout.edges[e].summary.result_depth)
                    for e in ports
                ),
            )
            for cut in cuts
        ]
        chains.append(tuple(made) if info.chain else ())
    upto = tuple(tuple(at_epoch(epoch + 2, group.depth) for group in layout.groups) for _ in range(layout.workers))
    return OptionsRecord(tuple(low), tuple(low), tuple(chains), upto)
