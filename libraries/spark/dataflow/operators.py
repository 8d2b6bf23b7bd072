"""Operators of a batch region: spill, gather, compute, read.

    columns → spill (each worker) ⇉ gather (one worker) → compute (there) ⇉ read (each worker) → columns

*Spill* writes what came of an epoch into Parquet files. *Gather* is told of the files and keeps the manifest: that is its
state, and all that its checkpoint holds. At an epoch that is due it sends the files of the run to *compute*, which keeps
nothing from one time to the next but a run that a period has left out, and has Spark run them. *Read* brings what came out
back, each worker its share. To regions and tables behind it compute hands the files over as they are; where nobody else takes
the rows, read has nothing to do. All edges between them carry only names of files, and are logged: so a failure of one of them
makes no other work again, and once the files that Spark wrote are durable the run is never done again (a firewall; Isard and
Abadi, *Falkirk Wheel*, section 4.1). Where later runs are over the same rows gather also merges small files, before it sends
a run.

All of them do the same again, given the same: files of rows have names for these rows, gather has them in the order of their
names, and what came of a run is published under a name for its input (`libraries.spark.files.published`). So whoever lives
keeps what it has of the epochs behind a region.

Rows never pass through these operators' Python objects: they are in Arrow tables, and then in files.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from libraries.spark.dataflow.placement import home, keys_of
from libraries.spark.dataflow.skipped_runs import SkippedRuns
from libraries.spark.errors import SparkError
from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer, hand_over, write_for
from libraries.spark.files.manifest import Calendar, Manifest, Manifested, ManifestEntry, Merge, entries_of
from libraries.spark.files.pinned import pin_once
from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.files.published import Outcome, name_of, published
from libraries.spark.files.schemas import read_schema
from libraries.spark.files.small import Written
from libraries.spark.files.sweeping import Named, Sweep, last_epoch, named
from timely.data.batch import Batch, is_columns, nbytes
from timely.data.codec.tables import read_table
from timely.operators.base import Capability, Context, JobContext, Operator
from timely.state import TimedBatches
from timely.time import INF, Frontier, Time, visible

SPILL_BYTES = 64 << 20
"""Bytes buffered in memory before a file is written.

An epoch of any size passes through.
"""


class Runner(Protocol):
    """Interface to the executor of a region's function: Spark."""

    def warm(self) -> None:
        """Start Spark in the background."""

    def run(
        self,
        context: JobContext,
        inputs: Mapping[str, tuple[bytes, list[str]]],
        tables: Mapping[str, Sequence[PinnedFile]],
        output: str,
        rows: int,
    ) -> Written:
        """Run it over `inputs` (schema and files by name) and `tables` (files by name).

        Returns the files that it wrote under `output`, each with its rows: at most `rows`, or (0) any number; or the rows
        themselves, if they are few.

        Raises SparkError if it cannot be done.
        """


class Spill(Operator):
    """Writes each epoch's columns into files and announces them to `consumers`.

    One file is written at a time, outside the worker.
    """

    transient = ("_warmed",)
    repeats = True
    repeats_over = "time"

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = tuple(consumers)
        self._name = consumers[0].input
        self._warmed = False
        self._pending = TimedBatches()
        self._bytes: dict[Time, int] = {}
        self._pieces: dict[Time, int] = {}
        """Number of files written so far, by time."""
        self.state = self._pending

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if not self._warmed:
            self._warmed = True
            if ctx.worker == home(ctx.workers):
                for consumer in self._consumers:
                    if consumer.warm is not None:
                        ctx.start(consumer.warm)
        self._pending.add(time, batch)
        size = self._bytes[time] = self._bytes.get(time, 0) + nbytes(batch)
        if size >= SPILL_BYTES:
            self._write(ctx, time)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._write(ctx, time)
        self._pieces.pop(time, None)

    def _write(self, ctx: Context, time: Time) -> None:
        self._bytes.pop(time, None)
        batches = self._pending.pop(time)
        if batches:
            worker, piece = ctx.worker, self._pieces.get(time, 0)
            self._pieces[time] = piece + 1
            ctx.start(lambda context: self._spill(context, time[0], worker, piece, batches), context=True)

    def _spill(
        self, context: JobContext, epoch: int, worker: int, piece: int, batches: list[Batch]
    ) -> list[list[ManifestEntry]]:
        tables = [files.carried_table(_columns(batch, self._name)) for batch in batches]
        schema = tables[0].schema
        for table in tables[1:]:
            if table.schema != schema:
                raise SparkError(changed(self._name, schema, table.schema, f"within epoch {visible((epoch,))[0]}"))
        return self._written(context, epoch, worker, piece, tables)

    def _written(
        self, context: JobContext, epoch: int, worker: int, piece: int, tables: Sequence[pa.Table]
    ) -> list[list[ManifestEntry]]:
        return write_for(context, self._consumers, epoch, worker, piece, tables)

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        for port, entries in enumerate(result or ()):
            ctx.send(entries, port)


