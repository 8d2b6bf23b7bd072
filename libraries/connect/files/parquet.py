"""Parquet source."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from libraries.connect.files.discovery import Paths, cannot_read, checksum, find_files
from libraries.connect.files.epochs import EpochSpec
from libraries.connect.files.partition import BlockStart, FilePartition
from libraries.connect.files.source import FileSource, missing_columns
from libraries.connect.files.value_folders import values_in
from libraries.connect.validation import check_sound
from timely.data.batch import Batch
from timely.errors import SourceError, at_line
from timely.io.column_types import Schema, arrow_types, polars_schema
from timely.io.descriptors import with_descriptors
from timely.io.interface import Position


class ParquetPartition(FilePartition):
    """Partition over a Parquet file or a worker's share, with checksums.

    Where epochs are whole row groups they are known again by their bytes.

    Those are read for a checkpoint alone. To pick records out of each epoch costs a job that does little else several per
    cent, since each is in memory that no cache holds.
    """

    @property
    def checksums(self) -> bool:
        """True if no row group has rows of two epochs."""
        return isinstance(self._reader, RowGroups) and self._reader.whole_epochs

    def checksum(self, begin: Position, end: Position) -> int:
        """Checksum of the row groups between two positions.

        Raises SourceError if the file cannot be read any more.
        """
        start = BlockStart() if begin is None else self._parts_of(begin)[1]
        _, stop, skip, _ = self._parts_of(end)
        if self._reader is None:
            self._reader = with_descriptors(self._open_file)
        assert isinstance(self._reader, RowGroups)
        extents = self._reader.extents(start.index, stop.index + (skip > 0))
        try:
            file = with_descriptors(lambda: os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))
            try:
                return checksum(file, extents)
            finally:
                os.close(file)
        except OSError as error:
            raise cannot_read(self._path, error) from error


class Parquet(FileSource):
    """Parquet files, a row group at a time (what `epoch="batch"` calls a batch).

    `read_dictionary` names text columns that stay dictionary codes, which later steps can count without
    looking at the text. `split="row_groups"` shares every file among all workers, so that each epoch of it is
    read by all: worker w takes the w-th part of the rows of every row group, or every W-th row group where
    `epoch` is a number of rows and an epoch has a multiple of W whole groups (then no worker decodes rows
    that it does not keep). `split="epochs"` deals out whole epochs in turn, where `epoch` is a number of rows
    and every epoch consists of whole row groups: the workers then have several epochs in flight, and need send
    each other nothing to group what came at each time (`over="time"`). Types in
    `schema` are cast to, and all files must have the same types in the columns read. `use_threads=False`
    decodes on one thread; `memory_map` reads pages through the system's cache. `folders` gives columns whose values stand in
    the names of folders above the files, as in `table/shop=north/x.parquet`, and their types, as `schema` does.

    >>> import polars as pl
    >>> pl.DataFrame({"n": [1, 2, 3]}).write_parquet("numbers.parquet", row_group_size=2)
    >>> flow = falkirk.Dataflow()
    >>> result = flow.columns("numbers", falkirk.Parquet("numbers.parquet")).to_records().capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [{'n': 1}, {'n': 2}]), ((1,), [{'n': 3}])]
    """

    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    partition_type: ClassVar[type[FilePartition]] = ParquetPartition

    def __init__(
        self,
        path: Paths,
        *,
        epoch: EpochSpec = "batch",
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        as_records: bool = False,
        read_dictionary: Sequence[str] = (),
        split: Literal["files", "row_groups", "epochs"] = "files",
        use_threads: bool = True,
        memory_map: bool = False,
        folders: Schema | None = None,
    ) -> None:
        super().__init__(path, epoch=epoch, columns=columns, schema=schema, as_records=as_records)
        if split not in ("files", "row_groups", "epochs"):
            raise SourceError(at_line(f'split={split!r}: must be "files", "row_groups" or "epochs".'))
        if split == "epochs" and not isinstance(epoch, int):
            raise SourceError(at_line(f'split="epochs" needs an epoch of so many rows, not epoch={epoch!r}.'))
        self.read_dictionary = list(read_dictionary)
        self.split = split
        self.use_threads = use_threads
        self.memory_map = memory_map
        self.folders: dict[str, Any] = {} if folders is None else dict(arrow_types(folders))
        self._settled: tuple[Path, pa.Schema] | None = None

    @property
    def layout_free(self) -> bool:
        """True if each file is read whole by one worker."""
        return self.split == "files"

    @property
    def deals_epochs(self) -> bool:
        """True if an epoch is an unshared file, or epochs are dealt out whole."""
        return self.split == "epochs" or (self.split == "files" and super().deals_epochs)

    def columns_schema(self) -> pl.Schema | None:
        """Schema of the first file; None if it cannot be read now."""
        if self.as_records:
            return None
        try:
            (first, *_) = find_files(self.path, self.suffixes)
            file = self._parquet(first)
        except SourceError:
            return None
        try:
            schema = self._schema_of(first, file)
        except SourceError:
            return None
        finally:
            file.close()
        return polars_schema(
            schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])
        )

    def _of_file(self, file: Path, index: int, worker: int, workers: int) -> list[FilePartition]:
        if self.split == "files" or workers == 1:
            return super()._of_file(file, index, worker, workers)
        return [self._partition(f"{file} [{worker + 1}/{workers}]", file, index, worker, workers)]

    def _learn(self, first: Path) -> None:
        file = self._parquet(first)
        try:
            self._settled = first, self._schema_of(first, file)
        finally:
            file.close()

    def _open(self, file: Path, share: int, shares: int) -> RowGroups:
        opened = self._parquet(file)
        try:
            schema = self._schema_of(file, opened)
            if self._settled is not None:
                _same_schema(file, schema, *self._settled)
            sizes = [opened.metadata.row_group(i).num_rows for i in range(opened.num_row_groups)]
            rows_an_epoch = self.epoch if isinstance(self.epoch, int) else None
            if self.split == "epochs" and rows_an_epoch is not None:
                parts = deal_epochs(file, sizes, rows_an_epoch, share, shares)
            else:
                parts = share_out(sizes, rows_an_epoch, share, shares)
            whole = self.epoch in ("batch", "file") or (
                rows_an_epoch is not None and whole_epochs(sizes, rows_an_epoch)
            )
            return RowGroups(file, opened, parts, schema, self.use_threads, _in_folders(file, self.folders), whole)
        except BaseException:
            opened.close()
            raise

    def _parquet(self, file: Path) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                file,
                read_dictionary=self.read_dictionary or None,
                memory_map=self.memory_map,
                pre_buffer=False,
                page_checksum_verification=True,
            )
        except FileNotFoundError as error:
            raise cannot_read(file, error) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(file, error) from error

    def _schema_of(self, path: Path, file: pq.ParquetFile) -> pa.Schema:
        """Schema of the columns to read, with the user's types."""
        there = {field.name: field.type for field in file.schema_arrow} | self.folders
        wanted = list(there) if self.wanted is None else self.wanted
        missing_columns(path, [*wanted, *self.types, *self.read_dictionary], list(there))
        counts = Counter(file.schema_arrow.names)
        if twice := [name for name in wanted if counts[name] > 1]:
            listed = ", ".join(file.schema_arrow.names)
            raise SourceError(
                f"{path}: two columns have the name {twice[0]!r}: {listed}. Rename one, or choose others with columns=."
            )
        return pa.schema([pa.field(name, self.types.get(name, there[name])) for name in wanted])


