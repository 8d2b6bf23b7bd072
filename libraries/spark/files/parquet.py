"""Parquet files exchanged with Spark: column types, writing, reading, removal.

What lies in a region's folder is named so that it can be swept without asking anybody: inputs by epoch, outputs by epoch and
by the worker that reads them.

    in/<epoch>-<input>-<worker>-<piece>-<digest>.parquet    out/<epoch>-<unique>-<attempt>/<number>.w<worker>.parquet
    in/<epoch>-<tables>.tables                              runs/<epoch>-<name>.run

An input file is called by the rows in it, in whatever order they came: who does an epoch again gives it the same name, and
finds it there. What Spark has written is handed over under names that no other attempt has, because its files may differ.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from libraries.spark.errors import SparkError
from libraries.spark.files.schemas import write_schema

if TYPE_CHECKING:  # Spark's own process, too, writes and reads files here, and does without Polars
    from libraries.spark.files.sweeping import Sweep
    from timely.data.batch import Batch
    from timely.operators.base import JobContext

FILE_ROWS = 1 << 16
"""Most rows of an output file; files are the units dealt out to workers."""

_GROUP_BYTES = 16 << 20
"""Least size of a row group in a merged file, except the last.

Each is held in memory when it is written.
"""

_FILE_BYTES = 64 << 20
"""Target size in bytes of output files written here instead of by Spark."""

_DIGITS = 20  # of an epoch, the one after all others too
_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    *(pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64),
    *(pa.types.is_string, pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128, pa.types.is_null),
)
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}


def carried(type_: pa.DataType) -> pa.DataType | None:
    """Spark-compatible type for a column of `type_`; None if there is none."""
    types = pa.types
    if types.is_null(type_):
        return pa.string()  # a column of nothing but nulls may be of any type, and this one takes the most
    if any(is_plain(type_) for is_plain in _PLAIN):
        return type_
    if types.is_dictionary(type_):
        return carried(type_.value_type)
    if types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_large_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_):
        return pa.binary()
    if types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz and "UTC")
    if types.is_date64(type_):
        return pa.date32()
    if types.is_decimal32(type_) or types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        inner = carried(type_.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_map(type_):
        key, item = carried(type_.key_type), carried(type_.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if types.is_struct(type_):
        fields = [(field.name, carried(field.type)) for field in type_]
        return None if any(each is None for _, each in fields) else pa.struct(fields)
    return _WIDER.get(type_)


def carried_schema(schema: pa.Schema) -> pa.Schema:
    """Spark-compatible schema; SparkError names a column without one."""
    fields = []
    for field in schema:
        type_ = carried(field.type)
        if type_ is None:
            raise SparkError(
                f"column {field.name!r} is of type {field.type}, which Spark cannot take: cast it before, for example "
                f'with_columns(pl.col("{field.name}").cast(pl.String)), or leave it out with select(...)'
            )
        fields.append(pa.field(field.name, type_))
    twice = [name for name in schema.names if schema.names.count(name) > 1]
    if twice:
        raise SparkError(f"column {twice[0]!r} is there twice: rename one of them")
    return pa.schema(fields)


def carried_table(batch: Batch) -> pa.Table:
    """Columns cast to Spark-compatible types, without a copy if they are so already.

    Raises SparkError for columns that Spark cannot take, and for values that do not fit.
    """
    from timely.data.batch import as_arrow

    try:
        table = as_arrow(batch)
    except pa.ArrowException as error:
        raise SparkError(f"these columns cannot become an Arrow table: {error}") from error
    except Exception as error:  # what Polars raises here is no error of its own kind
        if isinstance(batch, list):
            raise
        raise SparkError(f"these columns cannot become an Arrow table: {error}") from error
    schema = carried_schema(table.schema)
    try:
        return table.cast(schema)
    except pa.ArrowException as error:
        names = [field.name for field in schema if field.type != table.schema.field(field.name).type]
        raise SparkError(
            f"values of column {' or '.join(map(repr, names))} do not fit into Spark's types: {error}"
        ) from error


def digest_of(tables: Iterable[pa.Table]) -> int:
    """Order-independent digest of the rows of tables; digests add up (`add_up`).

    The tables have one schema.
    """
    return add_up(_digest(table) for table in tables)


def _digest(table: pa.Table) -> int:
    import polars as pl

    hashes = cast("pl.DataFrame", pl.from_arrow(table)).hash_rows(crc32(write_schema(table.schema)))
    return int(hashes.to_numpy().sum())


def add_up(digests: Iterable[int]) -> int:
    """Digest of all rows of several files, from their digests."""
    return sum(digests) % (1 << 63)


def write_input(folder: Path, stem: str, tables: Sequence[pa.Table], durable: bool = True) -> str:
    """Write tables of one schema into a file, unless it exists; its path.

    If `durable`, it is on the disk when this returns.

    `stem` is as of `input_stem`: rows of another attempt are the same if their name is.
    """
    return _write(folder, stem, tables, durable)


def input_stem(name: str, epoch: int, worker: int, which: str) -> str:
    """Name of an input file, without its suffix."""
    return f"{named_by(epoch)}-{name}-{worker}-{which}"


def link_input(file: BinaryIO, folder: Path, stem: str, durable: bool) -> str:
    """Link an open file into `folder`, or copy it, unless it is there; the path.

    If `durable`, its content is on the disk.
    """
    path = folder / f"{stem}.parquet"
    try:
        if not path.exists():
            os.link(file.name, path)
        if durable:
            os.fsync(file.fileno())
    except OSError:  # another file system, one without links, or its first name has gone
        file.seek(0)
        with _becoming(path, durable) as copy:
            shutil.copyfileobj(file, copy)
    return str(path)


def merge_inputs(folder: Path, stem: str, paths: Sequence[str], schema: pa.Schema, durable: bool) -> str:
    """Write the rows of files into one file of `schema`, unless it exists; its path.

    Not all are in memory at once.
    """
    return _write(folder, stem, gathered(paths, schema), durable)


@contextmanager
def _becoming(path: Path, durable: bool) -> Iterator[BinaryIO]:
    """File for atomic creation: renamed to `path` when complete.

    A file that has the name by then may be in use, and stays.
    """
    unfinished = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.part")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())
    if path.exists():
        unfinished.unlink()
    else:
        unfinished.replace(path)


def _write(folder: Path, stem: str, tables: Iterable[pa.Table], durable: bool) -> str:
    path = folder / f"{stem}.parquet"
    if not path.exists():
        rest = iter(tables)
        first = next(rest)
        with (
            _becoming(path, durable) as file,
            pq.ParquetWriter(file, first.schema, compression="lz4", use_dictionary=_repeats(first)) as writer,
        ):
            writer.write_table(first)
            for table in rest:
                writer.write_table(table)
    if durable:
        sync_folder(folder)
    return str(path)


def gathered(paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows of files in tables of row-group size.

    What Spark wrote says more in its schema than `schema` does.
    """
    batches: list[pa.RecordBatch] = []
    size = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                batches.append(batch)
                size += batch.nbytes
                if size >= _GROUP_BYTES:
                    yield _as(batches, schema)
                    batches, size = [], 0
    if batches:
        yield _as(batches, schema)


