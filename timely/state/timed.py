"""State of operators that collect a time's input until the time is complete, and then are done with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from timely.data.batch import Batch, length, nbytes
from timely.data.routing import shard_of, stable_hash
from timely.data.span import Span
from timely.state.interface import Rows, Run, StateSize
from timely.time import Frontier, Time


class TimedValues:
    """Time → a dictionary of keys and accumulating values. Runs hold (shard, key, value) records.

    A time is in a frontier that is saved or kept only while its notification is outstanding, so a snapshot at a
    completed frontier is empty: the operator is stateless between times.

    >>> sums = falkirk.TimedValues()
    >>> sums.at((0,))["a"] = 1
    >>> sums.at((0,))["a"] += 2
    >>> sums.pop((0,))
    {'a': 3}
    """

    transient = True

    def __init__(self) -> None:
        self._times: dict[Time, dict[Any, Any]] = {}

    def at(self, time: Time) -> dict[Any, Any]:
        """The dictionary of `time`, to be changed in place. Replace its values instead of mutating them."""
        held = self._times.get(time)
        if held is None:
            held = self._times[time] = {}
        return held

    def pop(self, time: Time) -> dict[Any, Any]:
        """The dictionary of `time`, which is dropped."""
        return self._times.pop(time, {})

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """A run for every time in `upto` and not in `after`."""
        return [
            Run(time, [(shard_of(stable_hash(key)), key, value) for key, value in held.items()])
            for time, held in self._times.items()
            if time in upto and time not in after
        ]

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """A run at a time is small enough."""
        yield from self.snapshot(upto, after)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold."""
        self._times = {}
        for run in runs:
            assert isinstance(run.batch, list)
            self.at(run.time).update((key, value) for _, key, value in run.batch)

    def keep(self, frontier: Frontier) -> None:
        """Drop the times outside `frontier`."""
        self._times = {time: held for time, held in self._times.items() if time in frontier}

    def compact(self, frontier: Frontier) -> None:
        """Nothing: each time stands alone."""

    def size(self) -> StateSize:
        """The size of the state."""
        rows = sum(map(len, self._times.values()))
        return StateSize(rows, sum(nbytes(list(held.items())) for held in self._times.values()), len(self._times))


class TimedBatches:
    """Time → the batches that arrived at it, as they came. Each is a run; a run's keys are the operator's to know.

    >>> waiting = falkirk.TimedBatches()
    >>> waiting.add((0,), [1, 2])
    [[1, 2]]
    >>> waiting.add((0,), [3])
    [[1, 2], [3]]
    >>> waiting.pop((0,))
    [[1, 2], [3]]
    """

    transient = True

    def __init__(self) -> None:
        self._times: dict[Time, list[Batch]] = {}
        self._spans: list[Span] = []
        """Batches of several times that came together, behind all others of theirs."""

    def add(self, time: Time, batch: Batch) -> list[Batch]:
        """Append a batch; the batches of `time` so far."""
        if self._spans:
            self._cut()
        held = self._times.get(time)
        if held is None:
            held = self._times[time] = []
        held.append(batch)
        return held

    def add_span(self, span: Span) -> None:
        """Append a batch to each time of a span."""
        self._spans.append(span)

    def times(self) -> list[Time]:
        """The times that have batches."""
        self._cut()
        return list(self._times)

    def replace(self, time: Time, batch: Batch) -> None:
        """Put one batch in the place of all that `time` has."""
        self._cut()
        self._times[time] = [batch]

    def pop(self, time: Time) -> list[Batch]:
        """The batches of `time`, which are dropped."""
        if self._spans:
            self._cut()
        return self._times.pop(time, [])

    def span(self, times: Sequence[Time]) -> Span | None:
        """The batches of `times`, before which no time has any, as one span; None if there are none.

        Raises:
            TypeError: if they are not all frames of the same columns.
        """
        if len(self._spans) == 1 and not self._times:
            return self._spans[0].divided(times[-1])[0]
        self._cut()
        frames: list[tuple[Time, pl.DataFrame]] = []
        for time in times:
            for batch in self._times.get(time, ()):
                if not isinstance(batch, pl.DataFrame):
                    raise TypeError("a span takes frames")
                frames.append((time, batch))
        return Span.of(frames) if frames else None

    def drop(self, times: Sequence[Time]) -> None:
        """Drop the batches of `times`, before which no time has any."""
        if len(self._spans) == 1 and not self._times:
            later = self._spans[0].divided(times[-1])[1]
            self._spans = [] if later is None else [later]
            return
        self._cut()
        for time in times:
            self._times.pop(time, None)

    def _cut(self) -> None:
        """Have the batches of each time by themselves."""
        spans, self._spans = self._spans, []
        for span in spans:
            for time, batch in span.parts():
                self.add(time, batch)

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """The batches of times in `upto` and not in `after`."""
        self._cut()
        return [
            Run(time, batch)
            for time, held in self._times.items()
            if time in upto and time not in after
            for batch in held
        ]

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """A run at a time is small enough."""
        yield from self.snapshot(upto, after)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold."""
        self._times, self._spans = {}, []
        for run in runs:
            self.add(run.time, run.batch)

    def keep(self, frontier: Frontier) -> None:
        """Drop the times outside `frontier`."""
        self._cut()
        self._times = {time: held for time, held in self._times.items() if time in frontier}

    def compact(self, frontier: Frontier) -> None:
        """Nothing: each time stands alone."""

    def size(self) -> StateSize:
        """The size of the state."""
        self._cut()
        batches = [batch for held in self._times.values() for batch in held]
        return StateSize(sum(map(length, batches)), sum(map(nbytes, batches)), len(batches))
