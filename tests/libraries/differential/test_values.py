"""Values that Python holds equal, in several forms: what goes in as 2.0 comes out as 2.0, in whatever order it comes."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from libraries import differential
from libraries.differential import Collection
from libraries.differential.identity import equal, identity, plain
from tests.libraries.differential.histories import PATHS, handled, run
from timely.data.codec import decode, encode

some = settings(max_examples=settings.default.max_examples // 3)

ONES = [1, 1.0, True, Decimal(1), Decimal("1.00")]
NUMBERS = [*ONES, 0, 0.0, -0.0, False, 2, 2.0, 2.5, Decimal("2.5"), Decimal("0.10"), 1e300, -(2**62) - 1, 2**64]
odd = st.sampled_from([*NUMBERS, math.nan, Decimal("NaN"), None, "a", (1, 2.0), (1.0, 2), (1, (True, "a")), (-0.0,)])
numbers = st.sampled_from(NUMBERS)
floats = st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, 2.5, 0.1, 1e16, -1e16, 1e-300, 2**70, -3])


@st.composite
def histories(draw: st.DrawFn, value: st.SearchStrategy[Any], names: str = "ab") -> list[list[Any]]:
    """Epochs of insertions, and of removals of what is there as it went in."""
    held: Counter[Any] = Counter()
    records: dict[Any, Any] = {}
    epochs = []
    for _ in range(draw(st.integers(1, 3))):
        epoch = []
        for _ in range(draw(st.integers(0, 8))):
            there = sorted((each for each in held if held[each] > 0), key=repr)
            if there and draw(st.booleans()):
                name, by = draw(st.sampled_from(there)), -1
            else:
                of, record = draw(st.sampled_from(names)), (draw(odd), draw(value))
                record = draw(st.sampled_from([record, record, record[0]])) if value is odd else record
                name, by = (of, identity(record)), 1
                records[name] = (of, record)
            held[name] += by
            epoch.append((*records[name], by))
        epochs.append(epoch)
    return epochs


def as_written(contents: dict[Any, int]) -> Counter[str]:
    return Counter({repr(record): times for record, times in contents.items()})


def held(epochs: list[Any], name: str) -> list[Any]:
    """What an input holds in the end, each record as often as it is there."""
    counts: Counter[Any] = Counter()
    records = {}
    for of, record, by in (change for epoch in epochs for change in epoch):
        if of == name:
            counts[identity(record)] += by
            records[identity(record)] = record
    return [records[each] for each, times in counts.items() for _ in range(times)]


def key_and_value(record: Any) -> tuple[Any, Any]:
    return record if type(record) is tuple and len(record) == 2 else (record, None)


def name_of(value: Any) -> Any:
    return identity(plain(value))


def key_of(record: Any) -> Any:
    return name_of(key_and_value(record)[0])


def written(key: Any, one: Any, other: Any) -> str:
    return repr((key, one, other))


def matches(a: list[Any], b: list[Any]) -> list[str]:
    return [
        written(*key_and_value(one), key_and_value(other)[1])
        for one in a
        for other in b
        if key_of(one) == key_of(other)
    ]


def alone(a: list[Any], b: list[Any]) -> list[Any]:
    keys = set(map(key_of, b))
    return [each for each in a if key_of(each) not in keys]


def keys_of(b: Collection) -> Collection:
    return b.map(lambda record: (key_and_value(record)[0], None)).distinct()


LINEAR: dict[str, tuple[Callable[..., Collection], Callable[..., list[Any]]]] = {
    "map": (lambda a, b: a.map(repr), lambda a, b: list(map(repr, a))),
    "consolidate": (lambda a, b: a.consolidate().map(repr), lambda a, b: list(map(repr, a))),
    "arrange": (lambda a, b: a.arrange().map(repr), lambda a, b: list(map(repr, a))),
    "iterate": (
        lambda a, b: a.iterate(lambda inner: inner.consolidate()).map(repr),
        lambda a, b: list(map(repr, a)),
    ),
    "minus": (lambda a, b: a.concat(b).minus(b.consolidate()).map(repr), lambda a, b: list(map(repr, a))),
    "join": (lambda a, b: a.join(b, written), matches),
    "join of what is arranged": (lambda a, b: a.arrange().join(b.arrange(), written), matches),
    "semijoin": (
        lambda a, b: a.semijoin(keys_of(b)).map(repr),
        lambda a, b: [repr(each) for each in a if key_of(each) in set(map(key_of, b))],
    ),
    "antijoin": (lambda a, b: a.antijoin(keys_of(b)).map(repr), lambda a, b: list(map(repr, alone(a, b)))),
    "left_join": (
        lambda a, b: a.left_join(b, written),
        lambda a, b: matches(a, b) + [written(*key_and_value(each), None) for each in alone(a, b)],
    ),
    "full_join": (
        lambda a, b: a.full_join(b, written),
        lambda a, b: (
            matches(a, b)
            + [written(*key_and_value(each), None) for each in alone(a, b)]
            + [written(key_and_value(each)[0], None, key_and_value(each)[1]) for each in alone(b, a)]
        ),
    ),
}


@pytest.mark.parametrize("verb", LINEAR)
@some
@given(epochs=histories(odd), path=st.sampled_from(PATHS), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_records_come_out_as_they_went_in(verb: str, epochs: list[Any], path: int, workers: int, seed: int) -> None:
    build, oracle = LINEAR[verb]
    with handled(path):
        found = run(build, ["a", "b"], epochs, workers, seed)[-1]
    assert found == Counter(oracle(held(epochs, "a"), held(epochs, "b")))


def grouped(records: list[Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for record in records:
        key, value = key_and_value(record)
        groups.setdefault(name_of(key), []).append(value)
    return groups


def of_groups(function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], Counter[Any]]:
    return lambda records: Counter(
        (key, name_of(value)) for key, group in grouped(records).items() for value in function(group)
    )


def total(group: list[Any]) -> Any:
    whole = sum(map(Fraction, group))
    return float(whole) if any(type(each) is float for each in group) else int(whole)


GROUPS: dict[str, tuple[Callable[[Collection], Collection], Callable[[list[Any]], Counter[Any]]]] = {
    "count": (lambda c: c.count(), of_groups(lambda group: [len(group)])),
    "min": (lambda c: c.min(), of_groups(lambda group: [min(group)])),
    "max": (lambda c: c.max(), of_groups(lambda group: [max(group)])),
    "top": (lambda c: c.top(2), of_groups(lambda group: sorted(group)[-2:])),
    "reduce": (
        lambda c: c.reduce(lambda key, group: [sum(times for _, times in group), len(group)]),
        of_groups(lambda group: [len(group), len(set(group))]),
    ),
    "distinct": (lambda c: c.distinct(), of_groups(lambda group: list(set(group)))),
    "threshold": (
        lambda c: c.threshold(lambda n: n // 2),
        of_groups(lambda group: [value for value, n in Counter(group).items() for _ in range(n // 2)]),
    ),
    "sum": (lambda c: c.sum(), of_groups(lambda group: [total(group)])),
}


@pytest.mark.parametrize("verb", GROUPS)
@some
@given(data=st.data(), path=st.sampled_from(PATHS), workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_equal_values_are_one_and_no_order_decides_on_its_form(
    verb: str, data: st.DataObject, path: int, workers: int, seed: int
) -> None:
    build, oracle = GROUPS[verb]
    epochs = data.draw(histories(floats if verb == "sum" else numbers, "a"))
    with handled(path):
        found = run(build, ["a"], epochs, workers, seed)[-1]
    assert Counter({tuple(map(name_of, record)): times for record, times in found.items()}) == oracle(held(epochs, "a"))
    again = [Random(seed).sample(epoch, len(epoch)) for epoch in epochs]
    with handled(PATHS[seed % len(PATHS)]):
        assert as_written(found) == as_written(run(build, ["a"], again, 4 - workers, seed + 1)[-1])
        at_once = run(build, ["a"], [[change for epoch in again for change in epoch]], 1, seed + 2)[-1]
    assert as_written(found) == as_written(at_once)


@pytest.mark.parametrize("verb", ["distinct", "max", "threshold"])
def test_a_whole_float_stays_one_through_groups(verb: str) -> None:
    build: dict[str, Callable[[Collection], Collection]] = {
        "distinct": lambda c: c.minus(c.distinct()),
        "max": lambda c: c.minus(c.max()),
        "threshold": lambda c: c.minus(c.threshold(lambda n: n)),
    }
    assert run(lambda c: build[verb](c).map(repr), ["a"], [[("a", (3.0, 2.0), 1)]]) == [{}]


def test_delta_joins_give_the_form_of_the_first_relation() -> None:
    def build(a: Collection, b: Collection) -> Collection:
        return differential.delta_join((a, "xy"), (b, "yz")).map(repr)

    epochs = [[("a", (1, 2.0), 1)], [("b", (2, "z"), 1)], [("a", (1, 2.0), -1)]]
    assert run(build, ["a", "b"], epochs) == [{}, {"(1, 2.0, 'z')": 1}, {}]


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0


VALUES = [*NUMBERS, math.nan, Decimal("Infinity"), math.inf, Fraction(1, 3), Fraction(5, 2), "a", b"a", None]
VALUES += [np.float64(1), np.float64(2.5), np.int64(1), (1, 2), (1.0, 2), frozenset({1}), frozenset({1.0})]
VALUES += [Point(1), Point(1.0), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.date(2024, 1, 1)]
VALUES += [dt.datetime(2024, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_plain_value_is_that_of_all_that_are_equal(value: Any) -> None:
    for other in VALUES:
        if (
            isinstance(value, tuple | np.generic)
            and isinstance(other, tuple | np.generic)
            and type(value) is not type(other)
        ):
            continue  # NumPy compares with each part
        try:
            same = value is other or bool(value == other)
        except TypeError:  # a decimal and an integer of NumPy
            continue
        assert equal(value, other) == (same or all(each != each for each in (value, other)))
        assert (identity(value) == identity(other)) == (repr(value) == repr(other) and type(value) is type(other))
    assert value != value or plain(value) == value
    if not isinstance(value, Fraction):  # which is not carried
        assert identity(decode(encode(value))) == identity(value)


def test_what_a_trace_gives_back_is_found_in_a_dictionary() -> None:
    flow = falkirk.Dataflow()
    out = differential.input_of(flow, "in").distinct().capture("out")
    with falkirk.Session(flow) as session:
        given_ = differential.Input(session, "in")
        given_.insert_all([("k", float("nan")), ("k", (float("nan"), 1))])
        given_.close()
        session.run()
        assert differential.snapshot(session.captured(out)) == {("k", math.nan): 1, ("k", (math.nan, 1)): 1}
