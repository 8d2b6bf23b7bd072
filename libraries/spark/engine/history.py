"""History of a streaming program: its last micro-batch, in memory or in a store.

    STORE/spark-alone/program                what was kept of which verbs, to tell a program that has changed
    STORE/spark-alone/checkpoint/            what Spark knows: which input each micro-batch is of, and state of its own
    STORE/spark-alone/batch-0000000012/      of the last micro-batch: a folder for each state after it, and what goes out
    STORE/spark-alone/batch-end/             the same for what comes when all input is over

A micro-batch counts from when its folder is there, which is written whole, synced, and renamed into place. Spark has noted by
then which input it is of, and does it again, under the same number, when it has not noted that it is done. Then it is passed
over. What goes out is made visible behind that, and again when nobody knows whether it was: sinks take an epoch again.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from libraries.spark.client.publisher import sync_tree
from libraries.spark.engine.compiler import Compiled, StateView, Streamed
from libraries.spark.files.parquet import sync_folder, write_once
from runtime.folders.scratch import Scratch
from runtime.supervisor.store import JobStore
from timely.data.codec.typed import shown
from timely.dataflow.fingerprint import differences, outline
from timely.dataflow.graph import Graph
from timely.errors import FalkirkError
from timely.time import INF


class KeptProgram(msgspec.Struct, frozen=True):
    """Identity of a program: operators, stream columns, and a query for each state.

    What functions do may change.
    """

    outline: dict[str, dict[str, Any]]
    columns: dict[str, str]
    states: dict[str, str]

    def changes(self, now: KeptProgram, verbs: dict[str, str]) -> Iterator[str]:
        """Differences from another program, a line each; `verbs` names the states' verbs."""
        yield from differences(self.outline, now.outline)
        if self.columns != now.columns:
            yield f"the columns of the stream were {self.columns} and are {now.columns}"
        for name, query in now.states.items():
            if self.states.get(name) != query:
                yield f"{verbs[name]} keeps something else than it did"


_decoder = msgspec.json.Decoder(KeptProgram)


def read_program(data: bytes) -> KeptProgram:
    """Decode a stored program; FalkirkError if it is invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FalkirkError(
            f"the store does not say of which program it is ({shown(error)}): bring all of it back, or choose an empty one"
        ) from None


_CHECKPOINT, _PROGRAM, _ROWS, _WRITTEN = "checkpoint", "program", "rows.parquet", "written"


class StateHistory(Protocol):
    """Micro-batches processed so far.

    `last` is the number of the last one; -1 before the first, INF when all input is over.
    """

    last: int

    @property
    def checkpoint(self) -> str:
        """Location of Spark's checkpoint."""

    def state(self, name: str, first: DataFrame) -> DataFrame:
        """State kept under a name after the last micro-batch; `first` if there is none."""

    def keep(self, number: int, after: Mapping[str, DataFrame], rows: pa.Table) -> None:
        """Record a processed micro-batch: the states after it, and its output rows."""

    def written(self) -> None:
        """Mark the output of the last micro-batch as visible."""

    def check(self) -> None:
        """Raise JobStopped if the run was cancelled."""


class OfARun:
    """In-memory history, for one run."""

    def __init__(self, resources: ExitStack) -> None:
        self.last = -1
        self._scratch = resources.enter_context(closing(Scratch("stream")))
        self._states: dict[str, DataFrame] = {}

    @property
    def checkpoint(self) -> str:
        """See `StateHistory`."""
        return self._scratch.path.as_uri()

    def state(self, name: str, first: DataFrame) -> DataFrame:
        """See `StateHistory`."""
        return self._states.get(name, first)

    def keep(self, number: int, after: Mapping[str, DataFrame], rows: pa.Table) -> None:
        """See `StateHistory`."""
        self._states = {name: frame.localCheckpoint() for name, frame in after.items()}
        self.last = number

    def written(self) -> None:
        """See `StateHistory`."""

    def check(self) -> None:
        """See `StateHistory`."""


