"""Classification of errors: transient or permanent; and messages for the user.

Errors are those of Spark, and of functions of the user's.
"""

from __future__ import annotations

import builtins
import pkgutil
import re
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkException,
    PythonException,
    UnsupportedOperationException,
)

from libraries.spark.errors import SparkError, SparkLost

_USELESS = (AnalysisException, ParseException, IllegalArgumentException, UnsupportedOperationException, SparkError)
"""Permanent errors of a query."""

_USELESS_STATES = ("0A", "21", "22", "23", "38", "39", "42")
"""SQLSTATE classes of permanent errors: in the query, its data, or user functions.

Others blame files, memory, the network.
"""

_USELESS_CLASSES = (
    "ClassNotFoundException",
    "NoClassDefFoundError",
    "IllegalArgumentException",
    "NumberFormatException",
)
"""Java exception classes for wrong settings and names."""

_OF_SPARK = ("pyspark.errors.exceptions.captured", "pyspark.errors.exceptions.connect")

_OF_FUNCTIONS = "38000"
"""SQLSTATE of an exception in a user's function; not sent over Spark Connect."""

_NAMED = re.compile(r"\(([\w.$]+)\) ")
"""Pattern of a Java exception class in a Spark Connect error."""

_DETAILS = re.compile(r'RPC that terminated with:.*?details = "(.*?)"\n', re.DOTALL)
"""Pattern of the informative part of a gRPC error."""

_TRACE = "Traceback (most recent call last):"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
"""Pattern of an exception class at the start of a traceback's last line."""

_PASSING = (OSError, MemoryError, EOFError)
"""Transient errors and their subclasses: memory, files, network, a lost Spark."""

_MOST_TEXT = 2000


def error_text(error: BaseException) -> str:
    """Error message in a few lines.

    Spark's messages can be as long as a page.
    """
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    if isinstance(error, SparkError | SparkLost):
        return f"{error}{notes}"
    text = str(error).strip() or type(error).__name__
    if (details := _DETAILS.search(text)) is not None:
        text = details[1]
    causes = [line for line in (getattr(error, "_stackTrace", None) or "").splitlines() if line.startswith("Caused by")]
    lines = [
        line for line in [*text.splitlines(), *causes[-1:]] if line.strip() and not line.lstrip().startswith("at ")
    ]
    short = "\n".join(lines)
    if len(short) > _MOST_TEXT:  # the cause stands at the end of what Python workers tell, the rest at the beginning
        short = short[: _MOST_TEXT // 2] + "\n...\n" + short[-_MOST_TEXT // 2 :]
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if _users(frame.filename)]
    where = f" (at {places[-1].filename}:{places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {short}{where}{notes}"


def own(error: BaseException) -> bool:
    """True for a permanent error of a user's function itself.

    False for Spark's errors, and for transient ones.
    """
    others = (SparkError, SparkLost, PySparkException, *_PASSING)
    return not (isinstance(error, others) or type(error).__module__.startswith("py4j"))


def hopeless(error: BaseException) -> bool:
    """True for a permanent failure: refused at once, or due to the query or its data."""
    if isinstance(error, PySparkException) and not _from_spark(error):
        return error.getCondition() != "JAVA_GATEWAY_EXITED"  # it may have been killed: what it printed tells (host)
    if isinstance(error, _USELESS) or _java_class(error).endswith(_USELESS_CLASSES):
        return True
    return _sql_state(error).startswith(_USELESS_STATES) and not _may_pass(error)


def _from_spark(error: BaseException) -> bool:
    """True for an exception from Spark, False for one of PySpark itself."""
    return any(each.__module__ in _OF_SPARK for each in type(error).__mro__)


def _sql_state(error: BaseException) -> str:
    """SQLSTATE of an error, or of its Java exception; empty without one."""
    source: Any = getattr(error, "java_exception", error)
    try:
        return str(source.getSqlState() or (_OF_FUNCTIONS if isinstance(error, PythonException) else ""))
    except Exception:  # it has none, or Java is gone
        return ""


def _java_class(error: BaseException) -> str:
    """Class of the Java exception behind an error; empty for another error."""
    try:
        return str(error.java_exception.getClass().getName())  # type: ignore[attr-defined]
    except Exception:  # it came over Spark Connect, there is none, or Java is gone
        named = _NAMED.match(str(error)) if _from_spark(error) else None
        return named[1] if named is not None else ""


def _may_pass(error: BaseException) -> bool:
    """True for a transient failure in a Spark task: memory, files, network."""
    kind = _class_named(raised_in(str(error))) if isinstance(error, PythonException) else None
    return isinstance(kind, type) and issubclass(kind, _PASSING)


def raised_in(text: str) -> str:
    """Class name at the end of a Python traceback in `text`; empty without one.

    >>> raised_in("Oh:\\nTraceback (most recent call last):\\n  File ...\\nsocket.gaierror: unknown\\nSQLSTATE: 38000")
    'socket.gaierror'
    >>> raised_in("Traceback (most recent call last):\\n  File ...\\nMemoryError")
    'MemoryError'
    """
    _, found, after = text.rpartition(_TRACE)
    reported = [line for line in after.splitlines() if line and not line.startswith(" ")] if found else []
    named = _RAISED.match(reported[0]) if reported else None
    return named[1] if named is not None else ""


def _class_named(name: str) -> object:
    """Class of this name, from installed packages only.

    To import a module of the user's program here would be to run it.
    """
    if "." not in name:
        return getattr(builtins, name, None)
    try:
        return pkgutil.resolve_name(name) if _is_installed(name.partition(".")[0]) else None
    except Exception:  # it is not there, or does not load
        return None


def _is_installed(module: str) -> bool:
    if module in sys.stdlib_module_names:
        return True
    spec = find_spec(module)
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any("site-packages" in place or "dist-packages" in place for place in places)


def _users(file: str) -> bool:
    own = str(Path(__file__).parents[1])
    return not (file.startswith((own, "<frozen")) or "site-packages" in file or "/lib/python3" in file)
