"""Rates of a job over some seconds, from observations of its workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recovery.layout import Layout
from recovery.protocol import END, PERSISTED, ROWS, Observed, Persisting, Sent

Numbers = npt.NDArray[np.float64]

MOST_SECONDS = 30.0
"""Longest time for averages of rates, in seconds."""
LEAST_SECONDS = 3.0
"""Shortest one."""

_ROW = {name: number for number, name in enumerate(ROWS)}
_PERSISTED = {name: number for number, name in enumerate(PERSISTED)}


@dataclass(frozen=True)
class Rates:
    """Rates of one worker, in units a second; arrays by processor.

    Attributes:
        epochs: epochs that all of its sources reach; of the slowest other worker if it has none.
        passed: epochs completed at each processor; 0 where that is not known.
        taken: records.
        rows, sizes: of state, now; sizes in bytes.
        written: as in `recovery.protocol.PERSISTED`.
        segments, written_bytes, saving, storing, cpu: as in `Persisting`.
        durable: seconds until a segment is durable; None if none was written.
        encoding: processor seconds a byte; None: unknown.
        sent: records and batches by port, with the bytes of a record.
    """

    epochs: float
    passed: Numbers
    taken: Numbers
    rows: Numbers
    sizes: Numbers
    written: Mapping[str, Numbers]
    segments: float
    written_bytes: float
    saving: float
    storing: float
    cpu: float
    durable: float | None
    encoding: float | None
    sent: Mapping[tuple[int, int], tuple[float, float, float | None]]


@dataclass(frozen=True)
class Pace:
    """Progress of a worker since its last observation, by its rates.

    `seconds` since then, at most the distance of the last two; `epochs` and `taken` records a second, the latter by processor.
    """

    seconds: float
    epochs: float
    taken: Numbers

    def handled(self, newest: int, epochs: npt.NDArray[np.int64]) -> Numbers:
        """Records handled since, by processor, of `epochs` and later ones.

        `newest` was the newest epoch at the observation; later ones have begun since, one after the other.
        """
        ahead = np.maximum(epochs - newest, 0)
        begun = ahead / self.epochs if self.epochs else np.where(ahead, np.inf, 0.0)
        return np.asarray(self.taken * np.maximum(self.seconds - begun, 0.0), np.float64)


class Window:
    """Newest observations of each worker, with its persistence."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._seen: dict[int, list[tuple[float, Observed]]] = {}

    def take(self, samples: Mapping[int, tuple[float, Observed]]) -> None:
        """Add the last observation of each worker, with its time."""
        for worker, (at, reported) in samples.items():
            if reported.persisting is None or not reported.fits(len(self._layout.processors)):
                continue
            seen = self._seen.setdefault(worker, [])
            last = seen[-1][1] if seen else reported
            if last.incarnation != reported.incarnation or last.generation != reported.generation:
                seen.clear()  # what was done again would count twice
            if not seen or seen[-1][1] is not reported:
                seen.append((at, reported))
            while seen[-1][0] - seen[0][0] > MOST_SECONDS:
                del seen[0]

    def rates(self) -> dict[int, Rates]:
        """Rates of workers observed for long enough."""
        ends = {worker: (seen[0], seen[-1]) for worker, seen in self._seen.items()}
        epochs = {
            worker: (last.newest - first.newest) / (at - since)
            for worker, ((since, first), (at, last)) in ends.items()
            if at > since and first.newest is not None and last.newest is not None
        }
        slowest = min(epochs.values(), default=0.0)
        found = {}
        for worker, ((since, first), (at, last)) in ends.items():
            rates = _between(first, last, at - since, epochs.get(worker, slowest))
            if rates is not None:
                found[worker] = rates
        return found

    def paces(self, now: float) -> dict[int, Pace]:
        """Progress of each worker since its last observation, at its latest rates."""
        found = {}
        for worker, seen in self._seen.items():
            at, last = seen[-1]
            since, first = next((each for each in reversed(seen) if each[0] <= at - LEAST_SECONDS), seen[0])
            if at <= since:
                continue
            old, new = (_rows(each)[_ROW["taken"]] for each in (first, last))
            epochs = 0.0
            if first.newest is not None and last.newest is not None:
                epochs = (last.newest - first.newest) / (at - since)
            due = min(max(now - at, 0.0), at - seen[-2][0])
            found[worker] = Pace(due, epochs, np.maximum(new - old, 0) / (at - since))
        fastest = max((pace.epochs for pace in found.values()), default=0.0)
        return {worker: pace if pace.epochs else replace(pace, epochs=fastest) for worker, pace in found.items()}


def of_all(rates: Iterable[Rates]) -> tuple[float, float]:
    """Bytes to the store and processor seconds of all workers, a second."""
    known = list(rates)
    return sum(each.written_bytes for each in known), sum(each.cpu for each in known)


def _between(first: Observed, last: Observed, seconds: float, epochs: float) -> Rates | None:
    before, after = first.persisting, last.persisting
    if before is None or after is None or seconds < LEAST_SECONDS:
        return None
    old, new = _rows(first), _rows(last)
    written = (_written(after) - _written(before)) / seconds
    segments = after.segments - before.segments
    known = {(each.processor, each.port): each for each in before.sent}
    passed = (new[_ROW["epoch"]] - old[_ROW["epoch"]]) / seconds
    return Rates(
        epochs,
        np.where((new[_ROW["epoch"]] < END) & (passed > 0), passed, 0.0),
        np.maximum(new[_ROW["taken"]] - old[_ROW["taken"]], 0) / seconds,
        new[_ROW["rows"]].astype(np.float64),
        new[_ROW["bytes"]].astype(np.float64),
        {name: written[row] for name, row in _PERSISTED.items()},
        segments / seconds,
        (after.size - before.size) / seconds,
        (after.saving - before.saving) / seconds,
        (after.storing - before.storing) / seconds,
        (after.cpu - before.cpu) / seconds,
        (after.durable - before.durable) / segments if segments else None,
        after.encoding,
        {
            (each.processor, each.port): _sent(known.get((each.processor, each.port)), each, seconds)
            for each in after.sent
        },
    )


def _rows(reported: Observed) -> npt.NDArray[np.int64]:
    return np.frombuffer(reported.numbers, np.int64).reshape(len(ROWS), -1)


def _written(persisting: Persisting) -> Numbers:
    table = np.frombuffer(persisting.written, np.int64).reshape(len(PERSISTED), -1)
    return np.asarray(table, np.float64)


def _sent(before: Sent | None, after: Sent, seconds: float) -> tuple[float, float, float | None]:
    records, batches = (before.records, before.batches) if before is not None else (0, 0)
    return (after.records - records) / seconds, (after.batches - batches) / seconds, after.size
