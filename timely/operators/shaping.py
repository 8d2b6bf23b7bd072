"""Operators to route records to outputs."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any

from timely.data.batch import Batch
from timely.errors import error_text
from timely.operators.base import Context, Operator
from timely.time import Time


def check_result(result: object) -> None:
    """Refuse a coroutine as the result of a user's function.

    Raises TypeError.
    """
    if type(result) is CoroutineType:
        raise TypeError(
            "it gave a coroutine, which nobody awaits: give a function, declared with def, that returns its result"
        )


class Branch(Operator):
    """Splits every batch into port 0 and port 1.

    `by_record`: each record by itself.
    """

    keeps_batches = True

    def __init__(self, split: Callable[[Batch], tuple[Batch, Batch]], by_record: bool) -> None:
        self.repeats_over = "record" if by_record else "batch"
        self._split = split

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        yes, no = self._split(batch)
        ctx.send(yes, 0)
        ctx.send(no, 1)


class AttemptOperator(Operator):
    """Calls `function` for every record: results to port 0, failures to port 1.

    A failure is (record, error text).
    """

    repeats_over = "record"
    keeps_batches = True

    def __init__(self, function: Callable[[Any], Any], records_of: Callable[[Batch], list[Any]]) -> None:
        self._function = function
        self._records_of = records_of

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        results: list[Any] = []
        failures: list[Any] = []
        for record in self._records_of(batch):
            try:
                results.append(self._function(record))
            except Exception as error:
                failures.append((record, error_text(error)))
        check_result(results[0] if results else None)
        ctx.send(results, 0)
        ctx.send(failures, 1)
