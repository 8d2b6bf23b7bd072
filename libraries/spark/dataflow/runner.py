"""Function or query of a region in executable form for Spark."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import msgspec

from libraries.spark.dataflow.fusing import Step
from libraries.spark.dataflow.views import Viewed
from libraries.spark.errors import SparkError
from libraries.spark.files.parquet import epoch_of, named_by, sync_folder
from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.files.reads import Reads
from libraries.spark.files.schemas import read_schema
from libraries.spark.files.small import Written
from libraries.spark.host.host import SparkHost, host_of
from libraries.spark.protocol import Frames, Kind, Query, Read, RunTask
from libraries.spark.setup.options import SparkOptions
from timely.operators.base import JobContext

_packing = threading.Lock()
"""Guards packing: registration of modules by value is global to the process.

Regions are packed in threads of their own.
"""


class SparkRunner:
    """Runs a function or SQL text on Spark, with `tables` by name and `options`.

    `whole` gives it with its views, and the steps that are fused with it, which have tables, too; by default it is the only
    one, over all that there are files of, in their order.
    """

    def __init__(
        self,
        region: str,
        what: Callable[..., Any] | str,
        tables: Mapping[str, Any],
        options: SparkOptions,
        kind: Kind = "region",
        whole: Callable[[], Step] | None = None,
    ) -> None:
        self._kind = kind
        self._region = region
        self._what = what
        self._tables = dict(tables)
        self._options = options
        self._whole = whole
        self._packed: tuple[list[Query], bytes] | None = None
        self._reads: dict[str, Reads] = {}
        """Column usage notes of the streams observed by the run."""
        self._noted: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._asks = False
        """True if a function asks for the number of its attempt."""

    @property
    def host(self) -> SparkHost:
        """The Spark of this process."""
        return host_of(self._options)

    def warm(self) -> None:
        """Begin to start Spark, and return at once."""
        self.host.warm()

    def run(
        self,
        context: JobContext,
        inputs: Mapping[str, tuple[bytes, list[str]]],
        tables: Mapping[str, Sequence[PinnedFile]],
        output: str,
        rows: int,
    ) -> Written:
        """Run it over the files of `inputs` and `tables`.

        Raises SparkError if that cannot be done.
        """
        if self._packed is None:  # not before: what the functions refer to may be defined after the dataflow
            if self._whole is None:
                steps = [Viewed("", tuple((name, name) for name in inputs), self._what, (*self._tables, *tables))]
                others = self._tables
            else:
                whole = self._whole()
                steps, others, self._reads = list(whole.queries), dict(whole.others), dict(whole.learns)
            self._packed = [_query(each) for each in steps], pack(others, "tables=")
            self._asks = any(asks_for("attempt", each.what) for each in steps)
        queries, packed = self._packed
        kept = [
            msgspec.structs.replace(each, kept=f"{output}-{number}-kept") if each.kept else each
            for number, each in enumerate(queries)
        ]
        task = RunTask(
            number=-1,
            kind=self._kind,
            epoch=epoch_of(Path(output)),
            attempt=0,
            first=True,
            region=self._region,
            queries=tuple(kept),
            inputs=tuple(Frames(name, schema, tuple(files)) for name, (schema, files) in inputs.items()),
            tables=packed,
            pinned=tuple((name, tuple(files)) for name, files in tables.items()),
            output=output,
            rows=rows,
            learns=tuple(self._reads),
        )
        claim = None
        if self._asks:
            folder = context.folder(f"{self._region}/in")
            claim = partial(claim_attempt, folder, task.epoch, context.durable)
        try:
            written, read = self.host.run(task, context.report, lambda: context.stopped, context.note, claim)
            self._note(context, inputs, read)
            return written
        finally:
            for each in kept:
                if each.kept:
                    shutil.rmtree(each.kept, ignore_errors=True)

    def _note(self, context: JobContext, inputs: Mapping[str, tuple[bytes, list[str]]], read: Read) -> None:
        """Note the columns read by the run, unless they are known."""
        for stream, columns in read:
            known = inputs[stream][0], columns
            if self._noted.get(stream) != known:
                self._noted[stream] = known
                self._reads[stream].note(context, read_schema(known[0]).names, columns)


def asks_for(name: str, what: Callable[..., Any] | str) -> bool:
    """True if a function has a parameter of this name."""
    try:
        return callable(what) and name in inspect.signature(what).parameters
    except (TypeError, ValueError):  # it does not say
        return False


def _query(each: Viewed) -> Query:
    function = pack(each.what, "the function") if callable(each.what) else None
    sql = None if callable(each.what) else each.what
    return Query(each.name, each.inputs, each.tables, function, sql, each.region, "kept" if each.kept else "")


def pack(what: Any, called: str, functions: Iterable[Any] = ()) -> bytes:
    """Pickle for Spark's processes, with the program's own functions by value.

    `functions` are those within `what`, where that is neither a function nor a dict of them. Raises SparkError for what cannot
    be pickled.
    """
    modules = {module for each in (*_functions(what), *functions) if (module := _own_module(each)) is not None}
    with _packing:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            packed: bytes = cloudpickle.dumps(what)
        except Exception as error:
            raise SparkError(f"{called} cannot be sent to Spark: {type(error).__name__}: {error}") from error
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
    return packed


def _functions(what: Any) -> list[Any]:
    return [each for each in (what.values() if isinstance(what, dict) else [what]) if callable(each)]


def _own_module(function: Any) -> ModuleType | None:
    """Module of a function in the user's program; None for an installed package."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or "site-packages" in file:
        return None
    return None if file.startswith(sysconfig.get_paths()["stdlib"]) else module


def claim_attempt(folder: Path, epoch: int, durable: bool) -> int:
    """Claim the next attempt number of an epoch."""
    for number in count():
        try:
            os.close(
                os.open(folder / f"{named_by(epoch)}-{number}.attempt", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            )
        except FileExistsError:
            continue
        if durable:
            sync_folder(folder)
        return number
    raise AssertionError  # there is always one more
