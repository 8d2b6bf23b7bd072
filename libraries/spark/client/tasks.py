"""Runs of regions on Spark: input files, user function or query, output files."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from libraries.spark.client.access import Access
from libraries.spark.client.failures import error_text
from libraries.spark.client.functions import call, check_types, invoke, requested
from libraries.spark.client.fusing import check, jobs, joined
from libraries.spark.client.references import referenced
from libraries.spark.client.region_session import current
from libraries.spark.errors import SparkError, SparkLost
from libraries.spark.files import pinned
from libraries.spark.files.parquet import carried_schema, sound, write_output
from libraries.spark.files.schemas import read_schema, write_schema
from libraries.spark.files.small import SMALL, Written, packed
from libraries.spark.protocol import Frames, Kind, Query, Read, RunTask
from libraries.spark.versions import arrow_schema

_TOO_MUCH = "spark.driver.maxResultSize"
"""Setting named in Spark's error for a too large result."""

_WRITING_SECONDS = 30.0
"""Seconds for a cancelled sink function to end."""

_PACKED = 4
"""Approximate ratio of bytes in memory to bytes in files."""


class Tasks:
    """Runs regions on one Spark, with a session for each region.

    Temporary views and settings are not shared.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sessions: dict[str, SparkSession] = {}
        self._tables: dict[str, tuple[bytes, dict[str, Any]]] = {}
        """Tables of each region: as a pickle, and unpacked; small ones are DataFrames."""
        self._apart: dict[str, tuple[Query, ...]] = {}
        """Fused steps of regions to be run separately, as one query would differ."""
        self._referenced: dict[tuple[Query | bytes, ...], dict[str, frozenset[str]]] = {}
        """Columns of each input used by a step, by step and input schemas."""
        self._sizes: dict[str, float] = {}
        """Approximate bytes of the last result of each region."""
        self._running: dict[int, tuple[int, int]] = {}
        self._cancelled: set[int] = set()
        self._writing: dict[str, threading.Lock] = {}
        """Lock of each sink, held by its run."""
        self._lock = threading.Lock()

    def run(self, task: RunTask) -> tuple[Written, Read]:
        """Run a task: output files, or rows if few are expected; and the columns used.

        Of columns there are only those that are known.

        Raises SparkError for what would fail again, and what Spark raises otherwise.
        """
        with self._exclusive(task) if task.kind == "sink" else nullcontext():
            read: dict[str, frozenset[str]] = {}
            written = self._run(task, read)
        return written, tuple((name, tuple(sorted(columns))) for name, columns in read.items())

    def _run(self, task: RunTask, read: dict[str, frozenset[str]]) -> Written:
        session = self._session(task.region)
        one_query = False
        with self._lock:
            self._running[task.number] = (0, 0)
        try:
            with current(self._access, session), self._access.running(session, task):
                try:
                    found = self._found(task, read)
                    one_query = self._together(task)
                except _NoRows:
                    return ()
                if task.kind != "sink":
                    check_types(found)
                rows = self._rows(found, task)
                if task.kind != "sink" and rows is None:
                    self._access.write(found, task.output, task.rows)
            _check(task)  # what was read is what was listed
        except BaseException as error:
            if one_query and isinstance(error, Exception):
                error.add_note(f"in one query of the steps {', '.join(map(repr, [*_fused(task), task.region]))}")
            for region in (task.region, *_fused(task)):
                self._forget(region)  # the next attempt gets a fresh one
            if self._access.gone(error):
                raise
            intact = self._access.intact(session)
            self._access.release(session)
            if not intact:
                raise SparkLost(f"Spark has lost the session of the run: {error_text(error)}") from error
            raise
        finally:
            with self._lock:
                del self._running[task.number]
        if rows is not None:
            return self._few(rows, task)
        files = sorted(Path(task.output).glob("[!._]*.parquet"))  # a server that is not Spark has names of its own
        self._sizes[task.region] = _PACKED * sum(file.stat().st_size for file in files)
        counted = ((str(file), pq.read_metadata(file).num_rows) for file in files)
        return tuple((file, rows) for file, rows in counted if rows)

    def _rows(self, found: Any, task: RunTask) -> pa.Table | None:
        """Rows of a result, if few are expected after a small last one; else None.

        Few are expected if nothing has gone wrong since.
        """
        if task.kind == "sink" or self._sizes.pop(task.region, math.inf) > SMALL:
            return None
        try:
            table: pa.Table = found.toArrow()
        except Exception as error:
            if _TOO_MUCH in str(error):
                return None
            raise
        return table.cast(arrow_schema(found.schema))  # as it is in files

    def _few(self, rows: pa.Table, task: RunTask) -> Written:
        """Rows as bytes if they are few, else written to files."""
        self._sizes[task.region] = rows.nbytes
        if not len(rows):
            return ()
        if rows.nbytes <= SMALL:
            return packed(sound(rows))
        return write_output(Path(task.output), [rows], task.rows)

    def cancel(self, number: int) -> None:
        """Stop a run."""
        with self._lock:
            self._cancelled.add(number)
        self._access.cancel(number)

    def progress(self) -> Iterator[tuple[int, int, int]]:
        """Runs with progress since the last call: (number, tasks done, tasks known)."""
        with self._lock:
            running = dict(self._running)
        for number, before in running.items():
            now = self._access.progress(number)
            if now != before:
                with self._lock:
                    if number in self._running:
                        self._running[number] = now
                yield number, *now

    @contextmanager
    def _exclusive(self, task: RunTask) -> Iterator[None]:
        """Exclude concurrent runs of a sink: wait for the end of a cancelled one.

        Both would write in one place.

        If its function goes on with something else, it ends with this process; another one takes its place.
        """
        writing = self._writing.setdefault(task.region, threading.Lock())
        if not writing.acquire(timeout=_WRITING_SECONDS):
            print(
                f"the function of {task.region!r} goes on though that is not wanted any more: it is killed", flush=True
            )
            os._exit(1)
        try:
            with self._lock:
                if task.number in self._cancelled:
                    raise SparkLost("the run is not wanted any more")
            yield
        finally:
            writing.release()

    def _session(self, region: str) -> SparkSession:
        """Session of a region; a new one at first, or after a loss by Spark."""
        with self._lock:
            session = self._sessions.get(region)
        if session is not None and not self._access.intact(session):
            self._forget(region)
            session = None
        if session is None:
            session = self._access.new_session()
            with self._lock:
                self._sessions[region] = session
        return session

    def _forget(self, region: str) -> None:
        with self._lock:
            self._sessions.pop(region, None)
            self._tables.pop(region, None)

    def _found(self, task: RunTask, read: dict[str, frozenset[str]]) -> Any:
        """DataFrame of the user's function or query; a sink function's return value.

        Steps that are fused are one query in the first attempt, and if it fails, are done by themselves in the next: what comes
        of each is kept then. Raises _NoRows if nothing came of one of those.
        """
        _check(task)
        if self._together(task):
            try:
                return self._done(task, read, together=True)
            except Exception as error:  # whatever it is, it is told by the step whose it is
                if self._access.gone(error):
                    raise
                self._apart[task.region] = _steps(task)
        return self._done(task, read, together=False)

    def _together(self, task: RunTask) -> bool:
        """True if the steps of the run are fused into one query."""
        return bool(_fused(task)) and task.first and self._apart.get(task.region) != _steps(task)

    def _done(self, task: RunTask, read: dict[str, frozenset[str]], together: bool) -> Any:
        """Result of the last step, each run in its region's session; fills in `read`.

        `read` is given the columns that are used. Raises Apart if steps that are to be one query must not be, and _NoRows.
        """
        read.clear()
        inputs = {each.name: _there(each) if each.name in task.learns else each for each in task.inputs}
        known: dict[str, Any] = {}
        tables: dict[str, dict[str, DataFrame]] = {}
        before: tuple[SparkSession, str] | None = None
        """Previous step, if its rows are used without being written."""
        for query, then in pairwise([*task.queries, None]):
            assert query is not None
            region = query.region or task.region
            session = self._session(region)
            if not together and (kept := self._kept(task, query, then)) is not None:
                known[query.name] = kept
                continue
            with _telling(query.region), current(self._access, session):
                for _, each in query.inputs:
                    if each not in known:
                        known[each] = self._access.read(session, inputs[each])
                if region not in tables:
                    tables[region] = self._tables_of(session, task, region)
                self._learn(session, task, query, inputs, known | tables[region], read)
                begun = jobs(session, task.number) if before is not None else 0
                found = _answer(session, task, query, known, tables[region], "region" if then else task.kind)
                if before is not None:
                    check(found, *before, session, jobs(session, task.number) - begun)
                before = None
                if then is None:
                    return found
                if not query.kept:
                    known[query.name] = _bound(session, query, found)
                elif together:
                    check_types(found)
                    before = session, query.name
                    known[query.name] = joined(found, self._session(then.region or task.region), query.name)
                else:
                    check_types(found)
                    self._access.write(found, f"{query.kept}-{task.attempt}", 0)
                    os.rename(f"{query.kept}-{task.attempt}", query.kept)
                    known[query.name] = self._kept(task, query, then)
        raise AssertionError  # there is a last step

    def _learn(
        self,
        session: SparkSession,
        task: RunTask,
        query: Query,
        there: dict[str, Frames],
        others: dict[str, Any],
        read: dict[str, frozenset[str]],
    ) -> None:
        """Add the columns used by a step to `read`; SparkError if one was not written.

        They are of the inputs that the task learns.
        """
        learnt = {within: each for within, each in query.inputs if each in task.learns}
        if not learnt or query.sql is None:
            return
        whole = {frames.name: frames.schema for frames in task.inputs}
        step = msgspec.structs.replace(query, region=query.region or task.region, kept="")
        key: tuple[Query | bytes, ...] = step, *(whole[each] for each in learnt.values())
        if (found := self._referenced.get(key)) is None:
            names = [(within, each) for within, each in query.inputs if within not in learnt]
            for within, each in (*names, *((name, name) for name in query.tables)):
                others[each].createOrReplaceTempView(within)
            schemas = {within: read_schema(whole[each]) for within, each in learnt.items()}
            try:
                found = self._referenced[key] = referenced(session, query.sql, schemas)
            except Exception:  # the query is wrong, which it says itself, or is not one to be analysed before it is run
                if any(there[each].schema != whole[each] for each in learnt.values()):
                    raise
                found = {within: frozenset(schema.names) for within, schema in schemas.items()}
        for within, each in learnt.items():
            missing = found[within].difference(read_schema(there[each].schema).names)
            if missing:
                raise SparkError(
                    f"the query reads column {min(missing)!r} of {within!r}, and the rows for this run were written for one "
                    "that did not: let the job do that run with the query as it was, then change it"
                )
            read[each] = read.get(each, frozenset()) | found[within]

    def _kept(self, task: RunTask, query: Query, then: Query | None) -> DataFrame | None:
        """Stored result of a step in this run; None without one, _NoRows if it is empty."""
        if then is None or not query.kept or not os.path.isdir(query.kept):
            return None
        files = sorted(map(str, Path(query.kept).glob("[!._]*.parquet")))
        files = [file for file in files if pq.read_metadata(file).num_rows]
        if not files:
            raise _NoRows
        schema = write_schema(carried_schema(pq.read_schema(files[0])))
        return self._access.read(self._session(then.region or task.region), Frames(query.name, schema, tuple(files)))

    def _tables_of(self, session: SparkSession, task: RunTask, region: str) -> dict[str, DataFrame]:
        """Tables of a region's steps.

        A small one is made once a session; a function is called by each run.
        """
        names = {name for each in task.queries if (each.region or task.region) == region for name in each.tables}
        known = self._tables.get(region)
        if known is None or known[0] != task.tables:
            unpacked = cloudpickle.loads(task.tables).items()
            made = {
                name: what if callable(what) else session.createDataFrame(what)
                for name, what in unpacked
                if name in names
            }
            known = self._tables[region] = task.tables, made
        found = {
            name: what if isinstance(what, DataFrame) else _made_by(what, session, name)
            for name, what in known[1].items()
        }
        files = ((name, files) for name, files in task.pinned if name in names)
        return found | {name: self._access.read_table(session, name, each) for name, each in files}


def _there(frames: Frames) -> Frames:
    """Input restricted to columns present in all of its files."""
    schema = read_schema(frames.schema)
    names = set(schema.names).intersection(*(pq.read_schema(file).names for file in frames.files))
    if len(names) == len(schema):
        return frames
    return msgspec.structs.replace(
        frames, schema=write_schema(pa.schema([each for each in schema if each.name in names]))
    )


class _NoRows(Exception):
    """Empty result of a fused step: the next step has no run."""


@contextmanager
def _telling(region: str) -> Iterator[None]:
    """Add the region to errors of a fused step."""
    try:
        yield
    except Exception as error:
        if region:
            error.add_note(f"in the step {region!r}")
        raise


def _answer(
    session: SparkSession, task: RunTask, query: Query, known: dict[str, Any], others: dict[str, Any], kind: Kind
) -> Any:
    """Call a user's function or query; a DataFrame, or a sink function's return value."""
    frames = {name: known[each] for name, each in query.inputs}
    tables = {name: others[name] for name in query.tables}
    for name, frame in (frames | tables).items():
        frame.createOrReplaceTempView(name)
    if query.sql is not None:
        return session.sql(query.sql)
    assert query.function is not None
    function = cloudpickle.loads(query.function)
    given = [session] if kind == "source" else list(frames.values())
    asked = tables | requested(function, len(given), {"epoch": task.epoch, "attempt": task.attempt})
    return (invoke if kind == "sink" else call)(function, *given, **asked)


def _bound(session: SparkSession, query: Query, frame: DataFrame) -> DataFrame:
    """Result of a view, bound to its inputs at once.

    Spark Connect asks for the names only when it runs something.
    """
    name = f"__falkirk_{query.name}"
    frame.createOrReplaceTempView(name)
    for each in (*(inner for inner, _ in query.inputs), *query.tables):
        session.catalog.dropTempView(each)
    return session.table(name)


def _steps(task: RunTask) -> tuple[Query, ...]:
    """Steps of a run, equal in all runs of its region."""
    return tuple(msgspec.structs.replace(each, kept="") for each in task.queries)


def _fused(task: RunTask) -> list[str]:
    """Regions with steps fused into this run of another region."""
    return [each.region for each in task.queries if each.kept]


def _check(task: RunTask) -> None:
    for name, files in task.pinned:
        pinned.check(name, files)


def _made_by(function: Any, session: SparkSession, name: str) -> DataFrame:
    made = invoke(function, session)
    if not isinstance(made, DataFrame):
        raise SparkError(f"the function for the table {name!r} returned {type(made).__name__}, not a Spark DataFrame")
    return made
