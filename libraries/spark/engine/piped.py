"""Batches in Python within Spark's tasks: read from sources, mapped by functions.

A source's partitions are dealt out among tasks as they are among workers. It is read again whenever Spark wants its rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import cloudpickle
import polars as pl
import pyarrow as pa

from libraries.spark.dataflow.runner import pack
from libraries.spark.engine.types import EPOCH, arrow_schema
from libraries.spark.files.parquet import sound
from timely.data.batch import Batch, as_arrow, as_polars, is_columns
from timely.data.codec import encode_batch
from timely.errors import SourceError
from timely.io.interface import Chunk, End
from timely.operators.stateless import Stage, stage_error

Timed = tuple[int, Batch]
"""Batch with its epoch."""

HANDED = f"`{EPOCH}` bigint, header binary, payload binary"
"""Columns of batches on their way out of the tasks."""


@dataclass(frozen=True)
class Piped:
    """Serializable pipe of batches: a source or a view's rows, followed by stages."""

    packed: bytes
    called: str
    columns: pl.Schema | None

    @classmethod
    def of_source(cls, source: Any, called: str, stages: tuple[Stage, ...]) -> Self:
        """Pipe from a source.

        Raises SparkError for what cannot be serialized.
        """
        return cls(_packed(source, stages, called), called, None)

    @classmethod
    def behind(cls, columns: pl.Schema, stages: tuple[Stage, ...]) -> Self:
        """Pipe from the rows of a view.

        Raises SparkError for what cannot be serialized.
        """
        return cls(_packed(None, stages, "a function of the program"), "", columns)

    @cached_property
    def _unpacked(self) -> tuple[Any, tuple[Stage, ...]]:
        source, stages = cloudpickle.loads(self.packed)
        return source, stages

    def schema(self) -> pl.Schema | None:
        """Columns of the first non-empty batch; None for records, or without any batch."""
        source, stages = self._unpacked
        if not stages and hasattr(source, "columns_schema") and (known := source.columns_schema()) is not None:
            return known  # type: ignore[no-any-return]
        for _, batch in self._through(self._read(0, 1)):
            return as_polars(batch).schema if is_columns(batch) else None
        return None

    def rows(self, given: Iterable[pa.RecordBatch], schema: pl.Schema) -> Iterator[pa.RecordBatch]:
        """Rows as columns of `schema` with their epochs; input: a view, or task numbers."""
        arrow = arrow_schema(schema)
        for epoch, batch in self._batches(given):
            frame = as_polars(batch)
            if dict(frame.schema) != dict(schema):
                raise SourceError(
                    f"{self.called}: the columns of a batch of epoch {epoch} are {dict(frame.schema)}, and not, as those "
                    f"before, {dict(schema)}"
                )
            table = as_arrow(frame.select(schema.names())).cast(arrow)
            table = table.add_column(0, pa.field(EPOCH, pa.int64()), pa.array([epoch] * len(table), pa.int64()))
            yield from table.to_batches()

    def handed(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encoded batches with their epochs, for the way out of Spark."""
        for epoch, batch in self._batches(given):
            header, payload = encode_batch(batch)
            yield pa.RecordBatch.from_pydict(
                {EPOCH: [epoch], "header": [bytes(header)], "payload": [b"".join(map(bytes, payload))]}
            )

    # ------------------------------------------------------------------------------------------ batches

    def _batches(self, given: Iterable[pa.RecordBatch]) -> Iterator[Timed]:
        if self.columns is not None:
            yield from self._through(self._of_view(given, self.columns))
            return
        for batch in given:
            for task, tasks in zip(batch["task"].to_pylist(), batch["tasks"].to_pylist(), strict=True):
                yield from self._through(self._read(task, tasks))

    def _of_view(self, given: Iterable[pa.RecordBatch], columns: pl.Schema) -> Iterator[Timed]:
        for batch in given:
            frame = as_polars(sound(pa.Table.from_batches([batch])))
            for (epoch,), rows in frame.group_by(EPOCH, maintain_order=True):
                yield int(epoch), rows.select(columns.names()).cast(columns)

    def _read(self, task: int, tasks: int) -> Iterator[Timed]:
        source, _ = self._unpacked
        for partition in source.partitions(task, tasks):
            try:
                while not isinstance(chunk := partition.read(), End):
                    if not isinstance(chunk, Chunk):
                        raise SourceError(
                            f"{self.called}: it waits for what comes later, and on Spark alone a source must end"
                        )
                    if chunk.data is not None and len(chunk.data):
                        yield chunk.epoch, chunk.data
            finally:
                partition.close()

    def _through(self, batches: Iterable[Timed]) -> Iterator[Timed]:
        """Batches after all stages."""
        _, stages = self._unpacked
        for epoch, batch in batches:
            for stage in stages:
                try:
                    batch = stage.apply(batch)
                except Exception as error:
                    raise stage_error(stage, (epoch,), batch, error) from error
                if not len(batch):
                    break
            else:
                yield epoch, batch


def _packed(source: Any, stages: tuple[Stage, ...], called: str) -> bytes:
    """Serialized source and stages, with the program's functions by value."""
    held = [type(source), *getattr(source, "__dict__", {}).values()]
    for stage in stages:
        held += [cell.cell_contents for cell in getattr(stage.apply, "__closure__", None) or ()]
    return pack((source, stages), called, filter(callable, held))
