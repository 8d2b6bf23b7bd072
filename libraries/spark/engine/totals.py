"""Aggregates as queries: per epoch, or running over all epochs so far.

Running totals are window functions in the order of epochs over what each epoch adds to a key. As on workers, a row comes out at
each epoch at which the results of a key are new or change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from libraries.columns.agg import Aggregate, parts_of
from libraries.columns.kernels.parts import Part
from libraries.spark.engine.refused import Refused
from libraries.spark.engine.types import EPOCH, FLOATS, INTEGERS, UNSIGNED, listed, quoted, text

_WINDOW = "so_far"
_BEFORE = -1
"""Epoch number for everything before the current batch."""


def totals(
    view: str,
    schema: pl.Schema,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    running: bool,
    where: str,
    by_epoch: bool = True,
) -> str:
    """Query for aggregates of a view's rows by key; over all epochs unless `by_epoch`.

    `where` names the verb and the user's line, for errors.
    """
    parts = {part: _Part(part, schema) for part in parts_of(aggregates)}
    named = [*([EPOCH] if by_epoch else []), *check_keys(keys, schema)]
    by = listed(*map(quoted, named))
    of_rows = listed(*(f"{sql} as {name}" for part in parts.values() for name, sql in part.of_rows()))
    query = f"select {by}, {of_rows} from {view} group by {by}"
    if running:
        query = _so_far(query, by, listed(*map(quoted, keys)), parts)
    return _results(query, by, keys, aggregates, parts, running, where)


@dataclass(frozen=True, slots=True)
class Continued:
    """Queries for one batch after others: output, next state, initial state."""

    sql: str
    after: str
    first: str


def continued(
    view: str,
    state: str,
    schema: pl.Schema,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    where: str,
) -> Continued:
    """Running totals over one epoch's rows and the earlier totals in view `state`.

    They are those over an epoch for all that was before, and this one: what comes out at the first of the two is left out.
    """
    added = Added(view, state, schema, keys, aggregates)
    by = listed(quoted(EPOCH), added.key_list)
    results = _results(
        _so_far(added.both, by, added.key_list, added.parts), by, keys, aggregates, added.parts, True, where
    )
    return Continued(f"select * from ({results}) where {quoted(EPOCH)} <> {_BEFORE}L", added.combined, added.first)


class Added:
    """Partial aggregates by key: of one epoch's rows, and of earlier ones in `state`."""

    def __init__(
        self, view: str, state: str, schema: pl.Schema, keys: Sequence[str], aggregates: Mapping[str, Aggregate]
    ) -> None:
        self.parts = {part: _Part(part, schema) for part in parts_of(aggregates)}
        self.key_list = listed(*map(quoted, check_keys(keys, schema)))
        by = listed(quoted(EPOCH), self.key_list)
        of_rows = listed(*(f"{sql} as {name}" for part in self.parts.values() for name, sql in part.of_rows()))
        of_batch = f"select {by}, {of_rows} from {view} group by {by}"
        kept = listed(self.key_list, *(name for part in self.parts.values() for name in part.names))
        self.both = f"{of_batch} union all select {_BEFORE}L as {quoted(EPOCH)}, {kept} from {state}"
        """Union of both by epoch, as a query."""
        combined = listed(*(f"{sql} as {name}" for part in self.parts.values() for name, sql in part.combined("")))
        self.combined = f"select {listed(self.key_list, combined)} from ({self.both}) group by {self.key_list}"
        """Combination of both by key, as a query."""
        self.first = f"select {kept} from ({of_batch}) where false"


def _so_far(query: str, by: str, key_list: str, parts: Mapping[Part, _Part]) -> str:
    """Query for running partial aggregates, from those of each epoch."""
    added = listed(*(f"{sql} as {name}" for part in parts.values() for name, sql in part.combined(f" over {_WINDOW}")))
    return (
        f"select {by}, {added} from ({query}) window {_WINDOW} as (partition by {key_list} order by {quoted(EPOCH)} "
        "rows between unbounded preceding and current row)"
    )


