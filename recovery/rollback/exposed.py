"""Unsafe records of a worker: to be handled again after a rollback, by epoch.

A table for the monitor, which knows to which bounds a failure would lead, and not how much was done since. It has a row for
each epoch that a rollback is likely to lead to: low-watermarks, checkpoints, what is complete, and the newest epochs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recovery.memory.recorder import WorkerRecorder
from recovery.protocol import END, Exposed

MOST_EPOCHS = 16
"""Most rows of a table."""

_NEWEST = 6
"""Rows for the newest epochs."""


def exposed(recorder: WorkerRecorder, cuts: Iterable[int], seconds: float) -> Exposed:
    """Table of the records handled at or after an epoch, and not kept for good.

    Args:
        cuts: epochs that rollbacks are likely to lead to.
        seconds: as in `recovery.rollback.queues.cost`.
    """
    handled = recorder.handled
    sizes = [len(counts) for counts in handled]
    total = sum(sizes)
    epochs = np.fromiter((time[0] for counts in handled for time in counts), np.int64, total)
    np.minimum(epochs, END, out=epochs)  # what comes at the end of all input
    records = np.fromiter((count for counts in handled for count in counts.values()), np.int64, total)
    known = np.unique(epochs).tolist()
    likely = sorted(at for at in set(cuts) if at <= END)
    begins = sorted({0, *likely[-(MOST_EPOCHS - _NEWEST - 1) :], *known[-_NEWEST:]})
    row = np.searchsorted(np.array(begins, np.int64), epochs, side="right") - 1
    place = row * len(handled) + np.repeat(np.arange(len(handled)), sizes)
    counts = np.bincount(place, records, len(begins) * len(handled)).astype(np.int64)
    table = counts.reshape(len(begins), len(handled))
    each = seconds / recorder.records if recorder.records else None
    return Exposed(tuple(begins), table[::-1].cumsum(axis=0)[::-1].tobytes(), each)
