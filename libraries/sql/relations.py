"""Rows of a part of a query: appended only, or as changes.

Over all epochs the rows of a query may have to be taken back: those without a match in an outer join, totals that are not so
any more, the first few. Then they are `Changes`, and so is all that is made of them: their signs add up to the rows that SQL
gives of all that has come. Where nobody has asked for changes, rows may be totals that run on, each in the place of the one of
its key before; of these nothing but other columns can be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import polars as pl

from libraries.columns import agg
from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.verbs.changes import Changes
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.signs import LAST
from libraries.sql.expressions import Expression, Late, refuse
from timely.data.batch import Batch, as_polars
from timely.data.kernels.expressions import FEW, apply, compiled
from timely.dataflow.keyed import Over
from timely.dataflow.wire import view
from timely.operators.window_shapes import Length

Verb: TypeAlias = Literal["select", "with_columns", "filter"]


@dataclass(frozen=True, slots=True)
class Mode:
    """Mode of compilation, from the arguments of `sql`."""

    over: Over
    changes: bool
    lateness: Length | None

    @property
    def running(self) -> bool:
        """True if results are over all epochs so far."""
        return self.over == "scope"

    def check_taking_back(self, what: str) -> None:
        """Reject a clause with retractions unless the query has `changes=True`."""
        if self.running and not self.changes:
            refuse(
                f"{what} over all epochs would have to take rows back; say sql(..., changes=True) for rows with a sign, or "
                "over='time' for each epoch by itself"
            )


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of a query.

    `replaces`: they are running totals, each in place of the one before.
    """

    stream: Columns
    replaces: bool = False

    @property
    def taken_back(self) -> bool:
        """True if rows may be retracted: the stream is `Changes`."""
        return isinstance(self.stream, Changes)

    @property
    def schema(self) -> pl.Schema | None:
        """Schema without a sign; None if unknown."""
        schema = self.stream.schema
        if schema is None or not self.taken_back:
            return schema
        return pl.Schema({name: kind for name, kind in schema.items() if name != CHANGE})

    @property
    def all(self) -> pl.Expr:
        """Selection of all columns without the sign."""
        return pl.all().exclude(CHANGE) if self.taken_back else pl.all()

    def settled(self, what: str) -> Columns:
        """Stream of the rows; an error for running totals, which would be counted twice."""
        if self.replaces:
            refuse(
                f"{what}: the totals that it is of run on, and each takes the place of one before; say sql(..., changes=True), "
                "so that those are taken back, or over='time' for each epoch by itself"
            )
        return self.stream

    def signed(self) -> Changes:
        """Rows as changes."""
        if isinstance(self.stream, Changes):
            return self.stream
        if self.schema is not None and CHANGE in self.schema:
            refuse(f"a column is called {CHANGE!r}, which is the name of the sign of changes: rename it before")
        return view(self.stream.with_columns(pl.lit(1, pl.Int8).alias(CHANGE)), Changes)


def computed(stream: Columns, verb: Verb, *given: Expression) -> Columns:
    """`select`, `with_columns` or `filter` of a stream, by batch if types are unknown."""
    if not any(isinstance(each, Late) for each in given):
        found: Columns = getattr(stream, verb)(*given)
        return found
    signed = isinstance(stream, Changes)
    plain = stream.rows() if isinstance(stream, Changes) else stream
    made = plain.map_batches(_OfBatches(verb, given, signed))
    return view(made, Changes) if signed else made


class _OfBatches:
    """Operator on batches with expressions resolved by the types of each batch.

    `signed`: the last column is a sign, and stays the last one.
    """

    def __init__(self, verb: Verb, given: Sequence[Expression], signed: bool) -> None:
        self._verb = verb
        self._given = given
        self._signed = signed
        self._read: dict[tuple[Any, ...], tuple[list[pl.Expr], Any]] = {}
        """Resolved expressions and their compiled form for few rows, by types."""

    def __call__(self, batch: Batch) -> pl.DataFrame:
        frame = as_polars(batch)
        kinds = tuple(frame.schema.items())
        if kinds not in self._read:
            schema = frame.schema
            exprs = [each.over(schema) if isinstance(each, Late) else each for each in self._given]
            if self._signed and self._verb == "select":
                exprs.append(pl.col(CHANGE))
            self._read[kinds] = exprs, compiled(self._verb, exprs, {})
        exprs, few = self._read[kinds]
        made = apply([few], frame) if few is not None and len(frame) <= FEW else None
        if made is None:
            made = getattr(frame, self._verb)(*exprs)
        last = self._signed and self._verb == "with_columns"
        return made.select(*LAST) if last else made


def united(parts: Sequence[Relation]) -> Relation:
    """Union of all rows of relations with the same columns."""
    signed = any(part.taken_back for part in parts)
    first, *others = [part.signed() if signed else part.stream for part in parts]
    return Relation(first.concat(*others), any(part.replaces for part in parts))


def distinct(of: Relation, columns: Sequence[str], over: Over) -> Columns:
    """Distinct combinations of some columns."""
    stream = of.settled("distinct rows")
    if not of.taken_back:
        return stream.distinct(*columns, over=over)
    count: Any = {"count()": agg.count()}
    return stream.group_by(*columns).agg(changes=True, **count).select(*columns)


def joined(left: Relation, right: Relation, on: Sequence[str], how: str, mode: Mode, suffix: str) -> Columns:
    """Join on equal columns `on`; equal names on the right side get a suffix.

    Of a right or full join the keys are not null where either side has them.
    """
    one, two = left.settled("a join"), right.settled("a join")
    plain = not (left.taken_back or right.taken_back)
    keys: Any = list(on)
    if how in ("inner", "semi") and plain:
        return one.join(two, keys, how, mode.over, suffix=suffix)  # type: ignore[arg-type]
    if how != "inner" and how != "semi":
        mode.check_taking_back(f"a {how} join" if how != "anti" else "an anti join")
    if plain:
        return one.join(two, keys, how, mode.over, changes=mode.running, suffix=suffix)  # type: ignore[arg-type]
    if how == "inner":
        return one.join(two, keys, suffix=suffix)
    if how == "semi":
        return _semi(one, right, keys)
    if how == "anti":
        return _anti(left, right, keys)
    here, there = left.schema, right.schema
    assert here is not None
    assert there is not None
    names = {name: f"{name}{suffix}" if name in here else name for name in there if name not in on}
    parts = [Relation(one.join(two, keys, suffix=suffix))]
    if how in ("left", "full"):
        holes = (pl.lit(None, there[name]).alias(column) for name, column in names.items())
        parts.append(Relation(_anti(left, right, keys).select(pl.all().exclude(CHANGE), *holes)))
    if how in ("right", "full"):
        mine = [pl.col(name) if name in on else pl.lit(None, here[name]).alias(name) for name in here]
        theirs = [pl.col(name).alias(column) for name, column in names.items()]
        parts.append(Relation(_anti(right, left, keys).select(*mine, *theirs)))
    return united(parts).stream


def _semi(rows: Columns, other: Relation, on: list[str]) -> Columns:
    """Semi join with a relation; either side may be changes."""
    return rows.join(distinct(Relation(other.stream.select(*on)), on, "scope"), on)


def _anti(of: Relation, other: Relation, on: list[str]) -> Changes:
    """Anti join: all rows minus those with a match."""
    rows = of.signed()
    matched = Relation(_semi(rows, other, on)).signed()
    less = view(matched.rows().with_columns((-pl.col(CHANGE)).alias(CHANGE)), Changes)
    return view(rows.concat(less), Changes)
