"""Functions over columns give what they give record by record: nothing wraps round at 64 bits, and no digit is lost."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk
from libraries import differential, graph
from libraries.differential import Collection
from libraries.differential.checked import over_columns
from libraries.differential.rows import LEAST, made_rows

Function = Callable[[Any, Any], Any]

edges = st.sampled_from([0, 1, -1, 2, 3, 2**31, -(2**31), 2**53, 2**53 + 1, 2**62, 2**63 - 1, LEAST, LEAST + 1])
numbers = edges | st.integers(-4, 70) | st.integers(LEAST, 2**63 - 1)
BINARY = [
    *(operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv, operator.pow),
    *(operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, operator.lt, operator.eq),
]
UNARY = [operator.neg, operator.abs, operator.pos, operator.invert]


def leaf() -> st.SearchStrategy[Function]:
    constants = (edges | st.integers(-3, 65) | st.sampled_from([0.5, -2.0])).map(
        lambda number: lambda key, value: number
    )
    return st.sampled_from([lambda key, value: key, lambda key, value: value]) | constants


def made_of(inner: st.SearchStrategy[Function]) -> st.SearchStrategy[Function]:
    def two(op: Any, one: Function, other: Function) -> Function:
        return lambda key, value: op(one(key, value), other(key, value))

    def one(op: Any, of: Function) -> Function:
        return lambda key, value: op(of(key, value))

    return st.builds(two, st.sampled_from(BINARY), inner, inner) | st.builds(one, st.sampled_from(UNARY), inner)


functions = st.recursive(leaf(), made_of, max_leaves=5)


def exactly(value: Any) -> Any:
    return type(value).__name__, repr(value)


@given(function=functions, records=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_columns_give_what_records_give(function: Function, records: list[tuple[int, int]]) -> None:
    key, value = (np.array([record[i] for record in records], np.int64) for i in (0, 1))
    try:
        found = over_columns(lambda k, v: (k, function(k, v)), key, value)
    except (TypeError, ValueError, ZeroDivisionError):
        return  # an error is none of what is to be equal: the records decide
    changes = made_rows(found, np.ones(len(records), np.int64))
    if changes is None:
        return
    given_ = [pair for each in changes for pair in (each.pairs() if isinstance(each, differential.Rows) else [each])]
    try:
        want = [(k, function(k, v)) for k, v in records]
    except (TypeError, ValueError):  # a shift of a float, a power that is complex: refused by either
        return
    assert [exactly(record[1]) for record, _ in given_] == [exactly(made) for _, made in want]


@given(records=st.lists(st.tuples(st.integers(-(2**20), 2**20), st.integers(1, 2**20)), min_size=1, max_size=5))
def test_what_fits_stays_in_columns(records: list[tuple[int, int]]) -> None:
    key, value = (np.array([record[i] for record in records], np.int64) for i in (0, 1))
    found = over_columns(lambda k, v: (k * v + 1, (k << 10) // v - (abs(k) % v)), key, value)
    assert found is not NotImplemented
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == [
        (k * v + 1, (k << 10) // v - (abs(k) % v)) for k, v in records
    ]


VERBS: dict[str, tuple[Callable[[Collection], Collection], Callable[[int, int], Any]]] = {
    "map_pairs": (lambda c: c.map_pairs(lambda k, v: (k, v * v)), lambda k, v: (k, v * v)),
    "map_pairs to one value": (lambda c: c.map_pairs(lambda k, v: v * -2), lambda k, v: v * -2),
    "map_pairs below the least code": (lambda c: c.map_pairs(lambda k, v: (k, -v - 2)), lambda k, v: (k, -v - 2)),
    "filter_pairs": (lambda c: c.filter_pairs(lambda k, v: v + v > 0), lambda k, v: (k, v) if v + v > 0 else None),
    "join": (lambda c: c.join(c, lambda k, a, b: (k, a * b), columns=True), lambda k, v: (k, v * v)),
    "truth": (lambda c: c.map_pairs(lambda k, v: (k, v > 3)), lambda k, v: (k, v > 3)),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("value", [7, 4_000_000_000, 2**62, 2**63 - 1])
def test_what_columns_insert_records_take_back(verb: str, value: int) -> None:
    build, made = VERBS[verb]
    flow = falkirk.Dataflow()
    out = build(differential.input_of(flow, "in")).capture("out")
    keys = np.arange(40)
    with falkirk.Session(flow) as session:
        given_ = differential.Input(session, "in")
        given_.columns(keys, np.full(40, value))
        given_.advance_to(1)
        given_.remove((0, value))
        given_.close()
        session.run()
        captured = session.captured(out)
    for epoch, there in ((0, keys.tolist()), (1, keys.tolist()[1:])):
        want = Counter(made(key, value) for key in there)
        want.pop(None, None)
        assert differential.snapshot(captured, epoch) == want
        if value < 2**62:
            assert {exactly(each) for each in differential.snapshot(captured, epoch)} == {
                exactly(each) for each in want
            }


@pytest.mark.parametrize("columns", [False, True])
def test_nodes_of_63_bits_have_odd_components(columns: bool) -> None:
    base = 2**62
    pairs = [(base, base + 1), (base + 1, base + 2), (base + 2, base), (7, 8)]
    flow = falkirk.Dataflow()
    out = graph.odd_components(differential.input_of(flow, "edges")).capture("out")
    with falkirk.Session(flow) as session:
        given_ = differential.Input(session, "edges")
        if columns:
            given_.columns(*zip(*pairs, strict=True))
        else:
            given_.insert_all(pairs)
        given_.close()
        session.run()
        assert differential.snapshot(session.captured(out)) == {base: 1, base + 1: 1, base + 2: 1}


def test_columns_are_not_written_into() -> None:
    def doubled(key: Any, value: Any) -> Any:
        value *= 2
        return key, value

    with pytest.raises(ValueError, match="read-only"):
        over_columns(doubled, np.array([1, 2]), np.array([3, 4]))
