"""Operators that only direct batches."""

from __future__ import annotations

from collections.abc import Callable

from timely.batch import Batch
from timely.operators.base import Context, Operator
from timely.order import Time


class Branch(Operator):
    """Splits every batch in two: what goes to port 0 and what goes to port 1."""

    def __init__(self, split: Callable[[Batch], tuple[Batch, Batch]]) -> None:
        self._split = split

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        yes, no = self._split(batch)
        ctx.send(yes, 0)
        ctx.send(no, 1)
