"""Keyed operators over records: pairs (key, value) matched by key.

`running` False: each time by itself; the result comes when the time is complete. True: the state runs on along the
innermost coordinate (in the root scope over epochs, in a loop over the iterations of one epoch) and is separate for each
outer time; when a time is complete, the keys whose totals changed at it come out with their totals. A total has changed if
it does not equal what was there before; NaN equals NaN here.

All of them act when a time is complete, so that their output does not depend on the order in which batches came.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import deepcopy
from functools import partial, reduce
from operator import countOf
from typing import Any

from timely.data.absent import ABSENT
from timely.data.batch import FAILURES, Batch
from timely.data.content import by_content, ordered_by
from timely.data.keys import are_canonical, canonical
from timely.data.representatives import PLAIN, Represented, are_plain, keys_of, represent, represented
from timely.data.sums.records import Terms, Unordered, add_up, lowered, lowered_pairs, plus, plus_time
from timely.errors import shown
from timely.operators.base import Context, Operator
from timely.operators.stateless import operator_error
from timely.state import KeyedState, Parts, State, TimedBatches, TimedValues
from timely.time import Time

Combine = Callable[[Any, Any], Any]

PLUS: Combine = plus
"""`combine` of sums, without rounding of floats (`timely.data.sums.records`)."""


def pairs_of(batch: Batch) -> list[Any]:
    """Batch as a list of pairs.

    Raises TypeError if it holds columns, or records that are no pairs.
    """
    if isinstance(batch, list):
        if len(batch) == 1 and type(batch[0]) is tuple and len(batch[0]) == 2:
            return batch
        if countOf(map(type, batch), tuple) != len(batch) or countOf(map(len, batch), 2) != len(batch):
            _check_pairs(batch)
        return batch
    raise TypeError("keyed verbs over records take pairs (key, value), but columns arrived; use key_by first")


def _check_pairs(batch: list[Any]) -> None:
    for record in batch:  # text of two characters would pass for a pair
        if not isinstance(record, tuple | list) or len(record) != 2:
            of = f" of {len(record)}" if isinstance(record, tuple | list) else ""
            raise TypeError(
                f"keyed verbs take pairs (key, value), and {shown(record)} is none ({type(record).__name__}{of}); make pairs "
                "with key_by(function), or map each record to a tuple before keyed()"
            )


def check_combined(combine: Combine, before: Any, value: Any) -> None:
    """Refuse a function returning None after it has changed a value in place.

    It gave None for two values, and cannot take None as one.

    Raises:
        TypeError: naming both values.
    """
    if before is None or value is None:
        return
    try:
        combine(None, value)
    except Exception:
        raise TypeError(
            f"the function returned None for {shown(before)} and {shown(value)}: return the combined value, a new one"
        ) from None


def checked(combine: Combine) -> Combine:
    """`combine` with the check of `check_combined`."""

    def apply(before: Any, value: Any) -> Any:
        after = combine(before, value)
        if after is None:
            check_combined(combine, before, value)
        return after

    return apply


def stepped(start: Callable[[], Any], step: Combine, total: Any, values: Iterable[Any]) -> Any:
    """Accumulator after `values`, from `total`, or from `start()` if that is `ABSENT`.

    Raises:
        TypeError: if `step` returned None and `start` did not: then it has changed the accumulator in place.
    """
    values = list(values)
    try:
        after = reduce(step, values, start() if total is ABSENT else total)
    except Exception:
        if len(values) > 1 and start() is not None and step(start(), values[0]) is None:
            raise _returns_nothing(values[0]) from None
        raise
    if after is None and start() is not None:
        raise _returns_nothing(values[0])
    return after


def _returns_nothing(value: Any) -> TypeError:
    return TypeError(
        f"the function returned None for an accumulator and {shown(value)}: return the accumulator, a new one"
    )


def starting(start: Callable[[], Any] | Any) -> Callable[[], Any]:
    """Factory of initial accumulators; each key gets its own list, dictionary or set."""
    if callable(start):
        return start
    return (lambda: deepcopy(start)) if isinstance(start, _MUTABLE) else lambda: start


def add_pairs(totals: dict[Hashable, Any], pairs: Iterable[tuple[Any, Any]], combine: Combine) -> None:
    """Combine pairs into `totals`."""
    if combine is PLUS:
        add_up(totals, pairs)
        return
    for key, value in pairs:
        if key in totals:
            before = totals[key]
            after = totals[key] = combine(before, value)
            if after is None:
                check_combined(combine, before, value)
        else:
            totals[key] = value


def combiner(combine: Combine) -> Callable[[Batch], Batch]:
    """Function to reduce a batch to one pair per key before an exchange.

    Sums of floats travel unrounded.
    """

    def apply(batch: Batch) -> Batch:
        totals: dict[Hashable, Any] = {}
        pairs = pairs_of(batch)
        found: Represented = {}
        represent(found, keys_of(pairs))
        add_pairs(totals, pairs, combine)
        return list(represented(found, totals).items())

    return apply


def least(a: Any, b: Any) -> Any:
    """Smaller of two, independent of their order; NaN loses against any number.

    Of 0.0, -0.0 and 0 always the same one wins.
    """
    if a < b:
        return a
    return b if b < a else _first(a, b)


def greatest(a: Any, b: Any) -> Any:
    """Larger of two, independent of their order; NaN loses against any number."""
    if a > b:
        return a
    return b if b > a else _first(a, b)


def _first(a: Any, b: Any) -> Any:
    """Tie-break between two values, independent of their order.

    The result is no NaN, if it can be.
    """
    if type(a) is type(b) is int or b != b:
        return a
    if a == a and a != b:
        raise TypeError(
            f"neither of {shown(a)} and {shown(b)} is the less, so none is the least or the greatest of all: compare what has "
            "one order, such as len(value), or give reduce() a function that chooses"
        )
    return a if a == a and (type(a).__name__, repr(a)) <= (type(b).__name__, repr(b)) else b


_KNOWN: dict[Any, Combine] = {
    **{operator.add: PLUS, max: greatest, min: least},
    **{each: each for each in (operator.and_, operator.xor)},
}


def combine_known(combine: Combine, any_order: bool) -> Combine | None:
    """Order-independent form of `combine`; None if there is no known one."""
    try:
        return _KNOWN.get(combine, combine if any_order else None)
    except TypeError:  # a callable that cannot be hashed
        return combine if any_order else None


_MUTABLE = (list, dict, set, bytearray)


def differs(before: Any, after: Any) -> bool:
    """True if a total differs from the one before, or may differ.

    Values may differ that cannot be compared, or may have been changed in place.
    """
    try:
        if after != before:
            return bool(after == after or before == before)
    except Exception:  # arrays and frames, which compare item by item
        return True
    return after is before and isinstance(after, _MUTABLE)


class _Totals(Operator):
    """Base of totals by key, for each time by itself or running."""

    moves_by_key = True
    repeats_over = "time"

    def __init__(self, combine: Combine, running: bool) -> None:
        self._combine = combine
        self._totals = KeyedState() if running else None

    def _state(self, *of_a_time: State) -> State:
        """State of the operator, with `of_a_time` kept until a time is complete."""
        return Parts(*of_a_time, *([] if self._totals is None else [self._totals]))

    def _show(self, ctx: Context, time: Time, new: dict[Hashable, Any]) -> None:
        """Send the values of a time, or the totals that they change."""
        if self._totals is None:
            ctx.send(lowered_pairs(new if are_canonical(new) else self._merged(new)))
            return
        old = self._totals.read(time)
        changed, alike, unknown = self._changes(old, new)
        if unknown and not are_canonical(unknown):  # only a key that is not known can be a NaN
            changed, alike, _ = self._changes(old, self._merged(new))
        if changed:
            ctx.send(lowered_pairs(changed))
        if changed or alike:
            self._totals.write(time, changed | alike if alike else changed)

    def _changes(
        self, old: Mapping[Hashable, Any], new: dict[Hashable, Any]
    ) -> tuple[dict[Hashable, Any], dict[Hashable, Any], list[Hashable]]:
        """Changed totals, totals changed but shown the same, and new keys."""
        adds = self._combine is PLUS
        combine = plus_time if adds else self._combine
        changed: dict[Hashable, Any] = {}
        alike: dict[Hashable, Any] = {}
        unknown: list[Hashable] = []
        for key, value in new.items():
            before = old.get(key, ABSENT)
            if before is ABSENT:
                changed[key] = value.added() if type(value) is Unordered else value
                unknown.append(key)
                continue
            if adds and type(value) is int and type(before) is int:
                if value:
                    changed[key] = before + value
                continue
            after = combine(before, value)
            if after is None:
                check_combined(combine, before, value)
            if type(after) is Terms or type(before) is Terms:
                if lowered(after) != lowered(before):  # of which NaN is one at most
                    changed[key] = after
                else:
                    alike[key] = after
            elif after != before if type(after) is int else differs(before, after):
                changed[key] = after
        return changed, alike, unknown

    def _merged(self, new: dict[Hashable, Any]) -> dict[Hashable, Any]:
        """`new` with all its NaN keys merged into one."""
        merged: dict[Hashable, Any] = {}
        add_pairs(merged, [(canonical(key), value) for key, value in new.items()], self._combine)
        return merged


class Reduce(_Totals):
    """One value per key, by an order-independent `combine` such as `PLUS` or `least`."""

    converges = True

    def __init__(self, combine: Combine, running: bool) -> None:
        super().__init__(combine, running)
        self._now = TimedValues()
        self._represented = TimedValues()
        self.state = self._state(self._now, self._represented)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        totals = self._now.at(time)
        if not totals:
            ctx.notify_at()
        pairs = pairs_of(batch)
        if (len(pairs) > 1 or type(pairs[0][0]) not in PLAIN) and not are_plain(keys := keys_of(pairs)):
            represent(self._represented.at(time), keys)
        add_pairs(totals, pairs, self._combine)

    def on_notify(self, ctx: Context, time: Time) -> None:
        new = self._now.pop(time)
        self._show(ctx, time, new if self._represented.empty else represented(self._represented.pop(time), new))


class OrderedReduce(_Totals):
    """One value per key, by any `combine` over the values sorted by content.

    The values of a time follow the total so far.
    """

    def __init__(self, combine: Combine, running: bool) -> None:
        super().__init__(combine, running)
        self._values = TimedBatches()
        self.state = self._state(self._values)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._values.add(time, pairs_of(batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = self._values.pop(time)
        try:
            combine = checked(self._combine)
            found = {key: reduce(combine, by_content(values)) for key, values in grouped(batches).items()}
            self._show(ctx, time, found)
        except FAILURES as error:
            raise operator_error(f"reduce {ctx.name!r}", ctx.site, time, error, None, batches[0]) from error


class Fold(Operator):
    """One accumulator per key, by `step(accumulator, value)` from `start()`.

    `step` returns a new value, and changes none.

    The values of one time are folded in the order of `order_by(value)`, and those that are equal in it, or all without it,
    in that of their content: the order in which they come is another when the time is done again.
    """

    moves_by_key = True
    repeats_over = "time"

    def __init__(
        self, start: Callable[[], Any], step: Combine, running: bool, order_by: Callable[[Any], Any] | None = None
    ) -> None:
        self._start = start
        self._step = step
        self._ordered = by_content if order_by is None else partial(ordered_by, order_by)
        self._now = TimedBatches()
        self._totals = KeyedState() if running else None
        self.state = self._now if self._totals is None else Parts(self._now, self._totals)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._now.add(time, pairs_of(batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        old = self._totals.read(time) if self._totals is not None else {}
        step, ordered = self._step, self._ordered
        folded: dict[Hashable, Any] = {}
        for key, values in grouped(self._now.pop(time)).items():
            before = old.get(key, ABSENT)
            after = stepped(self._start, step, before, ordered(values))
            if before is ABSENT or differs(before, after):
                folded[key] = after
        if folded:
            ctx.send(list(folded.items()))
            if self._totals is not None:
                self._totals.write(time, folded)


class Distinct(Operator):
    """Removes duplicate records within a time, or within a scope."""

    moves_by_key = True

    def __init__(self, running: bool) -> None:
        self.repeats_over = "record" if running else "time"
        self._now = TimedValues()
        self._represented = TimedValues()
        self._seen = KeyedState() if running else None
        self.state = Parts(self._now, self._represented, *([] if self._seen is None else [self._seen]))

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if not are_plain(batch):
            represent(self._represented.at(time), list(batch))
        self._now.at(time).update(dict.fromkeys(batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        new = self._now.pop(time)
        if not self._represented.empty:
            new = represented(self._represented.pop(time), new)
        seen = self._seen.read(time) if self._seen is not None else {}
        new = {record: None for record in new if record not in seen}
        if not are_canonical(new):
            new = {record: None for record in map(canonical, new) if record not in seen}
        if new:
            ctx.send(list(new))
            if self._seen is not None:
                self._seen.write(time, new)


class KeyedJoin(Operator):
    """Joins on equal keys: pairs (key, (left, right)) from port 0 (left) and port 1.

    Running, the values of a time meet all values of the other side up to that time.
    """

    moves_by_key = True

    def __init__(self, running: bool) -> None:
        self.repeats_over = "record" if running else "time"
        self._now = (TimedBatches(), TimedBatches())
        self._past = (KeyedState(), KeyedState()) if running else None
        self.state = Parts(*self._now, *(self._past or ()))

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._now[port].add(time, pairs_of(batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        left, right = (grouped(side.pop(time)) for side in self._now)
        out: list[Any] = []
        _match(left, right, out)
        if self._past is not None:
            past_left, past_right = (side.read(time) for side in self._past)
            _match(left, past_right, out)
            for key, values in right.items():
                out += [(key, (a, b)) for a in past_left.get(key, ()) for b in values]
            for side, new in zip(self._past, (left, right)):
                if new:
                    old = side.read(time)
                    side.write(time, {key: (*old.get(key, ()), *values) for key, values in new.items()})
        ctx.send(out)


def grouped(batches: Iterable[Batch]) -> dict[Hashable, list[Any]]:
    """Values by key, in arrival order; equal keys share one representative."""
    groups: dict[Hashable, list[Any]] = {}
    found: Represented = {}
    for batch in batches:
        pairs = pairs_of(batch)
        represent(found, keys_of(pairs))
        for key, value in pairs:
            groups.setdefault(key, []).append(value)
    groups = represented(found, groups)
    if are_canonical(groups):
        return groups
    merged: dict[Hashable, list[Any]] = {}
    for key, values in groups.items():
        merged.setdefault(canonical(key), []).extend(values)
    return merged


def _match(left: dict[Hashable, list[Any]], right: Any, out: list[Any]) -> None:
    for key, values in left.items():
        others = right.get(key)
        if others:
            out += [(key, (a, b)) for a in values for b in others]
