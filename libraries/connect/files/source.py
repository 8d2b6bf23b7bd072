"""Base of all file sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from libraries.connect.files.discovery import Paths, find_files
from libraries.connect.files.epochs import EpochRule, EpochSpec, check_spec, epoch_column
from libraries.connect.files.partition import BlockReader, FilePartition
from timely.errors import SourceError, at_line
from timely.io.arguments import paths
from timely.io.column_types import Schema, arrow_types, polars_schema
from timely.io.interface import Partition

_OPTIONS = """\
    Several files are read side by side: an epoch has a piece of each, and is over when it is over in every file. Where they
    follow one another, as those of days do for windows over event time, say `epoch="file"`. `columns` picks and orders
    columns; `schema` gives types of columns by name, as Arrow, Polars or Python write them: a column that is not named keeps
    the type that the file gives it. Rows come as Arrow tables, or as dicts with `as_records=True`. Files can be re-read from
    any position.

    Raises:
        SourceError: `path`, `epoch` or `columns` is none.
        GraphError: `schema` names a type that columns do not have.

"""
"""Documentation of the options of all file sources."""


class FileSource(ABC):
    """Base of file sources: a file is a partition, read by worker i mod W.

    i is its place in the sorted list of files. Subclasses have `_OPTIONS` in their documentation, before the example.
    """

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]]
    partition_type: ClassVar[type[FilePartition]] = FilePartition

    def __init_subclass__(cls) -> None:
        text, example, shown = (cls.__doc__ or "").partition("    >>> ")
        cls.__doc__ = f"{text}{_OPTIONS if example else ''}{example}{shown}"

    def __init__(
        self,
        path: Paths,
        *,
        epoch: EpochSpec = "batch",
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        as_records: bool = False,
    ) -> None:
        check_spec(epoch)
        if columns is not None and (isinstance(columns, str) or len(set(columns)) != len(list(columns))):
            raise SourceError(at_line(f"columns={columns!r}: must be a list of names, each once."))
        self.path = paths(path, type(self).__name__)
        self.epoch = epoch
        self.columns = None if columns is None else list(columns)
        self.types: dict[str, Any] = {} if schema is None else dict(arrow_types(schema))
        self.as_records = as_records

    @property
    def layout_free(self) -> bool:
        """True if each file is read whole by one worker."""
        return True

    @property
    def deals_epochs(self) -> bool:
        """True if an epoch is a file, read by one worker.

        See `timely.io.interface.deals_epochs`.
        """
        return self.epoch == "file"

    @property
    def wanted(self) -> list[str] | None:
        """Columns to read: those asked for, and the epoch column."""
        extra = epoch_column(self.epoch)
        if self.columns is None or extra is None or extra in self.columns:
            return self.columns
        return [*self.columns, extra]

    def columns_schema(self) -> pl.Schema | None:
        """Schema of the columns asked for, if each has a type given."""
        if self.as_records or self.columns is None or any(name not in self.types for name in self.columns):
            return None
        return polars_schema(pa.schema([(name, self.types[name]) for name in self.columns]))

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Files of this worker.

        Looks at names and at the first file only; the others are opened when read.
        """
        files = find_files(self.path, self.suffixes)
        self._learn(files[0])
        return [
            partition for index, file in enumerate(files) for partition in self._of_file(file, index, worker, workers)
        ]

    def _of_file(self, file: Path, index: int, worker: int, workers: int) -> list[FilePartition]:
        return [self._partition(str(file), file, index, 0, 1)] if index % workers == worker else []

    def _partition(self, name: str, file: Path, index: int, share: int, shares: int) -> FilePartition:
        rule = EpochRule(self.epoch, str(file), index)
        hidden = frozenset(self.wanted or ()) - frozenset(self.columns or ())
        return self.partition_type(name, file, lambda: self._open(file, share, shares), rule, self.as_records, hidden)

    @abstractmethod
    def _learn(self, first: Path) -> None:
        """Settle column types from the first file, for all files of the source."""

    @abstractmethod
    def _open(self, file: Path, share: int, shares: int) -> BlockReader:
        """Reader of part `share` of `shares` of the file."""


def missing_columns(path: Path, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Raise SourceError if the file lacks a wanted column."""
    lacking = [name for name in dict.fromkeys(wanted) if name not in there]
    if lacking:
        raise SourceError(
            f"{path}: there is no column {', '.join(map(repr, lacking))}. It has: {', '.join(map(repr, there))}."
        )