class Gather(Operator):
    """Keeps the manifest and sends the files of each complete run; on one worker.

    What is to be merged is merged before, outside the worker, where the files of `tables` (paths by name) are listed, too. The
    runs that are due meanwhile wait: so no run that is sent later names a file whose place another has taken for good.
    """

    transient = ("_preparing", "_waiting")
    repeats = True
    repeats_over = "time"

    def __init__(
        self,
        region: str,
        calendar: Calendar,
        names: Iterable[str],
        schemas: Mapping[str, bytes],
        tables: Mapping[str, str],
    ) -> None:
        self._region = region
        self._calendar = calendar
        self._names = list(names)
        self._tables = dict(tables)
        self._declared = {name: (-1, schema) for name, schema in schemas.items()}
        self._preparing: Time | None = None
        """Time of the run under preparation."""
        self._waiting: deque[Capability] = deque()
        """Capabilities of due runs, waiting for the run under preparation."""
        self._manifest = Manifest(calendar)
        self.state = self._manifest

    def on_watermark(self, frontier: Frontier) -> None:
        if self._preparing is not None:  # the runs that wait are over what the manifest has for them
            frontier &= Frontier.before([self._preparing])
        super().on_watermark(frontier)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        known = {**self._manifest.schemas(), **self._declared}
        for entry in entries_of(batch):
            name, schema = entry.input, entry.schema
            if not entry.schema:
                continue
            epoch, other = known.setdefault(name, (time[0], schema))
            if other != schema:  # files of an earlier epoch may be written later
                (_, was), (when, now) = sorted([(epoch, other), (time[0], schema)])
                what = changed(name, read_schema(was), read_schema(now), f"at epoch {visible((when,))[0]}")
                raise SparkError(f"{ctx.name} ({ctx.site}): {what}")
        self._manifest.add(time, batch)
        ctx.notify_at((self._calendar.due(time[0]),))

    def on_notify(self, ctx: Context, time: Time) -> None:
        if self._preparing is not None or self._tables or self._manifest.ripe(time[0]):
            self._waiting.append(ctx.retain())
            self._next()
        else:
            self._send(ctx, time, [])

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        self._preparing = None
        merged, pinned = result
        if merged:
            self._manifest.add(time, merged)
        self._send(ctx, time, pinned)
        self._next()

    def _next(self) -> None:
        """Prepare the longest waiting run, unless one is being prepared already."""
        if self._waiting and self._preparing is None:
            capability = self._waiting.popleft()
            self._preparing = capability.time
            epoch = capability.time[0]
            ripe = self._manifest.ripe(epoch)

            def job(context: JobContext) -> Any:
                folder = context.folder(f"{self._region}/in")
                pinned = pin_once(folder, epoch, self._tables, context.durable) if self._tables else []
                return self._merge(context, ripe), pinned

            capability.start(job, context=True)
            capability.drop()

    def _merge(self, context: JobContext, ripe: list[Merge]) -> list[ManifestEntry]:
        """Merge files, in a thread of the driver."""
        folder = context.folder(f"{self._region}/in")
        merged = []
        for number, (since, until, entries) in enumerate(ripe):
            context.report("merging files", number, len(ripe))
            name, paths = entries[0].input, tuple(entry.path for entry in entries)
            digest = files.add_up(entry.digest for entry in entries)
            stem = f"{files.named_by(until)}-{name}-merged-{number}-{digest:016x}"
            path = files.merge_inputs(folder, stem, paths, read_schema(entries[0].schema), context.durable)
            rows, size = sum(entry.rows for entry in entries), os.stat(path).st_size
            schema = entries[0].schema
            merged.append(ManifestEntry(name, path, rows, size, schema, paths, digest, since=since))
        return merged

    def _send(self, ctx: Context, time: Time, pinned: list[tuple[str, list[PinnedFile]]]) -> None:
        first = self._calendar.first(time[0])
        known = {**self._manifest.schemas(), **self._declared}
        unknown = [name for name in self._names if name not in known]
        if not known:  # the region before has had runs, and none has given rows
            return
        if unknown and known.keys() - self._names:
            raise SparkError(self._otherwise(ctx, time))
        if unknown:
            raise SparkError(
                f"{ctx.name} ({ctx.site}) is due at epoch {visible(time)[0]}, and its input {unknown[0]!r} has had no rows "
                "yet, so nobody knows its columns: say which there are, with schemas={"
                + f"{unknown[0]!r}: pa.schema(...)"
                + "}"
            )
        schemas = [(name, known[name][1]) for name in self._names]
        entries = [entry._replace(replaced=()) for entry in self._manifest.entries(first, time[0])]
        for entry in entries:
            if entry.input not in self._names:
                raise SparkError(self._otherwise(ctx, time))
        run: Manifested = (first, entries, schemas, pinned)
        ctx.send([run])

    def _otherwise(self, ctx: Context, time: Time) -> str:
        return (
            f"{ctx.name} ({ctx.site}): the rows for its run at epoch {visible(time)[0]} were handed over when the step before "
            "was part of its query, and is not now, or the other way round: let the job do that run with the program as it "
            "was, then change it"
        )


