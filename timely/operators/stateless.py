"""Operators without state, fused: a chain of them is one processor that passes each batch through all its stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from timely.data.batch import Batch, head
from timely.errors import CodecError, FalkirkError, OperatorError, Site, shown, told
from timely.operators.base import Context, Operator
from timely.time import Time, visible


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One stateless step: a function of whole batches. `each` is the user's function of one record, where there is one."""

    name: str
    kind: str
    site: Site
    apply: Callable[[Batch], Batch]
    each: Callable[[Any], Any] | None = None


class Stateless(Operator):
    """A fused chain of stages with one input and one output."""

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self._stages = stages
        self._applies = tuple(stage.apply for stage in stages)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        done = 0
        current = batch
        try:
            for apply in self._applies:
                current = apply(current)
                if not len(current):
                    return
                done += 1
        except CodecError:
            raise
        except Exception as error:
            raise stage_error(self._stages[done], time, current, error) from error
        ctx.out.append((0, time, current))


def stage_error(stage: Stage, time: Time, batch: Batch, error: Exception) -> OperatorError:
    """The error for a user whose function raised: the operator, the line, the time, and the record or a sample."""
    culprit = _culprit(stage, batch)
    return operator_error(f"{stage.kind} {stage.name!r}", stage.site, time, error, culprit, batch)


def operator_error(
    what: str, site: object, time: Time, error: Exception, culprit: str | None, batch: Batch | None
) -> OperatorError:
    """The error of an operator's own code, in the one form in which users see them."""
    when = f" at time {visible(time)}" if time else ""
    lines = [f"{what} ({site}) failed{when}: {told(error)}"]
    if culprit is not None:
        lines.append(f"  the record: {culprit}")
    elif batch is not None:
        sample = head(batch, 3) if isinstance(batch, list | pl.DataFrame | pa.Table) else batch
        lines.append(f"  its input began with: {shown(sample)}")
    return OperatorError("\n".join(lines))


def exchange_error(what: str, site: object, error: Exception, batch: Batch) -> FalkirkError:
    """The error of an exchange: its key function raised, or a value cannot travel. `what` is the operator behind it."""
    where = f"the exchange in front of {what}"
    if isinstance(error, CodecError):
        return CodecError(f"{where} ({site}): {error}")
    return operator_error(where, site, (), error, None, batch)


def _culprit(stage: Stage, batch: Batch) -> str | None:
    """The first record on which the user's function raises, found by asking it again one record at a time."""
    if stage.each is None or not isinstance(batch, list):
        return None
    for record in batch:
        try:
            result = stage.each(record)
            if stage.kind == "flat_map":
                list(result)
        except Exception:
            return shown(record)
    return None
