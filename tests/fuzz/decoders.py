"""Every target, by name; and which of them reads what by which function of the project."""

from __future__ import annotations

import datetime as dt
import faulthandler
import json
import os
import socket
import struct
import tempfile
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, Flag
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import zmq
from msgspec.structs import replace

from libraries.columns.kernels import sketches
from libraries.columns.kernels.signed import signed, with_special, with_vast
from libraries.connect import Csv, JsonLines, Parquet
from libraries.connect.claim import owner_of
from libraries.connect.files.source import FileSource
from libraries.connect.lines import LineBuffer
from libraries.connect.tables.delta_source import _DeltaFile, _DeltaLog
from libraries.differential.rows import rows_of
from libraries.spark import protocol as spark
from libraries.spark.cluster.attempt import read_ending
from libraries.spark.engine.history import KeptProgram, read_program
from libraries.spark.files import batches as spark_batches
from libraries.spark.files import pinned, published, reads
from libraries.spark.files.manifest import ManifestEntry, entries_of
from libraries.spark.files.schemas import read_schema, write_schema
from monitor.coordination import records as kept
from monitor.coordination import supervision
from monitor.coordination.handshake import refusal
from monitor.explain.verdict import UNJUDGED
from monitor.history.archive import NOW, Archive, spanned
from monitor.history.facts import COUNTERS_OF, FACT_OF, Counters, Happening, Histogram, OfWorker, Plan
from monitor.history.files import COUNTERS, FACT, FRAMES, OPTIONS
from monitor.history.files import framed as record
from monitor.history.files import records as history_records
from monitor.history.frames import Frame as PastFrame
from monitor.history.frames import pack, unpack
from monitor.history.options_at import pack_options, unpack_options
from monitor.web.questions import WhatIf
from recovery import protocol
from recovery.checkpoint import records as journalled
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.epoch_ends import EpochEnds, decode_ends, encode_ends
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Xi
from recovery.place import Place, places
from recovery.store import lease
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from recovery.store.reading import take_over
from recovery.store.segments import FORMAT, Section, SegmentMeta, decode_segment, encode_segment, segment_name
from runtime import control
from runtime.hosts.host import read_greeting
from runtime.hosts.host_file import HostEntry, HostFile, create_host_files
from runtime.links.frames import GOODBYE, decode_frame, encode_frame
from runtime.links.unix import SocketLink
from runtime.links.zeromq import FAILED, FRAME, HEADER, HELLO, PART, PROTOCOL, TAKEN, ZmqLink
from runtime.links.zeromq import GOODBYE as ZMQ_GOODBYE
from runtime.page import bundle, doors
from runtime.page import protocol as page
from runtime.page.logs import read_lines
from runtime.processes.greeting import Greeting
from runtime.processes.monitor import LAYOUT
from runtime.processes.monitor_journal import MonitorJournal
from runtime.recovery import mate_link
from runtime.session.stacks import StackSamples, stacks_now
from tests.fuzz.mutate import mutate, mutate_value, packed
from tests.fuzz.targets import Read, Target, plain
from tests.monitor.coordination import coordinators
from tests.monitor.history import drawn as history
from tests.recovery.layouts import layout
from tests.recovery.store.owners import memory_disk
from timely.data.codec import decode, decode_batch, encode, encode_batch, register
from timely.data.codec.batches import ARROW, POLARS, RECORDS
from timely.data.codec.typed import Typed
from timely.data.messages import Frame, Message
from timely.data.sums import terms
from timely.dataflow.fingerprint import read_outline
from timely.io.interface import Chunk, End
from timely.worker.outbox import decode_message

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""The folder of files that are written ten thousand times."""


# Values


@dataclass(frozen=True)
class Point:
    x: int
    y: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Packet(msgspec.Struct):
    size: int
    body: Any = None


class Colour(Enum):
    RED = "r"


class Mode(Flag):
    READ = 1
    WRITE = 2


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


register(Money, lambda money: money.cents, Money, name="fuzzed money")

# Made in the process that reads them: what Arrow and Polars have begun in threads does not survive a fork.


@cache
def batches() -> list[list[Any]]:
    """Records of all kinds."""
    return [
        [None, True, -1, 1.5, "a", b"b", 2**70, "\ud800"],
        [("a", 1)] * 9,
        [("a", (1, [2])), ("b", (2, []))] * 6,
        [(1,), (1, 2), ()],
        [{1, 2}, frozenset("a"), [1, [2]], {"a": 1, 2: None}],
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        [dt.datetime(2024, 1, 1, 2, tzinfo=ZoneInfo("Europe/Rome"), fold=1), dt.datetime(2024, 1, 1, 2, 3, 4, 5)],
        [dt.time(1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")), dt.date(2024, 1, 1), dt.timedelta(-1, 2, 3)],
        [Decimal("-1.10"), UUID(int=7), 1 + 2j, bytearray(b"x"), deque([1], 3), Counter("aab"), OrderedDict(a=1)],
        [Colour.RED, Mode.READ | Mode.WRITE, Point(1, "x"), Pair(1, [2]), Packet(1, (2,)), Money(3)],
        [Point(at, (at, "y")) for at in range(12)],
        [np.float32(1.5), np.datetime64("2024-01-01", "D"), np.str_("x"), np.bytes_(b"x")],
        [np.arange(6).reshape(2, 3), np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])],
        [pa.table({"a": [1, None]}), pl.DataFrame({"b": ["x", "y"]}), pl.Series("c", [1.5])],
        [rows_of([1, 300, 1 << 40], None, [1, -1, 1]), rows_of(range(5), range(5)), (("a", 1), 1)],
    ]


@cache
def tables() -> list[pa.Table]:
    """Arrow tables of all kinds."""
    return [
        pa.table({"a": [1, None, 3], "b": ["x", "yy", None], "c": pa.array(["u", "v", "u"]).dictionary_encode()}),
        pa.table({"d": [[1, 2], None, []], "e": [{"p": 1, "q": "z"}] * 3, "n": pa.nulls(3), "f": [True, False, None]}),
        pa.table(
            {
                "b": pa.array([b"x", b"abc" * 20], pa.binary_view()),
                "t": pa.array(["s", "longer than twelve bytes"], pa.string_view()),
                "f": pa.array([b"ab", b"cd"], pa.binary(2)),
                "d": [Decimal("1.5"), None],
                "z": pa.array([dt.datetime(2020, 1, 1), None], pa.timestamp("us", "Europe/Rome")),
                "l": pa.array(["q", "w"], pa.large_string()),
            }
        ),
        pa.table(
            {
                "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
                "f": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
                "v": pa.array([[1], [2, 3]], pa.list_view(pa.int16())),
            }
        ),
        pa.table({"r": pa.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"])}),
        pa.concat_tables([pa.table({"k": pa.array([word]).dictionary_encode()}) for word in ("a", "b")]),
    ]


@cache
def polars_frames() -> list[pl.DataFrame]:
    """Polars frames of all kinds."""
    return [
        pl.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [[1.5], []], "d": [{"p": 1}, None]}),
        pl.DataFrame({"t": [dt.datetime(2024, 1, 1)], "k": pl.Series(["u"], dtype=pl.Categorical), "n": [None]}),
        pl.DataFrame({"e": pl.Series(["a"], dtype=pl.Enum(["a", "b"])), "x": pl.Series([b"x"]), "s": [dt.time(1)]}),
    ]


def joined(batch: Any) -> tuple[bytes, bytes]:
    """A batch as its header and its payload."""
    header, payload = encode_batch(batch)
    return header, b"".join(map(bytes, payload))


def use(batch: Any) -> None:
    """Touch all of a batch, as operators would: what was not checked is met here."""
    if isinstance(batch, pa.Table):
        few = batch if batch.num_rows < 1000 else batch.slice(0, 1000)
        str(few.schema)
        for column in few.columns:
            with suppress(ArithmeticError, ValueError, KeyError):  # dates and numbers for which Python has no place
                column.to_pylist()
        few.combine_chunks()
        encode_batch(few)
    elif isinstance(batch, pl.DataFrame):
        few = batch.head(1000)
        few.equals(few)
        few.to_arrow()
    else:
        repr(batch)


def read_batch(header: bytes, payload: bytes) -> None:
    """As `timely.data.codec` reads a batch from elsewhere."""
    use(decode_batch(header, payload))


def sketch_samples() -> list[bytes]:
    """Sketches of few numbers and of many."""
    numbers = [pa.array([1.5, -2.0, 0.0, float("inf"), float("nan"), None]), pa.array(np.arange(-50.0, 5000.0, 7.0))]
    return [
        sketches.of_groups(np.zeros(len(found), np.intp), 1, found.to_numpy())[0]
        for found in (sketches.observations(each, 0.01).drop_null() for each in numbers)
    ]


def use_sketch(data: bytes) -> None:
    """Merge a sketch from elsewhere with one of our own, take both together, and ask for quantiles."""
    held = np.array([data, *sketch_samples(), None], object)
    both = sketches.merged(np.array([0, 0, 1, 1]), 2, held)
    for quantile in (0.0, 0.5, 1.0):
        for found in (held, both):
            len(sketches.quantiles(found, quantile, "linear", 0.01).to_pylist())


def special_samples() -> list[bytes]:
    """Counts of one infinity, and of values of all kinds that are special."""
    numbers = [pa.array([1.5, float("inf")]), pa.array([float("inf"), float("-inf"), float("nan"), float("nan"), None])]
    return [
        sketches.of_groups(np.zeros(len(found), np.intp), 1, found.to_numpy())[0]
        for found in (signed(each, pa.array(np.ones(len(each), np.int64)), "special").drop_null() for each in numbers)
    ]


def use_special(data: bytes) -> None:
    """Merge counts from elsewhere with some of our own, take both together, and ask for the floats."""
    held = np.array([data, *special_samples(), None], object)
    for found in (held, sketches.merged(np.array([0, 0, 1, 1]), 2, held)):
        with_special(np.zeros(len(found)), found)
        with_vast(np.zeros(len(found)), found)


def sum_samples() -> list[bytes]:
    """Columns of sums of floats: all of one width, of several, with values that are far, and with nulls beside them."""
    ids, values = np.arange(4) % 2, np.array([0.1, 1e30, 1e-300, -1.0])
    near = terms.sums([ids], 2, [values])
    far = terms.added(near.copy(), np.array([0]), np.array([1.7e308]))
    several = pa.concat_arrays([terms.column_of_terms(each) for each in (near, far, np.array([1.5, 2.5]))])
    columns = (terms.column_of_terms(near), several, terms.column_of_terms(near, np.array([True, False])))
    return [joined(pa.table({"sum": column}))[1] for column in columns]


def use_sums(data: bytes) -> None:
    """Read columns of sums from elsewhere, add to them, and round them."""
    for column in decode_batch(ARROW, data).combine_chunks().columns:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            if terms.is_terms(chunk.type) and len(chunk) < 10_000:
                found = terms.terms_of(chunk.drop_null()).copy()
                found = terms.added(found, np.arange(len(found)), np.full(len(found), 0.1))
                terms.rounded(terms.assigned(found, slice(0, len(found)), terms.blank(len(found))))


# Messages


def small() -> Any:
    """The layout of a small job."""
    made = layout("a source, b chain, c chain2, d sink", "a=>b, b>in>c, c>out>d")
    source, *rest = made.processors
    return replace(made, processors=(source, replace(rest[0], history=True), *rest[1:]))


def said_to_monitor() -> list[bytes]:
    """One of each message of a worker."""
    plan = small()
    xi = Xi(1, (3,), ((3,),))
    memory = protocol.InMemory((3,), (3,), ((2,),), ((3,),), ())
    close = protocol.Closely(1, ((3,),), (protocol.ObservedHold("queue", 1, (3,), 2, True),))
    working = protocol.Working(1, 3, "tasks", 1, 2, 0.5)
    sent = protocol.Sent(0, 1, 50, 5, 8.5), protocol.Sent(1, 0, 5, 5, None)
    persisting = protocol.Persisting(bytes(96), 3, 999, 0.1, 0.5, 0.25, 2.5, 1e-8, sent)
    messages = [
        protocol.Join(Place(1), 2, 3, True, plan, (xi,), False),
        protocol.Completed(Place(0), 1, ((3,), (4,))),
        protocol.Durable(Place(0), 1, 0, (3,), (xi,), 0.1, 2.0, 0.5),
        protocol.Flushed(Place(0), 1, (xi,)),
        protocol.Mate(Place(0), True),
        protocol.Drained(Place(0), 1, (memory, memory), ENDS),
        protocol.Restored(Place(0), 1, (), (), 8, 3),
        protocol.Released(Place(1)),
        protocol.Begun(Place(1), 1, 7),
        protocol.Settled(Place(1), 1, 8),
        protocol.CurrentMemory(Place(0), 1, 7, (memory,)),
        protocol.Cost(Place(0), 1, 7, (protocol.Resent(1, 0, 5, 99),), (protocol.Redone(1, 5, 2, 0.5),)),
        protocol.Observed(
            Place(0), 1, np.arange(40).tobytes(), 5, 6, 7, (0.5,), (close,), (working,), persisting=persisting
        ),
    ]
    return [protocol.encode_message(message) for message in messages]


ENDS = (EpochEnds(1, 0, 2, 4, (("part", ((2, [2, 9]), (3, None))),)), EpochEnds(0, 0, 0, 9, local_only=True))


def said_to_worker() -> list[bytes]:
    """One of each message of the monitor."""
    messages = [
        protocol.Cut(1, 0, (3,)),
        protocol.Watermarks(((0, 1, (3,)), (1, 0, (2,))), ((1, 1, (3,)),)),
        protocol.Drain(3, (Place(0), Place(1, 1))),
        protocol.Decision(2, (((3,), None), ((3,), (2,))), (1,), (((1,), (2,)), ((1,), (2,))), current=4),
        protocol.Refused("no"),
        protocol.ReadUntil(1, 8),
        protocol.ReadUntil(1),
        protocol.AskMemory(3),
        protocol.AskCost(3, (((3,), None),), ((1,),)),
        protocol.Observe(0.5, 10.0, (1,)),
    ]
    return [protocol.encode_message(message) for message in messages]


_stats = control.Stats(1, 2, 3, 4, 5, False, (control.JobStats("spark", 1, "tasks", 2, 3, 0.5),))
_captured = control.CapturedBatch(1, (2,), *joined([("a", 1)]))
TO_CHILD: list[Any] = [
    control.Begin(Place(1), 2, (Place(0), Place(2, 1))),
    control.Follow(Place(1, 1)),
    control.Go(),
    control.Mated(),
    control.Peer(Place(1)),
    control.Quit(),
    control.Watch(
        StoreAddress("file:///store"),
        1,
        msgspec.msgpack.encode(small()),
        (Place(0), Place(1)),
        0.5,
        b"token",
        copies=2,
    ),
    supervision.Lost(Place(1), 2, "it died"),
    supervision.ProgramFailed(Place(1), "it failed"),
    supervision.Noted(Place(1), "it is tried again"),
    supervision.Stopping("falkirk stop"),
    supervision.Saving("falkirk stop", 60.0),
    supervision.Happened("mate_lost", {"worker": 1, "reason": "failed", "again": True}),
    supervision.Mates(
        (supervision.MateView(1, "follows", 4711, 1 << 20, 12, 1, 300, 2, 0.5), supervision.MateView(0, "none"))
    ),
    supervision.Busy(Place(1), 61.5, 2, "map", "line 7", 100, 3, True),
]
FROM_CHILD: list[Any] = [
    supervision.Respawn(Place(1)),
    supervision.Fence(Place(1), -1, "why"),
    supervision.TimelineEvent("failure", 1.5, {"worker": 1, "text": ["a"]}),
    control.Over("reason", False, True),
    control.Unable("SourceError", "text", "trace", True),
    supervision.Note("text"),
    control.Here(Place(1), 2, "host", 3),
    control.CaughtUp(Place(1, 1), 0.5),
    control.Followed(Place(1, 1), 1 << 20, None, 2, 300),
    control.Beat(0.5, "map"),
    control.Built(2, "fingerprint", json.dumps({"map": {"kind": "map"}})),
    _stats,
    _captured,
    control.Returned(encode((1, "x"))),
]
_observed = protocol.Observed(Place(0), 1, bytes(80), 5, 6, 7, (0.5,))
TO_PAGE: list[Any] = [
    page.Serve(small()),
    page.Passed((supervision.TimelineEvent("failure", 1.5, {"worker": 1}),)),
    page.Seen(1.5, "runs", 1, ((3,), None), (("alive", 1, 0),), {0: ((3,),)}, {0: (1.0, _observed)}),
    page.PageAnswer(1, b"{}", "", 200),
]
FROM_PAGE: list[Any] = [page.Looking(1, (2,)), page.PageQuestion(1, WhatIf(("worker:1",)))]
TO_SPARK: list[Any] = [
    spark.RunTask(
        *(
            1,
            "region",
            3,
            0,
            True,
            "name",
            (spark.Query("", (("input", "a"),), ("t",), b"pickle", None, "region", "kept"),),
        ),
        *((spark.Frames("a", b"schema", ("f.parquet",)),), b"tables", (), "out", 100),
    ),
    spark.Follow(1, "query", b"pickle", None, "folder", "append", 0.5, False, 10, 2, 3, 4, True),
    spark.Consumed(1, 2),
    spark.Cancel(1),
]
FROM_SPARK: list[Any] = [
    spark.Ready(1, "4.0"),
    spark.Waits("text"),
    spark.RunProgress(1, 2, 3),
    spark.QueryProgress(1, 2, "waits", 3),
    spark.Done(1, (("f.parquet", 3),)),
    spark.Done(1, b"rows", (("input", ("a", "b")),)),
    spark.RunFailed(1, "text", True),
    spark.RunFailed(-1, "text", True, "printed", ended=True, lost=True),
    spark.PrintedText("text", False),
]
ON_SPARK = KeptProgram({"sums": {"kind": "distinct"}}, {}, {"state_1": "select 2"})
NOTED: list[Any] = [pinned._Noted([("names", "folder", [spark.PinnedFile("folder", "a.parquet", 1, 2)])])]
READS: list[Any] = [reads._Note("query", ("a", "b"), ("a",))]
OUTCOMES: list[Any] = [
    published.Outcome(False),
    published.Outcome(True, [(7, "", b"rows")]),
    published.Outcome(True, [(7, "a.parquet", b"")], [[ManifestEntry("in", "b.parquet", 1, 2, b"schema", (), 3)]]),
]
FROM_DAEMON: list[Any] = [
    spark.JavaUp(1, 2, "secret", {"spark.ui.enabled": "false"}, True),
    spark.ServerUp(spark.ServerOrders("sc://host:1", 3.0, {"spark.x": "1"}, None), "root"),
    spark.Release(spark.ServerOrders("sc://host:1", 3.0, {}, True), "root", 2),
    spark.SparkEnded("it was killed", killed=True),
    spark.PrintedText("text", True),
]


def all_packed(messages: Sequence[Any]) -> Callable[[], list[bytes]]:
    """Messages as their senders write them."""
    return lambda: [msgspec.msgpack.encode(message) for message in messages]


def over_a_socket(make: Callable[[socket.socket], Callable[[], object]]) -> Callable[[], Any]:
    """A reader of whatever a socket delivers; `make(sock)` gives what reads it once."""

    @contextmanager
    def reader() -> Iterator[Read]:
        def read(data: bytes) -> None:
            here, there = socket.socketpair()
            try:
                there.setblocking(False)
                there.send(data)
                there.close()
                make(here)()
            finally:
                here.close()
                there.close()

        yield read

    return reader


def length_first(random: Random, data: bytes) -> bytes:
    """Messages behind their lengths, changed inside and with lengths that are right again."""
    found, at = [], 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    which = random.randrange(len(found))
    try:
        found[which] = packed(mutate_value(random, msgspec.msgpack.decode(found[which])))
    except msgspec.MsgspecError:
        found[which] = mutate(random, found[which], found)
    return b"".join(struct.pack("<I", len(each)) + each for each in found)


def framed(messages: Callable[[], Sequence[bytes]]) -> Callable[[], list[bytes]]:
    """Two messages each behind their lengths."""

    def samples() -> list[bytes]:
        all_ = messages()
        return [control.frame(a) + control.frame(b) for a, b in zip(all_, [*all_[1:], all_[0]])]

    return samples


# Frames


def frames() -> list[bytes]:
    """Frames as links send them, lengths and all."""
    header, payload = encode_batch(tables()[0])
    records = joined([("a", 1)] * 9)
    messages = [
        Message(3, 1, (1,), (1, 2), header, payload),
        Message(4, 2, (1,), (2,), records[0], [records[1][:5], records[1][5:]]),
    ]
    several = [
        Frame(1, 0, messages, [(1, (2,), 1), (2, (3, 4), -1)], True),
        Frame(1, 3, [], [(0, (1 << 62,), 5)], False, ends=2),
    ]
    return [b"".join(map(bytes, encode_frame(frame))) for frame in several]


def change_frame(random: Random, data: bytes) -> bytes:
    """A frame with another head, and lengths that fit it."""
    (size,) = struct.unpack_from("<I", data, 4)
    head = packed(mutate_value(random, msgspec.msgpack.decode(data[8 : 8 + size])))
    rest = data[8 + size :]
    if random.random() < 0.3:
        rest = mutate(random, rest, [data])
    return struct.pack("<II", 4 + len(head) + len(rest), len(head)) + head + rest


def read_frame(data: bytes) -> None:
    """A frame and its batches, as they are read where they are needed."""
    for message in decode_frame(memoryview(data)[4:]).messages:
        use(decode_message(message))


def _link(sock: socket.socket) -> Callable[[], object]:
    link = SocketLink({Place(1): sock}, survives=True)
    return lambda: [link.poll(0) for _ in range(3)]


@contextmanager
def zmq_reader() -> Iterator[Read]:
    """The bytes that arrive at a link between hosts."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        link = ZmqLink(Place(0), {place: f"ipc://{folder}/{place.worker}" for place in places(2)})
        peer = link._peers[Place(1)]

        def read(data: bytes) -> None:
            peer.life, peer.taken, peer.unconfirmed, peer.goodbye, peer.broken_at = 7, 0, 0, False, None
            peer.parts.clear()
            link._life = 9
            got: list[Frame] = []
            link._take(zmq.Frame(data), got)
            for frame in got:
                for message in frame.messages:
                    use(decode_message(message))

        yield read


