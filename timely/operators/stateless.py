"""Fused chains of stateless operators: one processor for all stages.

Consecutive verbs of columns become one. Few rows are for `timely.data.kernels.expressions`, where all verbs are simple enough.
Others make one lazy plan of Polars, collected once a batch. A plan that fails is done again verb by verb, so the error names
the verb, and shows the rows that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from timely.data.batch import FAILURES, Batch, as_polars, head
from timely.data.kernels.expressions import FEW, Verb, applied, apply
from timely.data.span import Span
from timely.errors import CodecError, FalkirkError, OperatorError, Site, error_text, shown
from timely.operators.base import Context, Operator
from timely.operators.obligations import RepeatsOver
from timely.time import Time, visible


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Stateless step: a function of whole batches.

    `each` is the user's function of one record, where there is one.
    """

    name: str
    kind: str
    site: Site
    apply: Callable[[Batch], Batch]
    each: Callable[[Any], Any] | None = None
    plan: Callable[[Any], Any] | None = None
    """Function of a column verb over frames, lazy or not."""
    few: Verb | None = None
    """Simple form for few rows, if there is one."""
    fills: bool = False
    """True if it may make rows of none, as a sum does.

    So it begins a plan, as a batch without rows goes no further.
    """
    divides: bool = False
    """True if it divides by numbers.

    Polars rounds such a quotient otherwise where there is one row than where there are several.
    """
    repeats_over: RepeatsOver = "batch"
    """Granularity of deterministic output: "record" or "batch"."""


class Measured:
    """Step of a chain with counters: records taken and seconds spent."""

    def __init__(self, stages: tuple[Stage, ...], apply: Callable[[Batch], Batch], clock: Callable[[], float]) -> None:
        self.stages, self.apply, self.clock = stages, apply, clock
        self.taken, self.seconds = 0, 0.0

    def __call__(self, batch: Batch) -> Batch:
        self.taken += len(batch)
        began = self.clock()
        try:
            return self.apply(batch)
        finally:
            self.seconds += self.clock() - began


class Stateless(Operator):
    """A fused chain of stages with one input and one output."""

    keeps_batches = True
    undoes_spans = True

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self._steps: tuple[tuple[tuple[Stage, ...], Callable[[Batch], Batch]], ...] = tuple(
            (chain, _Plan(chain).apply if chain[0].plan is not None else chain[0].apply) for chain in _chains(stages)
        )
        first, *others = _chains(stages)
        self._first = _Plan(first) if first[0].plan is not None else None
        self.spans = self._first is not None and self._first.by_row
        self._rest = Stateless(stages[len(first) :]) if self.spans and others else None

    def measure(self, clock: Callable[[], float] | None) -> list[Measured]:
        """Count records and seconds of each step from now on; None stops counting.

        Returns the counting steps.

        Consecutive verbs of columns are one step. What comes as a span is not counted.
        """
        self._steps = tuple(
            (chain, apply.apply if isinstance(apply, Measured) else apply) for chain, apply in self._steps
        )
        if clock is None:
            return []
        counting = [Measured(chain, apply, clock) for chain, apply in self._steps]
        self._steps = tuple((each.stages, each) for each in counting)
        return counting

    @property
    def steps(self) -> tuple[tuple[Stage, ...], ...]:
        """Stages of each step, in order."""
        return tuple(chain for chain, _ in self._steps)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        current = batch
        doing: tuple[Stage, ...] = ()
        try:
            for doing, apply in self._steps:  # noqa: B007
                current = apply(current)
                if not len(current):
                    return
        except CodecError:
            raise
        except _VerbFailed as failed:
            raise stage_error(failed.stage, time, failed.batch, failed.error) from failed.error
        except FAILURES as error:
            raise stage_error(doing[0], time, current, error) from error
        ctx.out.append((0, time, current))

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        assert self._first is not None
        made = self._first.over(span)
        if made is None:  # once a time: mistakes are told of as they are there
            super().on_span(ctx, port, span)
        elif self._rest is None:
            ctx.spans += made
        else:
            for some in made:
                Operator.on_span(self._rest, ctx, port, some)


