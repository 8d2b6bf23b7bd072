"""Exact sums of floats, operators alone, in ns of processor time a row: the least of many runs.

`--part` is one of `CASES`: batches of 50,000 rows as columns, or of 20,000 records; running totals of records by 1,000 keys
that come once in each of 20 epochs. Those with `integers` are the same of integers.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial as bound
from typing import Any

import numpy as np
import pyarrow as pa
from common import arguments, report

from falkirk import agg
from libraries.columns.agg import Aggregate, parts_of
from libraries.columns.kernels.partial import partial
from timely.data.kernels.tables import compiled_loops
from timely.operators.keyed import PLUS, Reduce, combiner
from timely.time import Frontier

ROWS = 50_000
RECORDS = 20_000
KEYS = 1_000
EPOCHS = 20

Run = Callable[[], object]


class Nobody:
    """The surroundings of an operator that sends to nobody."""

    worker = 0
    workers = 1

    def send(self, batch: object) -> None:
        """Nothing is done with it."""

    def notify_at(self, *time: object) -> None:
        """Its times are complete when they are."""


chance = np.random.default_rng(3)


def values(rows: int, integers: bool) -> Any:
    """Prices."""
    return chance.integers(0, 1000, rows) if integers else np.round(chance.normal(100, 30, rows), 2)


def columns(aggregate: Aggregate, text: bool = False, integers: bool = False) -> tuple[Run, int]:
    """The partial table of a batch by 1,000 keys."""
    compiled_loops()
    keys: Any = chance.integers(0, KEYS, ROWS)
    table = pa.table({"k": list(map("key{}".format, keys)) if text else keys, "v": values(ROWS, integers)})
    return bound(partial, table, ["k"], parts_of({"v": aggregate})), ROWS


def combined(keys: Sequence[int], integers: bool = False) -> tuple[Run, int]:
    """A batch of records before it travels."""
    pairs = list(zip(keys, values(len(keys), integers).tolist(), strict=True))
    return bound(combiner(PLUS), pairs), len(pairs)


def running(integers: bool = False) -> tuple[Run, int]:
    """Running totals of records."""
    epochs = [list(enumerate(values(KEYS, integers).tolist())) for _ in range(EPOCHS)]

    def run() -> None:
        operator, surroundings = Reduce(PLUS, running=True), Nobody()
        for epoch, pairs in enumerate(epochs):
            operator.on_batch(surroundings, 0, (epoch,), pairs)  # type: ignore[arg-type]
            operator.on_notify(surroundings, (epoch,))  # type: ignore[arg-type]
            assert operator.state is not None
            operator.state.compact(Frontier.before([(epoch,)]))

    return run, KEYS * EPOCHS


CASES: dict[str, Callable[[], tuple[Run, int]]] = {
    "columns": lambda: columns(agg.sum("v")),
    "columns_by_text": lambda: columns(agg.sum("v"), text=True),
    "columns_variance": lambda: columns(agg.var("v")),
    "columns_integers": lambda: columns(agg.sum("v"), integers=True),
    "records": lambda: combined(chance.integers(0, 50, RECORDS).tolist()),
    "records_alone": lambda: combined(range(RECORDS)),
    "records_integers": lambda: combined(chance.integers(0, 50, RECORDS).tolist(), integers=True),
    "records_running": running,
    "records_running_integers": lambda: running(integers=True),
}


def main() -> None:
    args = arguments()
    run, rows = CASES[args.part]()
    gc.disable()
    least = float("inf")
    for _ in range(args.size):
        began = time.process_time()
        run()
        least = min(least, time.process_time() - began)
    report(least * 1e9 / rows)


if __name__ == "__main__":
    main()
