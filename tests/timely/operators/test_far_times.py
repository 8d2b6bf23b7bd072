"""Event times of the years 1 and 9999, which often stand for none: no record vanishes, and no job ends of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from timely.dataflow.windows import Session, Sliding, Tumbling
from timely.io import Iterable

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
FAR = [
    *(dt.datetime.min, dt.datetime(1, 1, 1, 0, 30), dt.datetime(1, 1, 5), dt.datetime(1, 1, 9)),
    *(dt.datetime.max, dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(9999, 12, 31), dt.datetime(9999, 12, 25)),
    dt.datetime.max - dt.datetime.resolution,
]
usual = st.integers(0, 40).map(lambda hours: dt.datetime(2024, 5, 1) + hours * HOUR)
times = st.sampled_from(FAR) | usual
shapes = st.sampled_from(
    [
        *(Tumbling(HOUR), Tumbling(7 * DAY), Sliding(HOUR, HOUR), Sliding(3 * HOUR, HOUR), Sliding(14 * DAY, 3 * DAY)),
        *(Session(2 * HOUR), Session(9 * DAY)),
    ]
)


@settings(max_examples=120, deadline=None)
@given(
    ats=st.lists(times, min_size=1, max_size=14),
    shape=shapes,
    lateness=st.sampled_from([0 * HOUR, HOUR, 30 * DAY]),
    every=st.integers(1, 5),
    aware=st.booleans(),
    workers=st.integers(1, 2),
)
def test_every_record_is_in_a_window_or_late(
    ats: list[dt.datetime], shape: Any, lateness: dt.timedelta, every: int, aware: bool, workers: int
) -> None:
    if aware:
        ats = [at.replace(tzinfo=dt.UTC) for at in ats]
    flow = Dataflow("far")
    records = flow.source("in", Iterable(list(enumerate(ats)), epoch_every=every))
    windows = records.key_by(lambda record: 0).window(shape, time=lambda record: record[1], lateness=lateness)
    collected, late, counts = windows.collect().capture(), windows.late().values().capture(), windows.count().capture()
    cluster = Cluster(flow, workers, None)
    cluster.run()
    members = [(w, values) for _, batch in cluster.captured(collected) for (_, w), values in batch]
    for window, values in members:
        assert all(window.start <= at <= window.end for _, at in values)
    inside = [number for _, values in members for number, _ in values]
    outside = [number for _, batch in cluster.captured(late) for number, _ in batch]
    assert {*inside, *outside} == {*range(len(ats))}
    if not isinstance(shape, Sliding):
        assert sorted([*inside, *outside]) == [*range(len(ats))]
        assert sum(n for _, batch in cluster.captured(counts) for _, n in batch) == len(inside)


def test_columns_with_times_beyond_pythons_are_refused_as_json_lines_by_name(tmp_path: Any) -> None:
    import polars as pl

    flow = falkirk.Dataflow("far")
    rows = flow.columns("rows", falkirk.Batches([pl.DataFrame({"at": [dt.datetime(9999, 12, 31, 23, 59, 59)]})]))
    windows = rows.window(Tumbling(HOUR), time="at").agg(n=falkirk.agg.count())
    windows.to(falkirk.FileSink(tmp_path / "out"), name="written")
    with pytest.raises(falkirk.FalkirkError, match=r"sink 'written' .*column 'end' .*10000-01-01.*9999") as caught:
        falkirk.run(flow)
    assert "parquet" in str(caught.value)
