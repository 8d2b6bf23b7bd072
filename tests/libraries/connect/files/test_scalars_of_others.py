"""Every scalar type of NumPy and pandas, on every way out: carried exactly, or refused by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import from_dtype

from libraries.connect.files.formats import JsonFormat
from libraries.connect.sqlite_values import stored
from timely.data.codec import decode, encode
from timely.data.from_records import frame_of_records, table_of_records
from timely.data.routing import stable_hash
from timely.errors import FalkirkError

UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"]
NUMPY = [
    *"?bhilqBHILQefdFD",
    *("U3", "S3"),
    *(f"{kind}8[{unit}]" for kind in "mM" for unit in UNITS),
]
OTHERS = [
    *(
        np.void(b"ab"),
        np.array([(1, 2.0)], "i4,f8")[0],
        np.longdouble("1.1"),
        np.longdouble(1.5),
        np.longdouble("nan"),
        np.clongdouble(1 + 2j),
    ),
    *(pd.NaT, pd.NA, pd.Timestamp("2024-01-01 00:00:00.123456789"), pd.Timestamp("2024-01-01", tz="UTC")),
    *(pd.Timestamp("1677-09-22"), pd.Timestamp("2024-07-01 12:00", tz="Europe/Paris"), pd.Timestamp.max),
    *(pd.Timedelta(1, "ns"), pd.Timedelta(3, "s"), pd.Period("2024-01"), pd.Interval(1, 2), pd.offsets.Day(1)),
    *(np.datetime64("NaT"), np.timedelta64("NaT"), np.datetime64("NaT", "ns"), np.timedelta64("NaT", "ns")),
]

values = st.one_of([from_dtype(np.dtype(kind)) for kind in NUMPY]) | st.sampled_from(OTHERS)


def is_none(value: Any) -> bool:
    return bool(
        value is pd.NA or value is pd.NaT or (isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value))
    )


def equal(value: Any, held: Any) -> bool:
    """True if a plain value is exactly that of another library."""
    if is_none(value):
        return False
    if isinstance(value, np.datetime64 | pd.Timestamp) and isinstance(held, str):
        return bool(type(value)(held) == value)
    if isinstance(value, np.timedelta64) and not hasattr(held, "total_seconds"):
        return False  # a number has no unit
    if value != value:
        return bool(held != held)
    return bool(value == held)


def by_codec(value: Any) -> bool:
    held = decode(encode(value))
    if isinstance(value, np.generic):
        return bool(held.dtype == value.dtype) and held.tobytes() == value.tobytes()
    return type(held) is type(value) and held == value


def by_key(value: Any) -> bool:
    found = stable_hash(value)
    return not is_none(value) and found == stable_hash(value.item() if isinstance(value, np.generic) else value)


def by_lines(value: Any) -> bool:
    file = io.BytesIO()
    JsonFormat(file, "lines", None).write([{"v": value}])
    return equal(value, json.loads(file.getvalue())["v"])


WAYS: dict[str, Callable[[Any], bool]] = {
    "codec": by_codec,
    "key": by_key,
    "sqlite": lambda value: equal(value, stored([value], "", "t.db, column 'v'")[0]),
    "columns": lambda value: equal(value, frame_of_records([{"v": value}], None)["v"].to_list()[0]),
    "parquet": lambda value: equal(value, table_of_records([{"v": value}], None)["v"].to_pylist()[0]),
    "lines": by_lines,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Casting complex values")
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=400, deadline=None)
@given(value=values)
def test_a_scalar_is_carried_exactly_or_refused_by_name(way: str, value: Any) -> None:
    try:
        exact = WAYS[way](value)
    except (FalkirkError, TypeError) as error:
        text = str(error)
        assert type(value).__name__ in text or repr(value) in text or (value != value and "NaN" in text), text
        return
    assert exact
