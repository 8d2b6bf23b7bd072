"""Fusion of regions: a region with a single consumer runs within its query.

All processors of both regions are there, with their names. In the place of its *compute* the first has *hand on*
(`HandOn`), which gives the files of a run to the gather behind, in the place of those that would
have come of the run; and the run of the second does the steps of both. Which steps are fused is known when the graph is whole:
when the factories of its operators are called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from libraries.columns.verbs.columns import Columns
from libraries.spark.dataflow.views import View, Viewed
from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer, Deliveries, Delivering, pass_on
from libraries.spark.files.manifest import Calendar, Manifested, ManifestEntry
from libraries.spark.files.reads import Reads
from libraries.spark.files.sweeping import Sweep, last_epoch
from libraries.spark.setup.options import SparkOptions
from timely.data.batch import Batch
from timely.dataflow.graph import Graph, Region
from timely.operators.base import Context, JobContext, Operator
from timely.time import Frontier, Time


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Region on Spark, as a candidate for fusion with its neighbours."""

    name: str
    graph: Graph
    around: Region | None
    """Region of the dataflow around it."""
    inputs: Mapping[str, Columns | View]
    queries: Sequence[Viewed]
    """Queries of its views, then its own, without a name."""
    given: Mapping[str, Any]
    """Tables, as given by the user."""
    paths: Mapping[str, str]
    """Tables given as paths."""
    others: Mapping[str, Any]
    """All other tables, in a serializable form."""
    streams: Sequence[str]
    """Names of its input streams."""
    learns: Mapping[str, Reads]
    """Column usage of streams, for those with usage reported by Spark."""
    calendar: Calendar
    options: SparkOptions
    plain: bool
    """True for a function or SQL over new rows only, after a fixed number of epochs."""
    keep: bool
    """True if its results are to be kept in files."""
    read: int
    """Index of the node for reading its rows back."""
    handed: Deliveries

    @property
    def reads(self) -> bool:
        """True if an operator of the dataflow reads its rows."""
        return any(edge.source.node == self.read for edge in self.graph.edges)

    def whole(self) -> Step:
        """This step with all steps fused with it, over the streams of the first."""
        (name,) = self.inputs if len(self.inputs) == 1 else ("",)
        before = self._before(name)
        if before is None:
            return self
        first = before.whole()
        known = f"{name}_"
        queries = [
            each._replace(
                name=f"{known}{each.name}" if each.name else name,
                inputs=tuple((within, f"{known}{stream}") for within, stream in each.inputs),
                region=each.region or before.name,
                kept=each.kept or not each.name,
            )
            for each in first.queries
        ]
        return replace(
            self,
            queries=[*queries, *self.queries],
            given={**first.given, **self.given},
            paths={**first.paths, **self.paths},
            others={**first.others, **self.others},
            streams=[f"{known}{each}" for each in first.streams],
            learns={f"{known}{each}": reads for each, reads in first.learns.items()},
        )

    def fused_with(self) -> Consumer | None:
        """Consumer region with this step in its query; None if there is none."""
        steps = [node.factory.step for node in self.graph.nodes if isinstance(node.factory, RegionReading)]
        for each in self.handed.consumers:
            if any(step.name == each.region and step._before(each.input) is self for step in steps):
                return each
        return None

    def _before(self, name: str) -> Step | None:
        """Step fused with this one as its only input `name`; None if there is none."""
        stream = self.inputs.get(name)
        if not isinstance(stream, Columns) or len(self.inputs) > 1 or len(stream.outputs) > 1:
            return None
        factory = self.graph.nodes[stream.outputs[0].node].factory
        return factory.step if isinstance(factory, RegionReading) and factory.step._suits(self) else None

    def _suits(self, then: Step) -> bool:
        """True if `then` can run this step too: as only consumer, configured alike."""
        separate = len(self.handed.consumers) == 1 and not self.reads
        alike = (self.around, self.calendar, self.options) == (then.around, then.calendar, then.options)
        told = any(each.empty for each in then.handed.consumers)  # of runs, of which there would be more
        # A table has one name in all of a run.
        clash = any(then.given.get(name, given) is not given for name, given in self.whole().given.items())
        return self.plain and then.plain and separate and alike and not (self.keep or told or clash)


@dataclass(frozen=True, slots=True)
class RegionReading(Delivering):
    """Factory of a region's *read*, for lookup of the region from downstream."""

    step: Step = field(kw_only=True)


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
