"""View of a job at one moment, and its changes. Pure: no clock, no sockets.

The monitor hands over an `Observation`, which holds references only and costs it nothing. All that is computed from that is
computed in arrays, workers by operators, and folded to the nodes that are drawn: a *row* a node, with one character a worker.
What a page gets is rows that differ from those that it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from monitor.coordination.supervision import MateView
from monitor.explain.exposure import Danger
from monitor.explain.verdict import UNJUDGED, Verdict
from monitor.web.fold import Folding
from recovery.layout import Layout
from recovery.metadata import Bound
from recovery.protocol import END, ROWS, Observed
from timely.time import Time

Table = npt.NDArray[np.int64]
Row = tuple[int | float | str, ...]

FIELDS = (
    "progress",  # epoch of the least time that may still come, on any worker; -1: none will; -2: nobody knows
    "progress_inner",
    "low",  # epoch of the least rollback frontier of any worker; -1: everything is kept for good
    "low_inner",
    "taken",  # records a second
    "sent",  # records a second
    "busy",  # of one worker's time, all workers together
    "pending",
    "held",
    "queued",
    "rows",
    "bytes",
    "logged",
    "unsafe",  # since when a failure may undo work, in seconds since 1970; -1: there is none; -2: nobody knows
    "bars",  # a character a worker, 0 to z
)
"""Fields of a node's row, in order."""

_IN_MEMORY = ("pending", "held", "queued", "rows", "bytes")
"""Numbers lost with a process, in a row."""

COUNTED = ("taken", "sent", "busy")
"""Growing rows of an observation, counted since the process began."""

BARS = ("busy", "taken", "bytes", "queued", "lag")
"""Measures for the bars of workers."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SMOOTH = 0.5
_LATENCY_SECONDS = 10.0
_MOST_REACHED = 4000

STALE_SECONDS = 3.0
"""Age of stale observations, in seconds."""

ENDED, UNKNOWN = -1, -2
"""Values in place of an epoch: no more to come, and unknown."""

_AT = {name: number for number, name in enumerate(ROWS)}


@dataclass(frozen=True, slots=True)
class WorkerView:
    """Process at a place as the monitor sees it."""

    presence: str
    incarnation: int
    failures: int


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """Counters of ended processes of one worker, as last observed.

    `records` is an array of 64-bit integers: the rows `COUNTED` of all of them, a column an operator.
    """

    read: int
    written: int
    records: bytes


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of the job: references to the monitor's data, never changed.

    `low` is W, `[worker][processor]`; `completed` by worker and group; `workers` in the order of `recovery.place.places`;
    `samples` the last report of each worker, with the time at which it came.
    """

    at: float
    phase: str
    generation: int
    low: tuple[tuple[Bound, ...], ...]
    completed: tuple[tuple[int, ...] | None, ...]
    workers: tuple[WorkerView, ...]
    samples: Mapping[int, tuple[float, Observed]]
    verdict: Verdict = UNJUDGED
    live: bool = True
    """False if the job has ended; data from memory only is then unknown."""
    read: Mapping[int, tuple[int, int | None]] = field(default_factory=dict)
    """Numbers read before by sources of workers now in long turns.

    As in `Observed.read` and `Observed.newest`.
    """
    exposure: tuple[Danger, ...] = ()
    """Cost of the death of each worker, and of the monitor, now; () if unknown."""
    gone: Mapping[int, Gone] = field(default_factory=dict)
    """Counters of ended processes, by worker."""
    mates: tuple[MateView, ...] = ()

    def told(self) -> dict[str, Any]:
        """Verdict as JSON, with exposure and mates, for /api/verdict and `falkirk status`."""
        mates = [msgspec.structs.asdict(mate) for mate in self.mates] if self.live else []
        return {**self.verdict.as_json(), "exposure": [each.as_json() for each in self.exposure], "mates": mates}


