"""Unique attempt numbers for an epoch, across workers and failures.

A file stands for each, among the input files of the epoch (`libraries.spark.files.parquet`), and goes with them.

    in/<epoch>-<number>.attempt
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from libraries.spark.files.parquet import named_by, sync_folder


def claim_attempt(folder: Path, epoch: int, durable: bool) -> int:
    """Claim the next attempt number of an epoch."""
    for number in count():
        try:
            os.close(
                os.open(folder / f"{named_by(epoch)}-{number}.attempt", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            )
        except FileExistsError:
            continue
        if durable:
            sync_folder(folder)
        return number
    raise AssertionError  # there is always one more
