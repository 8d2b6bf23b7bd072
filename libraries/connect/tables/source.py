"""Base of versioned table sources: a version is an epoch of added rows."""

from __future__ import annotations

import contextlib
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar, Protocol, Self

import pyarrow as pa

from timely.errors import SourceError, at_line
from timely.io import arguments
from timely.io.interface import Chunk, End, Files, Partition, Position, Wait


class DataFile(Protocol):
    """Immutable data file of a table."""

    name: str

    def pieces(self) -> int:
        """Number of pieces to read it in."""

    def read(self, piece: int) -> pa.Table:
        """Rows of a piece, in the columns of the version; raises SourceError."""


class Log(ABC):
    """Versions of a table by number, in order.

    They never change; old ones may be gone.

    All methods may raise SourceError.
    """

    where: str
    """Table name for messages."""

    @abstractmethod
    def newest(self) -> int:
        """Number of the newest version."""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Columns of the newest version."""

    @abstractmethod
    def first(self, start: int | None) -> int | None:
        """Version `start`, or the table's first one; None if it does not exist yet."""

    @abstractmethod
    def following(self, number: int) -> int | None:
        """Version after `number`; None if it does not exist yet."""

    @abstractmethod
    def state(self, number: int) -> Sequence[DataFile]:
        """Files of the whole table as of a version."""

    @abstractmethod
    def added(self, number: int) -> Sequence[DataFile]:
        """Files with the rows added by a version.

        Raises SourceError if it does not only add rows.
        """


class TableSource(ABC):
    """Base of table sources: version v is epoch v, with the rows it adds.

    The subclasses say what the arguments mean.
    """

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(
        self,
        *,
        start: int | None,
        after: int | None,
        follow: bool,
        columns: Sequence[str] | None,
        as_records: bool,
        poll_seconds: float,
    ) -> None:
        if start is not None and after is not None:
            raise SourceError(at_line("start= and after= both say where to begin: give one of them."))
        if columns is not None and (isinstance(columns, str) or not columns or len(set(columns)) != len(list(columns))):
            raise SourceError(at_line(f"columns={columns!r}: must be a list of names, each once."))
        self._start = None if start is None else arguments.whole(start, "start", 0)
        self._after = None if after is None else arguments.whole(after, "after", 0)
        self._follow = follow
        self._columns = None if columns is None else list(columns)
        self._as_records = as_records
        self._poll = arguments.above_zero(poll_seconds, "poll_seconds")
        self._folder: Path | None = None

    def with_files(self, files: Files, name: str) -> Self:
        """Copy of the source, sharing its last version with all workers through a file."""
        if self._follow:
            return self
        same = copy(self)
        same._folder = files.folder(name)
        return same

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """This worker's share of the files of each version.

        Raises SourceError if there is no table.
        """
        log = self.log()
        newest = log.newest()
        upto = (
            None
            if self._follow
            else newest
            if self._folder is None
            else _agree(self._folder / "upto", newest, log.where)
        )
        return [TablePartition(log, worker, workers, self._start, self._after, upto, self._as_records, self._poll)]

    @abstractmethod
    def log(self) -> Log:
        """Version log of the table, opened on first use."""


def _agree(path: Path, mine: int, where: str) -> int:
    """Number in the file at `path`, written by the first caller.

    Others get the first one's number.
    """
    if not path.exists():
        draft = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        with open(draft, "w") as file:
            file.write(str(mine))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    text = path.read_text()
    if not text.isdecimal():
        raise SourceError(f"{where}: {path}, a file of the job, is damaged: start anew with an empty store.")
    return int(text)


class TablePartition:
    """One worker's share of a table: every W-th file of each version, by name.

    A position is [version] after a version, and [version, whole, file, piece] before a piece of one; `whole` is 1 for the first
    version, which is read with all that came before it.
    """

    def __init__(
        self,
        log: Log,
        share: int,
        shares: int,
        start: int | None,
        after: int | None,
        upto: int | None,
        as_records: bool,
        poll_seconds: float,
    ) -> None:
        self.name = log.where if shares == 1 else f"{log.where} [{share + 1}/{shares}]"
        self._log = log
        self._share = share
        self._shares = shares
        self._start = start
        self._begin = after
        self._upto = upto
        self._as_records = as_records
        self._poll = poll_seconds
        self._after = after
        """Last version read; None: start with the first."""
        self._number: int | None = None
        """Version being read."""
        self._whole = False
        self._files: list[DataFile] = []
        self._file = self._piece = 0

    def read(self) -> Chunk | Wait | End:
        """Next piece of a file, or the end of a version without one for this share."""
        if self._number is None:
            log, whole = self._log, self._after is None
            if self._after is not None and self._upto is not None and self._after >= self._upto:
                return End()
            number = log.first(self._start) if self._after is None else log.following(self._after)
            if number is None or (self._upto is not None and number > self._upto):
                return Wait(self._poll) if self._upto is None else End()
            self._enter(number, whole)
        assert self._number is not None
        number, files = self._number, self._files
        rows = None
        if self._here():
            rows = files[self._file].read(self._piece)
            self._piece += 1
            if self._as_records:
                rows = rows.to_pylist()
        if self._here():
            return Chunk(number, rows, [number, int(self._whole), self._file, self._piece])
        self._stand_after(number)
        return Chunk(number, rows, [number], closes=True)

    def _here(self) -> bool:
        """Advance to the next file with a piece left; False if there is none."""
        while self._file < len(self._files) and self._piece >= self._files[self._file].pieces():
            self._file, self._piece = self._file + 1, 0
        return self._file < len(self._files)

    def _enter(self, number: int, whole: bool) -> None:
        files = self._log.state(number) if whole else self._log.added(number)
        self._number, self._whole = number, whole
        self._files = sorted(files, key=lambda file: file.name)[self._share :: self._shares]
        self._file = self._piece = 0

    def _stand_after(self, number: int | None) -> None:
        self._after = number
        self._number = None
        self._files = []

    def seek(self, position: Position) -> None:
        """Go to a position given by a chunk."""
        match position:
            case None:
                self._stand_after(self._begin)
            case [int(number)]:
                self._stand_after(number)
            case [int(number), int(whole), int(file), int(piece)]:
                self._enter(number, bool(whole))
                self._file, self._piece = file, piece
            case _:
                raise SourceError(
                    f"{self.name}: {position!r} is no position in a table: start anew with an empty store."
                )

    def ack(self, position: Position) -> None:
        """No-op: versions stay."""

    def close(self) -> None:
        """No-op: there is nothing to release."""


def choose(schema: pa.Schema, columns: Sequence[str] | None, where: str) -> pa.Schema:
    """Schema of the chosen columns, without metadata.

    Raises SourceError if one is missing.
    """
    wanted = schema.names if columns is None else columns
    lacking = [name for name in wanted if name not in schema.names]
    if lacking:
        raise SourceError(
            f"{where}: there is no column {', '.join(map(repr, lacking))}. It has: {', '.join(map(repr, schema.names))}."
        )
    return pa.schema([pa.field(name, schema.field(name).type) for name in wanted])
