"""The micro-batches of a streaming query on disk, for those who read them: a folder for each, in it a share for each worker."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from libraries.spark.errors import SparkError

CHECKPOINT = "checkpoint"
"""Spark's own part of the folder."""

_END = "end"
_BATCH = "batch-"


def batch_folder(folder: Path, number: int) -> Path:
    """The folder of a micro-batch."""
    return folder / f"{_BATCH}{number:012}"


def share_folder(batch: Path, worker: int) -> Path:
    """The share of `worker` in a micro-batch."""
    return batch / f"w{worker:03}"


def batches(folder: Path) -> list[int]:
    """The micro-batches that are there, in order."""
    return sorted(int(name.removeprefix(_BATCH)) for name in os.listdir(folder) if name.startswith(_BATCH))


def last_batch(folder: Path) -> int:
    """The last micro-batch that was ever there; -1 if there was none."""
    return max(batches(folder), default=-1)


def share_files(folder: Path, number: int, worker: int) -> list[Path] | None:
    """The files of a micro-batch that are for `worker`, in order; None if it is not there, or has been forgotten."""
    share = share_folder(batch_folder(folder, number), worker)
    return sorted(share.glob("*.parquet")) if share.is_dir() else None


def forget(folder: Path, before: int, worker: int) -> None:
    """Nobody will read what is for `worker` in the batches before `before` any more. The last batch's folder stays."""
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
    """Say that there will be no batch after `last`."""
    hidden = folder / f".{_END}"
    with hidden.open("w") as file:
        file.write(str(last))
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(folder / _END)


def end(folder: Path) -> int | None:
    """The last batch of a query that has ended; None if it has not. Raises SparkError if the file that says so is damaged."""
    try:
        text = (folder / _END).read_bytes()
    except FileNotFoundError:
        return None
    if not re.fullmatch(rb"-?\d{1,18}", text):
        raise SparkError(f"{folder / _END} should hold the number of the last batch, and holds {text[:50]!r}")
    return int(text)
