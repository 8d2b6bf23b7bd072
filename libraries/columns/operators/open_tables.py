"""Partial tables of open windows, few for each however often rows come to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import pyarrow as pa

from timely.data.batch import Columns
from timely.state import KeyedState
from timely.state.interface import Run
from timely.state.moving import Division, with_batch
from timely.time import Time

_ROOT: Time = (0,)

_ALIKE = 7
"""Number of similar tables merged with the next one."""

_STEP = 4
"""Largest ratio of the first table to the others together, for a merge."""

Unite: TypeAlias = Callable[[Sequence[pa.Table]], pa.Table]
"""Function to merge several partial tables into one."""


class OpenTables(KeyedState):
    """(start, number) → a partial table of a window, in the order in which they came.

    Several of about one length become one: so a row is copied a few times, however many epochs a window has.
    """

    def __init__(self, unite: Unite) -> None:
        super().__init__()
        self._unite = unite

    def starts(self) -> set[int]:
        """Starts of the open windows."""
        return {start for start, _ in self.read(_ROOT)}

    def add(self, time: Time, parts: Iterable[tuple[int, pa.Table]]) -> None:
        """Add a partial table to each of several distinct windows."""
        held = self.read(_ROOT)
        numbered: dict[int, list[int]] = {}
        for start, number in held:
            numbered.setdefault(start, []).append(number)
        new: dict[tuple[int, int], pa.Table] = {}
        joined: list[tuple[int, int]] = []
        for start, part in parts:
            there = sorted(numbered.get(start, ()))
            while len(there) >= _ALIKE:
                last = [(start, number) for number in there[-_ALIKE:]]
                tables = [held[slot] for slot in last]
                if len(tables[0]) > _STEP * (sum(map(len, tables[1:])) + len(part)):
                    break
                part = self._unite([*tables, part])
                joined += last
                del there[-_ALIKE:]
            new[start, there[-1] + 1 if there else 0] = part
        self.remove(time, [slot for slot in joined if slot not in new])
        self.write(time, new)

    def divided(self, run: Run, former: Division) -> list[Run | None]:
        """Parts of a run for the new workers: tables divided by their keys.

        Tables of one window come from several former workers, so they get other numbers.
        """
        parts: list[list[tuple[int, tuple[int, int], Columns]]] = [[] for _ in range(former.workers)]
        assert isinstance(run.batch, list)
        for record in run.batch:
            if len(record) == 2:  # taken out
                continue
            shard, (start, number), table = record
            for worker, part in enumerate(former.columns(table)):
                if part is not None and len(part):
                    parts[worker].append((shard, (start, number * former.former + former.index), part))
        return [with_batch(run, [*part]) if part else None for part in parts]

    def take(self, time: Time, starts: Collection[int]) -> list[pa.Table]:
        """Take out the partial tables of these windows, now closed."""
        closing = sorted(slot for slot in self.read(_ROOT) if slot[0] in starts)
        tables = [self.read(_ROOT)[slot] for slot in closing]
        self.remove(time, closing)
        return tables
