"""Gate: holds the output of a region until recovery rules out its rollback.

A batch in front of a gate waits in the queue of its input. It counts as outstanding work of its time, so no operator
behind the gate takes that time for complete. `Worker.open` lets it through. Without recovery gates are open.
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
