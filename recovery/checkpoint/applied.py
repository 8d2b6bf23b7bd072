"""Decisions carried out by a worker, each recorded in its journal.

A decision makes void what earlier generations wrote and lies outside of it. It is of use while something of that is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recovery.checkpoint.processor_checkpoints import Key
from recovery.checkpoint.records import Applied, key_of, section
from recovery.metadata import Bound, holds, within
from recovery.store.journal import Journal
from timely.time import Time


class AppliedDecisions:
    """Decisions with void records perhaps left, by generation, kept in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._records: dict[int, Applied] = {}
        self._applied_at: dict[int, int] = {}
        """First segment without records void by a decision, by generation."""
        self.generation = 0
        """Generation of the last decision."""

    def keys(self) -> Iterator[Key]:
        """Keys still in use."""
        return (key_of(record) for record in self._records.values())

    def apply(self, generation: int, bounds: Sequence[Bound | None]) -> None:
        """Record a decision in the journal."""
        self.generation = self._journal.generation = generation
        self._note(Applied(generation, tuple(bounds)))
        self.write_again(generation)

    def load(self, record: Applied) -> None:
        """Restore a decision read from the journal."""
        self._note(record)
        self.generation = self._journal.generation = max(self.generation, record.generation)

    def _note(self, record: Applied) -> None:
        self._records[record.generation] = record
        self._applied_at[record.generation] = self._journal.next_number

    def write_again(self, generation: int) -> None:
        """Write the decision of `generation` again, if it is of use."""
        if (record := self._records.get(generation)) is not None:
            self._journal.add(key_of(record), section(record))

    def holds(self, p: int, generation: int, bound: Bound) -> bool:
        """True if no decision after `generation` has excluded `bound` of processor `p`."""
        return all(limit is None or within(bound, limit) for limit in self._limits(p, generation))

    def keeps(self, p: int, generation: int, event: Time) -> bool:
        """True if no decision after `generation` has excluded an event of processor `p`."""
        return all(limit is None or holds(limit, event) for limit in self._limits(p, generation))

    def _limits(self, p: int, generation: int) -> list[Bound | None]:
        return [applied.bounds[p] for number, applied in self._records.items() if number > generation]

    def forget(self) -> None:
        """Drop decisions without void records left, after a segment was written."""
        for generation, at in list(self._applied_at.items()):
            if generation < self.generation and self._journal.oldest >= at:
                del self._records[generation], self._applied_at[generation]
                self._journal.dead(("applied", generation))