class Compute(Operator):
    """Has Spark execute due runs one by one and announces their files; on one worker.

    Port 0 is for *read*, where somebody `reads` the rows; each of `consumers`, who take the files, has one of the next.

    With `period`, in seconds, runs that come earlier after the last one are left out, but for the very last, which is state
    until then; `clock` tells the time, outside the worker.
    """

    transient = ("_busy", "_waiting", "_named", "_upto")
    repeats = True
    repeats_over = "time"

    def __init__(
        self,
        region: str,
        calendar: Calendar,
        runner: Runner,
        period: float | None,
        clock: Callable[[], float],
        reads: bool,
        consumers: Sequence[Consumer],
    ) -> None:
        self._region = region
        self._calendar = calendar
        self._runner = runner
        self._reads = reads
        self._consumers = tuple(consumers)
        self._pace = RunInterval(period, clock) if period is not None else None
        self._waiting: deque[tuple[Capability, Manifested | None]] = deque()
        """Runs due while one is under way; None for the end of input.

        At the end the run that was left out last is made up for.
        """
        self._busy = False
        self._named = Named()
        self._upto = -1
        self._left_out = SkippedRuns() if period is not None else None
        self.state = self._left_out

    def on_watermark(self, frontier: Frontier) -> None:
        super().on_watermark(frontier)
        self._upto = last_epoch(frontier)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        for run in batch:
            self._named.note(time[0], run)
            self._waiting.append((ctx.retain(), run))
        self._next(ctx)
        if self._pace is not None:
            ctx.notify_at((INF,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        """Execute the last skipped run, at the end of all input."""
        self._waiting.append((ctx.retain(), None))
        self._next(ctx)

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        self._busy = False
        outcome, run = result
        if self._left_out is not None:
            self._left_out.note(time, run if outcome is None else None)
        for port, message in enumerate(outcome or ()):
            ctx.send(message, port)
        self._next(ctx)

    def _next(self, ctx: Context) -> None:
        """Start the next run, unless one is under way."""
        while self._waiting and not self._busy:
            capability, run = self._waiting.popleft()
            always = run is None
            if run is None and self._left_out is not None:
                run = self._left_out.last()
            if run is not None:
                self._busy = True
                self._start(ctx, capability, run, always)
            capability.drop()

    def _start(self, ctx: Context, capability: Capability, run: Manifested, always: bool) -> None:
        epoch, worker, workers, upto = capability.time[0], ctx.worker, ctx.workers, self._upto
        made_up = self._left_out.first() if self._left_out is not None else INF
        last, this = self._named.at(upto), named(epoch, run)
        safe, at_once = [], []
        for calendar, names in self._calendar.parts():
            whole = (
                calendar.over == "all"
            )  # else what a run does not name may be what a later one needs in place of a merge
            needed = min(calendar.needed_after(upto), made_up) if upto >= 0 else 0
            safe.append(Sweep(upto, needed, last if whole else None, names))
            # Where nothing is ever rolled back:
            at_once.append(Sweep(epoch, calendar.needed_after(epoch), this if whole else None, names))
        consumers = [(each.region, each.input, str(each.folder)) for each in self._consumers]
        name = name_of(epoch, run, [workers, self._reads, consumers])

        def attempt(context: JobContext) -> Outcome:
            if self._pace is not None and not self._pace.begin(always):
                return Outcome(ran=False)
            return self._run(context, epoch, name, run, worker, workers)

        def job(context: JobContext) -> tuple[list[list[Any]] | None, Manifested]:
            if context.durable:
                notes = context.folder(f"{self._region}/runs", living=True)
                outcome = published(notes / f"{name}.run", lambda: attempt(context))
                files.sweep_inputs(notes, safe)
            else:
                outcome = attempt(context)
            if not outcome.ran:
                return None, run
            files.sweep_inputs(context.folder(f"{self._region}/in"), safe if context.durable else at_once)
            files.sweep_unfinished(context.folder(f"{self._region}/out"), upto)
            return outcome.deliveries, run

        capability.start(job, context=True)

    def _run(self, context: JobContext, epoch: int, name: str, run: Manifested, worker: int, workers: int) -> Outcome:
        """Execute a run, in a thread of the driver."""
        _, entries, schemas, pinned = run
        inputs = {name: (schema, [entry.path for entry in entries if entry.input == name]) for name, schema in schemas}
        output = context.folder(f"{self._region}/out") / files.output_name(epoch)
        rows = files.FILE_ROWS if self._reads else 0
        written = self._runner.run(context, inputs, dict(pinned), str(output), rows)
        keys = keys_of(workers)
        if isinstance(written, bytes) and self._reads and not self._consumers:
            return Outcome(True, [(keys[0], "", written)])
        if isinstance(written, bytes):
            written = files.write_output(output, [read_table(written)], rows)
        handed = hand_over(context, self._consumers, epoch, worker, name, written)
        if not self._reads:
            files.remove(path for path, _ in written)
            return Outcome(True, [], handed)
        return Outcome(
            True, [(keys[each], path, b"") for each, path in files.deal_out(context, written, workers)], handed
        )


class RunInterval:
    """Rate limit for runs: at most one per period."""

    def __init__(self, period: float, clock: Callable[[], float]) -> None:
        self._period = period
        self._clock = clock
        self._last: float | None = None

    def begin(self, always: bool) -> bool:
        """True if a run may begin now; the period then counts from now."""
        now = self._clock()
        if not always and self._last is not None and now < self._last + self._period:
            return False
        self._last = now
        return True


class Read(Operator):
    """Reads this worker's share of results back as columns, at the time of the run."""

    transient = ("_upto",)
    repeats = True
    repeats_over = "time"

    def __init__(self, region: str) -> None:
        self._region = region
        self._upto = -1

    def on_watermark(self, frontier: Frontier) -> None:
        self._upto = last_epoch(frontier)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        shares = [(path, rows) for _, path, rows in batch]
        worker, upto = ctx.worker, self._upto
        ctx.start(lambda context: self._read(context, shares, worker, upto), context=True)

    def _read(self, context: JobContext, shares: list[tuple[str, bytes]], worker: int, upto: int) -> list[pa.Table]:
        tables = [files.read_output(path) if path else read_table(rows) for path, rows in shares]
        if context.durable:
            files.sweep_outputs(context.folder(f"{self._region}/out"), upto, worker)
        else:
            files.remove(path for path, _ in shares if path)
        return tables

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        for table in result:
            ctx.send(table)


def changed(name: str, before: pa.Schema, now: pa.Schema, when: str) -> str:
    """Message about a change of an input's columns."""
    gone = [each for each in before.names if each not in now.names]
    new = [each for each in now.names if each not in before.names]
    other = [
        f"{each!r} was {before.field(each).type} and is {now.field(each).type}"
        for each in before.names
        if each in now.names and before.field(each).type != now.field(each).type
    ]
    parts = [f"{each!r} is gone" for each in gone] + [f"{each!r} is new" for each in new] + other
    what = "; ".join(parts) or f"their order was {before.names} and is {now.names}"
    return f"the columns of input {name!r} have changed {when}: {what}. Select and cast them to the same ones before"


def _columns(batch: Batch, name: str) -> Batch:
    if is_columns(batch):
        return batch
    raise SparkError(f"input {name!r} holds records; turn them into columns before: stream.to_columns(...)")
