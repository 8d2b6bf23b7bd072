"""Functions of the user's on Spark: their calls, and checks of what they return."""

from __future__ import annotations

import inspect
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as t
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, UserDefinedType

from libraries.spark.client.failures import error_text, own
from libraries.spark.errors import SparkError

_CARRIED = (
    *(t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType),
    *(t.StringType, t.CharType, t.VarcharType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType),
)
"""Column types preserved by Spark's files.

Intervals would come as numbers, and variants as what they are stored in.
"""


def call(function: Any, *arguments: Any, **named: Any) -> DataFrame:
    """DataFrame returned by a user's function; SparkError for anything else.

    Also for an error of its own.
    """
    frame = invoke(function, *arguments, **named)
    if not isinstance(frame, DataFrame):
        raise SparkError(
            f"{described(function)} returned {frame!r:.100} ({type(frame).__name__}), not a Spark DataFrame"
        )
    return frame


def invoke(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a user's function; SparkError for a permanent error of its own."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        if own(error):
            raise SparkError(error_text(error)) from error
        raise


def requested(function: Any, given: int, known: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name for the parameters after those passed by position."""
    try:
        parameters = list(inspect.signature(function).parameters)[given:]
    except (TypeError, ValueError):  # it does not say
        return {}
    return {name: value for name, value in known.items() if name in parameters}


def described(function: Any) -> str:
    """Function's name and place, for error messages."""
    try:
        code = inspect.unwrap(function).__code__
        return f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    except AttributeError:
        return repr(function)


def check_types(frame: DataFrame) -> None:
    """Refuse column types not preserved by files, and duplicate names."""
    twice = [name for name in frame.columns if frame.columns.count(name) > 1]
    if twice:
        raise SparkError(f"column {twice[0]!r} comes out twice: rename one of them, with .alias(...)")
    for field in frame.schema.fields:
        lost = _lost(field.dataType)
        if lost is not None:
            inside = "" if lost is field.dataType else f", with {lost.simpleString()} in it"
            raise SparkError(
                f"column {field.name!r} is of type {field.dataType.simpleString()}{inside}, which does not come back "
                "from Spark as it was: cast it, for example to string"
            )


def _lost(type_: DataType) -> DataType | None:
    """Type not preserved by files: this one, or one inside it; else None."""
    match type_:
        case ArrayType():
            return _lost(type_.elementType)
        case MapType():
            return _lost(type_.keyType) or _lost(type_.valueType)
        case StructType():
            return next((lost for field in type_.fields if (lost := _lost(field.dataType)) is not None), None)
        case UserDefinedType():
            return _lost(type_.sqlType())  # it comes as what it is stored as
        case _:
            return None if isinstance(type_, _CARRIED) else type_
