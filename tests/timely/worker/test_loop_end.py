"""A notification at `(e, INF)` on a loop's cycle: it comes when the loop is over for epoch e, and nothing goes round after."""

from __future__ import annotations

from typing import Any

import pytest

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from timely.io import Iterable
from timely.operators.base import Capability, Context, Operator
from timely.time import INF, Time


class Counts(Operator):
    """Lets numbers go round until they are small; sends at the end of the loop how many it had seen, on both outputs."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._over: set[int] = set()
        self._kept: dict[int, Capability] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        assert time[0] not in self._over, "the loop was said to be over"
        self._seen[time[0]] = self._seen.get(time[0], 0) + len(batch)
        ctx.notify_at((time[0], INF))
        ctx.send([n - 1 for n in batch if n > 1])

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._over.add(time[0])
        ctx.send([-1])
        ctx.send([self._seen.pop(time[0])], port=1)


class Keeps(Counts):
    """The same with a capability for the end, which is on the cycle as well."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        super().on_batch(ctx, port, time, batch)
        if time[0] not in self._kept:
            self._kept[time[0]] = ctx.retain((time[0], INF))

    def on_notify(self, ctx: Context, time: Time) -> None:
        super().on_notify(ctx, time)
        self._kept.pop(time[0]).drop()


@pytest.mark.parametrize("operator", [Counts, Keeps])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_end_of_a_loop_comes_to_an_operator_on_its_cycle(workers: int, operator: type[Counts]) -> None:
    flow = Dataflow("loop")
    numbers = [4, 7, 2, 9, 1, 5]

    def rounds(inner: Stream) -> tuple[Stream, Stream]:
        spread = inner.exchange(by=lambda n: n)
        ends = spread.unary("end", operator, outputs=2, holds=operator is Keeps)
        return ends, ends.output(1)

    flow.source("in", Iterable(numbers, batch=1, epoch_every=2)).iterate(rounds, name="down").capture("ends")
    cluster = Cluster(flow, workers, None)
    cluster.run()
    found: dict[int, int] = {}
    for time, batch in cluster.captured("ends"):
        found[time[0]] = found.get(time[0], 0) + sum(batch)
    assert found == {0: 4 + 7, 1: 2 + 9, 2: 1 + 5}