class FilePart(msgspec.Struct, frozen=True):
    """Rows `start` to `stop` of a row group.

    `first_row` is the number in the file of the row at `start`.
    """

    group: int
    start: int
    stop: int
    first_row: int


def share_out(sizes: Sequence[int], rows_an_epoch: int | None, share: int, shares: int) -> list[FilePart]:
    """Parts of the row groups for `share` of `shares`, in order.

    `sizes` are the rows of each group.

    Over all shares, every row appears once. Where `rows_an_epoch` is given and an epoch consists of whole
    groups, a multiple of `shares` in number, whole groups are dealt out; elsewhere each group is cut into
    `shares` slices.
    """
    first_rows = [0]
    for size in sizes:
        first_rows.append(first_rows[-1] + size)
    parts: list[FilePart] = []
    for group, size in enumerate(sizes):
        begin = first_rows[group]
        if rows_an_epoch is not None:
            epoch_begin = begin - begin % rows_an_epoch
            first = bisect_right(first_rows, epoch_begin) - 1
            # The last epoch may be short: then it ends where the file does.
            epoch_end = min(epoch_begin + rows_an_epoch, first_rows[-1])
            after = bisect_right(first_rows, epoch_end) - 1
            whole = first_rows[first] == epoch_begin and first_rows[after] == epoch_end and first <= group < after
            if whole and (after - first) % shares == 0:
                if group % shares == share:
                    parts.append(FilePart(group, 0, size, begin))
                continue
        start, stop = size * share // shares, size * (share + 1) // shares
        parts.append(FilePart(group, start, stop, begin + start))
    return parts


def deal_epochs(path: Path, sizes: Sequence[int], rows_an_epoch: int, share: int, shares: int) -> list[FilePart]:
    """Row groups of every `shares`-th epoch, from epoch number `share` on.

    Raises SourceError if a row group holds rows of two epochs.
    """
    parts: list[FilePart] = []
    row = 0
    for group, size in enumerate(sizes):
        epoch = row // rows_an_epoch
        if size and (row + size - 1) // rows_an_epoch != epoch:
            raise SourceError(
                f"{path}: row group {group} has rows of two epochs, so whole epochs cannot be dealt out. "
                'Use split="row_groups".'
            )
        if epoch % shares == share:
            parts.append(FilePart(group, 0, size, row))
        row += size
    return parts


