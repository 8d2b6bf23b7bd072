"""*Hand on*: replaces *compute* in a region fused with its only consumer."""

from __future__ import annotations

from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer, pass_on
from libraries.spark.files.manifest import Calendar, Manifested, ManifestEntry
from libraries.spark.files.sweeping import Sweep, last_epoch
from timely.data.batch import Batch
from timely.operators.base import Context, JobContext, Operator
from timely.time import Frontier, Time


class HandOn(Operator):
    """Passes the files of each run to the one consumer, renamed; runs on one worker.

    Port 0, for *read*, has nothing. What the files of this region are needed for is over with that: the consumer's names for
    them go by its rules.
    """

    transient = ("_upto",)
    repeats = True
    repeats_over = "time"

    def __init__(self, region: str, calendar: Calendar, consumer: Consumer) -> None:
        self._region = region
        self._calendar = calendar
        self._consumer = consumer
        self._upto = -1

    def on_watermark(self, frontier: Frontier) -> None:
        self._upto = last_epoch(frontier)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        epoch, worker, upto = time[0], ctx.worker, self._upto
        for run in batch:
            ctx.start(lambda context, run=run: self._pass_on(context, epoch, worker, run, upto), context=True)

    def _pass_on(self, context: JobContext, epoch: int, worker: int, run: Manifested, upto: int) -> list[ManifestEntry]:
        """Pass the files of a run on, in a thread of the driver."""
        entries = pass_on(context, self._consumer, epoch, worker, run)
        if context.durable:
            safe = Sweep(upto, self._calendar.needed_after(upto) if upto >= 0 else 0, None)
            files.sweep_inputs(context.folder(f"{self._region}/in"), [safe])
        else:  # nothing is ever rolled back
            files.remove_inputs(entry.path for entry in run[1])
        return entries

    def on_result(self, ctx: Context, time: Time, result: list[ManifestEntry]) -> None:
        ctx.send(result, 1)
