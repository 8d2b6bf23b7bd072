"""Current Spark session of a thread, for lookups by user functions in PySpark.

A region has a session of its own, and PySpark knows one for a whole process. So the functions by which a session is found are
replaced, in the process that Spark runs in: in the thread of a run they give the session of its region.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from libraries.spark.client.access import Access
from libraries.spark.errors import SparkError

_thread = threading.local()

_get_or_create = SparkSession.Builder.getOrCreate
_active = SparkSession.getActiveSession


@contextmanager
def current(access: Access, session: SparkSession) -> Iterator[SparkSession]:
    """Make `getOrCreate()` and `active()` return this session, in this thread.

    These are of `SparkSession.builder` and `SparkSession`.

    Outside, it is again the one that it was.
    """
    before = _of_thread()
    access.activate(session)
    session.stop = _not_to_be_stopped  # type: ignore[method-assign]
    _thread.session = session
    try:
        yield session
    finally:
        _thread.session = before
        if before is not None:
            access.activate(before)


def _of_thread() -> SparkSession | None:
    return getattr(_thread, "session", None)


def _builder_get_or_create(builder: SparkSession.Builder) -> SparkSession:
    session = _of_thread()
    if session is None:
        return _get_or_create(builder)
    for name, value in builder._options.items():
        with suppress(AnalysisException):  # it cannot be set in a session
            session.conf.set(name, value)
    return session


def _get_active_session(cls: type[SparkSession]) -> SparkSession | None:
    return _of_thread() or _active()


def _not_to_be_stopped(*_: Any) -> None:
    raise SparkError("the function stops Spark, on which the job goes on: leave stop() out")


SparkSession.Builder.getOrCreate = _builder_get_or_create  # type: ignore[method-assign, assignment]
SparkSession.getActiveSession = classmethod(_get_active_session)  # type: ignore[assignment]
