"""Messages of the process that runs Spark, with the one that needs it and with the keeper of Java: MessagePack over sockets.

A function of the user's travels as a pickle, from the process that holds the program to the one that was made for it.
"""

from __future__ import annotations

import uuid
from typing import Literal, TypeAlias

import msgspec

from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.files.small import Written
from timely.data.codec.typed import Typed

SERVE, END, LEAVE = b"S", b"E", b"L"
"""The first byte of a connection: give me a child; end Java; end, with all that there is."""

Kind: TypeAlias = Literal["region", "source", "sink"]

Read: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Of inputs, by name, the columns that a query reads."""

ASKS, OPENS, SETTLED = b"?", b"+", b"!"
"""Bytes from a child to the keeper: what was printed last? I open one more session on the server. I have a session."""

FOLDER = "{falkirk-folder}"
"""The placeholder, in the settings, for the folder of a Java."""


class Frames(msgspec.Struct, frozen=True):
    """One input of a run: Parquet files, all of the serialized Arrow schema `schema`."""

    name: str
    schema: bytes
    files: tuple[str, ...]


class Query(msgspec.Struct, frozen=True):
    """A function (a pickle) or SQL over frames, of whose names the first of each pair is that within, with tables by name. What
    comes of it is called `name`.

    `region` is the region whose step it is, in whose session it is done; by default that which has the run. What comes of the
    step of a region that is fused with another is written into the folder `kept`, where the two cannot be one query.
    """

    name: str
    inputs: tuple[tuple[str, str], ...]
    tables: tuple[str, ...]
    function: bytes | None
    sql: str | None
    region: str = ""
    kept: str = ""


class RunTask(msgspec.Struct, tag=True, frozen=True):
    """To the child: run the last of `queries`, over `inputs` and what comes of the others, and write its rows into `output`.

    `tables` is a pickle of what else the queries may use, by name, and `pinned` are tables whose files are known. Files hold at
    most `rows` rows, or (0) any number. The function may ask for `epoch`, and for `attempt`, which no other attempt at it has;
    `first` is the first one of this worker. For a "source" it is given a session instead of inputs; that of a "sink" writes by
    itself, and nothing comes out. Of an input that it `learns` files may lack columns, and the outcome says which are read.
    """

    number: int
    kind: Kind
    epoch: int
    attempt: int
    first: bool
    region: str
    queries: tuple[Query, ...]
    inputs: tuple[Frames, ...]
    tables: bytes
    pinned: tuple[tuple[str, tuple[PinnedFile, ...]], ...]
    output: str
    rows: int
    learns: tuple[str, ...] = ()


class Follow(msgspec.Struct, tag=True, frozen=True):
    """To the child: run the streaming query that `function` (a pickle) makes, and keep its micro-batches in `folder`.

    `query` is SQL over it, or None. `mode` is Spark's output mode. `every` is the trigger's interval in seconds; `now`
    ends the query when it has read all there is. Files hold at most `rows` rows, and are dealt out to `workers`. At most
    `ahead` batches are there that were not read: those before `consumed` were. `durable`: what is published is synced.
    """

    number: int
    name: str
    function: bytes
    query: str | None
    folder: str
    mode: str
    every: float | None
    now: bool
    rows: int
    workers: int
    ahead: int
    consumed: int
    durable: bool


class Consumed(msgspec.Struct, tag=True, frozen=True):
    """To the child: the batches before `batch` of a streaming query were read."""

    number: int
    batch: int


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """To the child: nobody waits for this run, or for more of this query, any more."""

    number: int


class Ready(msgspec.Struct, tag=True, frozen=True):
    """From the child: Spark runs, in the process `jvm` of this machine, or (None) elsewhere. `page`: where its own page is."""

    jvm: int | None
    version: str
    page: str | None = None


class Waits(msgspec.Struct, tag=True, frozen=True):
    """From the child: Spark is not there yet; why."""

    text: str


class RunProgress(msgspec.Struct, tag=True, frozen=True):
    """From the child: so many of the tasks known so far are done; of a streaming query, so many batches are there."""

    number: int
    done: int
    total: int


class QueryProgress(msgspec.Struct, tag=True, frozen=True):
    """From the child: the batch that a streaming query is at, what it does or waits for, and the input rows of the last one."""

    number: int
    batch: int
    what: str
    rows: int


class Done(msgspec.Struct, tag=True, frozen=True):
    """From the child: a run is over; what came of it, and of inputs the columns that it read, where that is known.

    Of a streaming query nothing comes.
    """

    number: int
    written: Written
    read: Read = ()


class RunFailed(msgspec.Struct, tag=True, frozen=True):
    """From the child: a run has failed, or (number -1) Spark did not start, or is gone. `again`: it may help to try again.

    `printed` is what Java printed, where it is gone. `ended`: there is no Java any more to be ended. `lost`: it was killed, or
    a server does not answer, whatever was run.
    """

    number: int
    text: str
    again: bool
    printed: str = ""
    ended: bool = False
    lost: bool = False


class Orders(msgspec.Struct, frozen=True):
    """The orders of a keeper: they come on the keeper's standard input.

    `address` is that of its socket, and the job is over when the file `owner` is not locked any more. What is kept is a
    Java, which the keeper starts, or what others have on a Spark Connect server.
    """

    address: str
    owner: str
    nice: int
    what: JavaOrders | ServerOrders | SailOrders


class JavaOrders(msgspec.Struct, tag=True, frozen=True):
    """The Java that a keeper starts, with the `settings` of its Spark."""

    settings: dict[str, str]
    java_home: str
    vector: bool
    spare: bool


class ServerOrders(msgspec.Struct, tag=True, frozen=True):
    """A Spark Connect server: its address, with what is secret; for how many seconds it is waited for; and settings.

    `shared`: whether it sees the job's files, if that is known.
    """

    url: str
    seconds: float
    settings: dict[str, str]
    shared: bool | None
    sail: bool = False


class SailOrders(msgspec.Struct, tag=True, frozen=True):
    """The Sail that a keeper starts, by a `python` of its own. The rest is as of a server, whose address is not known yet."""

    python: str
    server: ServerOrders


class PrintedText(msgspec.Struct, tag=True, frozen=True):
    """From the keeper, and on from the child: what was printed since the last one; or (`kept`) the last lines, for an error."""

    text: str
    kept: bool


class JavaUp(msgspec.Struct, tag=True, frozen=True):
    """From the keeper: Java runs, and listens. `settings` are those of its Spark; `used`: others have had a session there."""

    pid: int
    port: int
    secret: str
    settings: dict[str, str]
    used: bool = False


class ServerUp(msgspec.Struct, tag=True, frozen=True):
    """From the keeper: where the server is. The child's sessions there have ids that are made from `root` (`session_id`).

    `pid` is the process of one that the keeper has started.
    """

    server: ServerOrders
    root: str
    pid: int | None = None


class Release(msgspec.Struct, tag=True, frozen=True):
    """From the keeper: release the first `count` sessions of a child that is gone, and what runs in them."""

    server: ServerOrders
    root: str
    count: int


class SparkEnded(msgspec.Struct, tag=True, frozen=True):
    """From the keeper: Spark has ended; how, in words; and whether it was killed."""

    how: str
    killed: bool = False


ToSpark = RunTask | Follow | Consumed | Cancel
FromSpark = Ready | Waits | RunProgress | QueryProgress | Done | RunFailed | PrintedText
FromKeeper = JavaUp | ServerUp | Release | SparkEnded | PrintedText


def session_id(root: str, number: int) -> str:
    """The id of a child's session on a server: known to the keeper, too, who releases it when the child is gone."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{root} {number}"))


encode = msgspec.msgpack.Encoder().encode
TO_SPARK: Typed[ToSpark] = Typed("what the job says to Spark's process", ToSpark)
FROM_SPARK: Typed[FromSpark] = Typed("what Spark's process says", FromSpark)
FROM_KEEPER: Typed[FromKeeper] = Typed("what the keeper of Java says", FromKeeper)