def zmq_messages() -> list[bytes]:
    """One of each kind."""
    head = partial(HEADER.pack, PROTOCOL)
    whole = frames()[0][4:]
    return [
        head(FRAME, 1, 0, 7, 9, 1, 0) + whole,
        head(PART, 1, 0, 7, 9, 1, 0) + whole[:50],
        head(HELLO, 1, 0, 7, 0, 0, 0) + b"hello",
        head(TAKEN, 1, 0, 7, 9, 0, 3),
        head(ZMQ_GOODBYE, 1, 0, 7, 9, 1, 0),
    ]


def zmq_change(random: Random, data: bytes) -> bytes:
    """A message whose body is changed behind a head that is right."""
    body = data[HEADER.size :]
    if data[1] == FRAME:
        body = change_frame(random, struct.pack("<I", len(body)) + body)[4:]
    else:
        body = mutate(random, body, [data])
    return HEADER.pack(PROTOCOL, random.choice((FRAME, HELLO, FAILED, PART, data[1])), 1, 0, 7, 9, 1, 0) + body


# Stores

STORE = bytes(range(16))
_PREFIX = struct.Struct("<8sII16sQII12x")
_ROW = struct.Struct("<IIQ")


def worker_records() -> list[tuple[Any, bytes]]:
    """The content of a worker's journal."""
    header, payload = joined(tables()[0])
    return [
        (journalled.Opening(small()), b""),
        (journalled.Applied(1, ((3,), None, (3, 0), (3,))), b""),
        (
            journalled.Checkpoint(
                Xi(1, (3,), ((3,),)),
                1,
                (3,),
                1,
                (((2,), (4,)),),
                (journalled.SourcePosition("p", {"at": 3}, False, 1, 9),),
            ),
            b"",
        ),
        (journalled.Piece(1, (3,), (((2,), 0, 1), ((1,), 0, 2)), header), payload),
        (journalled.Logged(0, 1, 5, (2,), (2,), *joined([("a", 1)])[:1], (3,), 1), joined([("a", 1)])[1]),
        (journalled.HistoryRecord(1, 3, 0, (2,), header, (3,), 1), payload),
        (journalled.Published(((1, (3,)),)), b""),
    ]


