"""Micro-batches of a streaming query on disk: a folder each, a share per worker."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from libraries.spark.errors import SparkError

CHECKPOINT = "checkpoint"
"""Subfolder for Spark's checkpoint."""

_END = "end"
_BATCH = "batch-"


def batch_folder(folder: Path, number: int) -> Path:
    """Folder of a micro-batch."""
    return folder / f"{_BATCH}{number:012}"


def share_folder(batch: Path, worker: int) -> Path:
    """Folder with the share of `worker` in a micro-batch."""
    return batch / f"w{worker:03}"


def batches(folder: Path) -> list[int]:
    """Existing micro-batches, in order."""
    return sorted(int(name.removeprefix(_BATCH)) for name in os.listdir(folder) if name.startswith(_BATCH))


def last_batch(folder: Path) -> int:
    """Latest micro-batch so far; -1 if there was none."""
    return max(batches(folder), default=-1)


def share_files(folder: Path, number: int, worker: int) -> list[Path] | None:
    """Files of a micro-batch for `worker`, in order; None if not there, or forgotten."""
    share = share_folder(batch_folder(folder, number), worker)
    return sorted(share.glob("*.parquet")) if share.is_dir() else None


def forget(folder: Path, before: int, worker: int) -> None:
    """Remove shares of `worker` in batches before `before`, but no last folder."""
    known = batches(folder)
    for number in known:
        if number >= before:
            break
        batch = batch_folder(folder, number)
        shutil.rmtree(share_folder(batch, worker), ignore_errors=True)
        if number != known[-1]:
            with suppress(OSError):  # others have not read theirs
                batch.rmdir()


def set_end(folder: Path, last: int) -> None:
    """Record `last` as the last batch of the query."""
    hidden = folder / f".{_END}"
    with hidden.open("w") as file:
        file.write(str(last))
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(folder / _END)


def end(folder: Path) -> int | None:
    """Last batch of an ended query; None before its end, SparkError for damage."""
    try:
        text = (folder / _END).read_bytes()
    except FileNotFoundError:
        return None
    if not re.fullmatch(rb"-?\d{1,18}", text):
        raise SparkError(f"{folder / _END} should hold the number of the last batch, and holds {text[:50]!r}")
    return int(text)
