"""SQLite sink, exactly once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from operator import eq
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from libraries.connect.claim import OwnedSink, Owner
from libraries.connect.sqlite_values import beyond, stored
from timely.data.batch import Batch, as_arrow
from timely.errors import SinkError, at_line, shown
from timely.io import arguments
from timely.io.descriptors import with_descriptors
from timely.io.memory import PendingEpochs

_WAL_IS_SOUND = sqlite3.sqlite_version_info >= (3, 51, 3)
"""True if SQLite has the fix of the "WAL-reset bug".

Older versions can corrupt a database in WAL mode when several connections write to it.
"""

_MARKS = "_falkirk_marks"


class SqliteSink(OwnedSink):
    """Inserts rows into `table` of the SQLite database at `path`.

    Rows are tables, dicts, or tuples if `columns` names their fields.

    The table is made if it is not there. `columns` picks and orders columns; by default they are those of the
    first batch, and all rows must have them. Dates are stored as ISO text, decimals as text. A value that SQLite would
    hold as another one is refused: a NaN (which becomes NULL), "007" in a column of integers. Several sinks and jobs may
    write to one database, and to one table: the rows of all of them are there.

    Exactly once: the rows of an epoch and the mark (job, sink, worker, epoch) in `_falkirk_marks` are one
    transaction, and an epoch that has its mark is not inserted again. A job is known by its store: run again with
    the same store it goes on; run with a new one, or with none, it inserts its rows anew. That holds for any program,
    deterministic or not, while the number of workers stays the same. An epoch is held in memory until it is
    committed. One worker writes in WAL mode, which does not block readers; several do only where the SQLite
    library is sound for that, and take turns by a rollback journal elsewhere.

    >>> import sqlite3
    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable([("a", 1), ("b", 2)])).to(falkirk.SqliteSink("db", "counts", ["word", "n"]))
    >>> result = falkirk.run(flow)
    >>> sqlite3.connect("db").execute("select word, n from counts order by word").fetchall()
    [('a', 1), ('b', 2)]
    """

    exactly_once: ClassVar[bool] = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        columns: Sequence[str] | None = None,
        *,
        busy_seconds: float = 30.0,
    ) -> None:
        super().__init__()
        if isinstance(columns, str) or (columns is not None and not list(columns)):
            raise SinkError(at_line(f"columns={columns!r}: must be a list of names."))
        if table == _MARKS or table.lower().startswith("sqlite_"):
            raise SinkError(at_line(f"table={table!r}: this name is reserved. Name another table."))
        self._path = Path(arguments.path(path, "SqliteSink", SinkError))
        self._table = table
        self._columns = None if columns is None else list(columns)
        self._busy_seconds = arguments.above_zero(busy_seconds, "busy_seconds", SinkError)

    def open(self, worker: int, workers: int) -> SqliteWriter:
        """Connection of this worker.

        Raises SinkError if the database cannot be opened or written.
        """
        if self._path.is_dir():
            raise SinkError(f"{self._path}: this is a folder. Name a file for the database.")
        if not self._path.parent.is_dir():
            raise SinkError(f"{self._path}: there is no folder {self._path.parent}. Make it first.")
        wal = workers == 1 or _WAL_IS_SOUND
        try:
            connection = sqlite3.connect(
                self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {_MARKS} (job TEXT NOT NULL, sink TEXT NOT NULL, worker INTEGER "
                    "NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY (job, sink, worker, epoch)) WITHOUT ROWID"
                )
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise _refused(self._path, error) from (_why_it_cannot_open(error) or error)
        return SqliteWriter(connection, self._path, self._table, self._columns, self._owner, worker)


class SqliteWriter:
    """One worker's connection to the database."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        table: str,
        columns: list[str] | None,
        owner: Owner,
        worker: int,
    ) -> None:
        self._connection = connection
        self._path = path
        self._table = table
        self._columns = columns
        self._chosen = columns is not None
        """True if the program chose the columns; others are then left out.

        Otherwise all rows must have the columns of the first batch, and no others.
        """
        self._types: dict[str, str] = {}
        """Declared column types of the table, by lower-case name."""
        self._owner = owner
        self._worker = worker
        self._pending = PendingEpochs()
        self._ready = False

    def write(self, epoch: int, batch: Batch) -> None:
        """Buffer the batch until its epoch is complete."""
        self._pending.add(epoch, batch)

    def commit(self, epoch: int) -> None:
        """Insert the epoch and its mark in one transaction, unless the mark is there."""
        batches = [batch for batch in self._pending.take(epoch) if len(batch)]
        mark = (self._owner.job, self._owner.sink, self._worker, epoch)
        try:
            with_descriptors(lambda: self._transact(batches, mark))
        except sqlite3.Error as error:
            raise _refused(self._path, error, self._table) from error

    def _transact(self, batches: list[Batch], mark: tuple[str, str, int, int]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                done = self._connection.execute(
                    f"SELECT 1 FROM {_MARKS} WHERE job = ? AND sink = ? AND worker = ? AND epoch = ?", mark
                ).fetchone()
                if done is None:
                    for batch in batches:
                        self._insert(batch)
                    self._connection.execute(f"INSERT INTO {_MARKS} VALUES (?, ?, ?, ?)", mark)
                self._connection.execute("COMMIT")
            except BaseException:
                self._ready = False  # the table may have been made in this transaction
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:
            raise error from _why_it_cannot_open(error)

    def _insert(self, batch: Batch) -> None:
        if self._columns is None:
            self._columns = _columns_of(batch, self._where())
        if not self._ready:
            self._make_table(batch, self._columns)
            self._ready = True
        names = ", ".join(map(_quoted, self._columns))
        marks = ", ".join("?" * len(self._columns))
        statement = f"INSERT INTO {_quoted(self._table)} ({names}) VALUES ({marks})"
        rows = list(self._rows(batch, self._columns))
        try:
            self._connection.executemany(statement, rows)
        except (OverflowError, UnicodeEncodeError):
            raise SinkError(f"{self._where()}, {beyond(rows, self._columns)}") from None

    def _where(self) -> str:
        return f"{self._path}, table {self._table!r}"

    def _make_table(self, batch: Batch, columns: list[str]) -> None:
        kinds = _kinds(batch, columns)
        described = ", ".join(f"{_quoted(name)} {kinds.get(name, '')}".strip() for name in columns)
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(self._table)} ({described})")
        there = {row[1]: row[2] for row in self._connection.execute(f"PRAGMA table_info({_quoted(self._table)})")}
        self._types = {name.lower(): kind for name, kind in there.items()}
        lacking = [name for name in columns if name.lower() not in self._types]
        if lacking:
            raise SinkError(
                f"{self._where()}: the table has no column {_listed(lacking)}; it has "
                f"{_listed(there)}. Choose columns with columns=, or name another table."
            )

    def _rows(self, batch: Batch, columns: list[str]) -> Any:
        where = self._where()
        if isinstance(batch, list):
            for record in batch:
                if isinstance(record, dict):
                    self._check_columns(list(record), columns)
            by_name = _of_records(batch, columns, where)
        else:
            table = as_arrow(batch)
            self._check_columns(table.column_names, columns)
            by_name = {name: table[name].to_pylist() for name in columns}
        return zip(*(stored(by_name[name], self._types[name.lower()], f"{where}, column {name!r}") for name in columns))

    def _check_columns(self, there: Sequence[str], columns: list[str]) -> None:
        if len(there) == len(columns) and all(map(eq, there, columns)):
            return
        lacking = [name for name in columns if name not in there]
        if lacking:
            raise SinkError(
                f"{self._where()}: the output has no column {_listed(lacking)}; it has {_listed(there)}. Choose with "
                "columns=, or add it before the sink."
            )
        extra = [] if self._chosen else [name for name in there if name not in columns]
        if extra:
            raise SinkError(
                f"{self._where()}: the output has a column {_listed(extra)}, and began with {_listed(columns)} only. Give all "
                "rows the same columns (None where there is no value), or choose with columns=."
            )

    def abort(self) -> None:
        """Discard uncommitted batches."""
        self._pending.clear()

    def close(self) -> None:
        """Close the connection."""
        self._pending.clear()
        self._connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns_of(batch: Batch, where: str) -> list[str]:
    if not isinstance(batch, list):
        return list(as_arrow(batch).column_names)
    if isinstance(batch[0], dict):
        if not batch[0]:
            raise SinkError(f"{where}: a record without a field is no row: filter such out before, or give it a field.")
        return list(batch[0])
    raise SinkError(
        f"{where}: records that are not dicts need columns=[...]; this one is {type(batch[0]).__name__}: "
        f"{shown(batch[0], 80)}."
    )


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(repr, names))


