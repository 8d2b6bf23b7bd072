"""Stateless verbs of columns: choices of rows and columns by expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import polars as pl

from libraries.columns.kernels.elementwise import are_elementwise, divide_by_numbers, sees_other_rows
from libraries.columns.operators.aggregate import ALL
from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.keys import check_name
from libraries.columns.schemas.selections import flat, makes_rows_of_none, names_of_values
from libraries.columns.verbs import descriptions as verbs
from libraries.columns.verbs.advice import OF_FRAMES
from timely.data.batch import Batch, as_polars, columns_of, divide
from timely.data.kernels.expressions import Verb, compiled
from timely.dataflow.graph import Node
from timely.dataflow.wire import Wire, check_callable, view
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.operators.shaping import Branch

_OF_ROWS = ("select", "with_columns", "filter")

_OF_OTHERS = {
    "totals": "agg(total=agg.sum(column)) gives the total of all rows so far, and with over='time' that of each epoch",
    "groups": "group_by(key).agg(...) gives totals of each key, to join with, and group_by(key).top_k(...) its first rows",
    "order": "join_asof finds the row before, by a column of times",
}
"""Verbs to use instead, by kind of unsupported expression."""


C = TypeVar("C", bound="StatelessVerbs")


class StatelessVerbs(Wire):
    """Base of streams of columns, with verbs batch by batch."""

    _hints = OF_FRAMES
    _signed: ClassVar[bool] = False
    """True if rows have a sign, and may be taken back."""
    _changes: ClassVar[type[Any]]
    """Kind of stream with signed rows: `libraries.columns.verbs.changes` sets it."""

    def __getitem__(self, key: object) -> NoReturn:
        raise TypeError(
            "a stream has no rows here, and no columns to take out: select(...) chooses columns, filter(...) rows, and "
            "capture(name) gives batches to whoever runs the dataflow"
        )

    def select(self, *exprs: Any, name: str | None = None, **named: Any) -> Self:
        """Polars' `select` on every batch.

        A selection of only constants gives a row for each row, as `with_columns` would.

        Raises:
            GraphError: an argument is no expression or name of a column, or cannot be computed, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.select("shop", double=pl.col("price") * 2).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 6), ('s', 8), ('n', 10)], [('s', 12)]]
        """
        check_name("select", name, self.schema)
        chosen = _kept(exprs)
        given = [*flat(chosen), *named.values()]
        fills = makes_rows_of_none(given)
        few = compiled("select", chosen, named)
        names = None if fills else names_of_values(flat(chosen), named)
        if names is None:
            return self._plan("select", name, lambda frame: frame.select(*chosen, **named), given, few, fills)
        return self._plan(
            "select", name, lambda frame: frame.with_columns(*chosen, **named).select(names), given, few, fills
        )

    def with_columns(self, *exprs: Any, name: str | None = None, **named: Any) -> Self:
        """Polars' `with_columns` on every batch.

        Raises:
            GraphError: an argument is no expression or name of a column, or cannot be computed, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.with_columns(double=pl.col("price") * 2).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 3, 6), ('s', 4, 8), ('n', 5, 10)], [('s', 6, 12)]]
        """
        check_name("with_columns", name, self.schema)
        chosen = _kept(exprs)
        given = [*flat(chosen), *named.values()]
        few = compiled("with_columns", chosen, named)
        return self._plan("with_columns", name, lambda frame: frame.with_columns(*chosen, **named), given, few)

    def filter(self, *predicates: Any, name: str | None = None, **constraints: Any) -> Self:
        """Polars' `filter` on every batch.

        Raises:
            GraphError: an argument is no expression, or no truth value where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.filter(pl.col("price") > 4).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 5)], [('s', 6)]]
        """
        check_name("filter", name, self.schema)
        chosen = _kept(predicates)
        given = [*flat(chosen), *constraints.values()]
        few = compiled("filter", chosen, constraints)
        return self._plan("filter", name, lambda frame: frame.filter(*chosen, **constraints), given, few)

    def _plan(
        self,
        kind: str,
        name: str | None,
        plan: Callable[[Any], Any],
        given: Iterable[Any] = (),
        few: Verb | None = None,
        fills: bool = False,
    ) -> Self:
        """Stage for a Polars verb on eager or lazy frames; `given` are its expressions."""
        expressions = list(given)
        if kind in _OF_ROWS and (seen := sees_other_rows(expressions)) is not None and not self._are_times():
            raise GraphError(
                f"{user_site()}: {kind}: an expression looks at other rows, and in a stream it would see those of one batch: "
                f"{_OF_OTHERS[seen]}; behind sort(..., over='time') a batch is an epoch, and map_batches(function) is of each "
                "batch as it comes"
            )
        schema = schemas.after(kind, plan, self.schema, expressions)
        divides = divide_by_numbers(expressions)
        by_row = not fills and (few is not None or (not divides and are_elementwise(expressions)))
        return self._stage(
            kind,
            name,
            lambda batch: plan(as_polars(batch)),
            schema=schema,
            plan=plan,
            few=few,
            fills=fills,
            divides=divides,
            repeats_over="record" if by_row else "batch",
        )

    def _are_times(self) -> bool:
        """True if each batch is all rows of a time, as behind `sort`."""
        incoming: Any = None
        for output in self.outputs:
            node = self.graph.nodes[output.node]
            while node.kind in _OF_ROWS:
                incoming = incoming or self.graph.incoming()
                node = self.graph.nodes[incoming[node.index][0].source.node]
            if node.kind != "sort":
                return False
        return len(self.outputs) == 1

    def _choose(self, kind: str, *exprs: Any) -> Self:
        """Internal stage for the selection `exprs`."""
        return self._plan(kind, None, lambda frame: frame.select(*exprs), exprs, compiled("select", exprs, {}))

    def drop(self, *columns: Any, strict: bool = True, name: str | None = None) -> Self:
        """Polars' `drop`: the rows without some columns.

        `strict`: a column that is not there is an error.

        Raises:
            GraphError: there is no column of such a name, or none is left.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n"], "price": [3], "paid": [True]})]))
        >>> seen = sales.drop("price", "paid").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n',)]]
        """
        if not columns:
            raise GraphError(f"{user_site()}: drop takes the names of the columns that go")
        if strict:
            schemas.check_columns("drop", [each for each in flat(columns) if isinstance(each, str)], self.schema)
        plan = lambda frame: frame.drop(*columns, strict=strict)  # noqa: E731
        made = schemas.after("drop", plan, self.schema)
        if made is None:
            return self._plan("drop_columns", name, plan)
        if not made:
            raise GraphError(f"{user_site()}: drop leaves no column")
        return self._renamed("drop_columns", name, {column: column for column in made})

    def rename(
        self, mapping: Mapping[str, str] | Callable[[str], str], *, strict: bool = True, name: str | None = None
    ) -> Self:
        """Polars' `rename`: the same rows with other column names.

        `strict`: a column that is not there is an error.

        Raises:
            GraphError: `mapping` is neither a dict nor a function, a column is not there, or a name would be there twice.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n"], "price": [3]})]))
        >>> sales.rename({"price": "paid"}).schema
        Schema([('shop', String), ('paid', Int64)])
        >>> sales.rename(str.upper).schema
        Schema([('SHOP', String), ('PRICE', Int64)])
        """
        if not isinstance(mapping, Mapping) and not callable(mapping):
            raise GraphError(
                f"{user_site()}: rename takes a dict of names, old to new, or a function of a name, not {mapping!r}"
            )
        if strict and isinstance(mapping, Mapping):
            schemas.check_columns("rename", mapping, self.schema)
        plan = lambda frame: frame.rename(mapping, strict=strict)  # noqa: E731
        if self.schema is None:
            return self._plan("rename", name, plan)
        made = schemas.after("rename", plan, self.schema)
        assert made is not None
        return self._renamed("rename", name, dict(zip(made, self.schema, strict=True)))

    def cast(self, dtypes: Any, *, strict: bool = True, name: str | None = None) -> Self:
        """Polars' `cast`: convert columns, by name or all, to other types.

        `strict`: a value that has none in the new type is an error.

        Raises:
            GraphError: a column is not there, or cannot be of the type, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n"], "price": ["3"]})]))
        >>> sales.cast({"price": int}).schema
        Schema([('shop', String), ('price', Int64)])
        """
        return self._plan("cast", name, lambda frame: frame.cast(dtypes, strict=strict))

    def drop_nulls(self, subset: Any = None, *, name: str | None = None) -> Self:
        """Polars' `drop_nulls`: rows without a null in `subset`, or in any column.

        Raises:
            GraphError: a column is not there, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", None], "price": [3, 4]})]))
        >>> seen = sales.drop_nulls("shop").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 3)]]
        """
        return self._plan("drop_nulls", name, lambda frame: frame.drop_nulls(subset))

    def drop_nans(self, subset: Any = None, *, name: str | None = None) -> Self:
        """Polars' `drop_nans`: rows without NaN in `subset`, or in any column.

        Raises:
            GraphError: a column is not there, or is not of floats, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"price": [3.5, float("nan")]})]))
        >>> seen = sales.drop_nans().capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(3.5,)]]
        """
        return self._plan("drop_nans", name, lambda frame: frame.drop_nans(subset))

    def fill_null(self, value: Any, *, name: str | None = None) -> Self:
        """Polars' `fill_null`: replace nulls by `value`, in columns of its type.

        Strategies as "forward" are of rows in an order, which streams do not have.

        Raises:
            GraphError: `value` cannot be computed, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", None], "price": [None, 4]})]))
        >>> seen = sales.fill_null(0).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 0), (None, 4)]]
        """
        kind = "with_columns" if isinstance(value, pl.Expr) else "fill_null"  # an expression may be of several rows
        return self._plan(kind, name, lambda frame: frame.fill_null(value), [value])

    def fill_nan(self, value: Any, *, name: str | None = None) -> Self:
        """Polars' `fill_nan`: replace NaN by `value`, in columns of floats.

        Raises:
            GraphError: `value` cannot be computed, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"price": [3.5, float("nan")]})]))
        >>> seen = sales.fill_nan(0.0).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(3.5,), (0.0,)]]
        """
        kind = "with_columns" if isinstance(value, pl.Expr) else "fill_nan"
        return self._plan(kind, name, lambda frame: frame.fill_nan(value), [value])

    def explode(self, columns: Any, *more_columns: Any, name: str | None = None) -> Self:
        """Polars' `explode`: a row for each item of columns of lists.

        Raises:
            GraphError: a column is not there, or is not of lists, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s"], "prices": [[3, 4], [5]]})]))
        >>> seen = sales.explode("prices").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 3), ('n', 4), ('s', 5)]]
        """
        schemas.check_nested("explode", (columns, *more_columns), self.schema)
        return self._plan("explode", name, lambda frame: frame.explode(columns, *more_columns))

    def unnest(self, columns: Any, *more_columns: Any, name: str | None = None) -> Self:
        """Polars' `unnest`: a column for each field of columns of structs.

        Raises:
            GraphError: a column is not there, or is not of structs, or a field has the name of another
                column, where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"of": [{"shop": "n", "price": 3}]})]))
        >>> sales.unnest("of").schema
        Schema([('shop', String), ('price', Int64)])
        """
        schemas.check_nested("unnest", (columns, *more_columns), self.schema)
        return self._plan("unnest", name, lambda frame: frame.unnest(columns, *more_columns))

    def pipe(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(stream, ...)`, for user-defined steps within a chain of verbs.

        Raises:
            GraphError: `function` is no function.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"price": [3, 4]})]))
        >>> def dearer(stream, than):
        ...     return stream.filter(pl.col("price") > than)
        >>> seen = sales.pipe(dearer, than=3).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(4,)]]
        """
        check_callable(function, "pipe")
        return function(self, *args, **kwargs)

    def inspect(self, function: Callable[[Any], Any], name: str | None = None) -> Self:
        """Call `function(batch)` on every batch; for looking, not for output.

        Raises:
            GraphError: `function` is no function.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.inspect(lambda batch: print(len(batch), "rows")).capture("out")
        >>> result = falkirk.run(flow)
        3 rows
        1 rows
        """
        check_callable(function, "inspect")

        def look(batch: Batch) -> Batch:
            function(batch)
            return batch

        return self._stage("inspect", name, look, schema=self.schema, repeats_over="record")

    def branch(self, predicate: pl.Expr, name: str | None = None) -> tuple[Self, Self]:
        """Split rows into two streams: `predicate` true, and the others (false or null).

        Raises:
            GraphError: `predicate` is no expression, or no truth value where the schema is known.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> dear, cheap = sales.branch(pl.col("price") > 4)
        >>> captures = dear.capture("dear"), cheap.capture("cheap")
        >>> result = falkirk.run(flow)
        >>> [pl.DataFrame(batch).rows() for _, batch in result.captured("dear")]
        [[('n', 5)], [('s', 6)]]
        """
        if not isinstance(predicate, pl.Expr):
            raise GraphError(f"{user_site()}: branch of columns takes a Polars expression, not {predicate!r}")

        chosen = predicate.fill_null(False).alias("mask")
        mask = schemas.after("branch", lambda frame: frame.select(chosen), self.schema, [predicate])
        if mask is not None and mask["mask"] != pl.Boolean:
            raise GraphError(
                f"{user_site()}: branch takes an expression that is true or false for each row, and this is {mask['mask']}"
            )

        by_row = are_elementwise([predicate]) and not divide_by_numbers([predicate])

        def split(batch: Batch) -> tuple[Batch, Batch]:
            batch = columns_of(batch)
            mask = as_polars(batch).select(chosen).to_series()
            if mask.dtype != pl.Boolean:
                raise TypeError(
                    f"branch takes an expression that is true or false for each row, and this is {mask.dtype}"
                )
            return divide(batch, mask)

        verb = verbs.Split(predicate)
        node = self._attach("branch", name, factory=lambda: Branch(split, by_row), outputs=2, verb=verb)
        return self._of(node, 0, self.schema), self._of(node, 1, self.schema)

    def exchange(self, *by: str, name: str | None = None) -> Self:
        """Send rows with equal values in the columns `by` to the same worker.

        Raises:
            GraphError: `by` is empty, or names a column that is not there.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.exchange("shop").filter(shop="s").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('s', 4)], [('s', 6)]]
        """
        if not by or not all(isinstance(column, str) for column in by):
            raise GraphError(f"{user_site()}: exchange of columns takes names of columns, not {by!r}")
        schemas.check_columns("exchange", by, self.schema)
        channel = Exchange(columns=by, prepare=columns_of)
        return self._stage("exchange", name, columns_of, channel=channel, schema=self.schema, repeats_over="record")

    def _marked(self) -> Self:
        """Rows with a constant column."""
        mark = pl.lit(0, pl.Int64).alias(ALL)  # of 64 bits, as few rows go without Arrow then
        few = compiled("with_columns", [mark], {})
        return self._plan("mark", None, lambda frame: frame.with_columns(mark), [mark], few)

    def _unmarked(self) -> Self:
        """Rows without the constant column of `_marked`."""
        return self._without([ALL])

    def _without(self, hidden: Sequence[str]) -> Self:
        """Rows without the internal columns `names`."""
        return self._choose("drop", pl.all().exclude(hidden))

    def _renamed(self, kind: str, name: str | None, names: Mapping[str, str]) -> Self:
        """Select columns, by their new names."""
        exprs = [pl.col(old) if new == old else pl.col(old).alias(new) for new, old in names.items()]
        return self._plan(kind, name, lambda frame: frame.select(exprs), few=compiled("select", exprs, {}))

    def _made_of(self, node: Node, schema: pl.Schema | None, changes: bool) -> Self:
        """Columns from `node`, or changes; `schema` is without the sign."""
        if not changes:
            return self._of(node, schema=schema)
        made: Self = view(self._of(node, schema=schema and pl.Schema({**schema, CHANGE: pl.Int8()})), self._changes)
        return made


def _kept(exprs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of a verb, with iterators made lists, as every batch needs them."""
    return tuple(list(expr) if isinstance(expr, Iterator) else expr for expr in exprs)
