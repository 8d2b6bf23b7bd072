"""Faults of operators of a user's own that are told before any data moves, and functions that return nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import falkirk
from falkirk import Dataflow, Epochs, FalkirkError, Iterable, KeyedState, Operator, Tumbling
from timely.errors import OperatorError
from timely.operators.base import Context
from timely.operators.faults import fault_of, fault_of_state
from timely.state import Parts, TimedBatches
from timely.time import Time


class Good(Operator):
    """Nothing is wrong with it: what looks like a handler it calls itself."""

    transient = ("cache",)

    def __init__(self) -> None:
        self.state = Parts(KeyedState(), TimedBatches())

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.send([record for each in [batch] for record in self.on_each(each)])

    def on_each(self, batch: Any) -> Any:
        return [self.on_notice(record) for record in batch]

    def on_notice(self, record: Any) -> Any:
        return record


def test_what_an_operator_calls_itself_may_be_named_as_it_likes() -> None:
    assert fault_of(Good) is None
    assert fault_of_state(Good()) is None
    assert fault_of(Operator) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_notification", "on_notify"),
        ("on_batches", "on_batch"),
        ("notify", "on_notify"),
        ("onBatch", "on_batch"),
        ("on_restored", "on_restore"),
        ("on_results", "on_result"),
        ("on_watermarks", "on_watermark"),
    ],
)
def test_a_method_with_nearly_the_name_of_a_handler_is_refused(name: str, meant: str) -> None:
    kind = type("Misspelt", (Good,), {name: lambda self: None, "__module__": __name__})
    assert fault_of(kind) == f"nobody calls {name} of Misspelt: the method is {meant}"


@pytest.mark.parametrize("attributes", [{"spans": True}, {"undoes_spans": True}, {"transient": "cache"}])
def test_what_a_class_says_must_mean_something(attributes: dict[str, Any]) -> None:
    fault = fault_of(type("Says", (Good,), {**attributes, "__module__": __name__}))
    assert fault is not None
    assert next(iter(attributes)) in fault


class Almost:
    """Has some of the methods of a state."""

    def snapshot(self, upto: Any, after: Any) -> list[Any]:
        return []

    keep = compact = pieces = size = snapshot


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({}, "is a dict, which nobody would save"),
        ([], "is a list"),
        (0, "is a int"),
        (KeyedState, "is the class KeyedState: make one of it"),
        (Almost(), "has no restore"),
    ],
)
def test_a_state_that_is_none_is_refused_with_the_operator(state: Any, says: str) -> None:
    class Odd(Good):
        def __init__(self) -> None:
            self.state = state

    flow = Dataflow("odd")
    flow.source("in", Iterable([1])).unary("odd", Odd).capture("out")
    with pytest.raises(OperatorError, match=rf"unary 'odd' \(.*test_faults.py:[0-9]+\): .*{says}"):
        falkirk.run(flow)


def _given(build: Callable[[Any], Any], *pairs: tuple[Any, Any]) -> Any:
    flow = Dataflow("pairs")
    build(flow.source("pairs", Iterable(list(pairs))).keyed()).capture("out")
    return dict(pair for _, batch in falkirk.run(flow).captured("out") for pair in batch)


@pytest.mark.parametrize("values", [[1], [1, 2]])
@pytest.mark.parametrize(
    "verb",
    [
        lambda pairs: pairs.fold([], lambda so_far, n: so_far.append(n)),
        lambda pairs: pairs.fold(list, lambda so_far, n: so_far.append(n), over="time"),
        lambda pairs: pairs.window(Epochs(1)).fold(list, lambda so_far, n: so_far.append(n)),
        lambda pairs: pairs.window(Tumbling(9), time=abs).fold([], lambda so_far, n: so_far.append(n)),
    ],
)
def test_an_accumulator_that_is_not_returned_is_told(verb: Callable[[Any], Any], values: list[int]) -> None:
    with pytest.raises(
        OperatorError, match=r"fold-1' .*returned None for an accumulator and 1: return the accumulator"
    ):
        _given(verb, *(("a", value) for value in values))


@pytest.mark.parametrize(
    "verb",
    [
        lambda pairs: pairs.reduce(lambda one, other: one.extend(other)),
        lambda pairs: pairs.window(Epochs(1)).reduce(lambda one, other: one.extend(other)),
    ],
)
def test_a_combined_value_that_is_not_returned_is_told(verb: Callable[[Any], Any]) -> None:
    with pytest.raises(OperatorError, match=r"reduce-1' .*returned None .*: return the combined value"):
        _given(verb, ("a", [1]), ("a", [2]))


def test_none_can_be_meant() -> None:
    assert _given(lambda pairs: pairs.fold(None, lambda so_far, n: n if n > 5 else so_far), ("a", 1)) == {"a": None}
    alike = _given(lambda pairs: pairs.reduce(lambda one, other: one if one == other else None), ("a", 1), ("a", 2))
    assert alike == {"a": None}
    assert _given(lambda pairs: pairs.reduce(lambda one, other: one or other), ("a", None), ("a", None)) == {"a": None}
    with pytest.raises(FalkirkError, match="division or modulo by zero"):
        _given(lambda pairs: pairs.fold(list, lambda so_far, n: [1 // n]), ("a", 1), ("a", 0))


def test_an_accumulator_that_is_given_as_a_list_is_one_for_each_key() -> None:
    found = _given(lambda pairs: pairs.fold([], lambda so_far, n: [so_far.append(n), so_far][1]), ("a", 1), ("b", 2))
    assert found == {"a": [1], "b": [2]}
