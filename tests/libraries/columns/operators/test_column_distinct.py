"""Keys that are new, against Polars on all rows so far: of all types, few and many, and when time goes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import ColumnDistinct, PreAggregate, column_aggregate
from tests.timely.operators.fake_context import FakeContext
from timely.data.batch import as_polars
from timely.data.kernels.columns import TINY
from timely.time import Frontier

MARK = "mark"
ONCE = {MARK: Aggregate("max", MARK)}
KINDS = {
    "integers": lambda number: number,
    "small": lambda number: (number % 5).cast(pl.Int8),
    "text": lambda number: number.cast(pl.String),
    "holes": lambda number: pl.select(pl.when(number % 3 > 0).then(number)).to_series(),
    "floats": lambda number: pl.select(pl.when(number == 1).then(float("nan")).otherwise(number / 2)).to_series(),
}


def told(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as text, in an order of their own: NaN is not equal to itself."""
    return sorted(map(repr, rows))


@settings(max_examples=80)
@given(
    kinds=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3),
    sizes=st.lists(st.lists(st.sampled_from([1, 7, 90, TINY + 9]), max_size=3), min_size=1, max_size=7),
    many=st.sampled_from([4, 300]),
    workers=st.sampled_from([1, 2]),
    chance=st.integers(0, 999).map(np.random.default_rng),
    data=st.data(),
)
def test_each_key_comes_out_at_its_first_time(
    kinds: list[str], sizes: list[list[int]], many: int, workers: int, chance: np.random.Generator, data: Any
) -> None:
    """Saved and restored, and rolled back, in between. Kinds of keys change from those of which there is a table to others."""
    keys = [f"k{n}" for n in range(len(kinds))]
    combine = PreAggregate(keys, ONCE)

    def made() -> ColumnDistinct:
        operator = column_aggregate(keys, ONCE, "scope", combined=True, once=True)
        assert isinstance(operator, ColumnDistinct)
        return operator

    def some(size: int) -> pl.DataFrame:
        columns = [
            KINDS[kind](pl.Series(chance.integers(0, many, size))).alias(key)
            for kind, key in zip(kinds, keys, strict=True)
        ]
        return pl.DataFrame([*columns, pl.Series(MARK, np.zeros(size, np.int64))])

    operator, come, epoch, saved = made(), list[tuple[int, pl.DataFrame]](), 0, list[Any]()
    for batches in sizes:
        ctx: Any = FakeContext(workers)
        ctx.time = (epoch,)
        new = [some(size) for size in batches]
        for frame in new:
            operator.on_batch(ctx, 0, ctx.time, combine.apply(frame) if workers > 1 else frame)
        if ctx.asked:
            operator.on_notify(ctx, ctx.time)
        found = [row for _, batch in ctx.sent for row in as_polars(batch).select(keys).rows()]
        before = pl.concat([frame.select(keys) for _, frame in come]) if come else some(0).select(keys)
        here = pl.concat([frame.select(keys) for frame in new]).unique() if new else some(0).select(keys)
        wanted = here.join(before, on=keys, how="anti", nulls_equal=True)
        assert told(found) == told(wanted.select(keys).rows())
        come += [(epoch, frame) for frame in new]
        epoch += 1
        assert operator.state is not None
        what = data.draw(st.sampled_from(["go on", "go on", "save", "go back"]))
        if what == "save":
            after = Frontier.before([(saved[-1][0],)]) if saved else Frontier.empty(1)
            saved.append((epoch, operator.state.snapshot(Frontier.before([(epoch,)]), after)))
            operator = made()
            assert operator.state is not None
            operator.state.restore([run for _, runs in saved for run in runs])
        elif what == "go back":
            least = saved[-1][0] if saved else 0
            epoch = data.draw(st.integers(least, epoch))
            operator.state.keep(Frontier.before([(epoch,)]))
            come = [(at, frame) for at, frame in come if at < epoch]
