"""Deliveries: files written once, as input of several regions and tables.

Whoever writes such files (*spill*, and *compute* of a region whose output goes to others) has *consumers*. Each of them has a
port, on which it is told of its files, and a folder, in which each file has a name of its own: a hard link, or a copy where the
file system has no links. So what a consumer holds goes by that consumer's rules, and nobody asks who else reads it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from libraries.columns.verbs.columns import Columns, Stream
from libraries.spark.files import parquet as files
from libraries.spark.files.manifest import Manifested, ManifestEntry
from libraries.spark.files.published import digest_of_file
from libraries.spark.files.reads import Reads
from libraries.spark.files.schemas import write_schema
from recovery.policy import Batch
from timely.dataflow.graph import Factory, Graph, Input, Output
from timely.operators.base import JobContext, Operator


@dataclass(frozen=True, slots=True)
class Consumer:
    """Reader of delivered files: the input `input` of a region, or a table.

    The files go into the folder of `region`, or into `folder`, in which they outlive the job. `warm` begins to
    start Spark. Of the columns those need be in the files that it `reads`; None: all. If `empty`, it receives an
    entry without a path for a run that gave no rows.
    """

    region: str
    input: str
    warm: Callable[[], None] | None = None
    folder: Path | None = None
    reads: Reads | None = None
    empty: bool = False

    def place(self, context: JobContext) -> Path:
        """Folder for its files."""
        return self.folder or context.folder(f"{self.region}/in")

    def durable(self, context: JobContext) -> bool:
        """True if its files must be durable before they are announced to it."""
        return context.durable or self.folder is not None


class Deliveries:
    """Consumers of the files written by `node`: a port for each, from `first` on."""

    def __init__(self, node: int, first: int) -> None:
        self._node = node
        self._first = first
        self.consumers: list[Consumer] = []

    def add(self, graph: Graph, consumer: Consumer) -> Output:
        """Add a consumer; its port."""
        port = self._first + len(self.consumers)
        self.consumers.append(consumer)
        while graph.nodes[self._node].outputs <= port:
            graph.add_output(self._node)
        return Output(self._node, port)


@dataclass(frozen=True, slots=True)
class Delivering:
    """Factory of a node with files as output, for lookup of its consumers.

    `outputs` are those whose batches *spill* writes; of *read* there are none, as the files of its region are there already.
    """

    make: Factory
    deliveries: Deliveries
    outputs: tuple[Output, ...] = ()

    def __call__(self) -> Operator:
        """Create the operator."""
        return self.make()


def deliver(
    stream: Columns,
    consumer: Consumer,
    name: str,
    spill: Callable[[Sequence[Consumer]], Operator],
    separate: bool = False,
) -> Stream:
    """Stream of manifest entries for the files with the stream's rows.

    The files of a region are handed over as they are. Other rows are written by a node with the name `name`, unless another
    consumer of the same stream has one already. Files for a consumer that is to be `separate` are not those of others.
    """
    graph = stream.graph
    found: list[Output] = []
    written: list[Output] = []
    for output in stream.outputs:
        factory = graph.nodes[output.node].factory
        if isinstance(factory, Delivering) and not separate:
            found.append(factory.deliveries.add(graph, consumer))
        else:
            written.append(output)
    if written:
        outputs = tuple(written)
        found.append(_spilled(graph, outputs, name, spill, separate).add(graph, consumer))
    return Stream(graph, stream.scope, tuple(found))


def _spilled(
    graph: Graph,
    outputs: tuple[Output, ...],
    name: str,
    spill: Callable[[Sequence[Consumer]], Operator],
    separate: bool,
) -> Deliveries:
    for node in () if separate else graph.nodes:
        if isinstance(node.factory, Delivering) and node.factory.outputs == outputs:
            return node.factory.deliveries
    deliveries = Deliveries(len(graph.nodes), 0)
    node = graph.add_node(
        "unary",
        graph.root,
        name,
        factory=Delivering(lambda: spill(deliveries.consumers), deliveries, () if separate else outputs),
        policy=Batch(log_outputs=True),
        notifies=True,
        holds=True,
    )
    for output in outputs:
        graph.add_edge(output, Input(node.index, 0))
    return deliveries


def write_for(
    context: JobContext, consumers: Sequence[Consumer], epoch: int, worker: int, piece: int, tables: Sequence[pa.Table]
) -> list[list[ManifestEntry]]:
    """Write tables once, as a file for each consumer; the entries by consumer.

    The file is the worker's `piece`-th of the epoch: two may have the same rows. Columns that no consumer reads are not in it.
    """
    first, *others = consumers
    schema = write_schema(tables[0].schema)
    digest = files.digest_of(tables)  # of all columns: whoever does it again may know more, or less, of what is read
    if left_out := _left_out(context, consumers, tables[0].column_names):
        tables = [table.drop_columns(left_out) for table in tables]
    which = f"{piece}-{digest:016x}"
    stem = files.input_stem(first.input, epoch, worker, which)
    path = files.write_input(first.place(context), stem, tables, first.durable(context))
    rows = sum(len(table) for table in tables)
    with open(path, "rb") as file:  # while it is open it can be copied, even if the first one's rules have removed it
        size = file.seek(0, 2)
        entries = [[ManifestEntry(first.input, path, rows, size, schema, digest=digest)]]
        there = [_OpenFile(file, which, rows, digest)]
        entries += [_handed(context, each, epoch, worker, there, schema) for each in others]
    return entries


def hand_over(
    context: JobContext,
    consumers: Sequence[Consumer],
    epoch: int,
    worker: int,
    run: str,
    written: Sequence[tuple[str, int]],
) -> list[list[ManifestEntry]]:
    """Pass output files of a run to each of `consumers`; the entries by consumer.

    `run` is the name of the run; the files have their rows beside them. Their names no other attempt has: its files
    may have other rows. What counts of a run is published, and never changes: so the run and the number stand for
    the rows of a file.
    """
    if not written or not consumers:
        return [[ManifestEntry(each.input, "", 0, 0, b"")] if each.empty else [] for each in consumers]
    schema = write_schema(files.carried_schema(pq.read_schema(written[0][0])))
    with ExitStack() as stack:
        opened = [
            _OpenFile(stack.enter_context(open(path, "rb")), uuid.uuid4().hex, rows, digest_of_file(run, number))
            for number, (path, rows) in enumerate(written)
        ]
        return [_handed(context, each, epoch, worker, opened, schema) for each in consumers]


def pass_on(context: JobContext, consumer: Consumer, epoch: int, worker: int, run: Manifested) -> list[ManifestEntry]:
    """Pass a run's input files to the fused `consumer`; its entries for them.

    The run's input `name` is `INPUT_name` there, `INPUT` being the consumer's. Entries without a path tell the columns of those
    that have no rows.
    """
    _, entries, schemas, _ = run
    handed = []
    for name, schema in schemas:
        known = replace(consumer, input=f"{consumer.input}_{name}")
        mine = [entry for entry in entries if entry.input == name]
        with ExitStack() as stack:
            opened = [
                _OpenFile(
                    stack.enter_context(open(entry.path, "rb")),
                    f"{number}-{entry.digest:016x}",
                    entry.rows,
                    entry.digest,
                )
                for number, entry in enumerate(mine)
            ]
            handed += _handed(context, known, epoch, worker, opened, schema)
        if not mine:
            handed.append(ManifestEntry(known.input, "", 0, 0, schema))
    return handed


class _OpenFile(NamedTuple):
    """Open file with the distinguishing part of its name, its rows and its digest."""

    file: BinaryIO
    which: str
    rows: int
    digest: int


def _left_out(context: JobContext, consumers: Sequence[Consumer], columns: Sequence[str]) -> tuple[str, ...]:
    """Columns read by none of `consumers`."""
    if any(each.reads is None for each in consumers):
        return ()
    unread = [each.reads.left_out(context, columns) for each in consumers if each.reads is not None]
    return tuple(name for name in columns if all(name in others for others in unread))


def _handed(
    context: JobContext, consumer: Consumer, epoch: int, worker: int, written: Sequence[_OpenFile], schema: bytes
) -> list[ManifestEntry]:
    folder, durable = consumer.place(context), consumer.durable(context)
    entries = []
    for file, which, rows, digest in written:
        path = files.link_input(file, folder, files.input_stem(consumer.input, epoch, worker, which), durable)
        size = os.stat(path).st_size
        entries.append(ManifestEntry(consumer.input, path, rows, size, schema, digest=digest))
    if durable:
        files.sync_folder(folder)
    return entries
