"""Rows in an order that follows from what stands in them, in whatever order they come."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns.kernels.sorted_rows import in_content_order, sorted_rows

AMBIGUOUS = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
KINDS = [pl.Datetime("us", "Europe/Berlin"), pl.Datetime("ns"), pl.Time, pl.Duration("ns"), pl.Date, pl.Int64]


def values(kind: pl.DataType, numbers: list[int]) -> pl.Series:
    """Values that are near each other: those of instants have one time on the clock."""
    if kind == pl.Datetime("us", "Europe/Berlin"):
        instants = [AMBIGUOUS + dt.timedelta(hours=n) for n in numbers]
        return pl.Series(instants, dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone("Europe/Berlin")
    return pl.Series(numbers, dtype=pl.Int64).cast(kind)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("nested", ["list", "array", "struct", None])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(numbers=st.lists(st.integers(0, 3), max_size=6), data=st.data())
def test_rows_come_in_one_order(kind: pl.DataType, nested: str | None, numbers: list[int], data: st.DataObject) -> None:
    made = {"list": pl.concat_list("k"), "array": pl.concat_arr("k"), "struct": pl.struct("k", o=pl.lit("o"))}
    frame = pl.DataFrame(
        {"k": values(kind, numbers), "one": [[1]] * len(numbers)}, schema_overrides={"one": pl.List(int)}
    )
    if nested is not None:
        frame = frame.select("one", k=made[nested])
    shuffled = frame[data.draw(st.permutations(range(len(frame))))]
    for put in (in_content_order, lambda rows: sorted_rows(rows, ["one"])):
        found, right = (put(rows).with_columns(pl.all().to_physical()).rows() for rows in (shuffled, frame))
        assert found == right, "the same rows at the same places"
        assert sorted(map(str, found)) == sorted(map(str, frame.with_columns(pl.all().to_physical()).rows()))