def _as(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Batches concatenated into one table of `schema`."""
    tables = [[batch.column(each.name).cast(each.type) for each in schema] for batch in batches]
    return pa.concat_tables([pa.Table.from_arrays(arrays, schema=schema) for arrays in tables])


def write_once(path: Path, content: bytes, durable: bool) -> bytes:
    """Create a small file atomically unless it exists; the first writer's content."""
    unfinished = path.with_name(f"{path.name}-{uuid.uuid4().hex}.part")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    try:
        os.link(unfinished, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not path.exists():
            unfinished.replace(path)
    unfinished.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)
    return path.read_bytes()


def named_by(epoch: int) -> str:
    """File name prefix for an epoch."""
    return f"{epoch:0{_DIGITS}}"


def epoch_of(path: Path) -> int:
    """Epoch in the name of an input file or output folder."""
    return int(path.name[:_DIGITS])


def deal_out(context: JobContext, files: Sequence[tuple[str, int]], workers: int) -> list[tuple[int, str]]:
    """Rename a run's output files after their workers; (worker, path), in order."""
    dealt = []
    for number, (file, _) in enumerate(files):
        path = Path(file)
        worker = number % workers
        named = path.with_name(f"{number:06}.w{worker}.parquet")
        path.rename(named)
        if context.durable:
            with named.open("rb") as opened:
                os.fsync(opened.fileno())
        dealt.append((worker, str(named)))
    if context.durable and files:
        folder = Path(files[0][0]).parent
        sync_folder(folder)
        sync_folder(folder.parent)
    return dealt


def read_output(path: str) -> pa.Table:
    """Columns of a file written by Spark, without Spark's metadata.

    Raises as `sound`.
    """
    return sound(pq.read_table(path, partitioning=None)).replace_schema_metadata(None)


def sound(rows: pa.Table) -> pa.Table:
    """The rows, checked for valid UTF-8 in text columns.

    Spark takes any bytes for text, and later readers rely on UTF-8.

    Raises:
        SparkError: names the column, and says what to do.
    """
    try:
        from libraries.connect.validation import check_sound  # not in Spark's processes: it loads Polars

        check_sound(rows)
    except ValueError as error:
        raise SparkError(
            f"{error}. Spark takes any bytes for text: have that column as binary, or with make_valid_utf8(...)"
        ) from error
    return rows


def write_output(folder: Path, tables: Iterable[pa.Table], rows: int) -> tuple[tuple[str, int], ...]:
    """Write output files like Spark's into a new folder; each path with its rows.

    A file has at most `rows` rows, or (0) any number.
    """
    folder.mkdir()
    written = []
    for number, table in enumerate(_pieces(tables, rows)):
        path = folder / f"part-{number:05}.parquet"
        pq.write_table(table, path, compression="lz4")
        written.append((str(path), len(table)))
    return tuple(written)


def _pieces(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Rows regrouped into tables for one file each.

    A table has at most `rows` rows, or (0) any number.
    """
    waiting: list[pa.Table] = []
    count = size = 0
    for table in tables:
        while rows and count + len(table) >= rows:
            yield pa.concat_tables([*waiting, table.slice(0, rows - count)])
            table = table.slice(rows - count)
            waiting, count, size = [], 0, 0
        waiting.append(table)
        count, size = count + len(table), size + table.nbytes
        if size >= _FILE_BYTES:
            yield pa.concat_tables(waiting)
            waiting, count, size = [], 0, 0
    if count:
        yield pa.concat_tables(waiting)


def output_name(epoch: int) -> str:
    """Unique name of an output folder for an epoch."""
    return f"{named_by(epoch)}-{uuid.uuid4().hex}"


def sweep_inputs(folder: Path, sweeps: Sequence[Sweep]) -> None:
    """Remove input files and published outcomes covered by `sweeps`."""
    for path in folder.glob("[0-9]*"):
        epoch = epoch_of(path)
        rows = path.suffix == ".parquet"
        if any(sweep.takes(epoch, str(path)) if rows else epoch <= sweep.upto for sweep in sweeps):
            with suppress(FileNotFoundError):
                path.unlink()


def sweep_outputs(folder: Path, upto: int, worker: int) -> None:
    """Remove output files for `worker` of epochs up to `upto`, and emptied folders."""
    for output in folder.iterdir():
        if int(output.name[:_DIGITS]) > upto:
            continue
        with suppress(FileNotFoundError):  # whoever removes the last file of it removes the folder
            remove(map(str, output.glob(f"*.w{worker}.parquet")))


def sweep_unfinished(folder: Path, upto: int) -> None:
    """Remove output folders up to epoch `upto` without files for workers.

    They are of attempts that were cut short.
    """
    for output in folder.iterdir():
        if epoch_of(output) <= upto and not any(output.glob("*.w*.parquet")):
            shutil.rmtree(output, ignore_errors=True)


def remove_inputs(paths: Iterable[str]) -> None:
    """Remove input files, but not their shared folder."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def remove(paths: Iterable[str]) -> None:
    """Remove files and the folders emptied by that.

    Nobody else may write into these folders.
    """
    folders = set()
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)
        folders.add(os.path.dirname(path))
    for folder in folders:
        with suppress(OSError):
            for name in os.listdir(folder):  # checksums of Hadoop, which belong to no file any more
                if name.startswith("."):
                    os.unlink(os.path.join(folder, name))
            os.rmdir(folder)


def sync_folder(folder: Path) -> None:
    """Sync a folder, to make its names durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _repeats(table: pa.Table) -> list[str]:
    """Text columns worth dictionary encoding, judged by their first values."""
    import pyarrow.compute as pc

    chosen = []
    for name in table.column_names:
        if pa.types.is_string(table.schema.field(name).type):
            few = table.column(name).slice(0, 1024)
            if 2 * pc.count_distinct(few).as_py() <= len(few):
                chosen.append(name)
    return chosen