def monitor_records() -> list[Any]:
    """The content of the monitor's journal."""
    return [
        kept.KeptLayout(small()),
        kept.KeptWatermarks((((1,), (2,), (1, 0), (1,)),) * 2),
        kept.KeptDecision(1, 0, (((3,), None, (3, 0), (3,)),) * 2, (1,), current=4),
        kept.KeptRounds(4),
        kept.KeptEvent("failure", 1.5, {"worker": 1}),
        kept.KeptFinished(),
    ]


def segment(owner: str, number: int, sections: Sequence[Section]) -> bytes:
    """A segment behind the fence 0."""
    meta = SegmentMeta(
        owner=owner,
        number=number,
        generation=1,
        incarnation=1,
        fence=0,
        needed=((1, number - 1),) if number > 1 else (),
    )
    return b"".join(map(bytes, encode_segment(meta, sections, STORE)))


def worker_sections() -> list[Section]:
    """The records of a worker as sections."""
    return [journalled.section(record, payload) for record, payload in worker_records()]


def monitor_sections() -> list[Section]:
    """The records of the monitor as sections."""
    return [Section(kept.encode_record(record)) for record in monitor_records()]


def segments() -> list[bytes]:
    """Segments of either kind of journal, and a fence."""
    return [
        segment("worker-000", 2, worker_sections()),
        segment("monitor", 2, monitor_sections()),
        segment("worker-000", 0, []),
    ]


