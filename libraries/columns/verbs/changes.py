"""Streams of changes: rows to be added or retracted.

Result of `columns.join(other, how="left", changes=True)`, and its verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Self

import polars as pl

from libraries.columns.agg import Aggregate, count, sum
from libraries.columns.operators.aggregate import ALL, check_aggregate
from libraries.columns.operators.changed_aggregate import KEPT, ChangedAggregate
from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.operators.joins.running import How
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.keys import check_made, check_options
from libraries.columns.schemas.wildcards import sparing, sparing_named
from libraries.columns.verbs.columns import Columns, GroupBy
from libraries.columns.verbs.joins import Keys
from libraries.columns.verbs.ordering import top_of_groups
from libraries.columns.verbs.signs import REFUSED, SIGNS
from libraries.columns.verbs.stateless import StatelessVerbs
from timely.data.batch import columns_of
from timely.dataflow.keyed import Over
from timely.dataflow.wire import DESCENDING, check_at_root, naming_options, view
from timely.errors import GraphError, user_site
from timely.io.column_types import Schema, polars_types
from timely.operators.channels import Exchange
from timely.operators.window_shapes import Epochs, Length

_SIGNS = ("left sign()", "right sign()")


def _refused(verb: str) -> Callable[..., NoReturn]:
    """Method refusing a verb for its lack of support for retractions."""

    def refuse(self: Changes, *_: Any, **__: Any) -> NoReturn:
        self._check_read(verb)

    return refuse


def _signed(made: Any) -> Any:
    """Columns as changes; other results unchanged."""
    return view(made, Changes) if isinstance(made, Columns) else made


class Changes(Columns):
    """Columns with a sign in the last one, `change`: 1 adds a row, -1 retracts it.

    The sum of the signs of equal rows, over all times so far, says how many of them there are. `select` and `with_columns` keep
    the sign, `filter` and `branch` work row by row as ever, and totals and `top_k` count rows that are taken back as gone. What
    goes out has the sign as a column. `join` (how="inner", running) with columns or with changes gives changes; it keeps rows
    that were taken back, too. `concat` is with changes alone. The sign is not among "all columns", as in `pl.all()`. Verbs that
    could not heed it are refused, also where changes are their other stream; `rows()` has it as a column like others.

    >>> import polars as pl
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s"]}), pl.DataFrame({"shop": ["s"]})]))
    >>> closed = flow.columns("closed", falkirk.Batches([pl.DataFrame({"shop": ["w"]}), pl.DataFrame({"shop": ["s"]})]))
    >>> seen = sales.join(closed, on="shop", how="anti", changes=True).capture("out")
    >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
    [[('n', 1), ('s', 1)], [('s', -1)]]
    """

    _signed = True

    def _check_read(self, verb: str) -> NoReturn:
        """Refuse a verb on this stream; verbs that handle the sign read `rows()`."""
        raise GraphError(
            f"{user_site()}: {verb} cannot take back rows, and this stream is of changes; use filter, select, with_columns, "
            f"inner joins and totals of changes, or say rows() first, which has the sign {CHANGE!r} as a column like others"
        )

    def rows(self) -> Columns:
        """The same rows as plain columns, with the sign as an ordinary column.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> seen = best.rows().filter(pl.col("change") < 0).capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[('s', 4, -1)]]
        """
        return view(self, Columns)

    def concat(self, *others: Columns) -> Self:
        """Merge these changes and others into one stream.

        Raises:
            GraphError: one of `others` has no sign, is no stream, is of another dataflow, or in another scope.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> seen = best.filter(shop="n").concat(best.filter(pl.col("price") > 4)).capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 3, 1)], [('s', 6, 1)]]
        """
        for other in others:
            if isinstance(other, Columns) and not isinstance(other, Changes):
                raise GraphError(
                    f"{user_site()}: concat of changes takes changes, and rows of {other!r} have no sign; rows() of changes "
                    "has it as a column like others"
                )
        sides = [other.rows() if isinstance(other, Changes) else other for other in others]
        return view(self.rows().concat(*sides), type(self))

    def join(
        self,
        other: Columns,
        on: Keys | None = None,
        how: How = "inner",
        over: Over = "scope",
        name: str | None = None,
        right: Mapping[str, Any] | None = None,
        changes: bool = False,
        ttl: Epochs | None = None,
        *,
        left_on: Keys | None = None,
        right_on: Keys | None = None,
        suffix: str = "_right",
    ) -> Columns:
        """Running inner join; a pair is added or retracted as its rows are.

        Raises:
            GraphError: as `Columns.join`; `how` is not "inner", over="time", changes=True or a `ttl`; a column of rows
                has the name of the sign.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> names = flow.columns("names", falkirk.Batches([pl.DataFrame({"shop": ["s"], "name": ["south"]})]))
        >>> seen = best.join(names, on="shop").capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[('s', 4, 'south', 1)], [('s', 4, 'south', -1), ('s', 6, 'south', 1)]]
        """
        return self._pairs(self, other, on, how, over, name, right, changes, ttl, left_on, right_on, suffix)

    @staticmethod
    def _pairs(
        left: Columns,
        right: Columns,
        on: Keys | None,
        how: How,
        over: Over,
        name: str | None,
        known: Mapping[str, Any] | None,
        changes: bool,
        ttl: Any,
        left_on: Keys | None,
        right_on: Keys | None,
        suffix: str,
    ) -> Changes:
        """Running inner join with changes on one side or both.

        A pair is added or retracted as its rows are.
        """
        if ttl is not None:
            raise GraphError(
                f"{user_site()}: joins of changes have no ttl: a row that is forgotten is still taken back"
            )
        if how != "inner" or over != "scope" or changes:
            raise GraphError(
                f"{user_site()}: changes are joined by how='inner', over='scope', and give changes by themselves; rows() has "
                f"the sign {CHANGE!r} as a column like others"
            )
        sides = []
        for side, sign in zip((left, right), _SIGNS, strict=True):
            if isinstance(side, Changes):
                side = side.rows().select(pl.exclude(CHANGE), pl.col(CHANGE).alias(sign))
            elif isinstance(side, Columns):
                schemas.check_unsigned("join with changes", side.schema or ())
            sides.append(side)
        if known is not None and isinstance(right, Changes):
            known = {**known, _SIGNS[1]: pl.Int8}
        found = sides[0].join(sides[1], on, name=name, right=known, left_on=left_on, right_on=right_on, suffix=suffix)
        signs = [pl.col(sign) for each, sign in zip((left, right), _SIGNS, strict=True) if isinstance(each, Changes)]
        product = signs[0] if len(signs) == 1 else signs[0] * signs[1]
        return view(found.select(pl.exclude(*_SIGNS), product.alias(CHANGE)), Changes)

    def match_to_schema(self, schema: Schema, name: str | None = None) -> Changes:
        """Declare the columns and their types, without the sign, the last column.

        Raises:
            GraphError: as `Columns.match_to_schema`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> best.match_to_schema({"price": int, "shop": str}).schema
        Schema([('price', Int64), ('shop', String), ('change', Int8)])
        """
        declared = {**polars_types(schema), CHANGE: pl.Int8()}
        return view(self.rows().match_to_schema(declared, name), Changes)

    def group_by(self, *keys: str | pl.Expr, **named: pl.Expr) -> GroupBy:
        """Group by columns, for running totals of the current rows.

        Totals: `agg.count()`, `sum`, `mean`, `var`, `std`, `min`, `max`, `first`, `last`, `n_unique`, `quantile`
        and `median`. A sum of floats is exact but for one rounding.
        A key of which all rows have been taken back has a count of 0. With changes=True totals are changes, too:
        the former total of a key is taken back, and a key without rows has none.

        Raises:
            GraphError: as `Columns.group_by`; `agg` of it: a total out of which rows cannot be taken, over="time", or a `ttl`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> by_price = best.group_by(dear=pl.col("price") > 3)
        >>> seen = by_price.agg(n=falkirk.agg.count(), sold=falkirk.agg.sum("price")).capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[(False, 1, 3), (True, 1, 4)], [(True, 1, 6)]]
        """
        found = self.rows().group_by(*sparing(CHANGE, "group_by", keys), **sparing_named(CHANGE, "group_by", named))
        return ChangedGroups(found.columns, found.keys, found.made)

    def agg(
        self,
        *exprs: pl.Expr,
        over: Over = "scope",
        name: str | None = None,
        changes: bool = False,
        **aggregates: Aggregate | pl.Expr,
    ) -> Columns:
        """Running totals of all current rows; see `group_by`.

        Raises:
            GraphError: a total is one out of which rows cannot be taken; or over="time".

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> seen = best.agg(sold=falkirk.agg.sum("price")).capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[(7,)], [(9,)]]
        """
        totals = _Totals(exprs, over, aggregates, changes)
        return totals.finish(totals.all(self.rows(), None, (), name), ())

    @naming_options(descending=DESCENDING)
    def top_k(
        self,
        k: int,
        by: Keys,
        reverse: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """The `k` greatest of the current rows, as changes; see `GroupBy.top_k`.

        Raises:
            GraphError: as `GroupBy.top_k`, and over="time".

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> seen = best.top_k(1, by="price", reverse=True).capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 3, 1)]]
        """
        return top_of_groups(self.rows()._marked(), (ALL,), k, by, reverse, over, name, signed=True)._unmarked()

    def _without(self, hidden: Sequence[str]) -> Changes:
        return view(self.rows()._without(hidden), Changes)


class ChangedGroups(GroupBy):
    """Changes grouped by key columns."""

    def agg(
        self,
        *exprs: pl.Expr,
        over: Over = "scope",
        name: str | None = None,
        ttl: Epochs | Length | None = None,
        time: str | None = None,
        changes: bool = False,
        **aggregates: Aggregate | pl.Expr,
    ) -> Columns:
        """Running totals of the current rows of each group.

        See `Changes.group_by`.
        """
        if ttl is not None or time is not None:
            raise GraphError(
                f"{user_site()}: totals of changes have no ttl: a row that is forgotten is still taken back"
            )
        totals = _Totals(exprs, over, aggregates, changes)
        return totals.finish(totals.all(self.columns, self.keys, self.made, name), self.keys)

    @naming_options(descending=DESCENDING)
    def top_k(
        self,
        k: int,
        by: Keys,
        reverse: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """The `k` greatest current rows of each group, as changes; see `GroupBy.top_k`."""
        return top_of_groups(self._keyed(()), self.keys, k, by, reverse, over, name, signed=True)


_TAKEN_BACK = ("count", "sum", "mean", "var", "std", "quantile", *KEPT)
"""Aggregates with support for retraction of rows."""


_ROWS = "rows()"
"""Column with the number of current rows of a key."""


class _Totals:
    """Aggregates of changes: signed sums, and aggregates of the values present."""

    def __init__(
        self, exprs: tuple[Any, ...], over: str, aggregates: Mapping[str, Aggregate | pl.Expr], changes: bool
    ) -> None:
        check_options("agg", over=over, changes=changes)
        if over != "scope":
            raise GraphError(
                f"{user_site()}: totals of changes run on, over='scope': the changes of one time have none"
            )
        self._changes = changes
        self._nulls: dict[str, pl.Expr] = {}
        self.of_values: dict[str, Aggregate] = {}
        self._results: dict[str, pl.Expr] = {}
        self.sums: dict[str, Aggregate] = {}
        for name, aggregate in (*((None, expr) for expr in exprs), *aggregates.items()):
            if name is None or not isinstance(aggregate, Aggregate) or aggregate.kind not in _TAKEN_BACK:
                raise GraphError(
                    f"{user_site()}: agg of changes takes name=agg.count(), agg.sum, mean, var, std, min, max, first, last, "
                    f"n_unique, quantile and median of a column, out of which rows can be taken, not {aggregate!r}"
                )
            self._results[name] = pl.col(name)
            if aggregate.kind not in KEPT:
                self.sums[name] = replace(aggregate, sign=CHANGE)
                continue
            self.of_values[name] = aggregate
            if aggregate.kind == "n_unique":  # null is one of the values
                nulls = f"nulls({name})"
                self._nulls[nulls] = pl.col(str(aggregate.column)).is_null() * pl.col(CHANGE).cast(pl.Int64)
                self.sums[nulls] = sum(nulls)
                self._results[name] += (pl.col(nulls) != 0).cast(pl.Int64)

    def all(self, rows: Columns, keys: tuple[str, ...] | None, made: tuple[pl.Expr, ...], name: str | None) -> Columns:
        """Totals of each key, from sums and from the values present.

        `keys` is None for all rows.
        """
        # As changes, a key without rows goes. Without sums, something has to change whenever a row comes.
        if self._changes or (self.of_values and not self.sums):
            self.sums[_ROWS] = replace(count(), sign=CHANGE)
        if not self.of_values:
            grouped = GroupBy(rows._marked(), (ALL,)) if keys is None else GroupBy(rows, keys, made)
            return grouped._computed((), self.sums, "scope", name, changes=self._changes)
        check_made(made, self.of_values.values())
        check_aggregate(keys or (ALL,), self._results)
        check_at_root(rows, "agg.min, max, first, last or n_unique of changes keeps rows of the root scope")
        if made or self._nulls:
            rows = rows.with_columns(*made, *(expr.alias(name) for name, expr in self._nulls.items()))
        rows, keys = (rows._marked(), (ALL,)) if keys is None else (rows, keys)
        sums, of_values, signed = self.sums, self.of_values, self._changes
        schema = schemas.aggregated("agg", keys, {**sums, **of_values}, rows.schema)
        node = rows._attach(
            "aggregate",
            name,
            Exchange(columns=keys, prepare=columns_of),
            factory=lambda: ChangedAggregate(keys, sums, of_values, CHANGE, signed),
            notifies=True,
            stateful=True,
        )
        return rows._made_of(node, schema, signed)

    def finish(self, totals: Columns, keys: tuple[str, ...]) -> Columns:
        """Keys and final results; as changes, keys without rows are retracted."""
        if self._changes and keys:
            totals = totals.filter(pl.col(_ROWS) != 0)
        return totals.select(*keys, *(expr.alias(name) for name, expr in self._results.items()))


for _each in SIGNS:
    setattr(Changes, _each.verb, _each.method(getattr(Columns, _each.verb), Changes.rows, _signed))
for _verb in REFUSED:
    setattr(Changes, _verb, _refused(_verb))

StatelessVerbs._changes = Changes
