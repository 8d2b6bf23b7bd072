"""A function that changes what it is given is named by the simulator, whichever verb calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from falkirk import Batches, Dataflow, Iterable, Operator, agg
from falkirk.simulate.reference import reference
from timely.errors import OperatorError


def twice(order: dict[str, int]) -> dict[str, int]:
    order["price"] *= 2
    return order


def wider(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.insert_column(0, pl.Series("new", [0] * len(frame)))


class Emptying(Operator):
    def on_batch(self, ctx: Any, port: int, time: Any, batch: Any) -> None:
        ctx.send(list(batch))
        batch.clear()


def mixed(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    a["price"] += b["price"]
    return a


VERBS: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(twice, name="bad"),
    "filter": lambda s: s.filter(lambda order: twice(order), name="bad"),
    "flat_map": lambda s: s.flat_map(lambda order: [twice(order)], name="bad"),
    "inspect": lambda s: s.inspect(twice, name="bad"),
    "attempt": lambda s: s.attempt(twice, name="bad")[0],
    "branch": lambda s: s.branch(twice, name="bad")[0],
    "key_by": lambda s: s.key_by(lambda order: twice(order)["id"], name="bad"),
    "map_values": lambda s: s.key_by(lambda order: order["id"]).map_values(twice, name="bad"),
    "map_batches": lambda s: s.map_batches(lambda batch: batch.reverse() or batch, name="bad"),
    "reduce": lambda s: s.key_by(lambda order: 0).reduce(mixed, name="bad"),
    "unary": lambda s: s.unary("bad", Emptying, stateful=False),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_changed_in_place_is_named(verb: str) -> None:
    def build() -> Dataflow:
        flow = Dataflow("orders")
        orders = flow.source("orders", Iterable(lambda: ({"id": n, "price": 10} for n in range(20)), epoch_every=5))
        VERBS[verb](orders).capture("taxed")
        orders.map(lambda order: order["price"]).capture("plain")
        return flow

    with pytest.raises(OperatorError, match=verb + r" 'bad' .*changes the (record|list).*") as caught:
        reference(build, 2, 0)
    assert "test_in_place.py" in str(caught.value)


def test_a_frame_that_is_changed_in_place_is_named() -> None:
    def build() -> Dataflow:
        flow = Dataflow("orders")
        rows = flow.columns("rows", Batches([pl.DataFrame({"a": [1, 2]})]))
        rows.map_batches(wider, name="bad").capture("wider")
        return flow

    with pytest.raises(OperatorError, match=r"map_batches 'bad' .*changes the frame"):
        reference(build, 1, 0)


def test_functions_that_make_something_new_pass() -> None:
    def build() -> Dataflow:
        flow = Dataflow("orders")
        orders = flow.source("orders", Iterable(lambda: ({"id": n, "price": 10} for n in range(20)), epoch_every=5))
        taxed = orders.map(lambda order: {**order, "price": order["price"] * 2})
        taxed.to_columns({"id": int, "price": int}).agg(total=agg.sum("price")).to_records().capture("total")
        taxed.key_by(lambda order: order["id"] % 3).map_values(lambda order: order["price"]).sum().capture("sums")
        return flow

    assert reference(build, 2, 0).result