def sealed(data: bytes) -> bytes:
    """The same with checksums and lengths that are right, as far as the sections can be found."""
    body = bytearray(data)
    if len(body) < _PREFIX.size + 4 + 16:
        return data
    magic, version, count, store, _, head, _ = _PREFIX.unpack_from(body)
    start = _PREFIX.size + 4
    index = start + head + _ROW.size * count
    if index + 16 <= len(body):
        at = index + -index % 8
        for row in range(start + head, index, _ROW.size):
            length, _, size = _ROW.unpack_from(body, row)
            begin = at + length
            end = begin + -begin % (64 if size >= 1024 else 8) + size
            end += -end % 8
            if end > len(body) - 16:
                break
            _ROW.pack_into(body, row, length, zlib.crc32(body[at:end]), size)
            at = end
    struct.pack_into("<Q", body, len(body) - 16, len(body))
    body[: _PREFIX.size] = _PREFIX.pack(magic, version, count, store, len(body), head, zlib.crc32(body[start:index]))
    struct.pack_into("<I", body, _PREFIX.size, zlib.crc32(body[: _PREFIX.size]))
    return bytes(body)


def past_frames() -> list[PastFrame]:
    return list(history.frames(12, 2, 5))


def past_options() -> list[bytes]:
    return [pack_options([(at, history.options_at(history.layout_of(12, 2), 5 * at)) for at in range(3)])]


