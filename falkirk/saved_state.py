"""Saved state of operators as tables: `falkirk.state`, and `falkirk state`.

The program makes its operators once more, and these load what the store has of them, so every kind of state is read by its
own code. Journals are read beside the running job, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from libraries.columns.state.rows import SHARD
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.reading import read_checkpoints
from recovery.checkpoint.saved_states import SavedStates
from recovery.layout import Layout, ProcessorInfo
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import NEVER, Bound, depth_of, to_frontier
from recovery.store.address import StoreAddress, Where
from recovery.store.interface import OpenStore, StoreBusy
from runtime.page.recorded import read_job
from runtime.program import Program
from timely.data.batch import as_polars
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import Plan, compile_plan
from timely.errors import FalkirkError
from timely.state.interface import Run, State
from timely.state.keyed import KeyedState
from timely.state.parts import Parts
from timely.state.scopes import Scopes
from timely.state.shapes import digest_of, shape_of, shown
from timely.state.timed import TimedValues
from timely.time import Frontier
from timely.worker.processor import build_operator

_TRIES = 5
"""Most readings of a journal being written."""


@dataclass(frozen=True)
class SavedOperator:
    """Operator with state in a store.

    Attributes:
        name, kind, site: as in the program.
        state: kinds of its parts, in words.
        epochs: newest first, those with a checkpoint on every worker: the state at one is that after it. None is the end.
    """

    name: str
    kind: str
    site: str
    state: str
    epochs: tuple[int | None, ...]


class StoreReader:
    """Reader of the states in a store, by means of its program.

    Raises FalkirkError if there is no job in the store, or its files are damaged.
    """

    def __init__(self, program: Dataflow | Callable[..., Dataflow] | Program, where: Where) -> None:
        self._program = program if isinstance(program, Program) else Program(flow=program)
        with StoreAddress.of(where).open() as store:
            identity, self._layout, _ = read_job(store)
            self._saved = SavedStates(
                [_read(store, identity, self._layout, worker) for worker in range(self._layout.workers)]
            )

    @cached_property
    def _plan(self) -> Plan:
        return compile_plan(self._program.build().graph, self._layout.workers)

    def operators(self) -> list[SavedOperator]:
        """Operators with saved state, in the order of the program."""
        return [
            SavedOperator(info.name, info.kind, info.site, shown(info.state or ()), self._epochs(p))
            for p, info in enumerate(self._layout.processors)
            if info.state and self._saved.bounds(p)
        ]

    def table(self, operator: str, at: int | None = None, since: int | None = None) -> dict[str, pl.DataFrame]:
        """Tables of an operator's state by part; parts without rows have none.

        Args:
            at: the last epoch in it, one of its `epochs`; the newest by default.
            since: an earlier one; the rows are then those that differ, with a column `change`: 1 for new rows, -1 for gone.

        Columns: `worker`; `epoch`, for states by time, and `time` in loops; then `key` and `value` of keyed states, `record` of
        records, or the columns that the operator keeps. Values that are no column of one type are shown as texts.

        Raises FalkirkError for an operator or epoch that is not there, and if the program has another state now.
        """
        p, info = self._find(operator)
        now = self._tables(p, info, self._bound(p, info, at))
        if since is None:
            return now
        before = self._tables(p, info, self._bound(p, info, since))
        parts = {part: _differences(before.get(part), now.get(part)) for part in dict.fromkeys([*now, *before])}
        return {part: frame for part, frame in parts.items() if len(frame)}

    def _epochs(self, p: int) -> tuple[int | None, ...]:
        bounds = reversed(self._saved.bounds(p))
        return tuple(dict.fromkeys(None if bound[0] == NEVER else bound[0] - 1 for bound in bounds if bound[0]))

    def _find(self, operator: str) -> tuple[int, ProcessorInfo]:
        for p, info in enumerate(self._layout.processors):
            if operator == info.name or operator in info.members:
                if not info.state:
                    raise FalkirkError(f"{operator!r} ({info.site}) keeps no state that is saved")
                if not self._saved.bounds(p):
                    raise FalkirkError(
                        f"{info.kind} {info.name!r} ({info.site}) has no checkpoint that all workers share: its "
                        f"policy is {info.policy}"
                    )
                return p, info
        there = ", ".join(each.name for each in self.operators()) or "none"
        raise FalkirkError(f"there is no operator {operator!r} in the store; those with state are: {there}")

    def _bound(self, p: int, info: ProcessorInfo, at: int | None) -> Bound:
        bounds = self._saved.bounds(p)
        if at is None:
            return bounds[-1]
        found = [bound for bound in bounds if bound[0] == at + 1 and not any(bound[1:])]
        if not found:
            kept = ", ".join("the end" if epoch is None else str(epoch) for epoch in self._epochs(p))
            raise FalkirkError(f"the store has no state of {info.kind} {info.name!r} after epoch {at}; it has: {kept}")
        return found[0]

    def _tables(self, p: int, info: ProcessorInfo, bound: Bound) -> dict[str, pl.DataFrame]:
        found: dict[str, list[pl.DataFrame]] = {}
        for worker, runs in enumerate(self._saved.runs(p, bound)):
            state = self._state(info)
            state.restore(runs)
            for part, frame in _frames(state, bound, worker):
                found.setdefault(part, []).append(frame)
        return {part: _joined(frames) for part, frames in found.items()}

    def _state(self, info: ProcessorInfo) -> State:
        """Empty state of the program's operator of that name."""
        of_that_name = (each for each in self._plan.processors if each.node.name == info.name)
        for processor in of_that_name:
            operator = build_operator(processor, [])
            shape = shape_of(operator.state, {})
            if operator.state is not None and digest_of(shape) == digest_of(info.state or ()):
                return operator.state
            raise FalkirkError(
                f"{info.kind} {info.name!r} ({info.site}): its state in the store is {shown(info.state or ())}, and "
                f"{shown(shape) or 'none'} in this program: read the store with the program that wrote it"
            )
        raise FalkirkError(
            f"the program has no operator {info.name!r}, and the store has ({info.kind}, {info.site}): read the store with the "
            "program that wrote it"
        )


