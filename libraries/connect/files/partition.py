"""One file as a partition: read block by block, re-readable from any chunk.

A *block* is what a format reads at once: a Parquet row group, or so many bytes of whole lines. It can be
found again from its place alone, which makes `seek` cheap however far into the file it leads. Epochs cut a
block into chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from libraries.connect.files.discovery import fingerprint
from libraries.connect.files.epochs import Block, EpochRule
from timely.data.batch import Batch, as_arrow, length
from timely.errors import SourceError
from timely.io.descriptors import with_descriptors
from timely.io.interface import Chunk, End, Position

RECORDS_A_CHUNK = 1 << 16
"""Rows converted to Python dicts at once.

A dict takes many times the memory of its row in a table.
"""


class BlockStart(msgspec.Struct, frozen=True):
    """Start of a block: its number, format-specific address, and rows before it.

    The address is a byte or a row group.
    """

    index: int = 0
    at: int = 0
    row: int = 0


class BlockReader(Protocol):
    """Block reader of a file format."""

    def ended(self, place: BlockStart) -> bool:
        """True if nothing is left at `place`."""

    def read(self, place: BlockStart) -> tuple[Batch, int, BlockStart]:
        """Block at `place`, the number of its first row, and the place after it."""

    def close(self) -> None:
        """Release the file."""


class FilePartition:
    """Partition over one file, or over a worker's share of it.

    `open_file` is called at the first read, so that a folder of many files holds few open files. Positions
    are dicts of plain values; they carry the file's fingerprint, and `seek` refuses a file that has changed.
    Columns that are `hidden` are read for the epochs alone and not handed out.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        open_file: Callable[[], BlockReader],
        rule: EpochRule,
        as_records: bool,
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self._path = path
        self._open_file = open_file
        self._rule = rule
        self._as_records = as_records
        self._hidden = hidden
        self._reader: BlockReader | None = None
        self._ready: deque[Chunk] = deque()
        self._fingerprint = ""
        self._rewind(BlockStart(), before=0, announced=False)

    def _rewind(self, place: BlockStart, before: int, announced: bool) -> None:
        self._place = place
        self._before = before
        self._announced = announced
        self._ready.clear()

    def read(self) -> Chunk | End:
        """Read the next chunk.

        A file that starts above epoch 0 first announces its epoch, before it is opened for reading: a driver can
        then read the files of a folder in the order of their epochs.
        """
        if not self._fingerprint:
            self._fingerprint = with_descriptors(lambda: fingerprint(self._path))
        if not self._announced:
            self._announced = True
            if self._rule.start > 0:
                return Chunk(self._rule.start, None, self._position(self._place, 0, 0))
        if self._reader is None:
            self._reader = with_descriptors(self._open_file)
        while not self._ready:
            if self._reader.ended(self._place):
                return End()
            self._read_block(self._reader, skip=0)
        return self._ready.popleft()

    def _read_block(self, reader: BlockReader, skip: int) -> None:
        """Queue the chunks of the next block after its first `skip` rows."""
        data, first_row, after = reader.read(self._place)
        rows, here, before = length(data), self._place, self._before
        if skip > rows:
            raise SourceError(
                f"{self.name}: the position to read on from is {skip - rows} rows behind the end of a block."
            )
        pieces = self._rule.pieces(Block(data, here.index, first_row, reader.ended(after)), before)
        for piece in pieces:
            step = RECORDS_A_CHUNK if self._as_records else max(rows, 1)
            start = piece.start
            while True:
                stop = min(piece.stop, start + step)
                if stop > skip or rows == 0:
                    done = stop == rows
                    position = self._position(after, 0, piece.epoch) if done else self._position(here, stop, before)
                    part = self._part(data, start, stop) if stop > start else None
                    self._ready.append(Chunk(piece.epoch, part, position, piece.closes and stop == piece.stop))
                start = stop
                if start >= piece.stop:
                    break
        self._place = after
        self._before = pieces[-1].epoch if pieces else before

    def _part(self, data: Batch, start: int, stop: int) -> Batch:
        if isinstance(data, list):
            records = data[start:stop]
            if self._hidden:
                return [{k: v for k, v in record.items() if k not in self._hidden} for record in records]
            return records
        table = as_arrow(data).slice(start, stop - start).drop_columns(list(self._hidden))
        return table.to_pylist() if self._as_records else table

    def _position(self, place: BlockStart, skip: int, before: int) -> Position:
        return {
            "file": self._fingerprint,
            "block": place.index,
            "at": place.at,
            "row": place.row,
            "skip": skip,
            "before": before,
        }

    def seek(self, position: Position) -> None:
        """Read on from `position`.

        Raises SourceError if the file has changed since.
        """
        if position is None:
            self._rewind(BlockStart(), before=0, announced=False)
            return
        mark, start, skip, before = self._parts_of(position)
        self.close()
        self._fingerprint = with_descriptors(lambda: fingerprint(self._path))
        if self._fingerprint != mark:
            raise SourceError(
                f"{self._path}: the file has changed since the position to read on from was taken. Put the "
                "original file back, or start the job afresh."
            )
        self._rewind(start, before, announced=True)
        if skip:
            self._reader = with_descriptors(self._open_file)
            self._read_block(self._reader, skip)

    def _parts_of(self, position: Position) -> tuple[str, BlockStart, int, int]:
        """Parsed position: fingerprint, block start, rows to skip, previous row's epoch.

        Raises SourceError if it is none of a file.
        """
        match position:
            case {
                "file": str(mark),
                "block": int(index),
                "at": int(at),
                "row": int(row),
                "skip": int(skip),
                "before": int(before),
            } if min(index, at, row, skip, before) >= 0:
                return mark, BlockStart(index, at, row), skip, before
        raise SourceError(f"{self.name}: {position!r} is not a position of a file. Was the source changed?")

    def ack(self, position: Position) -> None:
        """No-op: files stay."""

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