def bundled_jobs() -> list[bytes]:
    layout = history.layout_of(12, 2)
    options = history.options_at(layout, 5)
    told = {0: (1.0, _observed)}
    events = (kept.KeptEvent("began", 5.0, {"workers": 2}),)
    job = bundle._Job(layout, None, None, events, False, options, told, UNJUDGED)
    return [msgspec.msgpack.encode(job)]


def read_bundled(data: bytes) -> object:
    job = bundle._JOB.decode(data)
    return bundle.BundledJob(bundle.Manifest(1, "1", 0.0, "s", {}), job, {}).layout


def read_head(data: bytes) -> object:
    return bundle._manifest(Path("job.zip"), data)


def samples_of_stacks() -> list[bytes]:
    """Samples of this process."""
    samples = StackSamples(lambda: None)
    samples.sample()
    return [msgspec.msgpack.encode(samples.profile("worker-0"))]


def spied() -> list[bytes]:
    """Output of `py-spy dump --json`, of one thread."""
    frame = b'{"name":"match","filename":"re.py","module":null,"short_filename":"re.py","line":166,"locals":null}'
    return [b'[{"pid":1,"thread_name":"MainThread","os_thread_id":1,"active":true,"frames":[%s]}]' % frame]


def traces() -> list[bytes]:
    """Text of faulthandler, of this process."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return [file.read()]


def bundle_heads() -> list[bytes]:
    return [msgspec.json.encode(bundle.Manifest(bundle.FORMAT, "1", 2.0, "words", {"python": "3"}))]


def past_facts() -> list[bytes]:
    began = Happening(kept.KeptEvent("began", 5.0, {"workers": 2}))
    return [msgspec.msgpack.encode(each) for each in (Plan(0, 1.0, history.layout_of(12, 2)), began)]


def past_counters() -> list[bytes]:
    return [
        msgspec.msgpack.encode(Counters((OfWorker(1, 2, 3, 4, 5),), {"cut": 3}, (Histogram("seconds", 0, (1,), 2.0),)))
    ]


def past_file() -> bytes:
    """A file with records of all kinds; as its moments need the facts, these are in it too."""
    made, at = past_frames(), history.START
    facts = b"".join(record(FACT, each) for each in past_facts())
    frames = record(FRAMES, spanned(0, made[0].at, made[-1].at, pack(made)))
    known = pack_options([(at + n, history.options_at(history.layout_of(12, 2), 5 * n)) for n in range(3)])
    return facts + frames + record(OPTIONS, spanned(0, at, at + 2, known)) + record(COUNTERS, past_counters()[0])


def read_archive(data: bytes) -> None:
    archive = Archive()
    archive.take(NOW, data)
    archive.frames(0, 1 << 60)
    archive.present()
    for frame in archive.frames(0, 1 << 60, 3):
        archive.at(frame.at)


def change_zipped(random: Random, data: bytes) -> bytes:
    return zlib.compress(mutate(random, zlib.decompress(data), [data]))


def change_archive(random: Random, data: bytes) -> bytes:
    """Damage to one record, whose check sum is right all the same."""
    found = history_records(data)[0]
    chosen = random.randrange(len(found))
    parts = [bytes(each.data) for each in found]
    parts[chosen] = mutate(random, parts[chosen], parts)
    return b"".join(record(each.kind, part) for each, part in zip(found, parts))


def change_segment(random: Random, data: bytes) -> bytes:
    """A segment written by somebody who knows how: with changed records, or with changed bytes and right checksums."""
    if random.random() < 0.4:
        return sealed(mutate(random, data, [data]))
    meta, sections = decode_segment(data)
    plain_meta = msgspec.msgpack.decode(msgspec.msgpack.encode(meta))
    if not sections or random.random() < 0.2:
        plain_meta = mutate_value(random, plain_meta)
    if sections:
        at = random.randrange(len(sections))
        head, payload = sections[at].head, bytes(sections[at].payload)
        if payload and random.random() < 0.3:
            payload = mutate(random, payload, [payload])
        else:
            head = packed(mutate_value(random, msgspec.msgpack.decode(head)))
        sections = [*sections[:at], Section(head, payload), *sections[at + 1 :]]
        if random.random() < 0.1:
            del sections[at]
    return b"".join(map(bytes, encode_segment(msgspec.Raw(packed(plain_meta)), sections, STORE)))  # type: ignore[arg-type]


def read_journal(owner: str, data: bytes) -> None:
    """The journal of which this is the newest segment."""
    disk = memory_disk()
    disk.put(segment_name(owner, 0), [segment(owner, 0, [])])
    disk.put(segment_name(owner, 1), [segment(owner, 1, [])])
    disk.put(segment_name(owner, 2), [data])
    if owner == "monitor":
        MonitorJournal(disk, STORE, 2, _Nowhere())
        return
    plan = small()
    journal, found, _ = take_over(disk, owner, STORE, 2)
    recorder = WorkerRecorder(plan, 0)
    checkpoints = Checkpoints(plan, recorder, journal)
    read = [(journalled.record_of(each.head), each.payload) for _, sections in found.read() for each in sections]
    checkpoints.load(read)
    checkpoints.live_keys()
    for p, info in enumerate(plan.processors):
        for run in checkpoints.runs(p, info.everything):
            use(run.batch)
    for entries in recorder.logs.values():
        for entry in entries:
            use(decode_message(entry.message()))


class _Nowhere:
    """A writer to the store that does not write."""

    spent = 0.0

    def put(self, name: str, parts: Any) -> None:
        """Forget it."""

    def delete(self, name: str) -> None:
        """Forget it."""

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """Nothing."""
        return []

    def files(self) -> list[int]:
        """None."""
        return []

    def close(self) -> None:
        """Nothing to do."""


def read_record(data: bytes) -> None:
    """A record of a worker's journal."""
    journalled.key_of(journalled.record_of(data))