def _chains(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    """Groups of stages, each group run as one plan or one stage."""
    chain: list[Stage] = []
    for stage in stages:
        ends = stage.plan is None or stage.fills or stage.divides or not chain or chain[-1].plan is None
        # A quotient of a single row is for `few` alone: so nothing before it leaves one row of several, nor takes it to Polars.
        if chain and (ends or (stage.few is None and chain[0].divides)):
            yield tuple(chain)
            chain = []
        chain.append(stage)
    if chain:
        yield tuple(chain)


class _VerbFailed(Exception):
    """Failure of a verb in a plan: `error`, raised for `batch`."""

    def __init__(self, stage: Stage, batch: Batch, error: BaseException) -> None:
        super().__init__()
        self.stage, self.batch, self.error = stage, batch, error


class _Plan:
    """Plan of several column verbs."""

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self._stages = stages
        self._verbs = [stage.few for stage in stages if stage.few is not None]
        self.by_row = len(self._verbs) == len(stages)
        """True if each row is kept or mapped by its own content."""

    def over(self, span: Span) -> list[Span] | None:
        """Spans made of one, none if no row is left; None if times must go one by one."""
        try:
            rows = applied(self._verbs, span)
            return span.kept(rows.frame(), rows.masks) if rows.masks else [rows.over(span)]
        except FAILURES:  # whatever it is: Polars does it, or tells of it
            return self._planned_over(span)

    def _planned_over(self, span: Span) -> list[Span] | None:
        """Spans made by Polars, if it pays and rows surely keep their places."""
        if len(span) <= FEW or any(verb.kind == "filter" for verb in self._verbs):
            return None
        try:
            made = self._planned(span.frame)
        except FAILURES:
            return None
        return [Span(made, span.times, span.ends)] if len(made) == len(span) else None

    def _planned(self, frame: pl.DataFrame) -> pl.DataFrame:
        lazy: Any = frame.lazy()
        for stage in self._stages:
            assert stage.plan is not None
            lazy = stage.plan(lazy)
        made: pl.DataFrame = lazy.collect(optimizations=_AS_OF_FRAMES)
        return made

    def apply(self, batch: Batch) -> Batch:
        if self.by_row and len(batch) <= FEW and not isinstance(batch, list):
            found = apply(self._verbs, batch)
            if found is not None:
                return found
        try:
            return self._planned(as_polars(batch))
        except FAILURES:
            return self._one_by_one(batch)

    def _one_by_one(self, batch: Batch) -> Batch:
        for stage in self._stages:
            try:
                batch = stage.apply(batch)
            except FAILURES as error:
                raise _VerbFailed(stage, batch, error) from error
            if not len(batch):
                break
        return batch


_AS_OF_FRAMES = getattr(pl.QueryOptFlags, "_eager", pl.QueryOptFlags.none)()
"""Polars optimizations of eager frame verbs.

More of them cost more than they save where rows are few, and bring nothing measurable where they are many.
"""


def stage_error(stage: Stage, time: Time, batch: Batch, error: BaseException) -> OperatorError:
    """Error for a failed user function: operator, line, time, and record or sample."""
    culprit = _culprit(stage, batch)
    return operator_error(f"{stage.kind} {stage.name!r}", stage.site, time, error, culprit, batch)


def operator_error(
    what: str,
    site: object,
    time: Time,
    error: BaseException,
    culprit: str | None,
    batch: Batch | None,
    kind: str = "record",
) -> OperatorError:
    """Error of an operator's own code, in the form shown to users.

    `culprit`: the item of `kind` it is about.
    """
    when = f" at time {visible(time)}" if time else ""
    lines = [f"{what} ({site}) failed{when}: {error_text(error)}"]
    if isinstance(error, SystemExit):
        lines = [
            f"{what} ({site}) called sys.exit({error.code!r}){when}, and the job is not done: raise an error to stop it"
        ]
    if culprit is not None:
        lines.append(f"  the {kind}: {culprit}")
    elif batch is not None:
        sample = head(batch, 3) if isinstance(batch, list | pl.DataFrame | pa.Table) else batch
        lines.append(f"  its input began with: {shown(sample)}")
    return OperatorError("\n".join(lines))


def exchange_error(what: str, site: object, error: Exception, batch: Batch) -> FalkirkError:
    """Error of an exchange: a failed key function, or a value that cannot travel.

    `what` is the operator behind it.
    """
    where = f"the exchange in front of {what}"
    if isinstance(error, CodecError):
        return CodecError(f"{where} ({site}): {error}")
    return operator_error(where, site, (), error, None, batch)


def _culprit(stage: Stage, batch: Batch) -> str | None:
    """First record making the user's function raise, found one record at a time."""
    if stage.each is None or not isinstance(batch, list):
        return None
    for record in batch:
        try:
            result = stage.each(record)
            if stage.kind == "flat_map":
                list(result)
        except FAILURES:
            return shown(record)
    return None
