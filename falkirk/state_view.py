"""`falkirk state`: saved state of operators, printed or written to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
from rich.console import Console

from falkirk.saved_state import StoreReader, one_table
from falkirk.tables import print_table, short_path
from recovery.store.address import StoreAddress
from runtime.program import Program
from timely.errors import FalkirkError

_MOST_EPOCHS = 5
"""Most epochs shown of an operator."""

_WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".csv": lambda frame, path: frame.write_csv(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
}


def list_states(program: Program, store: StoreAddress) -> int:
    """Print the operators with saved state; exit code 0. Raises FalkirkError."""
    found = StoreReader(program, store).operators()
    if not found:
        print(f"no operator has saved state in {store} yet")
        return 0
    rows = []
    for each in found:
        epochs = [_epoch(epoch) for epoch in each.epochs]
        more = f", {len(epochs) - _MOST_EPOCHS} earlier" if len(epochs) > _MOST_EPOCHS else ""
        rows.append((each.name, each.kind, short_path(each.site), each.state, ", ".join(epochs[:_MOST_EPOCHS]) + more))
    print_table(_console(), ("operator", "kind", "made at", "state", "saved after epoch"), rows)
    return 0


def show_state(
    program: Program,
    store: StoreAddress,
    operator: str,
    at: int | None,
    since: int | None,
    out: str | None,
    rows: int,
) -> int:
    """Print the state of an operator, or write it to `out`; exit code 0.

    Raises FalkirkError.
    """
    path = Path(out) if out is not None else None
    if path is not None and path.suffix not in _WRITERS:
        raise FalkirkError(f"{path}: the name of the file must end in {', '.join(_WRITERS)}")
    tables = StoreReader(program, store).table(operator, at, since)
    if path is not None:
        frame = one_table(tables)
        try:
            _WRITERS[path.suffix](frame, path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise FalkirkError(f"{path} cannot be written: {error}; a .parquet file can hold any columns") from error
        print(f"{len(frame):,} rows of {operator} are in {path}")
        return 0
    if not tables:
        print(f"{operator} has no rows there")
    for part, frame in tables.items():
        print(
            f"{operator}, part {part}: {len(frame):,} rows" if len(tables) > 1 else f"{operator}: {len(frame):,} rows"
        )
        cells = [tuple(map(_cell, row)) for row in frame.head(rows).iter_rows()]
        numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
        print_table(_console(), frame.columns, cells, right=numbers)
        if len(frame) > rows:
            print(f"... {len(frame) - rows:,} more: --rows, or -o FILE")
    return 0


def _console() -> Console:
    return Console(width=None if os.isatty(1) else 120, highlight=False, markup=False)


def _epoch(epoch: int | None) -> str:
    return "end" if epoch is None else str(epoch)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