def read_kept(data: bytes) -> None:
    """A record of the monitor's journal."""
    record = kept.decode_record(data)
    kept.SavedJob.of([record])


def read_identity(data: bytes) -> None:
    """The file that says which store this is."""
    disk = memory_disk()
    disk.put("store", [data])
    store_id(disk)


def join(data: bytes) -> None:
    """A worker that joins."""
    message = protocol.decode_to_monitor(data)
    if isinstance(message, protocol.Join):
        refusal(message, small(), kept.KeptDecision(3, 2, ((),), ()))


def said_to_coordinator() -> list[bytes]:
    """The messages of the workers of a small job."""
    memory = coordinators.memory(2)
    messages = [
        coordinators.join(0, 2, 1, True, durable=coordinators.xis(2)),
        protocol.Completed(Place(0), 1, ((3,),)),
        protocol.Durable(Place(0), 1, 0, (3,), coordinators.xis(3), 5.0, 0.1),
        protocol.Drained(Place(1), 1, memory),
        protocol.Restored(Place(1), 1),
        protocol.CurrentMemory(Place(0), 1, 7, memory),
    ]
    return [protocol.encode_message(message) for message in messages]


def tell_coordinator(data: bytes) -> None:
    """A job that runs, or in which a worker has just died, hears this from a worker that it knows."""
    message = protocol.decode_to_monitor(data)
    for dead in (False, True):
        coordinator = coordinators.running()
        if dead:
            coordinator.lost(0, 1, 1.0, "killed")
        coordinator.hear(message, 1.0, 1)
        coordinator.hear(protocol.Completed(Place(1), 1, ((1,),)), 1.0, 1)
        coordinator.tick(2.0)
        coordinator.take()


# Files


@contextmanager
def in_file(name: str, read: Callable[[Path], object]) -> Iterator[Read]:
    """A reader of a file."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder, name)

        def read_bytes(data: bytes) -> None:
            path.write_bytes(data)
            read(path)

        yield read_bytes


def of_file(name: str, read: Callable[[Path], object]) -> Callable[[], Any]:
    """A reader of files with this name."""
    return lambda: in_file(name, read)


def read_all_of(make: Callable[[Path], FileSource], path: Path) -> None:
    """Everything that a source gives of a file."""
    (partition,) = make(path).partitions(0, 1)
    try:
        while not isinstance(chunk := partition.read(), End):
            if chunk.data is not None and not isinstance(chunk.data, list):  # type: ignore[union-attr]
                use(chunk.data)  # type: ignore[union-attr]
    finally:
        partition.close()


def csvs() -> list[bytes]:
    """CSV of several kinds."""
    return [
        b'id,name,score,at\n1,ann,1.5,2024-01-01\n2,bob,,2024-01-02 03:04:05\n3,"a,b",-1e9,\n',
        b'a,b\r\n"x ""y"" z",1\r\n"line\nend",2\r\n',
        b"\xef\xbb\xbfone\n1\n\n3\n",
        "größe,ja\n1,true\n2,false\n".encode(),
    ]


def jsons() -> list[bytes]:
    """JSON lines of several kinds."""
    return [
        b'{"id": 1, "name": "ann", "tags": ["a", "b"], "at": "2024-01-01T00:00:00"}\n{"id": 2, "name": null, "tags": []}\n',
        b'{"a": {"b": 1.5, "c": [{"d": true}]}}\n\n{"a": {"b": -1e300, "c": null}}\n',
        '{"k": "größe \\ud83d\\ude00 \\"q\\"", "n": 1234567890123456789}\n'.encode(),
        b'{"v": [[1], [2, 3]]}\n{"v": [[]]}\n{"v": null}\n{}\n',
    ]


def parquets() -> list[bytes]:
    """Parquet of several kinds."""
    made = []
    for table, options in (
        (tables()[0], {"compression": "none"}),
        (tables()[1].drop_columns("n"), {"compression": "snappy", "write_page_checksum": True}),
        (
            pa.table({"t": [dt.datetime(2020, 1, 1), None], "x": ["long " * 20, "y"]}),
            {"compression": "zstd", "row_group_size": 1},
        ),
        (pa.table({"d": pa.array([1, 1, 2], pa.int32()), "s": ["a", "a", "b"]}), {"data_page_version": "2.0"}),
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        made.append(sink.getvalue().to_pybytes())
    return made


def delta_commits() -> list[bytes]:
    """Commits of a Delta table: made, appended to by another writer, compacted."""
    stats = '{\\"numRecords\\":2}'
    return [
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n{"metaData":{"id":"x","format":{"provider":"parquet","options":'
        b'{}},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"n\\",\\"type\\":\\"long\\",\\"nullable\\":true,'
        b'\\"metadata\\":{}}]}","partitionColumns":[],"configuration":{"delta.logRetentionDuration":"interval 1 day"}}}\n',
        '{"add":{"path":"p=a%20b/x.parquet","partitionValues":{"p":"a b","d":null},"dataChange":true,"modificationTime":1'
        f',"stats":"{stats}","deletionVector":null}}}}\n{{"txn":{{"appId":"job","version":3}}}}\n'.encode(),
        b'{"commitInfo":{"operation":"OPTIMIZE"}}\n{"remove":{"path":"a.parquet","dataChange":false}}\n{"add":{"path":"b.parquet",'
        b'"dataChange":false}}\n',
    ]


def delta_log(path: Path) -> _DeltaLog:
    """The log of a table in whose folder there is only what a test has put there."""
    log = _DeltaLog(str(path), {}, None)
    log._system = pafs.SubTreeFileSystem(str(path), pafs.LocalFileSystem())
    log._schema = 0, pa.schema({"n": pa.int64()})
    return log


def read_delta_commit(path: Path) -> None:
    """A commit, and no file of it."""
    (path.parent / "_delta_log").mkdir(exist_ok=True)
    path.replace(path.parent / "_delta_log" / f"{1:020}.json")
    delta_log(path.parent).added(1)


def read_delta_checkpoint(path: Path) -> None:
    """The note of the last checkpoint, of a table whose next commit is not there."""
    (path.parent / "_delta_log").mkdir(exist_ok=True)
    path.replace(path.parent / "_delta_log" / "_last_checkpoint")
    delta_log(path.parent).following(299)


def read_delta_file(path: Path) -> None:
    """A data file."""
    system = pafs.SubTreeFileSystem(str(path.parent), pafs.LocalFileSystem())
    file = _DeltaFile(system, "table", path.name, {"p": "7"}, pa.schema({"x": pa.string(), "p": pa.int64()}))
    for piece in range(file.pieces()):
        use(file.read(piece))


def host_files() -> list[bytes]:
    """Host files."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        create_host_files(Path(folder, "hosts.toml"), 2)
        made = Path(folder, "hosts.toml").read_bytes()
    return [
        made,
        b'[[workers]]\naddress = "ipc:///tmp/a"\n[[workers]]\naddress = "ipc:///tmp/b"\nbind = "tcp://[::1]:7"\n',
    ]


