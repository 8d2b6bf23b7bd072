"""The gate: where what leaves a region waits until recovery says that nothing in that region can take it back.

A batch in front of a gate waits in the queue of its input, and counts as work outside of this worker, so that nobody behind
takes its time for complete. `Worker.open` lets it through. Without recovery gates stand open.
"""

from __future__ import annotations

from timely.data.batch import Batch
from timely.operators.base import Context, Operator
from timely.time import Time


class Gate(Operator):
    """Passes on what comes."""

    repeats_over = "record"
    keeps_batches = True

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        ctx.out.append((0, time, batch))
