"""The types of columns that Spark may give back."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as t

from libraries.spark.client.functions import check_types
from libraries.spark.errors import SparkError

INTERVAL, MONTHS = t.DayTimeIntervalType(), t.YearMonthIntervalType()


def a_frame(type_: t.DataType) -> Any:
    """As much of a DataFrame as is looked at."""
    schema = t.StructType([t.StructField("c", type_)])
    return SimpleNamespace(columns=["c"], schema=schema)


@pytest.mark.parametrize(
    ("type_", "inside"),
    [
        *[
            (each, "")
            for each in (INTERVAL, MONTHS, t.CalendarIntervalType(), t.VariantType(), t.NullType(), t.TimeType())
        ],
        (t.ArrayType(INTERVAL), "interval day to second"),
        (t.MapType(t.StringType(), t.ArrayType(MONTHS)), "interval year to month"),
        (t.MapType(INTERVAL, t.StringType()), "interval day to second"),
        (t.StructType([t.StructField("x", t.LongType()), t.StructField("y", t.VariantType())]), "variant"),
    ],
    ids=str,
)
def test_type_that_would_come_back_as_another_is_refused_wherever_it_is(type_: t.DataType, inside: str) -> None:
    told = f"column 'c' is of type {type_.simpleString()}" + (f", with {inside} in it" if inside else "")
    with pytest.raises(SparkError, match=re.escape(f"{told}, which does not come back") + ".*cast it"):
        check_types(a_frame(type_))


def test_types_that_come_back_as_they_are_are_taken() -> None:
    plain = [t.BooleanType(), t.ByteType(), t.DecimalType(30, 2), t.StringType(), t.TimestampNTZType(), t.BinaryType()]
    check_types(a_frame(t.StructType([t.StructField(f"f{n}", t.ArrayType(each)) for n, each in enumerate(plain)])))
