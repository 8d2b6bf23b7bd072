"""A region's runner for tests of everything around Spark: runs a function from Arrow tables to one in the job's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from timely.operators.base import JobContext


class LocalRunner:
    """Reads and writes files as Spark does.

    Of each run `ran` has the epoch, and `tables` the files of its tables; `before` is told of both.
    """

    def __init__(self, function: Callable[..., pa.Table], rows: int = 3) -> None:
        self.function = function
        self.rows = rows
        self.ran: list[int] = []
        self.warmed = 0
        self.before: Callable[[int], None] = lambda epoch: None
        self.tables: list[Mapping[str, Any]] = []
        """Of each run that has begun."""
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: object) -> LocalRunner:
        return self

    def warm(self) -> None:
        """Count it."""
        self.warmed += 1

    def run(
        self,
        context: JobContext,
        inputs: Mapping[str, tuple[bytes, list[str]]],
        tables: Mapping[str, Any],
        output: str,
        rows: int,
    ) -> tuple[tuple[str, int], ...]:
        """Run the function, which is not given the tables."""
        epoch = int(Path(output).name.split("-")[0])
        self.tables.append(tables)
        self.before(epoch)
        tables = []
        for schema, files in inputs.values():
            arrow = pa.ipc.read_schema(pa.py_buffer(schema))
            read = [pq.read_table(file) for file in files]
            assert all(table.schema == arrow for table in read)
            tables.append(pa.concat_tables(read) if read else arrow.empty_table())
        found = self.function(*tables)
        folder = Path(output)
        folder.mkdir()
        written = []
        for number, start in enumerate(range(0, len(found), self.rows)):
            path = folder / f"part-{number:05}.parquet"
            pq.write_table(found.slice(start, self.rows), path)
            written.append((str(path), min(self.rows, len(found) - start)))
        with self._lock:
            self.ran.append(epoch)
        return tuple(written)
