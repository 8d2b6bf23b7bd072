"""Gate: holds the output of a region until recovery rules out its rollback.

A batch in front of a gate waits in the queue of its input, and counts as work outside of this worker, so that nobody behind
takes its time for complete. `Worker.open` lets it through. Without recovery gates stand open.
"""

from __future__ import annotations

from timely.data.batch import Batch
from timely.operators.base import Context, Operator
from timely.time import Time


class Gate(Operator):
    """Passes every batch on unchanged."""

    repeats_over = "record"
    keeps_batches = True

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        ctx.out.append((0, time, batch))