def whole_epochs(sizes: Sequence[int], rows_an_epoch: int) -> bool:
    """True if no row group of these sizes has rows of two epochs.

    >>> whole_epochs([2, 2, 3], 4), whole_epochs([3, 3], 4)
    (True, False)
    """
    ends = list(accumulate(sizes, initial=0))
    return all(
        size == 0 or begin // rows_an_epoch == (begin + size - 1) // rows_an_epoch for begin, size in zip(ends, sizes)
    )


class RowGroups:
    """Blocks of one Parquet file, or of a worker's share of it."""

    def __init__(
        self,
        path: Path,
        file: pq.ParquetFile,
        parts: list[FilePart],
        schema: pa.Schema,
        use_threads: bool,
        folders: dict[str, pa.Scalar],
        whole_epochs: bool,
    ) -> None:
        self.whole_epochs = whole_epochs
        """True if no row group has rows of two epochs."""
        self._path = path
        self._file = file
        self._parts = parts
        self._schema = schema
        self._use_threads = use_threads
        self._folders = folders
        self._columns = [name for name in schema.names if name not in folders]

    def ended(self, place: BlockStart) -> bool:
        return place.index >= len(self._parts)

    def read(self, place: BlockStart) -> tuple[Batch, int, BlockStart]:
        part = self._parts[place.index]
        after = BlockStart(place.index + 1, 0, part.first_row + part.stop - part.start)
        return self._decode(part), part.first_row, after

    def _decode(self, part: FilePart) -> Any:
        if part.start == part.stop:
            return self._schema.empty_table()
        expected = self._file.metadata.row_group(part.group).num_rows
        try:
            table = self._file.read_row_group(part.group, columns=self._columns, use_threads=self._use_threads)
            check_sound(table)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(self._path, error, part.group) from error
        if table.num_rows != expected:
            raise _damaged(self._path, ValueError(f"{table.num_rows} rows instead of {expected}"), part.group)
        for name, value in self._folders.items():
            table = table.append_column(name, pa.repeat(value, expected))
        table = table.select(self._schema.names).slice(part.start, part.stop - part.start)
        try:
            return table.replace_schema_metadata().cast(self._schema)
        except pa.ArrowException as error:
            raise SourceError(
                f"{self._path}, row group {part.group}: {error}. The file's types cannot be turned into "
                f"those of schema=: {_listed(self._schema)}."
            ) from error

    def extents(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Byte ranges of the chosen columns in parts `begin` to `end`."""
        found = []
        for part in self._parts[begin:end]:
            group = self._file.metadata.row_group(part.group)
            for number in range(group.num_columns):
                column = group.column(number)
                path = column.path_in_schema
                if any(path == name or path.startswith(name + ".") for name in self._columns):
                    at = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
                    found.append((at, at + column.total_compressed_size))
        return found

    def close(self) -> None:
        self._file.close()


def _in_folders(file: Path, types: dict[str, Any]) -> dict[str, pa.Scalar]:
    """Column values from the names of a file's folders."""
    found = values_in(file)
    values = {}
    for name, type_ in types.items():
        if name not in found:
            raise SourceError(f"{file}: none of its folders is named {name}=..., as folders= says")
        try:
            values[name] = pa.scalar(found[name], pa.string()).cast(type_)
        except pa.ArrowException as error:
            raise SourceError(
                f"{file}: the value of {name!r} in the name of its folder is no {type_}: {error}"
            ) from error
    return values


def _damaged(path: Path, error: Exception, group: int | None = None) -> SourceError:
    where = path if group is None else f"{path}, row group {group}"
    return SourceError(
        f"{where}: not a whole Parquet file, it may have been cut off: {str(error).rstrip('.')}. Copy or write it again."
    )


def _same_schema(path: Path, schema: pa.Schema, first: Path, expected: pa.Schema) -> None:
    for field in expected:
        if field.name not in schema.names:
            raise SourceError(
                f"{path}: there is no column {field.name!r}, which {first} has. Name the columns that all "
                "files have with columns=."
            )
        other = schema.field(field.name).type
        if other != field.type:
            raise SourceError(
                f"{path}: column {field.name!r} is {other}, but {field.type} in {first}. Give one type for "
                "all with "
                f'schema={{"{field.name}": type}}.'
            )
    extra = [name for name in schema.names if name not in expected.names]
    if extra:
        raise SourceError(
            f"{path}: column {extra[0]!r} is not in {first}. Name the columns that all files have with columns=."
        )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
