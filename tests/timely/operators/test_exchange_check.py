"""What one look at the types of a batch lets pass without a trial is what an exchange can carry."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
from hypothesis import event, given
from hypothesis import strategies as st

from timely.data.batch import columns_of, head
from timely.data.codec import encode_batch
from timely.operators.channels import Broadcast, Exchange

KINDS: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int8: st.integers(-128, 127),
    pl.Int64: st.integers(-(2**63), 2**63 - 1),
    pl.UInt64: st.integers(0, 2**64 - 1),
    pl.Int128: st.integers(-(2**127), 2**127 - 1),
    pl.Float32: st.floats(width=32),
    pl.Float64: st.floats(),
    pl.Boolean: st.booleans(),
    pl.String: st.text(max_size=3),
    pl.Date: st.dates(dt.date(1900, 1, 1)),
    pl.Categorical: st.sampled_from("ab"),
    pl.Object: st.builds(object),
}
columns = st.sampled_from(list(KINDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | KINDS[kind], min_size=3, max_size=3))
)


@given(columns, columns, st.sampled_from([("k",), ("k", "v"), ("gone",)]), st.booleans())
def test_what_surely_travels_does(key: Any, value: Any, by: tuple[str, ...], broadcast: bool) -> None:
    frame = pl.DataFrame([pl.Series(name, values, kind) for name, (kind, values) in (("k", key), ("v", value))])
    channel = Broadcast() if broadcast else Exchange(columns=by, prepare=columns_of)
    surely = channel.surely_carries(frame)
    event(f"surely: {surely}")
    if surely:
        parts = channel.split(frame, 2) if isinstance(channel, Exchange) else [frame]
        for part in parts:
            if part is not None:
                encode_batch(part)
        assert sum(len(part) for part in parts if part is not None) == 3


def test_what_must_be_tried_is() -> None:
    frame = pl.DataFrame({"k": [1]})
    assert Exchange(columns=("k",), prepare=columns_of).surely_carries(frame)
    assert not Exchange(columns=("k",), prepare=lambda batch: head(batch, 1)).surely_carries(frame)
    assert not Exchange(key=abs).surely_carries(frame)
    assert not Exchange(columns=("k",)).surely_carries([1])
    assert not Broadcast().surely_carries([1])
