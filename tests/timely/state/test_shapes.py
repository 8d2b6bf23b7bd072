"""The shape of a state: what a checkpoint may be restored into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import falkirk
from falkirk import KeyedState, Parts, TimedBatches, TimedValues, agg
from libraries.columns.kernels.parts import Part
from libraries.columns.operators.aggregate import ColumnAggregate
from libraries.columns.operators.changed_aggregate import ChangedAggregate
from libraries.columns.state import CountedRows, ExpiringTotals, OrderedRowsState, RowsState, TotalsState, ValuesOfKeys
from timely.errors import GraphError, OperatorError
from timely.state import State
from timely.state.interface import Run
from timely.state.shapes import digest_of, renamed, shape_changes, shape_of, shown
from timely.time import Frontier

SUM, MAX = Part("sum", "v"), Part("max", "v")


class Own(TimedBatches):
    """A state of the user's, which says what it is of."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape


STATES: list[State] = [
    KeyedState(),
    TimedBatches(),
    TimedValues(),
    TotalsState(["k"], [SUM]),
    TotalsState(["k"], [MAX]),
    TotalsState(["k", "l"], [SUM]),
    TotalsState(["l", "k"], [SUM]),
    ExpiringTotals(["k"], [SUM, MAX], "v"),
    ExpiringTotals(["k"], [SUM, MAX], "w"),
    CountedRows(["k"], "v"),
    CountedRows(["k"], "w"),
    ValuesOfKeys(["k", "v"]),
    ValuesOfKeys(["k", "w"]),
    RowsState(["k"]),
    RowsState(["l"]),
    OrderedRowsState(["k"], "v"),
    OrderedRowsState(["k"], "w"),
    Own("one"),
    Own("another"),
    Parts(KeyedState()),
    Parts(KeyedState(), KeyedState()),
    Parts(KeyedState(), TimedBatches()),
    Parts(TimedBatches(), KeyedState()),
    Parts(now=TimedBatches(), kept=KeyedState()),
    Parts(later=TimedBatches(), kept=KeyedState()),
    Parts(now=KeyedState(), kept=TimedBatches()),
]


def test_no_state_is_restored_into_one_of_another_kind_or_of_something_else() -> None:
    shapes = [shape_of(state, {}) for state in STATES]
    alike = {(shapes[0], shapes[19])}  # a state is the same if it is the only part
    for number, one in enumerate(shapes):
        assert shape_changes(one, one) == []
        for other in shapes[number + 1 :]:
            changes = shape_changes(one, other)
            assert bool(changes) is ((one, other) not in alike)
            assert all(shown(one) in change and shown(other) in change for change in changes)
    assert digest_of(()) == 0
    assert 0 not in map(digest_of, shapes)


def test_parts_with_names_may_come_in_any_order_and_are_restored_by_name() -> None:
    before, after = Parts(a=KeyedState(), b=KeyedState()), Parts(b=KeyedState(), a=KeyedState())
    assert shape_changes(shape_of(before, {}), shape_of(after, {})) == []
    before.named["a"].write((0,), {"of": "a"})  # type: ignore[attr-defined]
    before.named["b"].write((0,), {"of": "b"})  # type: ignore[attr-defined]
    runs = before.snapshot(Frontier.before([(1,)]), Frontier.empty(1))
    assert sorted(run.part for run in runs) == ["a", "b"]
    after.restore(runs)
    assert [after.named[name].read((0,)) for name in "ab"] == [{"of": "a"}, {"of": "b"}]  # type: ignore[attr-defined]
    with pytest.raises(OperatorError, match="is of part 0 of its state, which has the parts b, a"):
        after.restore([Run((0,), [])])
    with pytest.raises(GraphError, match="give all states to one"):
        Parts(KeyedState(), Parts(KeyedState()))


def of_attributes(attributes: Mapping[str, Any], *parts: State) -> Any:
    return shape_of(Parts(*parts), {"state": None, **attributes})


def test_two_parts_of_one_kind_that_are_exchanged_are_told_apart_by_their_attributes() -> None:
    a, b = KeyedState(), KeyedState()
    before = of_attributes({"counts": a, "sums": b}, a, b)
    exchanged = of_attributes({"counts": a, "sums": b}, b, a)
    assert shape_changes(before, exchanged) == [
        "its state was Parts(counts: KeyedState; sums: KeyedState), and is Parts(sums: KeyedState; counts: KeyedState): "
        "two parts were exchanged"
    ]
    assert shape_changes(of_attributes({"both": [a, b]}, a, b), of_attributes({"both": [a, b]}, b, a))
    assert shape_changes(
        of_attributes({"both": {"x": a, "y": b}}, a, b), of_attributes({"both": {"x": a, "y": b}}, b, a)
    )
    other = of_attributes({"counts": a, "totals": b}, a, b)
    assert shape_changes(before, other) == []
    assert renamed(before, other) == ["its state 'sums' is called 'totals' now"]
    assert renamed(before, before) == renamed(before, exchanged) == []
    assert digest_of(before) == digest_of(other)


def shape(operator: falkirk.Operator) -> Any:
    return shape_of(operator.state, {})


def test_the_engines_own_states_are_told_apart_by_what_they_are_of() -> None:
    def total(**aggregates: Any) -> Any:
        return shape(ColumnAggregate(["k"], aggregates))

    assert shape_changes(total(t=agg.sum("v"), m=agg.max("v")), total(m=agg.max("v"), t=agg.sum("v"))) == []
    assert shape_changes(total(t=agg.sum("v"), m=agg.max("v")), total(t=agg.sum("v")))
    assert shape_changes(total(t=agg.sum("v")), total(t=agg.sum("w")))
    assert shape_changes(total(t=agg.sum("v")), shape(ColumnAggregate(["l"], {"t": agg.sum("v")})))
    assert shape_changes(total(t=agg.sum("v")), shape(ColumnAggregate(["k"], {"t": agg.sum("v")}, ttl=3)))
    assert (
        shape_changes(total(a=agg.n_unique("v"), b=agg.n_unique("w")), total(b=agg.n_unique("w"), a=agg.n_unique("v")))
        == []
    )
    assert shape_changes(total(a=agg.n_unique("v")), total(a=agg.n_unique("w")))


def test_values_of_columns_are_restored_into_those_of_their_column_whatever_the_order_of_aggregates() -> None:
    """Of each column that is counted the values are a part of their own, of one kind and one shape."""
    before = ColumnAggregate(["k"], {"a": agg.n_unique("v"), "b": agg.n_unique("w")})
    after = ColumnAggregate(["k"], {"b": agg.n_unique("w"), "a": agg.n_unique("v")})
    assert {"v", "w"} < set(before.state.named) == set(after.state.named)  # type: ignore[union-attr]
    changed = ChangedAggregate(["k"], {"n": agg.count()}, {"a": agg.min("v"), "b": agg.first("v", "w")}, "sign")
    other = ChangedAggregate(["k"], {"n": agg.count()}, {"b": agg.first("v", "w"), "a": agg.min("v")}, "sign")
    assert shape_changes(shape(changed), shape(other)) == []
    assert len(shape(changed)) == 4
