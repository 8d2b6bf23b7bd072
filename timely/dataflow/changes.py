"""Streams of rows that come and rows that are taken back: `columns.join(other, how="left", changes=True)` and its verbs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import polars as pl

from timely.data.batch import columns_of
from timely.dataflow import schemas
from timely.dataflow.column_windows import ALL
from timely.dataflow.columns import Columns, GroupBy, check_made
from timely.dataflow.keyed import Over
from timely.dataflow.stream import view
from timely.dataflow.top import top_of_groups
from timely.dataflow.wire import check_at_root
from timely.errors import GraphError, user_site
from timely.operators.agg import Aggregate, sum
from timely.operators.changed_aggregate import KEPT, ChangedAggregate
from timely.operators.channels import Exchange
from timely.operators.column_join import CHANGE, How
from timely.operators.window_shapes import Epochs, Length


class Changes(Columns):
    """Columns with a sign in the last one, `change`: 1 for a row that comes, -1 for one that is taken back.

    The sum of the signs of equal rows, over all times so far, says how many of them there are. `select` keeps the sign,
    `filter` and `with_columns` work row by row as ever, and totals and `top_k` count rows that are taken back as gone. What
    goes out has the sign as a column. `join` (how="inner", running) with columns or with changes gives changes; it keeps rows
    that were taken back, too. Verbs that could not heed the sign are refused; `rows()` has it as a column like others.

    >>> import polars as pl
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s"]}), pl.DataFrame({"shop": ["s"]})]))
    >>> closed = flow.columns("closed", falkirk.Batches([pl.DataFrame({"shop": ["w"]}), pl.DataFrame({"shop": ["s"]})]))
    >>> seen = sales.join(closed, on="shop", how="anti", changes=True).capture("out")
    >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
    [[('n', 1), ('s', 1)], [('s', -1)]]
    """

    def rows(self) -> Columns:
        """The same rows, with the sign as a column that has no meaning any more.

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

    def select(self, *exprs: Any, name: str | None = None, **named: Any) -> Columns:
        """Polars' `select` on every batch, and the sign.

        Raises:
            GraphError: as `Columns.select`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> seen = best.select(euros=pl.col("price") * 2).capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[(6, 1), (8, 1)], [(8, -1), (12, 1)]]
        """
        exprs = tuple(list(expr) if isinstance(expr, Iterator) else expr for expr in exprs)
        return super().select(*exprs, name=name, **named, **{CHANGE: pl.col(CHANGE)})

    def group_by(self, *keys: str | pl.Expr, **named: pl.Expr) -> GroupBy:
        """Group by columns, for running totals of the rows that there are: `agg.count()`, `sum`, `mean`, `min`, `max`, `first`,
        `last`, `n_unique`, `quantile` and `median`.

        A key of which all rows have been taken back has a count of 0.

        Raises:
            GraphError: as `Columns.group_by`; `agg` of it: a total out of which rows cannot be taken, over="time", a `ttl`,
                or changes=True.

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
        found = self.rows().group_by(*keys, **named)
        return ChangedGroups(found.columns, found.keys, found.made)

    def agg(
        self,
        *exprs: pl.Expr,
        over: Over = "scope",
        name: str | None = None,
        changes: bool = False,
        **aggregates: Aggregate | pl.Expr,
    ) -> Columns:
        """Running totals of all rows that there are. See `group_by`.

        Raises:
            GraphError: a total is one out of which rows cannot be taken; over="time", or changes=True.

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

    def top_k(
        self,
        k: int,
        by: str | Sequence[str],
        reverse: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """The `k` greatest of the rows that there are, as changes. See `GroupBy.top_k`.

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
        found = top_of_groups(self.rows()._marked(), (ALL,), k, by, reverse, over, name, signed=True)
        return view(found._choose("drop", pl.all().exclude(ALL)), Changes)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise GraphError(
            f"{user_site()}: this verb cannot take back rows; use filter, select, with_columns, inner joins and totals "
            f"of changes, or say rows() first, which has the sign {CHANGE!r} as a column like others"
        )

    distinct = join_asof = window = split_late = _refuse


_SIGNS = ("left sign()", "right sign()")


def join_changes(
    left: Columns,
    right: Columns,
    on: str | Sequence[str],
    how: How,
    over: Over,
    name: str | None,
    known: Mapping[str, Any] | None,
    changes: bool,
) -> Changes:
    """A running inner join of which one side is changes, or both: a pair comes, or is taken back, as its rows are."""
    if how != "inner" or over != "scope" or changes:
        raise GraphError(
            f"{user_site()}: changes are joined by how='inner', over='scope', and give changes by themselves; rows() has the "
            f"sign {CHANGE!r} as a column like others"
        )
    sides = []
    for side, sign in zip((left, right), _SIGNS, strict=True):
        if isinstance(side, Changes):
            side = side.rows().select(pl.exclude(CHANGE), pl.col(CHANGE).alias(sign))
        sides.append(side)
    if known is not None and isinstance(right, Changes):
        known = {**known, _SIGNS[1]: pl.Int8}
    found = sides[0].join(sides[1], on, name=name, right=known)
    signs = [pl.col(sign) for each, sign in zip((left, right), _SIGNS, strict=True) if isinstance(each, Changes)]
    product = signs[0] if len(signs) == 1 else signs[0] * signs[1]
    return view(found.select(pl.exclude(*_SIGNS), product.alias(CHANGE)), Changes)


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
        """Running totals of the rows of each group that there are. See `Changes.group_by`."""
        if ttl is not None or time is not None:
            raise GraphError(
                f"{user_site()}: totals of changes have no ttl: a row that is forgotten is still taken back"
            )
        totals = _Totals(exprs, over, aggregates, changes)
        return totals.finish(totals.all(self.columns, self.keys, self.made, name), self.keys)

    def top_k(
        self,
        k: int,
        by: str | Sequence[str],
        reverse: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """The `k` greatest of the rows of each group that there are, as changes. See `GroupBy.top_k`."""
        return top_of_groups(self._keyed(()), self.keys, k, by, reverse, over, name, signed=True)


_TAKEN_BACK = ("count", "sum", "mean", "quantile", *KEPT)
"""The aggregates out of which rows can be taken."""


class _Totals:
    """Aggregates of changes as sums: of what rows have, by their sign."""

    def __init__(
        self, exprs: tuple[Any, ...], over: str, aggregates: Mapping[str, Aggregate | pl.Expr], changes: bool
    ) -> None:
        if changes:
            raise GraphError(
                f"{user_site()}: totals of changes are not changes; say rows() first, or leave changes=True out"
            )
        if over != "scope":
            raise GraphError(
                f"{user_site()}: totals of changes run on, over='scope': the changes of one time have none"
            )
        self._weighed: dict[str, pl.Expr] = {}
        self.of_values: dict[str, Aggregate] = {}
        self._results: dict[str, pl.Expr] = {}
        self.sums: dict[str, Aggregate] = {}
        sign = pl.col(CHANGE).cast(pl.Int64)
        for name, aggregate in (*((None, expr) for expr in exprs), *aggregates.items()):
            if name is None or not isinstance(aggregate, Aggregate) or aggregate.kind not in _TAKEN_BACK:
                raise GraphError(
                    f"{user_site()}: agg of changes takes name=agg.count(), agg.sum, mean, min, max, first, last, n_unique, "
                    f"quantile and median of a column, out of which rows can be taken, not {aggregate!r}"
                )
            if aggregate.kind in KEPT:
                self.of_values[name] = aggregate
                self._results[name] = pl.col(name)
                if aggregate.kind == "n_unique":  # null is one of the values
                    nulls = f"nulls({name})"
                    self._add(nulls, pl.col(str(aggregate.column)).is_null() * sign)
                    self._results[name] += (pl.col(nulls) != 0).cast(pl.Int64)
                continue
            if aggregate.sketch is not None:
                self.sums[name] = replace(aggregate, sketch=replace(aggregate.sketch, sign=CHANGE))
                self._results[name] = pl.col(name)
                continue
            total, values = f"total({name})", f"values({name})"
            if aggregate.column is None:
                self._add(total, sign)
                self._results[name] = pl.col(total)
                continue
            column = pl.col(aggregate.column)
            self._add(total, column * sign)
            self._results[name] = pl.col(total)
            if aggregate.kind == "mean":
                self._add(values, column.is_not_null() * sign)
                some = pl.col(values) != 0
                self._results[name] = pl.when(some).then(pl.col(total) / pl.col(values))

    def _add(self, name: str, weighed: pl.Expr) -> None:
        self._weighed[name] = weighed
        self.sums[name] = sum(name)

    def all(self, rows: Columns, keys: tuple[str, ...] | None, made: tuple[pl.Expr, ...], name: str | None) -> Columns:
        """The sums of each key, and what there is of its values; `keys` is None for all rows."""
        if not self.of_values:
            if self._weighed:
                rows = rows.with_columns(*(expr.alias(name) for name, expr in self._weighed.items()))
            grouped = GroupBy(rows._marked(), (ALL,)) if keys is None else GroupBy(rows, keys, made)
            return grouped._computed((), self.sums, "scope", name)
        check_made(made, self.of_values.values())
        check_at_root(rows, "agg.min, max, first, last or n_unique of changes keeps rows of the root scope")
        if not self.sums:  # something changes whenever a row comes
            self._add("rows()", pl.col(CHANGE).cast(pl.Int64))
        rows = rows.with_columns(*made, *(expr.alias(name) for name, expr in self._weighed.items()))
        rows, keys = (rows._marked(), (ALL,)) if keys is None else (rows, keys)
        sums, of_values = self.sums, self.of_values
        schema = schemas.aggregated("agg", keys, {**sums, **of_values}, rows.schema)
        node = rows._attach(
            "aggregate",
            name,
            Exchange(columns=keys, prepare=columns_of),
            factory=lambda: ChangedAggregate(keys, sums, of_values, CHANGE),
            notifies=True,
            stateful=True,
        )
        return rows._of(node, schema=schema)

    def finish(self, totals: Columns, keys: tuple[str, ...]) -> Columns:
        """The keys and the results."""
        return totals.select(*keys, *(expr.alias(name) for name, expr in self._results.items()))
