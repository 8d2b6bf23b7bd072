"""Streams of columns: the fast verbs, over Polars expressions and Arrow tables.

A batch is a Polars frame or an Arrow table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast, get_args

import polars as pl

from libraries.columns.agg import KINDS, Aggregate
from libraries.columns.operators.aggregate import ALL, PreAggregate, check_aggregate, column_aggregate
from libraries.columns.operators.joins.asof import AsofChanges, AsofJoin, Strategy, Tolerance, check_asof
from libraries.columns.operators.joins.bounded import ExpiringHow, ExpiringJoin
from libraries.columns.operators.joins.equi import ColumnJoin, check_join
from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.operators.joins.running import How
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.keys import check_made, check_options, keys_of, output_of
from libraries.columns.verbs import descriptions as verbs
from libraries.columns.verbs.advice import OF_GROUPS
from libraries.columns.verbs.declared import alike, loop_body, match_to_schema
from libraries.columns.verbs.joins import Keys, interval_join, join_of_pairs, key_pairs
from libraries.columns.verbs.ordering import sort_of_time, top_of_groups
from libraries.columns.verbs.stateless import StatelessVerbs
from libraries.columns.verbs.time_to_live import check_asof_ttl, check_ttl, expiring_asof_join, expiring_totals
from libraries.columns.verbs.windows import WindowedColumns, split_late
from timely.data.batch import Batch, as_polars, columns_of
from timely.data.from_records import frame_as, frame_of_records
from timely.data.kernels.expressions import compiled
from timely.dataflow import stream as records
from timely.dataflow.keyed import Keyed, Over, check_over
from timely.dataflow.stream import records_of
from timely.dataflow.wire import DESCENDING, Wire, naming_options, no_attribute, view
from timely.errors import GraphError, user_site
from timely.io.column_types import Schema, polars_types
from timely.operators.base import Operator
from timely.operators.channels import Exchange
from timely.operators.obligations import RepeatsOver
from timely.operators.window_shapes import Epochs, Length, Session, Sliding, Tumbling


class Stream(records.Stream):
    """A stream of records: each batch is a list of anything."""

    def to_columns(self, schema: Schema | None = None, name: str | None = None) -> Columns:
        """The stream as columns: records are dicts, or tuples in the order of `schema`.

        `schema` gives types of columns by name: Polars', Python's or Arrow's. Without it, each batch has the fields of its
        first record, in types that all its values need. A value that its column would hold as another one is an error, and
        so is a record with other fields: where there is no value, say None.

        Raises:
            GraphError: `schema` is none, or names a type that columns do not have.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> rows = flow.source("rows", falkirk.Iterable([("a", 1), ("b", 2)])).to_columns({"name": str, "n": int})
        >>> result = rows.with_columns(twice=pl.col("n") * 2).to_records().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [{'name': 'a', 'n': 1, 'twice': 2}, {'name': 'b', 'n': 2, 'twice': 4}])]
        """
        types = None if schema is None else polars_types(schema)

        def frame(batch: Batch) -> Batch:
            if not isinstance(batch, list):
                return batch if types is None else frame_as(as_polars(batch), types)
            return frame_of_records(batch, types)

        known = None if types is None else pl.Schema(types)
        return view(
            self._stage("to_columns", name, frame, schema=known, repeats_over="batch" if types is None else "record"),
            Columns,
        )


class Columns(StatelessVerbs):
    """A stream of Polars frames or Arrow tables.

    Where `schema` is known, a column that is not there, or of a type that a verb does not take, is a GraphError at the call;
    elsewhere it is an OperatorError at the first batch. A `name=` that another operator has is a GraphError of every verb.
    """

    def sort(
        self,
        by: str | pl.Expr | Iterable[str | pl.Expr],
        *more_by: str | pl.Expr,
        descending: bool | Sequence[bool] = False,
        nulls_last: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """Polars' `sort` of the rows of each time (over="time"), at one worker.

        They come as one batch when the time is complete.

        Rows are in the order of `by`, of which the first counts most: names of columns, and expressions of a column each.
        `descending` and `nulls_last` may say so for each. Rows that are equal in `by` go by their other columns, the least
        first. What keeps batches as they are, `select` or `filter`, keeps the order; joins, totals and exchanges do not.

        Rows that go on coming have no last order: over="scope", the default of all verbs, is an error.

        Raises:
            GraphError: over="scope"; there is no column in `by`, or one that is not there; `descending` or `nulls_last` has
                not one value for each.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.sort("shop", "price", descending=[False, True], over="time").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 5), ('n', 3), ('s', 4)], [('s', 6)]]
        """
        return sort_of_time(self, (by, *more_by), descending, nulls_last, over, name)

    def map_batches(
        self,
        function: Callable[[Any], Batch],
        name: str | None = None,
        schema: Schema | None = None,
        *,
        repeats_over: RepeatsOver = "batch",
    ) -> Columns:
        """Replace every batch by `function(batch)`, a Polars frame or an Arrow table.

        `repeats_over="record"` declares that `function` gives the same in whatever batches rows come (`Stream.map_batches`).

        `schema` says which columns these have, in types of Polars, Python or Arrow; so the verbs behind it are checked where
        they are called. A batch that is not as declared is an error when it comes.

        Raises:
            GraphError: `function` is no function, or `schema` has what is no type.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]})]))
        >>> dear = sales.map_batches(lambda frame: frame.filter(pl.col("price") > 3), schema={"shop": str, "price": int})
        >>> dear.with_columns(double=pl.col("price") * 2).schema
        Schema([('shop', String), ('price', Int64), ('double', Int64)])
        """
        made = Wire.map_batches(self, function, name, repeats_over=repeats_over)
        return made if schema is None else match_to_schema(made, schema, None)

    def match_to_schema(self, schema: Schema, name: str | None = None) -> Columns:
        """Declare columns and types, in types of Polars, Python or Arrow.

        For streams whose schema cannot be inferred.

        Rows come out with their columns in this order. As Polars' `match_to_schema` it changes nothing else: columns that are
        not declared, or of another type, are an error; at the call if they are known, else when a batch comes.

        Raises:
            GraphError: a column is known not to be as declared, or `schema` has what is no type.

        >>> flow = falkirk.Dataflow()
        >>> class Same(falkirk.Operator):
        ...     def on_batch(self, ctx, port, time, batch):
        ...         ctx.send(batch)
        >>> sales = flow.columns("sales", falkirk.Csv("sales.csv")).unary("same", Same)
        >>> sales.match_to_schema({"shop": str, "price": float}).schema
        Schema([('shop', String), ('price', Float64)])
        """
        return match_to_schema(self, schema, name)

    def concat(self, *others: Columns) -> Columns:
        """Merge this stream and `others`; order between them is not kept.

        All have the same columns: those of the first, in its order. Types that differ are made the wider one, so integers of
        32 bits beside those of 64 have 64. Where a `schema` is not known, batches come as they are: `match_to_schema` behind it
        holds them to one.

        Raises:
            GraphError: one of `others` is no stream, is of another dataflow, or in another scope, or has other
                columns, or types that do not go together.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> north = flow.columns("north", falkirk.Batches([pl.DataFrame({"shop": ["n"], "price": [3]})]))
        >>> south = flow.columns("south", falkirk.Batches([pl.DataFrame({"price": [4.5], "shop": ["s"]})]))
        >>> north.concat(south).schema
        Schema([('shop', String), ('price', Float64)])
        """
        for other in others:
            self._same_scope(other, "concat")
        first, *more = alike([self, *others]) if all(isinstance(each, Columns) for each in others) else (self, *others)
        return Wire.concat(first, *more)

    def iterate(self, body: Callable[[Any], Any], limit: int | None = None, name: str | None = None) -> Columns:
        """Run `body` in a loop until no records are fed back, or for `limit` iterations.

        See `Wire.iterate`.

        What goes round has the columns of what enters; so verbs in the loop are checked where they are called.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> start = flow.columns("start", falkirk.Batches([pl.DataFrame({"n": [5, 2]})]))
        >>> seen = start.iterate(lambda rows: rows.filter(pl.col("n") > 3).select(pl.col("n") - 1)).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(4,)], [(3,)]]
        """
        known = self.schema
        if known is not None and callable(body):
            body = loop_body(known, body)
        return Wire.iterate(self, body, limit, name)

    def group_by(self, *keys: str | pl.Expr, **named: pl.Expr) -> GroupBy:
        """Group by columns, or by expressions of one column each, for `agg` or `top_k`.

        Raises:
            GraphError: there is no key, or one that is neither a column that is there nor an expression of one column.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.group_by("shop").agg(sold=falkirk.agg.sum("price"), over="scope").capture("out")
        >>> [pl.DataFrame(batch).sort("shop").rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 8), ('s', 4)], [('s', 10)]]

        A time to live, here of 10 in event time, forgets keys that have had no row for so long (`GroupBy.agg`):

        >>> flow = falkirk.Dataflow()
        >>> days = [
        ...     pl.DataFrame({"shop": ["n", "s"], "at": [1, 9]}),
        ...     pl.DataFrame({"shop": ["n", "w"], "at": [12, 20]}),
        ...     pl.DataFrame({"shop": ["n", "s"], "at": [21, 22]}),
        ... ]
        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches(days, per_epoch=1))
        >>> seen = sales.group_by("shop").agg(sold=falkirk.agg.count(), ttl=10, time="at").capture("out")
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 1), ('s', 1)], [('n', 2), ('w', 1)], [('n', 3), ('s', 1)]]
        """
        names, made = keys_of("group_by", keys, named, self.schema)
        if not names:
            raise GraphError(
                f"{user_site()}: group_by takes names of columns; for totals of all rows say agg(...) without it"
            )
        return GroupBy(self, names, made)

    def agg(
        self,
        *exprs: pl.Expr,
        over: Over = "scope",
        name: str | None = None,
        changes: bool = False,
        **aggregates: Aggregate | pl.Expr,
    ) -> Columns:
        """Aggregate all rows: one row per change, or (over="time") one a time.

        See `GroupBy.agg`.

        Raises:
            GraphError: as `GroupBy.agg`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.agg(sold=falkirk.agg.sum("price"), over="time").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(12,)], [(6,)]]
        """
        return GroupBy(self._marked(), (ALL,))._computed(exprs, aggregates, over, name, changes=changes)._unmarked()

    @naming_options(descending=DESCENDING)
    def top_k(
        self,
        k: int,
        by: Keys,
        reverse: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """The `k` greatest rows by the columns `by`; see `GroupBy.top_k`.

        Of each time, or of all so far, as changes.

        Raises:
            GraphError: as `GroupBy.top_k`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.top_k(1, by="price").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 5, 1)], [('n', 5, -1), ('s', 6, 1)]]

        The sum of the last sales of all shops:

        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> last = sales.group_by("shop").top_k(1, by="price")
        >>> seen = last.agg(total=falkirk.agg.sum("price")).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(9,)], [(11,)]]
        """
        return top_of_groups(self._marked(), (ALL,), k, by, reverse, over, name, signed=False)._unmarked()

    def distinct(
        self,
        *columns: str | pl.Expr,
        over: Over = "scope",
        name: str | None = None,
        ttl: Epochs | Length | None = None,
        time: str | None = None,
        **named: pl.Expr,
    ) -> Columns:
        """Each combination of values of `columns` once in a scope, or once a time.

        In the root scope, the default means once ever.

        Columns are names, or expressions of a column each. What comes out has these columns and no others. ttl=Epochs(n): what
        has not come in the n epochs before is new again. ttl=60, or a timedelta, with time="at": what has not come in so much
        event time. See `GroupBy.agg`.

        Raises:
            GraphError: `columns` is empty, or names one that is not there; `over` is neither "scope" nor "time"; `ttl` and
                `time` as in `GroupBy.agg`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.distinct("shop").capture("out")
        >>> [pl.DataFrame(batch).sort("shop").rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n',), ('s',)]]
        """
        names, made = keys_of("distinct", columns, named, self.schema)
        if not names:
            raise GraphError(f"{user_site()}: distinct of columns takes names of columns, not {columns!r}")
        check_over(over, "distinct")
        once = Aggregate("max", ALL)  # never changes, so a running total tells of new keys alone
        found = GroupBy(self._marked(), names, made)._aggregate("distinct", {ALL: once}, over, name, ttl, time=time)
        return found._choose("drop", *names)

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
        """Join with `other` on equal columns `on`.

        With all rows so far (over="scope"), or within each time (over="time").

        how="inner": every pair once, at the later of its two times. how="semi": every row of this stream that has a match,
        once, at its own time or, later, at that of its first match. how="left", "right" and "full" (over="time" only): also the
        rows of this stream, the other one or both that have no match, with nulls. how="anti" (over="time" only): the rows of
        this stream that have none. how="lookup" (over="scope" only): every row of this stream once, at its own
        time, with the rows of `other` that are there when that time is complete, or with nulls; rows of `other` that come later
        do not reach it. how="left", "right", "full" and "anti" with changes=True run on, and give `Changes`: rows without a
        match that are taken back when one comes. Keys come out once, among the columns of this stream.

        left_on and right_on: keys that have another name on each side, or are expressions of a column each. As in Polars, the
        keys of the right side do not come out, but how="right" has them in the place of those of the left one; how="full", and
        any join on expressions, has those of both sides. `suffix` is appended to columns of `other` whose name this stream has.

        ttl=Epochs(n), with how="inner", "semi" or "lookup": rows are forgotten after n epochs, so that what is kept stays
        bounded. A row meets those of its own epoch, of the n before it and the n behind it; pairs that are farther apart are
        missing. (Of event times that are near each other `join_interval` knows.)

        `right` names the columns and types of `other`, for rows that come before any of it, where `other.schema` is not known.
        Null keys match nothing.

        Raises:
            GraphError: `other` is no stream, is of another dataflow, or in another scope; `on` is no column of both, or not
                of one type; `how` does not go with `over`, `changes` or `ttl`.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> names = flow.columns("names", falkirk.Batches([pl.DataFrame({"shop": ["n"], "name": ["north"]})]))
        >>> seen = sales.join(names, on="shop").capture("out")
        >>> [pl.DataFrame(batch).sort("price").rows() for _, batch in falkirk.run(flow).captured("out")]
        [[('n', 3, 'north'), ('n', 5, 'north')]]
        """
        if getattr(other, "_signed", False):
            found: Columns = self._changes._pairs(
                self, other, on, how, over, name, right, changes, ttl, left_on, right_on, suffix
            )
            return found
        self._same_scope(other, "join")
        pairs = key_pairs(on, left_on, right_on)
        keys = pairs.shared
        if keys is None:

            def join(one: Columns, two: Columns, on: list[str], right: Mapping[str, Any] | None) -> Columns:
                return one.join(two, on, how, over, name, right, changes, ttl, suffix=suffix)

            return join_of_pairs(self, other, pairs, how, suffix, right, join)
        check_join(how, check_over(over, "join"), changes)
        if changes:
            for side in (self, other):
                schemas.check_unsigned("join(changes=True)", side.schema or ())
        if ttl is not None:
            if isinstance(ttl, int | dt.timedelta):
                raise GraphError(
                    f"{user_site()}: ttl=Epochs(n) of a join counts epochs; of event times that are near each other "
                    "join_interval gives the pairs"
                )
            check_ttl(ttl, None, over, self, "the epochs for which a row is kept")
            if how not in get_args(ExpiringHow):
                kinds = ", ".join(map(repr, get_args(ExpiringHow)))
                raise GraphError(
                    f"{user_site()}: a join with a ttl is one of {kinds}: how={how!r} would have to take back what it has "
                    "forgotten"
                )
        there = schemas.other_side("join", other.schema, right)
        here = self.schema
        schema = schemas.joined(how, keys, here, there, suffix)
        channel = Exchange(columns=keys, prepare=columns_of)
        factory: Callable[[], Operator] = lambda: ColumnJoin(keys, how, over, there, suffix, changes, here)  # noqa: E731
        if ttl is not None:
            epochs, kind = ttl.n, cast(ExpiringHow, how)
            factory = lambda: ExpiringJoin(keys, kind, epochs, there, suffix)  # noqa: E731
        node = self._attach(
            "join",
            name,
            channel,
            others=[(other, channel)],
            factory=factory,
            notifies=True,
            stateful=True,
            verb=verbs.Join(keys, how, over, changes) if ttl is None and suffix == "_right" else None,
        )
        return self._made_of(node, schema, changes)

    def join_asof(
        self,
        other: Columns,
        on: str,
        by: str | Sequence[str] | None = None,
        strategy: Strategy = "backward",
        tolerance: Tolerance | None = None,
        over: Over = "scope",
        name: str | None = None,
        right: Mapping[str, Any] | None = None,
        changes: bool = False,
        ttl: Length | None = None,
    ) -> Columns:
        """Polars' `join_asof`: join each row with the row of `other` nearest in `on`.

        Each row comes out at its own time; both rows are equal in `by`.

        strategy="backward" is the last row of `other` at or before it, "forward" the first at or behind it, "nearest" either.
        That is among all rows so far when the time is complete (over="scope"), or those of the same time (over="time"); rows of
        `other` that come later do not reach it. Without one within `tolerance` there are nulls. Rows come out in the order of
        `on`. `right` names the columns and types of `other`, for rows that come before any of it, where `other.schema` is not
        known.

        changes=True: rows of `other` that come later do reach it. A pair is taken back, as `Changes`, when a nearer row comes,
        so that there is always the join of all rows so far; all rows are kept. Of rows of `other` at one place and equal in
        `by`, "backward" takes the one that came last, and "forward" the first; of one time, in the order of their content.

        ttl=60, or a timedelta, if `on` is event time, in integers, or datetimes and dates: rows of this stream may be that far
        behind its greatest one of the epochs before. Those that are later are left out (`split_late(on, lateness=ttl)` has
        them); for all others nothing changes. Rows of `other` are kept as long as one to come could find them: with "backward"
        and "nearest" also the newest of each key, unless it is beyond the `tolerance`.

        Raises:
            GraphError: `other` is no stream, is of another dataflow, or in another scope; `on` or `by` is no column of
                both, or `on` not of one type; `strategy` or `over` is none of those; `changes` or `ttl` is given over="time",
                or both are.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> quotes = flow.columns("quotes", falkirk.Batches([pl.DataFrame({"at": [1, 4, 9], "price": [10, 11, 12]})]))
        >>> trades = flow.columns("trades", falkirk.Batches([pl.DataFrame({"at": [3, 5], "n": [2, 7]})]))
        >>> seen = trades.join_asof(quotes, on="at").capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(3, 2, 10), (5, 7, 11)]]

        A quote that comes late:

        >>> flow = falkirk.Dataflow()
        >>> quotes = flow.columns("quotes", falkirk.Batches([pl.DataFrame({"at": [at], "price": [at + 9]}) for at in (1, 2)]))
        >>> trades = flow.columns("trades", falkirk.Batches([pl.DataFrame({"at": [3], "n": [2]})]))
        >>> seen = trades.join_asof(quotes, on="at", changes=True).capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(3, 2, 10, 1)], [(3, 2, 10, -1), (3, 2, 11, 1)]]
        """
        self._same_scope(other, "join_asof")
        check_over(over, "join_asof")
        keys = check_asof(on, by, strategy)
        if changes:
            if over == "time":
                raise GraphError(
                    f"{user_site()}: join_asof(changes=True) runs on, over='scope': within a time nothing comes later"
                )
            for side in (self, other):
                schemas.check_unsigned("join_asof(changes=True)", side.schema or ())
        if ttl is not None:
            if changes:
                raise GraphError(
                    f"{user_site()}: join_asof(changes=True) has no ttl: a pair whose rows are forgotten is still taken back"
                )
            check_asof_ttl(ttl, over, self)
        there = schemas.other_side("join_asof", other.schema, right)
        schema = schemas.joined_asof(on, keys, tolerance, self.schema, there)
        if not keys:  # all rows have one key
            columns = None if right is None else {**right, ALL: pl.Int64}
            marked = self._marked(), other._marked()
            found = marked[0].join_asof(marked[1], on, ALL, strategy, tolerance, over, name, columns, changes, ttl)
            return found._unmarked()
        if ttl is not None:
            return expiring_asof_join(self, other, on, keys, strategy, tolerance, ttl, name, there, schema)
        kind = AsofChanges if changes else AsofJoin
        channel = Exchange(columns=keys, prepare=columns_of)
        node = self._attach(
            "join_asof",
            name,
            channel,
            others=[(other, channel)],
            factory=lambda: kind(on, keys, strategy, tolerance, there, over=over),
            notifies=True,
            stateful=True,
        )
        return self._made_of(node, schema, changes)

    def join_interval(
        self,
        other: Columns,
        on: str,
        lower: Length,
        upper: Length,
        by: str | Sequence[str] | None = None,
        lateness: Length | None = None,
        name: str | None = None,
    ) -> tuple[Columns, Columns, Columns]:
        """Pairs of rows with lower <= left - right <= upper for their event times `on`.

        And with equal columns `by`. Event times are integers, with whole bounds, or datetimes and dates, with timedeltas. A
        pair comes out once, when the later of its rows is complete. Rows may be `lateness` behind the greatest event time of
        their own stream; those that are later are in no pair, but in the second stream (of these) and the third (of `other`).
        Rows are kept until the watermark of the other stream is so far that none can meet them.

        Raises:
            GraphError: `other` is no stream, is of another dataflow, or in another scope; a stream is in a nested scope;
                `on` or `by` is no column of both; `lower` is above `upper`; bounds, `lateness` and event times are not of one
                kind.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> views = flow.columns("views", falkirk.Batches([pl.DataFrame({"at": [1, 9], "ad": ["a", "b"]})]))
        >>> clicks = flow.columns("clicks", falkirk.Batches([pl.DataFrame({"at": [2, 20], "n": [1, 2]})]))
        >>> pairs, late_clicks, late_views = clicks.join_interval(views, on="at", lower=0, upper=5)
        >>> seen = pairs.capture("out")
        >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
        [[(2, 1, 1, 'a')]]
        """
        self._same_scope(other, "join_interval")
        keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
        if not isinstance(on, str) or not all(isinstance(key, str) for key in keys):
            raise GraphError(
                f"{user_site()}: join_interval(on=..., by=...) takes names of columns, not {on!r} and {by!r}"
            )
        if not keys:  # all rows have one key
            found = self._marked().join_interval(other._marked(), on, lower, upper, ALL, lateness, name)
            pairs, late, late_right = (each._unmarked() for each in found)
            return pairs, late, late_right
        return interval_join(self, other, on, keys, lower, upper, lateness, name)

    def window(
        self,
        shape: Tumbling | Sliding | Session | Epochs,
        time: str | None = None,
        lateness: Length | None = None,
        name: str | None = None,
    ) -> WindowedColumns[Columns]:
        """Cut the stream into windows of event time, in the column `time`.

        For example `window(Tumbling(60), "at").group_by("k").agg(...)`.

        Windows are `Tumbling`, `Sliding` or `SessionWindow`. Event times are integers, with whole lengths, or datetimes and
        dates, with timedeltas. Rows may be `lateness` behind the greatest one seen; what comes later for its windows is in
        `late()`.

        Windows of so many `Epochs` go by the epochs at which rows come, and take no `time` and no `lateness`. `start` is the
        first epoch, and `end` the one after the last.

        Raises:
            GraphError: `shape` is no window; the stream is in a nested scope; `time` is no column that is there, or its
                type or `lateness` not of the kind of the lengths; `time` or `lateness` is given with windows of epochs.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"at": [3, 8], "price": [3, 4]}), pl.DataFrame({"at": [12, 7], "price": [5, 6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> tens = sales.window(falkirk.Tumbling(10), time="at")
        >>> seen = tens.agg(sold=falkirk.agg.sum("price")).capture("out")
        >>> [(time, pl.DataFrame(batch).rows()) for time, batch in falkirk.run(flow).captured("out")]
        [((1,), [(0, 10, 13)]), ((END,), [(10, 20, 5)])]
        """
        return WindowedColumns(self, shape, time, lateness, name)

    def split_late(
        self, time: str, lateness: Length | None = None, name: str | None = None
    ) -> tuple[Columns, Columns, Stream]:
        """Split into rows on time, late rows, and the watermark.

        Each row comes out at its own epoch, when that is complete.

        A row is late if its event time, in the column `time`, is before the watermark: the greatest event time of the epochs
        before, on all workers, minus `lateness`. Event times are integers, with a whole number as lateness, or datetimes and
        dates, with a timedelta. The watermark is a record at the epoch that moves it, the same on each worker: an integer, of
        datetimes in microseconds since 1970. `Keyed.split_late` shows an operator that waits for it. Rows stay where they are:
        in front of an operator of one's own that keeps something by key say `exchange(key)`.

        Raises:
            GraphError: `time` is no column that is there, or not of the kind of `lateness`, or of unknown type without one;
                `lateness` is negative; the stream is in a nested scope.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"at": [3, 12], "price": [3, 4]}), pl.DataFrame({"at": [8, 1], "price": [5, 6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days, per_epoch=1))
        >>> on_time, late, watermarks = sales.split_late("at", lateness=5)
        >>> captures = on_time.capture("on time"), late.capture("late"), watermarks.capture("watermarks")
        >>> result = falkirk.run(flow)
        >>> [pl.DataFrame(batch).rows() for _, batch in result.captured("on time")]
        [[(3, 3), (12, 4)], [(8, 5)]]
        >>> [pl.DataFrame(batch).rows() for _, batch in result.captured("late")]
        [[(1, 6)]]
        >>> result.captured("watermarks")
        [((0,), [7])]
        """
        on_time, late, watermarks = split_late(self, time, lateness, name)
        return on_time, late, view(watermarks, Stream)

    def to_records(self, name: str | None = None) -> Stream:
        """Rows as records, one dict each.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.to_records().map(lambda row: row["price"]).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [3, 4, 5]), ((1,), [6])]
        """
        return view(self._stage("to_records", name, records_of, repeats_over="record"), Stream)

    def key_by(self, column: str, name: str | None = None) -> Keyed[Stream]:
        """Pairs (value of `column`, row as a dict), for keyed verbs over records.

        Raises:
            GraphError: there is no such column.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> seen = sales.key_by("shop").count().capture("out")
        >>> [(epoch, sorted(batch)) for (epoch,), batch in falkirk.run(flow).captured("out")]
        [(0, [('n', 2), ('s', 1)]), (1, [('s', 2)])]
        """

        schemas.check_columns("key_by", [column], self.schema)

        def pairs(batch: Batch) -> Batch:
            rows = records_of(batch)
            if rows and column not in rows[0]:
                raise LookupError(f"there is no column {column!r}, only {', '.join(map(repr, rows[0]))}")
            return [(row[column], row) for row in rows]

        return view(self._stage("key_by", name, pairs, repeats_over="record"), Stream).keyed()


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Columns grouped by keys, those in `made` computed; see `Columns.group_by`."""

    columns: Columns
    keys: tuple[str, ...]
    made: tuple[pl.Expr, ...] = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, name, OF_GROUPS)

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
        """Aggregate each group.

        over="scope": running along the innermost coordinate (in the root scope: over all epochs so far); emits the keys that
        are new or whose results changed when a time is complete. over="time": once a time, over the rows of that time.
        Aggregates are those of `libraries.columns.agg`; Polars expressions are allowed with over="time".

        ttl=Epochs(n): of running totals, a key that has had no row in the n epochs before is forgotten. If it comes again, its
        totals begin anew. So do all that come at `END`, when windows close: it is behind any number of epochs.

        ttl=60, or a timedelta, with time="at": by event time, in the column `time`: integers, or datetimes and dates. A key is
        forgotten when an epoch is complete and its last event time is more than that before the greatest one of all rows so
        far. Rows that are as late when they come are left out (`split_late(time, lateness=ttl)` has them), so that a key that
        is gone does not come back for them.

        changes=True: running totals as `Changes`, which take back what a key had before. So totals of totals are those of the
        totals that there are.

        Raises:
            GraphError: there is nothing to compute; a column comes out twice, or is not there, or of a type that an aggregate
                does not take; `over` is neither "scope" nor "time"; a running total is a Polars expression. A `ttl` or
                `changes` goes with over="scope", and not with the other; `ttl` with the root scope,
                and a length of time with `time`, which is a column of its kind.

        Running (the default), each time by itself, and without the keys of which no row has come for an epoch:

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> by_shop = sales.group_by("shop")
        >>> captures = [
        ...     by_shop.agg(sold=falkirk.agg.sum("price")).capture("running"),
        ...     by_shop.agg(pl.col("price").median(), over="time").capture("each"),
        ...     by_shop.agg(sold=falkirk.agg.sum("price"), ttl=falkirk.Epochs(1)).capture("living"),
        ... ]
        >>> result = falkirk.run(flow)
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in result.captured("running")]
        [[('n', 8), ('s', 4)], [('s', 10)]]
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in result.captured("each")]
        [[('n', 4.0), ('s', 4.0)], [('s', 6.0)]]
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in result.captured("living")]
        [[('n', 8), ('s', 4)], [('s', 10)]]

        The sum of what each shop has sold best, as it stands:

        >>> flow = falkirk.Dataflow()
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
        >>> captures = best.capture("best"), best.agg(total=falkirk.agg.sum("price")).capture("total")
        >>> result = falkirk.run(flow)
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in result.captured("best")]
        [[('n', 5, 1), ('s', 4, 1)], [('s', 4, -1), ('s', 6, 1)]]
        >>> [pl.DataFrame(batch).rows() for _, batch in result.captured("total")]
        [[(9,)], [(11,)]]
        """
        return self._computed(exprs, aggregates, over, name, ttl, changes, time)

    @naming_options(descending=DESCENDING)
    def top_k(
        self,
        k: int,
        by: Keys,
        reverse: bool | Sequence[bool] = False,
        over: Over = "scope",
        name: str | None = None,
    ) -> Columns:
        """The `k` greatest rows of each group by `by`, or the least if `reverse`.

        The first column of `by` counts most.

        `reverse` may say so for each column. Null is behind all, as in Polars, and rows that are equal in `by` go by their
        other columns, the least first. Out come the keys, then the other columns.

        over="scope": of all rows so far, as `Changes`: rows that have come to be among them, and, taken back, those that are so
        no more. Of changes: of the rows that there are. over="time": the rows of each time.

        Raises:
            GraphError: `k` is no whole number from 1 up; `by` is empty, or names a column that is not there; `reverse` has
                another length than `by`; `over` is neither "scope" nor "time", or, of changes, "time"; over="scope" is in a
                nested scope.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
        >>> sales = flow.columns("sales", falkirk.Batches(days))
        >>> best = sales.group_by("shop").top_k(1, by="price")
        >>> captures = best.capture("so far"), sales.group_by("shop").top_k(1, by="price", over="time").capture("each")
        >>> result = falkirk.run(flow)
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in result.captured("so far")]
        [[('n', 5, 1), ('s', 4, 1)], [('s', 4, -1), ('s', 6, 1)]]
        >>> [sorted(pl.DataFrame(batch).rows()) for _, batch in result.captured("each")]
        [[('n', 5), ('s', 4)], [('s', 6)]]
        """
        return top_of_groups(self._keyed(()), self.keys, k, by, reverse, over, name, signed=False)

    def _keyed(self, read: Iterable[Aggregate | pl.Expr]) -> Columns:
        """Rows with the computed keys."""
        if not self.made:
            return self.columns
        check_made(self.made, read)
        made = self.made
        few = compiled("with_columns", made, {})
        return self.columns._plan("group_by", None, lambda frame: frame.with_columns(made), made, few)

    def _computed(
        self,
        exprs: tuple[pl.Expr, ...],
        aggregates: Mapping[str, Aggregate | pl.Expr],
        over: Over,
        name: str | None,
        ttl: Epochs | Length | None = None,
        changes: bool = False,
        time: str | None = None,
    ) -> Columns:
        check_options("agg", over=over, name=name, ttl=ttl, time=time, changes=changes)
        check_over(over, "agg")
        if changes and (over == "time" or ttl is not None):
            raise GraphError(f"{user_site()}: agg(changes=True) is of totals that run on: over='scope', without a ttl")
        if changes:
            schemas.check_unsigned("agg(changes=True)", (*self.keys, *aggregates))
        named: dict[str, Aggregate | pl.Expr] = dict(aggregates)
        for expr in exprs:
            column = output_of(expr, "agg")
            if column in named:
                raise GraphError(f"{user_site()}: agg computes {column!r} twice; give one of them another name")
            named[column] = expr
        if not named:
            raise GraphError(f"{user_site()}: agg needs something to compute, for example agg(n=agg.count())")
        for key, aggregate in named.items():
            if not isinstance(aggregate, Aggregate | pl.Expr):
                raise GraphError(
                    f"{user_site()}: agg({key}=...) takes agg.count(), agg.sum(column), ..., not {aggregate!r}"
                )
            if isinstance(aggregate, pl.Expr) and over == "scope":
                raise GraphError(
                    f"{user_site()}: agg({key}=...): a running total cannot be kept for a Polars expression; say "
                    f"over='time' for one result a time, or use an aggregate of falkirk.agg: {', '.join(KINDS)}"
                )
        return self._aggregate("aggregate", named, over, name, ttl, changes, time)

    def _aggregate(
        self,
        kind: str,
        named: Mapping[str, Aggregate | pl.Expr],
        over: Over,
        name: str | None,
        ttl: Epochs | Length | None,
        changes: bool = False,
        time: str | None = None,
    ) -> Columns:
        keys, columns = self.keys, self.columns
        if ttl is not None:
            check_ttl(ttl, time, over, columns, "epochs without a row of the key")
        elif time is not None:
            raise GraphError(f"{user_site()}: time= is the event time of a ttl: say ttl=, a length of time")
        epochs = ttl.n if isinstance(ttl, Epochs) else None
        check_aggregate(keys, named)
        columns = self._keyed(named.values())
        schema = schemas.aggregated("agg", keys, named, columns.schema)
        plain = {key: a for key, a in named.items() if isinstance(a, Aggregate)}
        signed = any(a.sign is not None for a in plain.values())
        if ttl is not None and not isinstance(ttl, Epochs):
            return expiring_totals(columns, kind, keys, plain, ttl, str(time), name, schema)
        combine = PreAggregate(keys, plain, sparing=True) if len(plain) == len(named) else None
        node = columns._attach(
            kind,
            name,
            Exchange(
                columns=keys,
                prepare=columns_of,
                combine=None if combine is None else combine.apply,
                within_time=over == "time",
            ),
            factory=lambda: column_aggregate(
                keys,
                named,
                over,
                combined=combine is not None,
                ttl=epochs,
                sign=CHANGE if changes else None,
                once=kind == "distinct",
            ),
            notifies=True,
            stateful=True,
            verb=verbs.Totals(keys, named, over) if ttl is None and not changes and not signed else None,
        )
        return columns._made_of(node, schema, changes)