@contextmanager
def key_reader() -> Iterator[Read]:
    """The secret key of a worker, read beside its host file."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        public = zmq.curve_public(SECRET.encode()).decode()
        hosts = HostFile(Path(folder, "hosts.toml"), (HostEntry("tcp://10.0.0.5:7700", public),))
        path = hosts.key_path(0)
        path.touch(0o600)

        def read(data: bytes) -> None:
            path.write_bytes(data)
            hosts.keys(0)

        yield read


SECRET = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"


def key_files() -> list[bytes]:
    """Key files."""
    return [f'# Secret key\nsecret_key = "{SECRET}"\n'.encode()]


def positions() -> list[bytes]:
    """Places in a file, as stores keep them."""
    return [msgspec.msgpack.encode(chunk.position) for chunk in read_chunks(jsons()[0])]


def read_position(data: bytes) -> None:
    """Go on at a place in a file that came from a store."""
    position = Typed[Any]("a position", Any).decode(data)
    read_chunks(jsons()[0], position)


def read_chunks(content: bytes, position: Any = None) -> list[Chunk]:
    """The content of a file from a place on."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(content)
        (partition,) = JsonLines(path, as_records=True, epoch=1).partitions(0, 1)
        try:
            partition.seek(position)
            found = []
            while isinstance(chunk := partition.read(), Chunk):
                found.append(chunk)
            return found
        finally:
            partition.close()


def stay(*samples: bytes) -> Callable[[], list[bytes]]:
    """Samples that are written here."""
    return lambda: list(samples)


def read_end(path: Path) -> None:
    """The mark at the end of a streaming query."""
    spark_batches.end(path.parent)


def greeting(sock: socket.socket) -> Callable[[], object]:
    """Waits for a secret."""
    heard = Greeting(b"secret" * 4)
    return lambda: [heard.hear(sock) for _ in range(2)]


def to_child(sock: socket.socket) -> Callable[[], object]:
    """A process, which hears its supervisor."""
    reader = control.Control(sock, control.TO_CHILD)

    def read() -> None:
        for message in reader.read():
            if isinstance(message, control.Watch):
                LAYOUT.decode(message.layout)

    return read


def from_child(sock: socket.socket) -> Callable[[], object]:
    """A supervisor, which hears a process."""
    reader = control.Control(sock, control.FROM_CHILD)

    def read() -> None:
        for message in reader.read():
            match message:
                case control.CapturedBatch(header=header, payload=payload):
                    read_batch(header, payload)
                case control.Returned(value):
                    decode(value)
                case control.Built(outline=outline):
                    read_outline(outline)

    return read


_table_samples: Callable[[], list[bytes]] = lambda: [joined(table)[1] for table in tables()]  # noqa: E731
_frame_samples: Callable[[], list[bytes]] = lambda: [joined(frame)[1] for frame in polars_frames()]  # noqa: E731
_record_samples: Callable[[], list[bytes]] = lambda: [joined(batch)[1] for batch in batches()]  # noqa: E731