@dataclass(frozen=True, slots=True)
class Columns:
    """Arrays of a view, by worker and operator.

    Rates are records a second and shares of the time; `table` is `[worker, row, operator]`, by ROWS; `reads` are records that
    sources of each worker read a second.
    """

    progress: Table
    low: Table
    taken: npt.NDArray[np.float64]
    busy: npt.NDArray[np.float64]
    table: Table
    reads: npt.NDArray[np.float64]


class View:
    """Newest observation in arrays, `[worker, processor]`, with rates."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.version = 0
        self.observation: Observation | None = None
        shape = layout.workers, len(layout.processors)
        self._low = np.zeros(shape, dtype=np.int64)
        self._low_inner = np.zeros(shape, dtype=np.int64)
        self._low_seen: list[tuple[Bound, ...] | None] = [None] * layout.workers
        depths = [info.depth for info in layout.processors]
        self._first = np.concatenate([[0], np.cumsum(depths)[:-1]]).astype(np.intp)
        self._second = np.where(np.array(depths, dtype=np.int64) > 1, self._first + 1, self._first)
        self._deep = np.array(depths, dtype=np.int64) > 1
        self._length = sum(depths)
        self._groups = np.array([info.group for info in layout.processors], dtype=np.intp)
        self._table = np.zeros((layout.workers, len(ROWS), len(layout.processors)), dtype=np.int64)
        self._rates = np.zeros((3, *shape))
        self._samples: dict[int, tuple[float, Observed]] = {}
        self._read: dict[int, float] = {}
        self._reached_at: deque[tuple[int, float]] = deque(maxlen=_MOST_REACHED)
        """Newest epochs, and when they were first seen."""
        self._latencies: deque[tuple[float, float]] = deque()
        self._progress = np.zeros(shape, dtype=np.int64)
        self._inner = np.zeros(shape, dtype=np.int64)

    def update(self, observation: Observation) -> None:
        """Apply the next observation, at the cost of its changes."""
        self.version += 1
        self.observation = observation
        for worker, bounds in enumerate(observation.low):
            if bounds is not self._low_seen[worker]:
                self._low_seen[worker] = bounds
                flat = np.fromiter(chain.from_iterable(bounds), dtype=np.uint64, count=self._length)
                flat = np.minimum(flat, np.uint64(END)).astype(np.int64)
                self._low[worker] = flat[self._first]
                self._low_inner[worker] = np.where(self._deep, flat[self._second], 0)
        for worker, (at, samples) in observation.samples.items():
            if samples.generation == observation.generation:
                self._hear(worker, at, samples)
        for worker, epochs in enumerate(observation.completed):
            if worker not in self._samples:
                known = [min(epoch, END) for epoch in epochs or (UNKNOWN,) * len(self.layout.groups)]
                self._progress[worker] = np.array(known, dtype=np.int64)[self._groups]
        # A worker that is busy tells late; what is kept for good is complete, all the same.
        older = (self._progress < self._low) & (self._low > 0)
        self._progress = np.where(older, self._low, self._progress)
        self._inner = np.where(older, self._low_inner, self._inner)
        newest = self.newest()
        if newest is not None and newest >= 0 and (not self._reached_at or newest > self._reached_at[-1][0]):
            self._reached_at.append((newest, observation.at))
        while self._latencies and self._latencies[0][0] < observation.at - _LATENCY_SECONDS:
            self._latencies.popleft()

    def _hear(self, worker: int, at: float, samples: Observed) -> None:
        before = self._samples.get(worker)
        if before is not None and before[1] is samples:
            return
        self._samples[worker] = at, samples
        table = np.frombuffer(samples.numbers, dtype=np.int64).reshape(len(ROWS), -1)
        if before is not None and at > before[0]:
            seconds = at - before[0]
            for row, name in enumerate(("taken", "sent", "busy")):
                new = (table[_AT[name]] - self._table[worker, _AT[name]]) / seconds
                if name == "busy":
                    new = np.minimum(new / 1e6, 1.0)
                # A counter that went back is one of another process, or was begun anew.
                self._rates[row, worker] += _SMOOTH * (np.maximum(new, 0.0) - self._rates[row, worker])
            rate = max(0.0, (samples.read - before[1].read) / seconds)
            self._read[worker] = self._read.get(worker, 0.0) + _SMOOTH * (rate - self._read.get(worker, 0.0))
        self._table[worker] = table
        self._progress[worker] = table[_AT["epoch"]]
        self._inner[worker] = np.where(self._deep, table[_AT["inner"]], 0)
        self._latencies.extend((at, seconds) for seconds in samples.latencies)

    # ------------------------------------------------------------------------------------------ answers

    @property
    def columns(self) -> Columns:
        """Arrays of the newest observation."""
        fresh = np.array([self._fresh(worker) for worker in range(self.layout.workers)])
        reads = [self._read.get(worker, 0.0) for worker in range(self.layout.workers)]
        rates = np.where(fresh[None, :, None], self._rates, 0.0)
        return Columns(self._progress, self._low, rates[0], rates[2], self._table, np.where(fresh, reads, 0.0))

    def reported(self) -> list[list[tuple[int, int, tuple[Time, ...] | None]]]:
        """Progress by operator and worker: least time to come, and the frontier.

        The frontier is known of operators under close observation only.
        """
        closely = {
            (each.processor, worker): each.frontier
            for worker, (_, samples) in self._samples.items()
            for each in samples.closely
        }
        return [
            [(epoch, inner, closely.get((p, w))) for w, (epoch, inner) in enumerate(zip(epochs, inners))]
            for p, (epochs, inners) in enumerate(zip(self._progress.T.tolist(), self._inner.T.tolist()))
        ]

    def _fresh(self, worker: int) -> bool:
        """True if the last observation of the worker is recent."""
        assert self.observation is not None
        samples = self._samples.get(worker)
        return self.observation.live and samples is not None and self.observation.at - samples[0] < STALE_SECONDS

    def _reached(self) -> list[tuple[int | None, int | None]]:
        """Epochs of each worker's slowest and furthest source, for known workers."""
        observation = self.observation
        if observation is None or not observation.live:
            return []
        found = {worker: (newest, newest) for worker, (_, newest) in observation.read.items()}
        for worker, (_, samples) in self._samples.items():
            found[worker] = samples.newest, samples.newest if samples.furthest is None else samples.furthest
        return list(found.values())

    def newest(self) -> int | None:
        """Epoch of the furthest source; ENDED after all sources, None if unknown."""
        return self._epoch_of([furthest for _, furthest in self._reached()], max)

    def slowest(self) -> int | None:
        """Epoch of the slowest source; ENDED after all sources, None if unknown."""
        return self._epoch_of([newest for newest, _ in self._reached()], min)

    def _epoch_of(self, epochs: list[int | None], which: Callable[[list[int]], int]) -> int | None:
        observation = self.observation
        if observation is not None and observation.verdict.state == "ended":
            return ENDED
        known = [epoch for epoch in epochs if epoch is not None]
        if known:
            return which(known)
        return ENDED if len(epochs) == self.layout.workers else None

    def totals(self) -> dict[str, Any]:
        """Totals of the job.

        None: unknown; -1, of an epoch: no more to come.
        """
        observation = self.observation
        assert observation is not None
        latencies = sorted(seconds for _, seconds in self._latencies)
        ends = [p for p, info in enumerate(self.layout.processors) if info.role in ("sink", "output", "capture")]
        ends = ends or list(range(len(self.layout.processors)))
        fresh = [worker for worker in range(self.layout.workers) if self._fresh(worker)]
        ages = [observation.at - self._samples[worker][0] for worker in self._samples if observation.live]
        seen = bool(self._samples) and observation.live
        open_epoch = int(self._progress[:, ends].min())
        return {
            "newest": self.newest(),
            "slowest": self.slowest(),
            "read": self._read_so_far() if observation.live and (observation.samples or observation.read) else None,
            "written": sum(each.written for each in self._counts()) if seen else None,
            "rate": _short(sum(self._read.get(worker, 0.0) for worker in fresh)) if fresh else None,
            "open": None if open_epoch == UNKNOWN else _epoch(open_epoch),
            "low": _epoch(int(self._low.min())),
            "p50": round(latencies[len(latencies) // 2], 4) if latencies else None,
            "p99": round(latencies[len(latencies) * 99 // 100], 4) if latencies else None,
            "state": int(self._table[:, _AT["bytes"]].sum()) if seen else None,
            "logged": int(self._table[:, _AT["logged_bytes"]].sum()) if self._samples else None,
            "kept": int(self._table[:, _AT["kept_bytes"]].sum()) if seen else None,
            "covered": round(self._covered(), 2) if seen else None,
            "age": round(max(ages), 1) if len(ages) == self.layout.workers else None,
            "exposed": max((each.records for each in observation.exposure if each.records is not None), default=None),
        }

    def _counts(self) -> list[Observed | Gone]:
        """All known processes, ended ones too."""
        assert self.observation is not None
        return [*(samples for _, samples in self.observation.samples.values()), *self.observation.gone.values()]

    def _read_so_far(self) -> int:
        assert self.observation is not None
        samples = self.observation.samples
        silent = [read for worker, (read, _) in self.observation.read.items() if worker not in samples]
        return sum(silent) + sum(each.read for each in self._counts())

    def counted(self) -> Table | None:
        """Rows `COUNTED` of all processes so far, by operator; None if unknown."""
        if self.observation is None or not self.observation.live or not self.observation.samples:
            return None
        found = np.zeros((len(COUNTED), len(self.layout.processors)), np.int64)
        for _, samples in self.observation.samples.values():
            found += counted(samples.numbers)
        for gone in self.observation.gone.values():
            found += np.frombuffer(gone.records, np.int64).reshape(len(COUNTED), -1)
        return found

    def unsafe(self) -> npt.NDArray[np.float64]:
        """First sight of the epoch with the oldest unsafe work, by operator.

        ENDED: there is none; UNKNOWN.
        """
        low = self._low.min(axis=0)
        if self.observation is None or not self.observation.live or not self._reached_at:
            return np.full(len(low), float(UNKNOWN))
        epochs, times = (np.array(column) for column in zip(*self._reached_at))
        first = np.searchsorted(epochs, low)  # the first look at which the epoch after W had begun
        return np.where((low >= END) | (first == len(times)), float(ENDED), times[np.minimum(first, len(times) - 1)])

    def _covered(self) -> float:
        """Share of epochs since the last cut with all sent messages kept.

        The least of any sender.
        """
        kept_from = self._table[:, _AT["kept_from"]]
        since = self._progress - self._low
        kept = np.maximum(self._progress - np.maximum(kept_from, self._low), 0)
        shares = kept / np.maximum(since, 1)
        return float(shares[since > 0].min(initial=1.0))

    def workers(self) -> list[list[Any]]:
        """Row for each place, those at work first, by worker.

        Presence, incarnation, failures, newest epoch, records a second, how busy, seconds since its last
        observation.
        """
        observation = self.observation
        assert observation is not None
        busy = self._rates[2].sum(axis=1)
        found = []
        for worker, status in enumerate(observation.workers):
            samples = self._samples.get(worker) if observation.live else None  # none of a copy
            newest = observation.read.get(worker, (0, None))[1]
            if samples is not None:
                newest = ENDED if samples[1].newest is None else samples[1].newest
            fresh = self._fresh(worker)
            found.append(
                [
                    status.presence,
                    status.incarnation,
                    status.failures,
                    newest,
                    _short(self._read.get(worker, 0.0)) if fresh else None,
                    round(min(1.0, float(busy[worker])), 2) if fresh else None,
                    None if samples is None else int(observation.at - samples[0]),
                ]
            )
        return found

    def rows(self, folding: Folding, bars: str = "busy") -> list[Row]:
        """Row for each drawn node; see `FIELDS`.

        `bars`: one of `BARS`.
        """
        order = np.array([member for members in folding.nodes for member in members], dtype=np.intp)
        starts = np.concatenate([[0], np.cumsum([len(members) for members in folding.nodes])[:-1]]).astype(np.intp)

        def least(values: Table) -> Table:
            found: Table = np.minimum.reduceat(values[:, order], starts, axis=1)
            return found

        def total(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            found: npt.NDArray[Any] = np.add.reduceat(values[:, order], starts, axis=1)
            return found

        single = np.array([len(members) == 1 for members in folding.nodes])
        progress = least(self._progress)
        low = least(self._low)
        fresh = np.array([self._fresh(worker) for worker in range(self.layout.workers)])
        rates = np.where(fresh[None, :, None], self._rates, 0.0)
        columns = [
            *_lowest(progress, least(self._inner), single),
            *_lowest(low, least(self._low_inner), single),
            *(_shorten(total(rates[at]).sum(axis=0)) for at in range(2)),
            np.round(total(rates[2]).sum(axis=0), 2),
            *(total(self._table[:, _AT[name]]).sum(axis=0) for name in _IN_MEMORY),
            total(self._table[:, _AT["logged_bytes"]]).sum(axis=0),
        ]
        if self.observation is None or not self.observation.live:  # of what processes held nothing is known
            unknown = np.full(len(single), None)
            columns[4 : 7 + len(_IN_MEMORY)] = [unknown] * (3 + len(_IN_MEMORY))
        shown: npt.NDArray[Any]
        if bars == "busy":
            work = total(rates[2])
            shown = work / max(float(work.max(initial=0.0)), 0.02)  # the busiest is full: the rest can be compared
        elif bars == "lag":
            behind = max(self.newest() or 0, 0) - progress
            shown = _relative(
                np.where((progress == END) | (progress == UNKNOWN), 0, np.maximum(behind, 0)).astype(float)
            )
        elif bars == "taken":
            shown = _relative(total(rates[0]))
        else:
            shown = _relative(total(np.maximum(self._table[:, _AT[bars]], 0)).astype(float))
        digits = np.ceil(shown * (len(_DIGITS) - 1)).astype(np.intp).T
        letters = np.frombuffer(_DIGITS.encode(), dtype="S1")[digits]
        texts = [row.tobytes().decode() for row in letters]
        since = self.unsafe()[order]
        oldest = np.minimum.reduceat(np.where(since == ENDED, np.inf, since), starts)
        unsafe = np.where(np.isinf(oldest), float(ENDED), oldest.round(1))
        return list(zip(*(column.tolist() for column in columns), unsafe.tolist(), texts))


def counted(numbers: bytes) -> Table:
    """Rows `COUNTED` of an observation's `numbers`."""
    table = np.frombuffer(numbers, np.int64).reshape(len(ROWS), -1)
    return table[[_AT[name] for name in COUNTED]]


def changes(before: Sequence[Row] | None, after: Sequence[Row]) -> dict[int, Row]:
    """Changed rows, by node, of the same nodes; all rows if there were none."""
    if before is None:
        return dict(enumerate(after))
    return {node: row for node, (old, row) in enumerate(zip(before, after)) if old != row}


def _lowest(first: Table, second: Table, single: npt.NDArray[np.bool_]) -> tuple[Table, Table]:
    """Least epoch of each column, with its second coordinate for single operators."""
    at = first.min(axis=0)
    inner = np.where(first == at, second, END).min(axis=0)
    ended = at >= END
    return np.where(ended, ENDED, at), np.where(ended | ~single | (inner >= END), 0, inner)


def _relative(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each value as a share of the greatest of its column."""
    found: npt.NDArray[Any] = values / np.maximum(values.max(axis=0), 1e-9)
    return found


def _shorten(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Two significant digits, to spare a page changes by noise."""
    magnitude = 10.0 ** np.floor(np.log10(np.maximum(values, 1.0)) - 1)
    found: npt.NDArray[Any] = np.round(np.round(values / magnitude) * magnitude, 1)
    return found


def _short(value: float) -> float:
    return float(_shorten(np.array([value]))[0])


def _epoch(epoch: int) -> int:
    return -1 if epoch >= END else epoch
