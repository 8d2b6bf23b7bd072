"""Grades of observed outputs after failures, and comparison of failure-free runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from recovery.guarantees.promises import Alike, Grade
from timely.time import Time, visible

Rows: TypeAlias = list[Any]
Given: TypeAlias = Mapping[Time, Rows]
"""Records of an output by time, from all workers."""

Publication: TypeAlias = tuple[int, Time, Rows]
"""Publication of an output: worker, time, records."""


def observed(seen: Sequence[Publication], expected: Given, alike: Alike, twice: bool = False) -> tuple[Grade, str]:
    """Best grade consistent with the observed publications, and why no better.

    Args:
        expected: what it gives without failures.
        alike: how far that is the same in every run.
        twice: whether records may come again later, beside those that had come (AtLeastOnce).
    """
    at: dict[tuple[int, Time], list[Rows]] = {}
    for worker, time, rows in seen:
        at.setdefault((worker, time), []).append(rows)
    whole = [row for _, _, rows in seen for row in rows]
    if alike == Alike.EPOCHS:
        last: dict[Time, list[Any]] = {}
        for (_, time), commits in at.items():
            last.setdefault(time, []).extend(commits[-1])
        if found := difference(Alike.EPOCHS, last, expected):
            words = f"gave{found.where} {shown(found.one)}, and must give {shown(found.other)}"
            return (Grade.GAP if _lost_of_epochs(at, expected) else Grade.DIVERGENT), words
    elif alike == Alike.RECORDS:
        right = list(chain.from_iterable(expected.values()))
        if lost := beyond(right, whole, repeats=True):
            return Grade.GAP, f"never gave {shown(lost)}"
        if wrong := beyond(whole, right, repeats=True):
            return Grade.DIVERGENT, f"gave {shown(wrong)}, which is wrong"
    elif alike == Alike.LATEST:
        given, final = latest(whole), latest(_in_order(expected))
        if lost := [key for key in final if key not in given]:
            return Grade.GAP, f"never gave anything for {shown(lost)}"
        if wrong := [given[key] for key in given if key not in final or not same([given[key]], [final[key]])]:
            return Grade.DIVERGENT, f"said last {shown(wrong)}, which is wrong"
    if twice:
        if alike == Alike.RECORDS and (more := beyond(whole, chain.from_iterable(expected.values()), repeats=False)):
            return Grade.REPEATING, f"gave again {shown(more)}"
        return (Grade.PRECISE if alike == Alike.RECORDS else Grade.REPEATING), "gave something again"
    for (worker, time), commits in at.items():
        for commit in commits[1:]:
            if not same(commits[0], commit):
                words = f"gave at {visible(time)} on worker {worker} {shown(commits[0])}, and then {shown(commit)}"
                return Grade.CONVERGENT, words
    first = [row for commits in at.values() for row in commits[0]]
    if alike == Alike.RECORDS and (more := beyond(first, chain.from_iterable(expected.values()), repeats=False)):
        return Grade.CONVERGENT, f"gave again, at another time, {shown(more)}"
    for (worker, time), commits in at.items():
        if len(commits) > 1:
            return Grade.REPEATING, f"gave {visible(time)} again on worker {worker}, with the same records"
    return Grade.PRECISE, ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Place of the first difference of two outputs, with both contents.

    `where` is for example "at time (3,)", or empty.
    """

    where: str
    one: Rows
    other: Rows


def difference(level: Alike, one: Given, other: Given) -> Difference | None:
    """First difference of two outputs at a level of likeness, or None."""
    if level == Alike.EPOCHS:
        for time in sorted(one.keys() | other.keys()):
            first, second = (sorted(each.get(time, ()), key=order_of) for each in (one, other))
            if not same(first, second):
                return Difference(f" at time {visible(time)}", first, second)
    elif level == Alike.RECORDS:
        first, second = (sorted(chain.from_iterable(each.values()), key=order_of) for each in (one, other))
        if not same(first, second):
            return Difference(" in all", beyond(first, second, repeats=False), beyond(second, first, repeats=False))
    elif level == Alike.LATEST:
        first, second = (sorted(latest(_in_order(each)).values(), key=order_of) for each in (one, other))
        if not same(first, second):
            return Difference(" in the end", first, second)
    return None


def latest(rows: Iterable[Any]) -> dict[str, Any]:
    """Last pair of each key; records other than pairs are ignored."""
    return {order_of(row[0]): row for row in rows if isinstance(row, tuple | list) and len(row) == 2}


def _in_order(given: Given) -> Iterable[Any]:
    return chain.from_iterable(given[time] for time in sorted(given))


def _lost_of_epochs(at: Mapping[tuple[int, Time], Sequence[Rows]], expected: Given) -> bool:
    """True if records are missing in every commit of their own time."""
    most: dict[Time, list[Any]] = {}
    for (_, time), commits in at.items():
        longest: Rows = max(commits, key=len)
        most.setdefault(time, []).extend(longest)
    return any(beyond(rows, most.get(time, ()), repeats=False) for time, rows in expected.items())


# Records


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """True if two sorted lists of records are equal; floats to 1e-9."""
    if one == other:
        return True
    return len(one) == len(other) and all(_close(a, b) for a, b in zip(one, other))


def _close(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_close(a, b) for a, b in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    return bool(one == other)


def order_of(record: Any) -> str:
    """Sort key of a record, equal up to the last digits of floats.

    Sets come in an order of their own.
    """
    return _text(record, lambda each: f"{each:.6g}" if isinstance(each, float) else repr(each), lambda each: "")


def exactly(record: Any) -> str:
    """Sort key equal for records of the same type and exact value.

    Sets come in an order of their own.
    """
    return _text(record, repr, lambda each: type(each).__name__)


def _text(record: Any, single: Callable[[Any], str], name: Callable[[Any], str]) -> str:
    """Text of a record, by `single` for scalars and `name` for sequence types."""
    of = partial(_text, single=single, name=name)
    if isinstance(record, list | tuple):
        return f"{name(record)}({', '.join([of(each) for each in record])})"
    if isinstance(record, dict):
        return f"{{{', '.join(f'{key!r}: {of(value)}' for key, value in record.items())}}}"
    if isinstance(record, set | frozenset):
        return f"{{{', '.join(sorted([of(each) for each in record]))}}}"
    return single(record)


def beyond(records: Iterable[Any], others: Iterable[Any], repeats: bool) -> list[Any]:
    """Records missing in `others`; without `repeats`, counted with multiplicity."""
    left: dict[Hashable, int] = {}
    for other in others:
        left[order_of(other)] = left.get(order_of(other), 0) + 1
    found = []
    for record in records:
        if not left.get(order_of(record)):
            found.append(record)
        elif not repeats:
            left[order_of(record)] -= 1
    return found


def shown(records: Sequence[Any]) -> str:
    """The records as text, not too long."""
    text = ", ".join([repr(record) for record in records[:8]])
    more = f", ... ({len(records)} records)" if len(records) > 8 else ""
    return f"[{text:.400}{more}]" if records else "nothing"
