"""Messages between worker, Spark client process and Spark daemon, in MessagePack.

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
"""First byte of a connection to the daemon: fork a client; end Java; end all."""

Kind: TypeAlias = Literal["region", "source", "sink"]

Read: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Columns used by a query, by input."""

ASKS, OPENS, SETTLED = b"?", b"+", b"!"
"""Bytes to the daemon: request for last output; session to open; session open."""

FOLDER = "{falkirk-folder}"
"""Placeholder for the folder of a Java, in settings."""


class Frames(msgspec.Struct, frozen=True):
    """Input of a run: Parquet files, all with the serialized Arrow schema `schema`."""

    name: str
    schema: bytes
    files: tuple[str, ...]


class Query(msgspec.Struct, frozen=True):
    """Function (a pickle) or SQL over inputs and tables; its result is called `name`.

    `inputs` are pairs: the name within the query, and the name of the frames. Tables are given by name.

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
    """To the client: run the last of `queries` and write its rows into `output`.

    It is over `inputs` and what comes of the other queries.

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
    """To the client: run the streaming query of `function`, batches go to `folder`.

    `function` is a pickle. `query` is SQL over it, or None. `mode` is Spark's output mode. `every` is the trigger's
    interval in seconds; `now` ends the query when it has read all there is. Files hold at most `rows` rows, and are
    dealt out to `workers`. At most `ahead` batches are there that were not read: those before `consumed` were.
    `durable`: what is published is synced.
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
    """To the client: batches of a streaming query before `batch` were read."""

    number: int
    batch: int


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """To the client: cancel a run, or a streaming query."""

    number: int


class Ready(msgspec.Struct, tag=True, frozen=True):
    """From the client: Spark is up, as process `jvm` here, or (None) elsewhere.

    `page`: the address of Spark's own page.
    """

    jvm: int | None
    version: str
    page: str | None = None


class Waits(msgspec.Struct, tag=True, frozen=True):
    """From the client: Spark is not up yet, with the reason."""

    text: str


class RunProgress(msgspec.Struct, tag=True, frozen=True):
    """From the client: tasks done and known; for a streaming query, batches published."""

    number: int
    done: int
    total: int


class QueryProgress(msgspec.Struct, tag=True, frozen=True):
    """From the client: a query's current batch, its activity, last batch's input rows."""

    number: int
    batch: int
    what: str
    rows: int


class Done(msgspec.Struct, tag=True, frozen=True):
    """From the client: a run is over; its result, and the columns used of its inputs.

    Of columns there are only those that are known. Of a streaming query nothing comes.
    """

    number: int
    written: Written
    read: Read = ()


class RunFailed(msgspec.Struct, tag=True, frozen=True):
    """From the client: a run has failed, or (number -1) Spark; `again`: transient.

    With -1 Spark did not start, or is gone.

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
    """Orders of a Spark daemon, sent on its standard input.

    `address` is that of its socket, and the job is over when the file `owner` is not locked any more. What is kept is a
    Java, which the daemon starts, or what others have on a Spark Connect server.
    """

    address: str
    owner: str
    nice: int
    what: JavaOrders | ServerOrders | SailOrders


class JavaOrders(msgspec.Struct, tag=True, frozen=True):
    """Java for a Spark daemon to start, with the `settings` of its Spark."""

    settings: dict[str, str]
    java_home: str
    vector: bool
    spare: bool


class ServerOrders(msgspec.Struct, tag=True, frozen=True):
    """Spark Connect server: address with secrets, seconds to wait for it, settings.

    `shared`: whether it sees the job's files, if that is known.
    """

    url: str
    seconds: float
    settings: dict[str, str]
    shared: bool | None
    sail: bool = False


class SailOrders(msgspec.Struct, tag=True, frozen=True):
    """Sail for a Spark daemon to start, with a `python` of its own.

    The rest is as of a server, whose address is not known yet.
    """

    python: str
    server: ServerOrders


class PrintedText(msgspec.Struct, tag=True, frozen=True):
    """From the daemon, passed on: new output; or (`kept`) last lines, for an error."""

    text: str
    kept: bool


class JavaUp(msgspec.Struct, tag=True, frozen=True):
    """From the daemon: Java is up; `used`: others have had a session there.

    `settings` are those of its Spark.
    """

    pid: int
    port: int
    secret: str
    settings: dict[str, str]
    used: bool = False


class ServerUp(msgspec.Struct, tag=True, frozen=True):
    """From the daemon: address of the server; session ids derive from `root`.

    See `session_id`. `pid` is the process of one that the daemon has started.
    """

    server: ServerOrders
    root: str
    pid: int | None = None


class Release(msgspec.Struct, tag=True, frozen=True):
    """From the daemon: release a dead client's first `count` sessions, work included."""

    server: ServerOrders
    root: str
    count: int


class SparkEnded(msgspec.Struct, tag=True, frozen=True):
    """From the daemon: end of Spark, with a description; `killed` if by a signal."""

    how: str
    killed: bool = False


ToSpark = RunTask | Follow | Consumed | Cancel
FromSpark = Ready | Waits | RunProgress | QueryProgress | Done | RunFailed | PrintedText
FromDaemon = JavaUp | ServerUp | Release | SparkEnded | PrintedText


def session_id(root: str, number: int) -> str:
    """Id of a client's session on a server, also known to the daemon for its release."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{root} {number}"))


encode = msgspec.msgpack.Encoder().encode
TO_SPARK: Typed[ToSpark] = Typed("what the job says to Spark's process", ToSpark)
FROM_SPARK: Typed[FromSpark] = Typed("what Spark's process says", FromSpark)
FROM_DAEMON: Typed[FromDaemon] = Typed("what the daemon of Spark says", FromDaemon)