def _of_records(batch: list[Any], columns: list[str], where: str) -> dict[str, list[Any]]:
    for record in batch:
        if not isinstance(record, dict) and not (isinstance(record, tuple | list) and len(record) == len(columns)):
            raise SinkError(
                f"{where}: each record must be a dict, or a tuple of {len(columns)} values ({', '.join(columns)}); "
                f"this one is {type(record).__name__}: {shown(record, 80)}."
            )
    places = enumerate(columns)
    return {
        name: [record[name] if isinstance(record, dict) else record[place] for record in batch]
        for place, name in places
    }


def _kinds(batch: Batch, columns: list[str]) -> dict[str, str]:
    """Column types of a new table; untyped for columns of nulls so far.

    Such a column holds anything.
    """
    if not isinstance(batch, list):
        schema = as_arrow(batch).schema
        return {name: _kind_of_type(schema.field(name).type) for name in columns if name in schema.names}
    first = batch[0]
    values = first if isinstance(first, dict) else dict(zip(columns, first)) if isinstance(first, tuple | list) else {}
    return {name: _kind_of_value(values.get(name)) for name in columns}


def _kind_of_type(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _kind_of_type(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "BLOB"
    return "" if pa.types.is_null(kind) else "TEXT"


def _kind_of_value(value: Any) -> str:
    if isinstance(value, int | np.integer | np.bool_):
        return "INTEGER"
    if isinstance(value, float | np.floating):
        return "REAL"
    if isinstance(value, bytes):
        return "BLOB"
    return "" if value is None else "TEXT"


def _why_it_cannot_open(error: sqlite3.Error) -> OSError | None:
    """Underlying OSError if SQLite failed for want of a descriptor, else None.

    SQLite itself says only that it cannot open a file.
    """
    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as reason:
            return reason
    return None


def _refused(path: Path, error: sqlite3.Error, table: str | None = None) -> SinkError:
    where = str(path) if table is None else f"{path}, table {table!r}"
    text = str(error)
    if "locked" in text or "busy" in text:
        advice = "Another program writes to it and does not let go: close it, or raise busy_seconds."
    elif "readonly" in text or "unable to open" in text:
        advice = "You may not write here: change the permissions of the file and its folder, or name another file."
    elif "full" in text:
        advice = "Free some space, or name a file on another disk."
    elif "not a database" in text or "malformed" in text:
        advice = "This file is not a sound SQLite database: name another one."
    elif isinstance(error, sqlite3.IntegrityError):
        advice = "A row breaks a rule of the table: correct the rows or the table."
    else:
        advice = "Check the table's definition against the output."
    return SinkError(f"{where}: {text}. {advice}")
