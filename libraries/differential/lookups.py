"""`Lookup`: step of a delta join, extending tuples by one more relation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from libraries.differential.arrangement import SharedTrace, TraceReading
from libraries.differential.identity import equal
from libraries.differential.joins import PAIRS, PAIRS_OF_RECORDS, InParts, Meetings
from libraries.differential.operators import added_up
from libraries.differential.rows import FEW, LEAST, NOTHING, Tuples, groups, joined, summed
from libraries.differential.values import are_integers
from timely.operators.base import Context
from timely.time import Time, leq

Changes = list[tuple[tuple[Any, ...], int]]


@dataclass(frozen=True, slots=True)
class Question:
    """Lookup of a tuple in a relation: by key, or by pair if both letters are known."""

    key: int
    """Place of the key in the tuple."""
    known: int | None
    """Place of the other letter, or None if the tuple has none for it."""
    adds: bool
    """True if the lookup appends the other letter to the tuple."""
    says: dict[int, bool]
    """Places to overwrite with an equal value: by the key (False) or the value (True)."""
    new: bool
    """True to read the relation at the tuple's time, False to read it just before."""

    def met(self, key: Any, found: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
        """Tuple extended by a pair (key, value) of the relation; None without a match."""
        if self.known is not None and not equal(found[self.known], value):
            return None
        if self.says:
            found = tuple(
                (value if self.says[at] else key) if at in self.says else each for at, each in enumerate(found)
            )
        return (*found, value) if self.adds else found


class Lookup(InParts):
    """Tuples of a stream extended by matching pairs of a collection on port 1.

    Where times are totally ordered, each combination of changes comes once of the operators of `delta_join`.
    """

    def __init__(self, question: Question, reading: TraceReading | None = None) -> None:
        super().__init__()
        self.question = question
        self._trace = self.trace(reading)
        self.traces = (self._trace,)
        self.state = self.kept(*self.inputs)

    def work(self, ctx: Context, time: Time) -> Iterator[None]:
        asked = self._gathered([item for batch in self.inputs[0].state.pop(time) for item in batch])
        theirs = self.inputs[1].take(time)
        if not self.shared:
            keys, codes, diffs = self.inputs[1].many(*theirs[:2], time)
            self._trace.add(keys, codes, time, diffs)
        if isinstance(asked, Tuples):
            met = self._met(asked, time)
            if met is not None:
                for begin in range(0, max(1, len(met)), PAIRS):
                    if begin:
                        yield
                    self._send(ctx, asked, met, begin)
                return
            asked = asked.pairs()
        made: Changes = []
        held: dict[Any, list[tuple[tuple[Any, Any], int]]] = {}
        for found, diff in asked:
            key = found[self.question.key]
            if (values := held.get(key)) is None:
                values = held[key] = self._values_of(key, time)
            for (same, value), times in values:
                more = self.question.met(same, found, value)
                if more is not None:
                    made.append((more, diff * times))
            if len(made) >= PAIRS_OF_RECORDS:
                ctx.send(formed(added_up(made)))
                yield
                made = []
        ctx.send(formed(added_up(made)))

    def _gathered(self, items: list[Any]) -> Tuples | Changes:
        """All changes consolidated: sorted columns if they are many and integers."""
        parts = [each for each in items if type(each) is Tuples]
        records = [each for each in items if type(each) is not Tuples]
        if len(records) + sum(map(len, parts)) > FEW:
            others = integers(records) if records else None
            if others is not None:
                parts, records = [*parts, others], []
            if parts and not records:
                parts = [self._summed(parts)]
                if len(parts[0]) > FEW:
                    return parts[0]
        return added_up(records + [pair for each in parts for pair in each.pairs()])

    def _summed(self, parts: list[Tuples]) -> Tuples:
        asked = (self.question.key, self.question.known)
        order = sorted(range(len(parts[0].columns)), key=lambda place: (place not in asked, place != asked[0], place))
        columns = [joined([each.columns[place] for each in parts]) for place in order]
        columns, diff = summed(columns, joined([each.diff for each in parts]))
        return Tuples(tuple(columns[order.index(place)] for place in range(len(order))), diff)

    # Many at once

    def _met(self, asked: Tuples, time: Time) -> Meetings | None:
        """Rows of `asked`, by number, joined with values; None if some are no integers."""
        question, trace = self.question, self._trace
        odd = trace.odd if isinstance(trace, SharedTrace) else self.values.odd
        if odd:
            return None  # a value may be equal to another
        key = asked.columns[question.key]
        if question.known is None:
            keys, starts = groups(key)
            history = trace.history(keys)
        else:
            _, starts = groups(key, other := asked.columns[question.known])
            keys = key[starts[:-1]]
            history = trace.history(keys, other[starts[:-1]])
        rows = history.until(time) if question.new else history.before(time)
        history = history if rows.all() else history.only(rows)
        (of, value), diff = summed([history.key, history.value], history.diff)
        if not are_integers(value) and (question.known is not None or question.adds or not (value == NOTHING).all()):
            return None
        return Meetings.between(key, (np.arange(len(key)), asked.diff), starts, of, (value, diff))

    def _send(self, ctx: Context, asked: Tuples, met: Meetings, begin: int) -> None:
        if not len(met):
            ctx.send([])
            return
        _, row, value, diff = met.part(begin, min(begin + PAIRS, len(met)))
        columns = [each[row] for each in asked.columns]
        made = Tuples((*columns, value) if self.question.adds else tuple(columns), diff)
        ctx.send([made] if len(made) > FEW else made.pairs())

    # One by one

    def _values_of(self, key: Any, time: Time) -> list[tuple[tuple[Any, Any], int]]:
        """Pairs of a key with their multiplicities at the time of the lookup."""
        sums: dict[int, int] = {}
        of = self.values.key(key, time)
        for value, at, times in self._trace.changes(of):
            if leq(at, time) and (self.question.new or at != time):
                sums[value] = sums.get(value, 0) + times
        record = self.values.record
        return [
            ((record(of, value), None) if value == NOTHING else record(of, value), times)
            for value, times in sums.items()
            if times
        ]


def formed(changes: Changes) -> list[Any]:
    """Consolidated changes, as columns if they are many and integers."""
    made = integers(changes) if len(changes) > FEW else None
    return changes if made is None else [made]


def integers(changes: Changes) -> Tuples | None:
    """Changes in columns; None if a value is no integer in the range of direct codes."""
    parts = [part for found, _ in changes for part in found]
    if set(map(type, parts)) != {int} or min(parts) < LEAST or max(parts) >= 1 << 63:
        return None
    numbers = np.array(parts, np.int64).reshape(len(changes), -1)
    return Tuples(tuple(np.ascontiguousarray(numbers.T)), np.array([by for _, by in changes], np.int64))
