"""File sink: one file an epoch and worker, written atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import BinaryIO, ClassVar, Literal

import pyarrow as pa

from libraries.connect.claim import Claim, OwnedSink
from libraries.connect.files.formats import Format, make_format
from timely.data.batch import Batch, length
from timely.errors import SinkError, at_line
from timely.io.arguments import path
from timely.io.column_types import Schema, arrow_types
from timely.io.descriptors import with_descriptors
from timely.time import INF

FORMATS = ("jsonl", "csv", "parquet")

_FORMAT_OF = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
"""File formats by file name ending."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REMEDY = (
    "Name another folder, move those files away, or let this sink's have names of their own: FileSink(..., name=...). To go on "
    "with the job that wrote them, run it with its own store."
)


class FileSink(OwnedSink):
    """Writes one file an epoch and worker into `folder`.

    `epoch-0000000012-w0.jsonl` has what worker 0 has of epoch 12, and `epoch-end-w0.jsonl` what comes when all
    input is over, such as the last windows.

    A file is written under a hidden name, synced, renamed and the folder synced, so that readers and a power
    failure see all of an epoch or nothing of it. Rows stream to disk: an epoch need not fit in memory.
    Records are written to CSV and Parquet if they are dicts. Types of columns are those of the first batch of
    a file; `schema` fixes them for all files. A value of another type that would become another one is refused.
    An epoch without rows leaves an empty file, or none if nobody knows its columns.

    Exactly once: an epoch that is committed again replaces its file with the same content, as long as the
    program is deterministic and the number of workers stays the same. The files in a folder are of one job: a
    hidden marker says of which. Where another job has left files, and where another sink of the job writes, it is
    an error, unless the sink has a `name` that none of them has: that goes in front of the names of its files.

    Raises:
        SinkError: `folder`, `format` or `name` is none.
        GraphError: `schema` names a type that columns do not have.

    >>> from pathlib import Path
    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable([{"n": 1}, {"n": 2}], epoch_every=1)).to(falkirk.FileSink("out"))
    >>> result = falkirk.run(flow)
    >>> for file in sorted(Path("out").glob("*.jsonl")):
    ...     print(file.name, file.read_text().strip())
    epoch-0000000000-w0.jsonl {"n":1}
    epoch-0000000001-w0.jsonl {"n":2}
    """

    exactly_once: ClassVar[bool] = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        format: Literal["jsonl", "csv", "parquet"] = "jsonl",
        *,
        schema: Schema | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if name is not None and not _NAME.fullmatch(name):
            raise SinkError(at_line(f"name={name!r}: use letters, digits, _ and -; it begins the names of files."))
        if format not in FORMATS:
            raise SinkError(at_line(f"format={format!r}: must be one of {', '.join(FORMATS)}."))
        self._folder = Path(path(folder, "FileSink", SinkError))
        meant = _FORMAT_OF.get(self._folder.suffix.lower(), format)
        if meant != format:
            raise SinkError(
                at_line(
                    f"{folder}: FileSink makes a folder, with a file for each epoch, and writes {format} into it. Say "
                    f"FileSink({self._folder.stem!r}, format={meant!r})."
                )
            )
        self._format = format
        self._schema = None if schema is None else _arrow_schema(schema)
        self._prefix = "" if name is None else f"{name}-"

    def open(self, worker: int, workers: int) -> FileWriter:
        """Writer of this worker's files.

        Makes the folder; removes what an earlier run of this worker left unfinished. Raises SinkError if files of
        another job are there.
        """
        folder, claim = self._folder, None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._of_job and _may_write(folder):
                claim = Claim(folder, folder / f".falkirk-{self._prefix}job", self._owner, self._files, _REMEDY)
            for left in folder.glob(f".{self._prefix}epoch-*-w{worker}.*.part"):
                left.unlink()
        except (FileExistsError, NotADirectoryError) as error:
            raise SinkError(
                f"{folder}: there is a file where the folder should be. Move it away, or name another folder."
            ) from error
        except OSError as error:
            raise cannot_write(folder, error) from error
        if not _may_write(folder):
            raise SinkError(f"{folder}: you may not write here. Change its permissions, or name another folder.")
        return FileWriter(folder, worker, self._format, self._schema, self._prefix, claim)

    def _files(self) -> list[str]:
        """Existing output files of sinks with this name, in order."""
        pattern = re.compile(rf"{re.escape(self._prefix)}epoch-(\d+|end)-w\d+\.({'|'.join(FORMATS)})")
        return sorted(name for name in os.listdir(self._folder) if pattern.fullmatch(name))


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _arrow_schema(schema: Schema) -> pa.Schema:
    return schema if isinstance(schema, pa.Schema) else pa.schema(arrow_types(schema))


