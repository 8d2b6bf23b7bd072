"""File source of the format given by the file name."""

from __future__ import annotations

import os
from typing import Any

from libraries.connect.files.csv import Csv
from libraries.connect.files.discovery import Paths
from libraries.connect.files.json_lines import JsonLines
from libraries.connect.files.parquet import Parquet
from libraries.connect.files.source import FileSource
from timely.errors import SourceError, at_line

_KINDS: tuple[type[FileSource], ...] = (Csv, JsonLines, Parquet)


def Files(path: Paths, **options: Any) -> FileSource:
    """`Csv`, `JsonLines` or `Parquet` by the ending of `path`: `Files("data/*.csv")`.

    Takes the options of that source.

    >>> from pathlib import Path
    >>> size = Path("names-1.csv").write_text("name\\nann\\n")
    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("names", falkirk.Files("names-*.csv", as_records=True)).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [{'name': 'ann'}])]
    """
    first = path if isinstance(path, str | os.PathLike) else next(iter(path), "")
    name = os.fspath(first).lower()
    for kind in _KINDS:
        if name.endswith(kind.suffixes):
            return kind(path, **options)
    endings = ", ".join(ending for kind in _KINDS for ending in kind.suffixes)
    raise SourceError(
        at_line(
            f"{os.fspath(first)}: the format cannot be told from this name. Use a name or glob that ends in one "
            f"of {endings}, or say Csv(...), JsonLines(...) or Parquet(...)."
        )
    )
