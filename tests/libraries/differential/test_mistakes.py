"""Bad input to collections: documented behaviour, or an error that names the verb, its line and the record."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from libraries import differential, graph
from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential import Collection
from runtime.session.session import Session
from tests.libraries.differential.histories import path
from timely.errors import GraphError, OperatorError
from timely.io import Batches

__all__ = ["path"]


def after(build: Callable[[Collection], Collection], *epochs: list[tuple[Any, int]]) -> dict[Any, int]:
    """The collection that a program holds after these changes."""
    flow = Dataflow()
    out = build(differential.input_of(flow, "in")).capture("out")
    with Session(flow) as session:
        given = differential.Input(session, "in")
        for epoch, changes in enumerate(epochs):
            for record, by in changes:
                given.change(record, by)
            given.advance_to(epoch + 1)
        given.close()
        session.run()
        return differential.snapshot(session.captured(out))


def test_a_loop_that_never_ends_is_named_with_what_changes(path: int) -> None:
    def endless(numbers: Collection) -> Collection:
        return numbers.iterate(lambda inner: inner.map(lambda n: n + 1), limit=20, name="counting")

    with pytest.raises(
        OperatorError, match=r"the loop 'counting' .* still changes after 20 iterations of epoch 0.*: .*22"
    ):
        after(endless, [(1, 1)])
    assert after(lambda n: n.iterate(lambda inner: inner.map(lambda n: min(n + 1, 9)), limit=20), [(1, 1)]) == {9: 1}


@pytest.mark.parametrize("verb", ["distinct", "min", "max"])
def test_more_removed_than_inserted_is_an_error_that_names_the_record(verb: str, path: int) -> None:
    with pytest.raises(OperatorError, match=rf"{verb} .*test_mistakes.py.*\(1,\).*\('k', 2\) is there -1 times"):
        after(lambda c: getattr(c, verb)(), [(("k", 1), 1)], [(("k", 2), -1)])


@pytest.mark.parametrize("verb", ["count", "sum"])
def test_a_count_below_nothing_is_an_error_that_names_the_key(verb: str, path: int) -> None:
    """They are of all records together: of which of them more were removed than inserted is not kept."""
    with pytest.raises(OperatorError, match=rf"{verb} .*test_mistakes.py.*\(1,\).*key 'k' more were removed.*: -1 are"):
        after(lambda c: getattr(c, verb)(), [(("k", 1), 1)], [(("k", 1), -1), (("k", 2), -1)])
    assert after(lambda c: c.sum(), [(("k", 5), 2)], [(("k", 4), -1)]) == {("k", 6): 1}


def test_what_weighs_something_and_is_not_there_is_an_error(path: int) -> None:
    with pytest.raises(OperatorError, match=r"sum .*key 'k' more were removed than were ever inserted: 0 are left"):
        after(lambda c: c.sum(), [(("k", 5), 1), (("k", 4), -1)])


def test_a_threshold_takes_any_number(path: int) -> None:
    assert after(lambda c: c.threshold(lambda n: -n), [("k", -3)]) == {"k": 3}


def test_a_checked_input_refuses_what_is_not_there() -> None:
    flow = Dataflow()
    differential.input_of(flow, "in").capture("out")
    with Session(flow) as session:
        given = differential.Input(session, "in", checked=True)
        given.insert("a")
        given.remove("a")
        with pytest.raises(ValueError, match="'a' is there 0 times and cannot be removed 1 times"):
            given.remove("a")
        given.close()
        session.run()


def test_what_python_holds_equal_is_one_record_and_nan_equals_itself(path: int) -> None:
    assert after(
        lambda c: c.distinct(), [(1, 1), (1.0, 1), (True, 1), (None, 1), (math.nan, 1)], [(float("nan"), -1)]
    ) == {
        1: 1,
        None: 1,
    }
    found = after(lambda c: c.min(), [(("k", math.nan), 1), (("k", 2.5), 1), (("k", 2), 1), ((None, 1), 1)])
    assert found == {("k", 2): 1, (None, 1): 1}


def test_integers_of_any_size_are_summed_exactly(path: int) -> None:
    big = 1 << 62
    assert after(lambda c: c.sum(), [((1, big), 3), ((1, -big), 1), ((2, 1 << 70), 1)]) == {
        (1, 2 * big): 1,
        (2, 1 << 70): 1,
    }


def test_what_cannot_be_hashed_is_no_key(path: int) -> None:
    with pytest.raises(OperatorError, match=r"distinct .*test_mistakes.py.*\[1\] \(list\) cannot be a key"):
        after(lambda c: c.distinct(), [(("k", [1]), 1)])


def test_values_that_cannot_be_compared_are_an_error_of_the_verb(path: int) -> None:
    with pytest.raises(OperatorError, match=r"max .*test_mistakes.py.*TypeError"):
        after(lambda c: c.max(), [(("k", 1), 1), (("k", "a"), 1)])


def test_a_body_must_give_what_it_made_of_its_argument() -> None:
    with pytest.raises(GraphError, match="must return as many collections as it was given, 1"):
        after(lambda c: c.iterate(lambda inner: c), [])
    with pytest.raises(GraphError, match="limit is a number of iterations from 1 up, not 0"):
        after(lambda c: c.iterate(lambda inner: inner, limit=0), [])
    with pytest.raises(GraphError, match="a collection is wanted here, not Stream"):
        after(lambda c: c.concat(c.stream), [])  # type: ignore[arg-type]


def test_a_function_of_reduce_gives_values_in_a_list(path: int) -> None:
    with pytest.raises(OperatorError, match="the function of reduce gives the values of a key, in a list, not 'ab'"):
        after(lambda c: c.reduce(lambda key, group: "ab"), [(("k", 1), 1)])


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pl.Series([1.5, 2.0]), "keys are float64"),
        (pl.Series([1, None]), "keys are float64"),
        (pl.Series(["a", "b"]), "keys are "),
        (pl.Series([dt.date(2024, 1, 1)] * 2), "keys are datetime64"),
        (pl.Series([1, 1 << 63], dtype=pl.UInt64), "keys reach 9223372036854775808"),
        (pl.Series([1, -(1 << 63)]), "integers from -2\\*\\*62 up"),
    ],
)
def test_columns_are_of_integers_that_fit(column: pl.Series, why: str) -> None:
    with pytest.raises(ValueError, match=f"columns hold .*{why}"):
        differential.rows_of(column)


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "halves": lambda key, value: (key, value / 2),
    "one half": lambda key, value: value / 4,
    "texts": lambda key, value: (key, "x"),
    "numbers": lambda key, value: 7,
    "pairs as values": lambda key, value: (key, (value, 1)),
    "pairs as keys": lambda key, value: ((key, value), None),
    "nothing": lambda key, value: (key, None),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("how", ["map_pairs", "join"])
def test_a_function_of_columns_gives_what_it_gives_of_single_values(name: str, how: str) -> None:
    function = MADE[name]
    flow = Dataflow()
    given = differential.input_of(flow, "given")
    made = (
        given.map_pairs(function)
        if how == "map_pairs"
        else given.join(given, lambda key, left, right: function(key, left), columns=True)
    )
    made.distinct().capture("out")
    with Session(flow) as session:
        numbers = differential.Input(session, "given")
        numbers.columns([n % 7 for n in range(200)], [n % 5 for n in range(200)])
        numbers.close()
        session.run()
        found = differential.snapshot(session.captured("out"))
    assert found == {function(key, value): 1 for key in range(7) for value in range(5)}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("groupBy", "reduce"),
        ("reduce_by_key", "count"),
        ("union", "concat"),
        ("merge", "concat"),
        ("leftJoin", "left_join"),
    ],
)
def test_names_of_other_systems_are_answered_with_the_verb(name: str, advice: str) -> None:
    collection = differential.input_of(Dataflow(), "in")
    with pytest.raises(AttributeError, match=rf"'Collection' object has no attribute '{name}'; .*{advice}"):
        getattr(collection, name)
    assert not hasattr(collection, "_nothing")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda s: differential.from_columns(s, "text"),
            "column 'text' is of String, and a collection takes columns of integers",
        ),
        (lambda s: differential.from_columns(s, "n", "m"), "no column 'm'; there are 'n', 'text'"),
        (lambda s: differential.from_columns(s, "n", 3), "takes names of columns, not 3"),
        (
            lambda s: differential.from_columns(s.to_records(), "n"),
            "takes a stream of columns, not Stream: .* from_records",
        ),
        (
            lambda s: graph.components(s),
            r"components takes collections, not Columns: differential.from_columns\(stream",
        ),
        (lambda s: graph.reach(differential.from_columns(s, "n", "n"), s), "reach takes collections, not Columns"),
        (
            lambda s: graph.triangles(edges=s.to_records()),
            r"triangles takes .* not Stream: differential.from_records\(stream",
        ),
    ],
)
def test_what_is_no_collection_of_integers_is_refused_at_the_call(build: Callable[[Any], Any], message: str) -> None:
    stream = Dataflow().columns("in", Batches([pl.DataFrame({"n": [1], "text": ["a"]})]))
    with pytest.raises(GraphError, match=rf"test_mistakes.py:\d+: .*{message}"):
        build(stream)
