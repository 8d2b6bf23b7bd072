"""Source of generated records at a steady rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar

from timely.errors import SourceError, error_text
from timely.io.arguments import above_zero, function, whole
from timely.io.counting import EpochEvery, count_of
from timely.io.interface import Chunk, End, Partition, Position, Wait

_MOST = 1 << 16


class Rate:
    """Records `fn(0)`, `fn(1)`, ... at `per_second`, at worker 0.

    There are `total` of them (None: without end).

    What is due by the clock comes at once, so a reader that was late catches up. `epoch_every=n` makes n
    records an epoch; by default that is a second's worth. The position is the number of records made: if `fn`
    gives the same record for the same number, the source can be re-read. `clock` gives seconds and only says
    when records are due.

    >>> flow = falkirk.Dataflow()
    >>> squares = flow.source("in", falkirk.Rate(lambda i: i * i, per_second=1000, total=4, epoch_every=2)).capture("out")
    >>> [(epoch, n) for (epoch,), batch in falkirk.run(flow).captured("out") for n in batch]
    [(0, 0), (0, 1), (1, 4), (1, 9)]
    """

    rereadable: ClassVar[bool] = True
    layout_free: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(
        self,
        fn: Callable[[int], Any],
        per_second: float,
        total: int | None = None,
        epoch_every: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fn = function(fn, "Rate")
        self._per_second = above_zero(per_second, "per_second")
        self._total = None if total is None else whole(total, "total", 0)
        self._every = EpochEvery(max(1, round(per_second)) if epoch_every is None else epoch_every)
        self._clock = clock

    def with_clock(self, clock: Callable[[], float]) -> Rate:
        """Copy of the source with another clock, as in simulations."""
        same = copy(self)
        same._clock = clock
        return same

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """The generator, at worker 0."""
        if worker != 0:
            return []
        return [RatePartition(self._fn, self._per_second, self._total, self._every, self._clock)]


class RatePartition:
    """Partition over a generator paced by a clock."""

    name = "rate"

    def __init__(
        self,
        fn: Callable[[int], Any],
        per_second: float,
        total: int | None,
        every: EpochEvery,
        clock: Callable[[], float],
    ) -> None:
        self._fn = fn
        self._per_second = per_second
        self._total = total
        self._every = every
        self._clock = clock
        self._count = 0
        self._zero: float | None = None
        """Due time of record 0 by the clock."""

    def read(self) -> Chunk | Wait | End:
        """Due records, of one epoch."""
        now = self._clock()
        if self._zero is None:
            self._zero = now - self._count / self._per_second
        # Record c is due at zero + c / per_second. The margin absorbs the rounding of that division.
        due = math.floor((now - self._zero) * self._per_second + 1e-6) + 1
        return self._next(due) or Wait(max(0.0, self._zero + self._count / self._per_second - now))

    def read_until(self, position: Position) -> Chunk | Wait | End:
        """Next records of one epoch, due or not."""
        return self._next(count_of(position, self.name)) or Wait(0.0)

    def _next(self, due: int) -> Chunk | End | None:
        """Records before `due`, of one epoch; None if there are none."""
        if self._total is not None:
            if self._count >= self._total:
                return End()
            due = min(due, self._total)
        room = self._every.room(self._count)
        size = min(due - self._count, _MOST if room is None else min(room, _MOST))
        if size <= 0:
            return None
        epoch = self._every.epoch(self._count)
        records = [self._make(i) for i in range(self._count, self._count + size)]
        self._count += size
        return Chunk(epoch, records, self._count, self._every.closes(self._count))

    def _make(self, number: int) -> Any:
        try:
            return self._fn(number)
        except Exception as error:
            raise SourceError(
                f"{self.name}: {getattr(self._fn, '__name__', 'fn')}({number}) raised "
                f"{error_text(error)}. Correct the function."
            ) from error

    def seek(self, position: Position) -> None:
        """Go to a record by number; it is due at once, and the rate goes on from there."""
        self._count = count_of(position, self.name)
        self._zero = None

    def ack(self, position: Position) -> None:
        """No-op: records are generated anew."""

    def close(self) -> None:
        """No-op: there is nothing to release."""
