"""Queries over columns, by Polars' expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import polars as pl

from libraries.columns.kernels.sorted_rows import in_content_order, sorted_rows
from libraries.columns.verbs.columns import Columns
from libraries.lindi.query import Base
from timely.data.batch import Batch, as_polars, columns_of
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange

_ALL = "all()"
"""Constant column routing all rows to one worker."""


def _by(*keys: str) -> Exchange:
    return Exchange(columns=keys, prepare=columns_of)


class Table(Base[Columns]):
    """Query over columns: each verb takes the rows of one time.

    Within a time rows have no order.
    """

    def where(self, *predicates: Any, name: str | None = None) -> Table:
        """Filter rows by all of `predicates`.

        Raises:
            GraphError: as `Columns.filter`.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.where(pl.col("price") > 3).capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('s', 4), ('n', 5)]
        """
        return Table(self.stream.filter(*predicates, name=name))

    def select(self, *exprs: Any, name: str | None = None, **named: Any) -> Table:
        """Polars' `select`, batch by batch.

        Raises:
            GraphError: as the verb of `Columns`.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.select("shop", double=pl.col("price") * 2).capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n', 6), ('s', 8), ('n', 10)]
        """
        return Table(self.stream.select(*exprs, name=name, **named))

    def with_columns(self, *exprs: Any, name: str | None = None, **named: Any) -> Table:
        """Polars' `with_columns`, batch by batch.

        Raises:
            GraphError: as the verb of `Columns`.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.with_columns(double=pl.col("price") * 2).capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n', 3, 6), ('s', 4, 8), ('n', 5, 10)]
        """
        return Table(self.stream.with_columns(*exprs, name=name, **named))

    def aggregate(self, *keys: str, name: str | None = None, **named: pl.Expr) -> Table:
        """Polars' `group_by(*keys).agg(**named)` of all rows; without keys one row of all.

        Rows have no order: an expression that asks for one sorts by itself, as `pl.col("price").sort_by("at").first()` does.

        Raises:
            GraphError: there is nothing to compute, or something that is no expression.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.aggregate("shop", sold=pl.col("price").sum()).order_by("shop").capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n', 8), ('s', 4)]
        """
        if not named or not all(isinstance(each, pl.Expr) for each in named.values()):
            raise GraphError(f"{user_site()}: aggregate takes Polars expressions by name: aggregate('key', n=pl.len())")
        if keys:
            return self._rows(
                "aggregate",
                name,
                keys,
                lambda frame: in_content_order(frame, keys).group_by(keys, maintain_order=True).agg(**named),
            )
        return self._rows("aggregate", name, (), lambda frame: in_content_order(frame).select(**named))

    def distinct(self, *keys: str, name: str | None = None) -> Table:
        """Each row once; equal rows meet by the key columns `keys`.

        Raises:
            GraphError: `keys` is empty.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.select("shop").distinct("shop").order_by("shop").capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n',), ('s',)]
        """
        if not keys:
            raise GraphError(
                f"{user_site()}: distinct of columns takes the names of those that bring equal rows together"
            )
        return self._rows("distinct", name, keys, lambda frame: in_content_order(frame).unique(maintain_order=True))

    def join(
        self, other: Table, *on: str, how: Literal["inner", "left", "semi", "anti"] = "inner", name: str | None = None
    ) -> Table:
        """Polars' `join` on the columns `on`.

        Without any row of `other`, "left" gives no columns of it.

        Raises:
            GraphError: `on` is empty, or `other` no table of the same dataflow and scope.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.join(table.aggregate("shop", n=pl.len()), "shop").order_by("price").capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n', 3, 2), ('s', 4, 1), ('n', 5, 2)]
        """
        if not on:
            raise GraphError(f"{user_site()}: join takes the names of the columns on which rows meet")

        def meet(left: Batch | None, right: Batch | None) -> Batch:
            if left is None:
                return []
            if right is None:
                return [] if how in ("inner", "semi") else left
            return as_polars(left).join(as_polars(right), on=list(on), how=how)

        return self._both("join", name, other, (_by(*on), _by(*on)), meet)

    def order_by(self, *columns: str, descending: bool = False, name: str | None = None) -> Table:
        """Rows on one worker, sorted by `columns` and then by all other columns.

        One batch a time. Null is before all, as in Polars' `sort`.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.order_by("price", descending=True).capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n', 5), ('s', 4), ('n', 3)]
        """
        return self._rows("order_by", name, (), lambda frame: sorted_rows(frame, columns, descending))

    def top(self, count: int, by: str, least: bool = False, name: str | None = None) -> Table:
        """The `count` rows with the greatest (or least) values of the column `by`.

        In order; ties are in the order of the other columns. Null is behind all, as in Polars' `top_k`.

        >>> import polars as pl
        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> sales = falkirk.Batches([pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]})])
        >>> table = lindi.Table(flow.columns("sales", sales))
        >>> seen = table.top(1, by="price").capture("out")
        >>> [row for _, batch in falkirk.run(flow).captured("out") for row in pl.DataFrame(batch).rows()]
        [('n', 5)]
        """

        def first(frame: pl.DataFrame) -> pl.DataFrame:
            return sorted_rows(frame, (by,), not least, nulls_last=True).head(count)

        return self._rows("top", name, (), first, early=True)

    def _rows(
        self,
        kind: str,
        name: str | None,
        keys: tuple[str, ...],
        function: Callable[[pl.DataFrame], pl.DataFrame],
        early: bool = False,
    ) -> Table:
        """Apply `function` to all rows of a time, or to those with equal keys.

        `early`: to each batch before it travels as well.
        """

        def apply(batch: Batch) -> Batch:
            return function(as_polars(batch))

        if keys:
            return self._each_time(kind, name, _by(*keys), apply)
        marked = self.with_columns(pl.lit(0).alias(_ALL))
        channel = Exchange(columns=(_ALL,), prepare=columns_of, combine=apply if early else None)
        return marked._each_time(kind, name, channel, lambda batch: function(as_polars(batch).drop(_ALL)))