def state(
    program: Dataflow | Callable[..., Dataflow] | Program,
    store: Where,
    operator: str,
    at: int | None = None,
    since: int | None = None,
) -> pl.DataFrame:
    """Saved state of an operator as a table, of a running or ended job.

    Args:
        program: the program that wrote the store.
        at: the last epoch in the state; the newest saved one by default.
        since: an earlier epoch, for the differences between both, in a column `change`.

    Columns are those of `StoreReader.table`; a state with several parts has a column `part`, and nulls for others' columns.

    Raises FalkirkError for an operator or epoch that is not there, or a store without a job.

    >>> from tempfile import TemporaryDirectory
    >>> flow = falkirk.Dataflow()
    >>> _ = flow.source("in", falkirk.Iterable("abca")).key_by(lambda c: c).count(name="counts").capture("out")
    >>> with TemporaryDirectory() as store:
    ...     _ = falkirk.run(flow, store=store)
    ...     sorted(falkirk.state(flow, store, "counts").select("key", "value").rows())
    [('a', 2), ('b', 1), ('c', 1)]
    """
    return one_table(StoreReader(program, store).table(operator, at, since))


def one_table(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Tables of parts in one, with a column `part` if there are several."""
    if len(tables) > 1:
        parts = [frame.select(pl.lit(part).alias("part"), pl.all()) for part, frame in tables.items()]
        return pl.concat(parts, how="diagonal_relaxed")
    return next(iter(tables.values()), pl.DataFrame())


def _read(store: OpenStore, identity: bytes, layout: Layout, worker: int) -> Checkpoints:
    for _ in range(_TRIES - 1):
        with suppress(StoreBusy):
            return read_checkpoints(store, identity, layout, worker, WorkerRecorder(layout, worker))
    return read_checkpoints(store, identity, layout, worker, WorkerRecorder(layout, worker))


def _frames(state: State, bound: Bound, worker: int) -> Iterator[tuple[str, pl.DataFrame]]:
    """Content of a restored state by part, as of `bound`."""
    parts: dict[int | str, State] = state.named if isinstance(state, Parts) else {0: state}
    upto = to_frontier(bound)
    state.compact(upto)  # the last values alone, without what they have replaced
    for run in state.snapshot(upto, Frontier.empty(depth_of(bound))):
        frame = _frame(parts.get(run.part, state), run)
        if len(frame):
            yield str(run.part), frame.insert_column(0, pl.lit(worker, pl.Int32).alias("worker"))


def _frame(state: State, run: Run) -> pl.DataFrame:
    """Rows of a run, with the epoch where the state is by time."""
    time = run.time if run.slot is None else run.slot
    if isinstance(run.batch, list):
        frame = _records(state, run.batch)
    else:
        frame = as_polars(run.batch)
        frame = frame.drop(SHARD, strict=False)
    if isinstance(state, Scopes) and len(time) == 1:
        return frame  # it runs on: the time is that of its last write
    frame = frame.insert_column(0, pl.lit(time[0], pl.Int64).alias("epoch"))
    inner = time[1:-1] if isinstance(state, Scopes) else time[1:]
    return frame.insert_column(1, pl.lit(str(inner)).alias("time")) if inner else frame


def _records(state: State, records: list[Any]) -> pl.DataFrame:
    if isinstance(state, KeyedState | TimedValues):  # shard, key, value
        there = [record for record in records if len(record) == 3]
        return pl.DataFrame(
            [_series("key", [each[1] for each in there]), _series("value", [each[2] for each in there])]
        )
    return pl.DataFrame([_series("record", records)])


def _series(name: str, values: list[Any]) -> pl.Series:
    """Column of values, or of their texts if they have several types."""
    try:
        found = pl.Series(name, values)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        found = pl.Series(name, [], dtype=pl.Object)
    return pl.Series(name, [repr(value) for value in values], dtype=pl.String) if found.dtype == pl.Object else found


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Rows of all workers; columns of different types become texts."""
    try:
        return pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError:
        return pl.concat(
            [frame.select(_as_text(frame, name) for name in frame.columns) for frame in frames], how="diagonal"
        )


def _as_text(frame: pl.DataFrame, name: str) -> pl.Series:
    return frame[name] if name in ("worker", "epoch") else pl.Series(name, [repr(value) for value in frame[name]])


def _differences(before: pl.DataFrame | None, now: pl.DataFrame | None) -> pl.DataFrame:
    """Differences between two tables: 1 for a new row, -1 for one gone."""
    signed = [
        frame.with_columns(pl.lit(sign, pl.Int64).alias("change"))
        for frame, sign in ((before, -1), (now, 1))
        if frame is not None
    ]
    both = _joined(signed)
    columns = [name for name in both.columns if name != "change"]
    found = both.group_by(columns, maintain_order=True).agg(pl.col("change").sum())
    return found.filter(pl.col("change") != 0)