def _results(
    query: str,
    by: str,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    parts: Mapping[Part, _Part],
    running: bool,
    where: str,
) -> str:
    """Query for aggregates from their parts; if running, new or changed ones only."""
    key_list = listed(*map(quoted, keys))
    results = listed(
        *(f"{finished(aggregate, parts, where)} as {quoted(name)}" for name, aggregate in aggregates.items())
    )
    query = f"select {by}, {results} from ({query})"
    if not running or any(aggregate.grows for aggregate in aggregates.values()):
        return query
    order = f"over (partition by {key_list} order by {quoted(EPOCH)})"
    before = {name: quoted(f"before {name}()") for name in aggregates}
    lags = listed(*(f"lag({quoted(name)}) {order} as {column}" for name, column in before.items()))
    differs = " or ".join(f"not {quoted(name)} <=> {column}" for name, column in before.items())
    return (
        f"select {by}, {listed(*map(quoted, aggregates))} from (select *, row_number() {order} as `number()`, {lags} "
        f"from ({query})) where `number()` = 1 or {differs}"
    )


def check_keys(keys: Sequence[str], schema: pl.Schema) -> Sequence[str]:
    """Check key types; Refused for types compared differently by the two engines.

    Some values of these are equal for one engine and not for the other. Returns the keys.
    """
    for key in keys:
        if schema[key].base_type() in FLOATS:
            raise Refused(f"a key of type {schema[key]}")
    return keys


class _Part:
    """Partial aggregate, in one or two columns.

    A sum of integers is two sums, of the upper and of the lower 32 bits of each, which 64 bits hold for four billion rows.
    """

    def __init__(self, part: Part, schema: pl.Schema) -> None:
        self.kind = part.kind
        self._name = part.name
        self._of = "" if part.column is None else quoted(part.column)
        kind = pl.Int64() if part.column is None else schema[part.column]
        base = kind.base_type()
        self.whole = base in INTEGERS or base in UNSIGNED
        self._float = base in FLOATS
        if part.kind == "sum" and not (self.whole or self._float):
            raise Refused(f"the sum of a column of type {kind}")
        if part.kind in ("min", "max") and base == pl.Boolean:
            raise Refused(f"{part.kind} of a column of type {kind}")

    @property
    def names(self) -> list[str]:
        """Names of its columns."""
        halves = ("high ", "low ") if self.kind == "sum" and self.whole else ("",)
        return [quoted(half + self._name) for half in halves]

    def of_rows(self) -> Iterator[tuple[str, str]]:
        """Columns of an aggregate, with SQL to compute them from rows."""
        match self.kind:
            case "rows":
                values = ["count(1)"]
            case "values":
                values = [f"count({self._of})"]
            case "sum" if self.whole:
                whole = f"bigint({self._of})"
                values = [
                    f"coalesce(sum({each}), 0L)" for each in (f"shiftright({whole}, 32)", f"{whole} & 4294967295L")
                ]
            case "sum":
                values = [f"coalesce(sum(double({self._of})), 0D)"]
            case _:
                values = [self._least_or_greatest(self._of, "")]
        return zip(self.names, values, strict=True)

    def combined(self, over: str) -> Iterator[tuple[str, str]]:
        """Columns of an aggregate, with SQL to combine them over epochs or in `over`."""
        for name in self.names:
            yield name, self._least_or_greatest(name, over) if self.kind in ("min", "max") else f"sum({name}){over}"

    def _least_or_greatest(self, of: str, over: str) -> str:
        found = f"{self.kind}({of}){over}"
        if self.kind == "max" and self._float:  # NaN is the greatest for Spark, and loses against numbers here
            return f"coalesce(max(case when not isnan({of}) then {of} end){over}, {found})"
        return found


def finished(aggregate: Aggregate, parts: Mapping[Part, _Part], where: str) -> str:
    """SQL for an aggregate, from the columns of its parts."""
    found = [parts[part] for part in aggregate.parts()]
    (column, *low) = found[-1].names
    if aggregate.kind == "mean":
        if low:
            column = f"(double({column} + shiftright({low[0]}, 32)) * 4294967296D + double({low[0]} & 4294967295L))"
        (values,) = found[0].names
        return f"(case when {values} > 0 then {column} / {values} end)"
    if not low:
        return column
    high = f"({column} + shiftright({low[0]}, 32))"
    why = (
        f"{where} failed: the sum of column {aggregate.column!r} is beyond 64-bit integers; before group_by, cast the column: "
        f"with_columns(pl.col({aggregate.column!r}).cast(pl.Float64)) rounds"
    )
    return (
        f"(case when {high} between -2147483648L and 2147483647L then shiftleft({high}, 32) | ({low[0]} & 4294967295L) "
        f"else bigint({raised(why)}) end)"
    )


ERROR_BEGIN, ERROR_END = "falkirk{{", "}}falkirk"
"""Delimiters of a message for the user within Spark's own text."""


def raised(why: str) -> str:
    """Expression for an error with a message."""
    return f"raise_error({text(ERROR_BEGIN + why + ERROR_END)})"