TARGETS = {
    target.name: target
    for target in (
        Target("value", lambda: [encode(batch) for batch in batches()], plain(decode), msgpack=True),
        Target("records", _record_samples, plain(partial(read_batch, RECORDS)), msgpack=True),
        Target("arrow", _table_samples, plain(partial(read_batch, ARROW))),
        Target("polars", _frame_samples, plain(partial(read_batch, POLARS))),
        Target("sums of floats", sum_samples, plain(use_sums)),
        Target("sketch", sketch_samples, plain(use_sketch)),
        Target("special values", special_samples, plain(use_special)),
        Target("frame", frames, plain(read_frame), change=change_frame),
        Target("ends of epochs", lambda: [encode_ends(ENDS)], plain(decode_ends), msgpack=True),
        Target(
            "unix link",
            lambda: [b"".join(frames()), frames()[0] + GOODBYE],
            over_a_socket(_link),
            change=lambda random, data: change_frame(random, frames()[0]),
        ),
        Target("host link", zmq_messages, zmq_reader, change=zmq_change),
        Target(
            "host greeting",
            lambda: [msgspec.msgpack.encode(control.Built(2, "fingerprint", json.dumps({"map": {"kind": "map"}})))],
            plain(read_greeting),
            msgpack=True,
        ),
        Target("to monitor", said_to_monitor, plain(protocol.decode_to_monitor), msgpack=True),
        Target("to worker", said_to_worker, plain(protocol.decode_to_worker), msgpack=True),
        Target(
            "to mate",
            lambda: list(map(msgspec.msgpack.encode, (mate_link.Keep("held/1", b"segment"), mate_link.Drop("held/1")))),
            plain(mate_link.TO_MATE.decode),
            msgpack=True,
        ),
        Target(
            "of mate",
            lambda: [msgspec.msgpack.encode(mate_link.Kept("held/1"))],
            plain(mate_link.OF_MATE.decode),
            msgpack=True,
        ),
        Target(
            "holder of a lock",
            lambda: [msgspec.json.encode(lease.Holder(7, "host", "boot 1", "12", "a" * 32, beat=3))],
            plain(lambda data: lease.read_holder(data, "s3://jobs/one")),
        ),
        Target("join", lambda: said_to_monitor()[:1], plain(join), msgpack=True),
        Target("coordinator", said_to_coordinator, plain(tell_coordinator), msgpack=True),
        Target(
            "to child",
            framed(all_packed(TO_CHILD)),
            over_a_socket(to_child),
            change=length_first,
        ),
        Target(
            "from child",
            framed(all_packed(FROM_CHILD)),
            over_a_socket(from_child),
            change=length_first,
        ),
        Target("to page", all_packed(TO_PAGE), plain(page.TO_PAGE.decode), msgpack=True),
        Target("from page", all_packed(FROM_PAGE), plain(page.FROM_PAGE.decode), msgpack=True),
        Target("to spark", all_packed(TO_SPARK), plain(spark.TO_SPARK.decode), msgpack=True),
        Target("from spark", all_packed(FROM_SPARK), plain(spark.FROM_SPARK.decode), msgpack=True),
        Target("from daemon of Spark", all_packed(FROM_DAEMON), plain(spark.FROM_DAEMON.decode), msgpack=True),
        Target("files of tables", all_packed(NOTED), plain(pinned._NOTED.decode), msgpack=True),
        Target("columns that are read", all_packed(READS), plain(reads._NOTE.decode), msgpack=True),
        Target("outcome of a run", all_packed(OUTCOMES), plain(published._OUTCOME.decode), msgpack=True),
        Target("greeting", stay(b"secret" * 4), over_a_socket(greeting)),
        Target("segment", segments, plain(decode_segment), change=change_segment),
        Target("worker record", lambda: [each.head for each in worker_sections()], plain(read_record), msgpack=True),
        Target("monitor record", lambda: [each.head for each in monitor_sections()], plain(read_kept), msgpack=True),
        Target("history frames", lambda: [pack(past_frames())], plain(unpack), change=change_zipped),
        Target("history options", past_options, plain(unpack_options), change=change_zipped),
        Target("job of a bundle", bundled_jobs, plain(read_bundled), msgpack=True),
        Target("head of a bundle", bundle_heads, plain(read_head)),
        Target(
            "stacks of a process",
            lambda: [msgspec.msgpack.encode(stacks_now("w", None))],
            plain(doors._STACKS.decode),
            msgpack=True,
        ),
        Target("samples of a process", samples_of_stacks, plain(doors._PROFILE.decode), msgpack=True),
        Target("answer of py-spy", spied, plain(doors.read_spy)),
        Target("written stacks", traces, plain(lambda data: doors.read_trace(data.decode(errors="replace")))),
        Target("lines of output", stay(b"1 1000 5 o one\n2 2000 5 e two\n"), plain(read_lines)),
        Target("history facts", past_facts, plain(FACT_OF.decode), msgpack=True),
        Target("history counters", past_counters, plain(COUNTERS_OF.decode), msgpack=True),
        Target("history file", lambda: [past_file()], plain(read_archive), change=change_archive),
        Target(
            "worker journal",
            lambda: segments()[:1],
            plain(partial(read_journal, "worker-000")),
            change=change_segment,
        ),
        Target(
            "monitor journal", lambda: segments()[1:2], plain(partial(read_journal, "monitor")), change=change_segment
        ),
        Target(
            "store identity",
            stay(f'{{"type":"falkirk-store","version":{FORMAT},"id":"AAECAwQFBgcICQoLDA0ODw=="}}\n'.encode()),
            plain(read_identity),
        ),
        Target(
            "program on spark",
            stay(
                b'{"outline":{"sums":{"kind":"aggregate","inputs":["0 <- rows:0 by pipe"]}},"columns":{"n":"Int64"},'
                b'"states":{"state_1":"select 1"}}'
            ),
            plain(lambda data: list(read_program(data).changes(ON_SPARK, {"state_1": "agg 'sums'"}))),
        ),
        Target("owner of output", stay(b'{"job":"0123456789abcdef","sink":"files"}'), plain(owner_of)),
        Target("host file", host_files, of_file("hosts.toml", HostFile.load)),
        Target("key file", key_files, key_reader),
        Target("csv", csvs, of_file("a.csv", partial(read_all_of, Csv))),
        Target(
            "csv as records",
            csvs,
            of_file("a.csv", partial(read_all_of, partial(Csv, as_records=True, epoch=2))),
        ),
        Target("json lines", jsons, of_file("a.jsonl", partial(read_all_of, JsonLines))),
        Target("json records", jsons, of_file("a.jsonl", partial(read_all_of, partial(JsonLines, as_records=True)))),
        Target("delta commit", delta_commits, of_file("commit", read_delta_commit)),
        Target("delta checkpoint", stay(b'{"version":199,"size":401}'), of_file("last", read_delta_checkpoint)),
        Target("delta file", parquets, of_file("a.parquet", read_delta_file)),
        Target("parquet", parquets, of_file("a.parquet", partial(read_all_of, partial(Parquet, use_threads=False)))),
        Target(
            "lines",
            stay(b"one\ntwo\r\n", "größe\n".encode()),
            plain(lambda data: LineBuffer("lines", "utf-8").feed(data)),
        ),
        Target("schema", lambda: [write_schema(table.schema) for table in tables()], plain(read_schema)),
        Target(
            "manifest entry",
            lambda: [
                encode(list(ManifestEntry("a", "f.parquet", 1, 2, b"schema", ("g.parquet",)))),
                encode(["a", "f", 1, 2, b"s"]),
            ],
            plain(lambda data: list(entries_of([decode(data)]))),
            msgpack=True,
        ),
        Target("end of query", stay(b"12", b"0"), of_file("end", read_end)),
        Target(
            "spark's message",
            stay(
                b"org.apache.spark.SparkException: ExecutorLostFailure (executor 1 exited) Reason: lost\n\tat a.b(C)",
                b"PythonException: Traceback (most recent call last):\n  File x\n    y\nValueError: z\nSQLSTATE: 1\n\n\tat a",
            ),
            plain(lambda data: read_ending(data.decode(errors="replace"))),
        ),
        Target("position", positions, plain(read_position), msgpack=True),
    )
}