class InAStore:
    """Durable history in a store, for later runs of the program."""

    def __init__(self, store: JobStore, graph: Graph) -> None:
        self._store = store
        self._folder = store.folder.spark_mark
        self._folder.mkdir(0o700, exist_ok=True)
        sync_folder(store.folder.path)
        self._synced: dict[str, int] = {}
        self._outline = cast(dict[str, dict[str, Any]], outline(graph))
        if (before := self._before()) is not None:
            self._refuse(before.changes(KeptProgram(self._outline, before.columns, {}), {}))
        for left in self._folder.glob(".batch-*"):
            shutil.rmtree(left)
        self.last = max(map(_number, self._folder.glob("batch-*")), default=-1)

    @property
    def job(self) -> str:
        """The identity of the job."""
        return self._store.id.hex()

    @property
    def checkpoint(self) -> str:
        """See `StateHistory`."""
        return (self._folder / _CHECKPOINT).as_uri()

    def begin(self, compiled: Compiled, streamed: Streamed, session: SparkSession) -> None:
        """Begin a run; FalkirkError for a state or a store that does not fit.

        Raises it if what was kept does not fit the program, or Spark does not see this folder.
        """
        self._check_seen(session)
        states = [view for view in compiled.views if isinstance(view, StateView)]
        columns = {name: str(kind) for name, kind in streamed.schema.items()}
        now = KeptProgram(self._outline, columns, {view.name: view.after for view in states})
        if (before := self._before()) is not None:
            self._refuse(before.changes(now, {view.name: view.verb for view in states}))
            return
        write_once(self._folder / _PROGRAM, msgspec.json.encode(now), durable=True)

    def _before(self) -> KeptProgram | None:
        """Program recorded in the store; None for a new store."""
        try:
            return read_program((self._folder / _PROGRAM).read_bytes())
        except FileNotFoundError:
            return None

    def _check_seen(self, session: SparkSession) -> None:
        """Refuse a Spark cluster without access to this folder."""
        if str(session.sparkContext.master).startswith("local"):
            return
        tried = self._folder / f".batch-{uuid.uuid4().hex}"
        session.range(1).write.parquet(tried.as_uri())
        if not list(tried.glob("part-*")):
            raise FalkirkError(
                f"the Spark at {session.sparkContext.master} does not see the store {self._store.address}: choose a folder "
                "that this machine and all executors share"
            )
        shutil.rmtree(tried)

    def _refuse(self, changes: Iterable[str]) -> None:
        if lines := list(changes):
            raise FalkirkError(
                f"the store {self._store.address} has what another program has kept, so this one cannot go on from there. Run "
                "that one, or choose an empty store:\n  " + "\n  ".join(lines)
            )

    def unwritten(self) -> pa.Table | None:
        """Output of the last micro-batch, if it may not be visible yet; else None."""
        folder = self._of(self.last)
        if self.last < 0 or (folder / _WRITTEN).exists():
            return None
        try:
            return pq.read_table(folder / _ROWS)
        except (OSError, pa.ArrowException) as error:
            raise FalkirkError(f"{folder / _ROWS} cannot be read: {error}; bring all of the store back") from error

    def state(self, name: str, first: DataFrame) -> DataFrame:
        """See `StateHistory`."""
        if self.last < 0:
            return first
        plain = StructType([type(each)(f"c{n}", each.dataType) for n, each in enumerate(first.schema)])
        read = first.sparkSession.read.schema(plain).parquet((self._of(self.last) / name).as_uri())
        return read.toDF(*first.columns)

    def keep(self, number: int, after: Mapping[str, DataFrame], rows: pa.Table) -> None:
        """See `StateHistory`."""
        hidden = self._folder / f".batch-{uuid.uuid4().hex}"
        hidden.mkdir(0o700)
        for name, frame in after.items():
            plain = frame.toDF(*(f"c{n}" for n in range(len(frame.columns))))
            plain.write.parquet((hidden / name).as_uri())
        pq.write_table(rows, hidden / _ROWS)
        sync_tree(hidden, {})
        # The batch must not outlive what says which input it is of.
        sync_tree(self._folder / _CHECKPOINT, self._synced)
        hidden.rename(self._of(number))
        sync_folder(self._folder)
        if self.last >= 0:
            shutil.rmtree(self._of(self.last))
        self.last = number

    def written(self) -> None:
        """See `StateHistory`."""
        (self._of(self.last) / _WRITTEN).touch()

    def check(self) -> None:
        """See `StateHistory`."""
        self._store.check_stop(savepoints=False)

    def _of(self, number: int) -> Path:
        return self._folder / ("batch-end" if number == INF else f"batch-{number:010}")


def _number(folder: Path) -> int:
    number = folder.name.removeprefix("batch-")
    return INF if number == "end" else int(number)
