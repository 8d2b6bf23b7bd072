"""Supported versions of PySpark, and their differences."""

from __future__ import annotations

import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libraries.spark.errors import SparkError

if TYPE_CHECKING:
    import pyarrow as pa

OLDEST, BEFORE = (4, 0), (4, 4)
"""First supported version, and the first unsupported one after it."""

SAIL_BEFORE = (4, 3)
"""First version incompatible with Sail's server."""

_VERSION = re.compile(r'__version__.*=\s*["\'](\d+)\.(\d+)')


def installed() -> tuple[int, int] | None:
    """Version of the installed PySpark, found without an import; None if unknown."""
    spec = find_spec("pyspark")
    try:
        text = Path(spec.origin).with_name("version.py").read_text() if spec is not None and spec.origin else ""
    except OSError:  # it is in an archive
        return None
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]))


def check_version(version: tuple[int, int] | None, whose: str = "this Python has") -> None:
    """Raise SparkError for an unsupported version.

    >>> check_version((4, 0))
    >>> check_version((3, 5))
    Traceback (most recent call last):
    libraries.spark.errors.SparkError: Spark 4.0 to 4.3 is needed, and this Python has 3.5: pip install 'pyspark>=4.0,<4.4'
    """
    if version is not None and not OLDEST <= version < BEFORE:
        raise SparkError(
            f"Spark 4.0 to 4.3 is needed, and {whose} {version[0]}.{version[1]}: pip install 'pyspark>=4.0,<4.4'"
        )


def arrow_schema(schema: Any) -> pa.Schema:
    """Arrow schema of a Spark schema, with times in UTC.

    4.0 has no others, and no argument for it.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    function: Any = to_arrow_schema
    return function(schema, **({"timezone": "UTC"} if "timezone" in inspect.signature(function).parameters else {}))