class FileWriter:
    """Writer of one worker's files, for several epochs at once."""

    def __init__(
        self, folder: Path, worker: int, format: str, schema: pa.Schema | None, prefix: str, claim: Claim | None
    ) -> None:
        self._folder = folder
        self._prefix = prefix
        self._claim = claim
        self._worker = worker
        self._format = format
        self._schema = schema
        self._open: dict[int, _Part] = {}

    def _path(self, epoch: int) -> Path:
        number = "end" if epoch == INF else f"{epoch:010d}"
        return self._folder / f"{self._prefix}epoch-{number}-w{self._worker}.{self._format}"

    def write(self, epoch: int, batch: Batch) -> None:
        """Add the batch to the epoch's unfinished file."""
        path = self._path(epoch)
        try:
            part = self._open.get(epoch)
            if part is None:
                part = with_descriptors(lambda: _Part(path, self._format, self._schema))
                self._open[epoch] = part
            part.write(batch)
        except OSError as error:
            raise cannot_write(path, error) from error

    def commit(self, epoch: int) -> None:
        """Make the epoch's file durable and visible under its name."""
        path, part = self._path(epoch), self._open.get(epoch)
        if part is None:
            return
        try:
            if self._claim is not None:
                with_descriptors(self._claim.check)
            part.finish()
            with_descriptors(lambda: sync_folder(self._folder))
        except OSError as error:
            raise cannot_write(path, error) from error
        del self._open[epoch]

    def abort(self) -> None:
        """Remove the unfinished files."""
        for part in self._open.values():
            part.discard()
        self._open.clear()

    def close(self) -> None:
        """Remove the unfinished files: their epochs were never completed."""
        self.abort()


class _Part:
    """Unfinished output file under a hidden name."""

    def __init__(self, path: Path, format: str, schema: pa.Schema | None) -> None:
        self._path = path
        self._hidden = path.with_name(f".{path.name}.part")
        self._has_content = format == "jsonl" or schema is not None
        self._file: BinaryIO = open(self._hidden, "wb")  # noqa: SIM115 - stays open until the epoch is over
        self._format: Format = make_format(format, self._file, str(path), schema)

    def write(self, batch: Batch) -> None:
        self._has_content = self._has_content or not isinstance(batch, list) or length(batch) > 0
        self._format.write(batch)

    def finish(self) -> None:
        self._format.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._has_content:
            os.replace(self._hidden, self._path)
        else:  # Without columns there is nothing to write; what a former commit left must not stay.
            self._hidden.unlink()
            self._path.unlink(missing_ok=True)

    def discard(self) -> None:
        # Buffered rows and the end of a Parquet file still want to go somewhere: to nowhere, since the disk
        # may be full.
        with contextlib.suppress(Exception):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self._file.fileno(), inheritable=False)
            os.close(nowhere)
            self._format.finish()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._hidden.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder: its renames then survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> SinkError:
    """Error for a failed write, with advice by errno."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            advice = "Free some space, or name a folder on another disk."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            advice = "You may not write here: change its permissions, or name another folder."
        case errno.ENOENT | errno.ENOTDIR | errno.EEXIST:
            advice = "The folder is gone or a file stands in its way: restore it, or name another folder."
        case _:
            advice = "Check the disk, or name another folder."
    return SinkError(f"{path}: cannot be written: {error.strerror or error}. {advice}")
