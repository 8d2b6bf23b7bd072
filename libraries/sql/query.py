"""`sql("select ...", s=stream)`: a query as verbs over columns.

sqlglot parses the statement; Polars' own SQL reads the expressions in it. What a stream cannot do is refused by name: an
order, a limit, a row that would have to be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias, cast

import polars as pl

from timely.dataflow.changes import Changes
from timely.dataflow.columns import Columns
from timely.dataflow.keyed import Over, check_over
from timely.errors import GraphError, user_site
from timely.operators import agg
from timely.operators.agg import Aggregate
from timely.operators.column_join import CHANGE

Node: TypeAlias = Any
"""An expression of sqlglot, which is imported when it is needed."""

_DIALECT = "postgres"

_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "with_", "this", "expression"}
"""The parts of a query that are compiled; of what others say, the error is the SQL text."""

_JOINS = {"": "inner", "INNER": "inner", "LEFT": "left", "SEMI": "semi", "ANTI": "anti"}


_NARROW = ("BIT_LENGTH(", "EXTRACT(", "LENGTH(", "OCTET_LENGTH(", "POSITION(")
"""Functions that give 8 to 32 bits in Polars, in which `length(k) - 5` and `extract(hour from at) * 60` wrap round."""


def sql(query: str, *, over: Over = "scope", **streams: Columns) -> Columns:
    """The stream of a query's results, over streams of columns by name.

    `select`, `where`, `join`, `group by` with `count`, `sum`, `min`, `max`, `avg`, `variance`, `stddev`, `count(distinct x)`,
    `bool_and`, `bool_or`, these with `filter (where ...)`, `arg_min(x, y)` and `arg_max`, `approx_quantile(x, 0.9)`
    (`agg.quantile`), `distinct`, `union all`, subqueries and `with`. Expressions are those of Polars' SQL. `over` says, as for
    all verbs, whether totals, joins and distinct rows run on (over="scope": what comes out are changed totals and new rows) or
    are of each time by itself (over="time").

    >>> import polars as pl
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
    >>> sales = flow.columns("sales", falkirk.Batches(days))
    >>> totals = falkirk.sql("select shop, sum(price) / count(*) as mean from sales where price > 3 group by shop", sales=sales)
    >>> seen = totals.capture("out")
    >>> [pl.DataFrame(batch).sort("shop").rows() for _, batch in falkirk.run(flow).captured("out")]
    [[('n', 5.0), ('s', 4.0)], [('s', 5.0)]]

    Raises:
        GraphError: with the user's line, for SQL that cannot be read, and for what streams cannot do.
    """
    check_over(over, "sql")
    for name, stream in streams.items():
        if not isinstance(stream, Columns):
            raise GraphError(f"{user_site()}: sql({name}=...) takes a stream of columns, not {stream!r}")
    try:
        import sqlglot
    except ImportError as error:
        raise GraphError(f"{user_site()}: sql() needs sqlglot: pip install 'falkirk[sql]'") from error
    try:
        statements = sqlglot.parse(query, dialect=_DIALECT)
    except (sqlglot.ParseError, sqlglot.TokenError) as error:
        raise GraphError(f"{user_site()}: sql: {str(error).partition(chr(10))[0]}") from error
    if len(statements) != 1 or statements[0] is None:
        raise GraphError(f"{user_site()}: sql() takes one query, not {len(statements)}")
    return _Compiler(over, streams).query(statements[0])


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of `from` and `join`: a stream, and by table the name that each column has there (None: as it is)."""

    stream: Columns
    tables: Mapping[str, Mapping[str, str] | None]
    merged: frozenset[tuple[str, str]] = frozenset()
    """The columns, by table, that `using` has made one with those of the tables before."""

    def column(self, node: Node) -> str:
        """The column of the stream that is meant."""
        name, table = node.name, node.table
        if table and table not in self.tables:
            _refuse(f"no table {table!r}; there are {_listed(self.tables)}")
        of = [self.tables[table]] if table else [self.alone(each) for each in self.tables]
        found = {name if names is None else names[name] for names in of if names is None or name in names}
        if not found:
            columns = [each for names in of for each in names or ()]
            _refuse(f"no column {name!r}; there are {_listed(dict.fromkeys(columns))}")
        if len(found) > 1:
            _refuse(f"column {name!r} is in several tables; say which: {next(iter(self.tables))}.{name}")
        return found.pop()

    def alone(self, table: str) -> Mapping[str, str] | None:
        """The columns of a table that are not one with others."""
        names = self.tables[table]
        return names and {name: column for name, column in names.items() if (table, name) not in self.merged}


class _Compiler:
    """Compiles queries over named streams."""

    def __init__(self, over: Over, streams: Mapping[str, Columns]) -> None:
        self._over = over
        self._streams = dict(streams)

    def query(self, node: Node) -> Columns:
        """The results of a select, or of several as one."""
        from sqlglot import exp

        inside = self
        if (common := node.args.get("with_")) is not None:
            inside = _Compiler(self._over, self._streams)
            for each in common.expressions:
                inside._streams[each.alias] = inside.query(each.this)
        if isinstance(node, exp.Union):
            if node.args.get("distinct"):
                _refuse("union of distinct rows; say union all, and select distinct from that")
            self._only(node)
            return inside.query(node.this).concat(inside.query(node.expression))
        if not isinstance(node, exp.Select):
            _refuse(f"{_text(node)}: sql() takes queries: select ... from ...")
        self._only(node)
        return inside._select(node)

    @staticmethod
    def _only(node: Node) -> None:
        for clause, given in node.args.items():
            if given and clause not in _CLAUSES:
                text = _text(given[0] if isinstance(given, list) else given)
                _refuse(f"{text}: streams have no order and no end; sort or cut the rows of each time with map_batches")

    def _select(self, node: Node) -> Columns:
        from sqlglot import exp

        rows = self._from(node)
        if (where := node.args.get("where")) is not None:
            if list(where.find_all(exp.AggFunc)):
                _refuse(f"{_text(where)}: an aggregate belongs into having, or into a query around this one")
            rows = replace(rows, stream=rows.stream.filter(_polars(where.this, rows)))
        group = node.args.get("group")
        if group is not None and any(given for clause, given in group.args.items() if clause != "expressions"):
            _refuse(f"{_text(group)}: group by takes columns and expressions")
        items = node.expressions
        having = node.args.get("having")
        if group is not None or any(item.find(exp.AggFunc) for item in items):
            found = self._aggregate(items, group.expressions if group is not None else [], having, rows)
        elif having is not None:
            _refuse(f"{_text(having)}: there is no aggregate; say where")
        else:
            found = _selected(rows.stream, list(_items(items, rows)))
        if (distinct := node.args.get("distinct")) is None:
            return found
        if distinct.args.get("on") is not None or found.schema is None:
            _refuse(f"{_text(distinct)}: distinct is of all columns, which must be known: see Columns.schema")
        assert found.schema is not None
        return found.distinct(*found.schema, over=self._over)

    # ------------------------------------------------------------------------------------------ tables

    def _from(self, node: Node) -> _Rows:
        if (of := node.args.get("from_")) is None:
            _refuse(f"{_text(node)}: a query over streams needs from")
        rows = self._table(of.this)
        for join in node.args.get("joins") or ():
            rows = self._join(rows, join)
        return rows

    def _table(self, node: Node) -> _Rows:
        from sqlglot import exp

        if isinstance(node, exp.Subquery):
            stream, name = self.query(node.this), node.alias
        elif isinstance(node, exp.Table) and not node.db:
            if node.name not in self._streams:
                _refuse(f"no stream {node.name!r}; there are {_listed(self._streams)}: sql(query, {node.name}=stream)")
            stream, name = self._streams[node.name], node.alias_or_name
        else:
            _refuse(f"{_text(node)}: from takes names of streams and subqueries")
        if stream.schema is None:
            return _Rows(stream, {name: None})
        signed = isinstance(stream, Changes)  # then the verbs keep the sign, which is no column of the table
        return _Rows(stream, {name: {each: each for each in stream.schema if not (signed and each == CHANGE)}})

    def _join(self, rows: _Rows, join: Node) -> _Rows:
        other = self._table(join.this)
        ((name, names),) = other.tables.items()
        how = _JOINS.get(" ".join(filter(None, (join.side, join.kind))))
        if how is None or join.method:
            _refuse(f"{_text(join)}: joins are inner, left, semi and anti")
        if rows.stream.schema is None or names is None:
            _refuse(f"{_text(join)}: a join needs streams whose columns are known: see Columns.schema")
        pairs = dict(self._equal(join, rows, other))
        given = {theirs: mine for mine, theirs in pairs.items()}
        clash = [mine for mine, theirs in pairs.items() if mine != theirs and mine in names and mine not in given]
        if clash:
            _refuse(f"{_text(join)}: both have a column {clash[0]!r}; rename one in a subquery")
        # Where there is no match, a key of the right side is null and that of the left side is not: they are two columns.
        apart = {theirs: f"{theirs}:{name}" for theirs in given} if how == "left" else {}
        right = other.stream.select(
            *(pl.col(each).alias(given.get(each, each)) for each in names),
            *(pl.col(each).alias(copy) for each, copy in apart.items()),
        )
        joined = rows.stream.join(right, on=list(pairs), how=how, over=self._over)  # type: ignore[arg-type]
        mine = set(rows.stream.schema)
        if how in ("semi", "anti"):
            return replace(rows, stream=joined)
        there = {each: given.get(each, f"{each}_right" if each in mine else each) for each in names} | apart
        merged = {(name, each.name) for each in join.args.get("using") or ()}
        return _Rows(joined, {**rows.tables, name: there}, rows.merged | merged)

    def _equal(self, join: Node, left: _Rows, right: _Rows) -> Iterator[tuple[str, str]]:
        """The pairs of columns, left and right, that a join is on."""
        from sqlglot import exp

        if using := join.args.get("using"):
            for each in using:
                column = exp.column(each.name)
                yield left.column(column), right.column(column)
            return
        on = join.args.get("on")
        for each in on.flatten() if isinstance(on, exp.And) else [on]:
            sides = [each.this, each.expression] if isinstance(each, exp.EQ) else []
            if not sides or not all(isinstance(side, exp.Column) for side in sides):
                _refuse(f"{_text(join)}: a join is on equal columns: using (key), or on a.key = b.key")
            (name,) = right.tables
            theirs = [
                side
                for side in sides
                if (side.table == name if side.table else side.name in (right.tables[name] or ()))
            ]
            if len(theirs) != 1:
                _refuse(f"{_text(each)}: one side must be a column of {name!r}; say which: {name}.key")
            (mine,) = [side for side in sides if side is not theirs[0]]
            yield left.column(mine), right.column(theirs[0])

    # ------------------------------------------------------------------------------------------ aggregates

    def _aggregate(self, items: list[Node], keys: list[Node], having: Node | None, rows: _Rows) -> Columns:
        from sqlglot import exp

        if having is not None and self._over == "scope":
            _refuse(
                f"{_text(having)}: a running total that no longer holds would have to be taken back; say over='time', "
                "or filter what comes of the query"
            )
        made: list[pl.Expr] = []
        names: dict[str, str] = {}
        for number, key in enumerate(keys):
            named = _named(key, items)
            if isinstance(named, exp.Column):
                names[_text(named)] = rows.column(named)
            else:
                names[_text(named)] = f"key {number}()"
                made.append(_polars(named, rows).alias(f"key {number}()"))
        of_key = list(names.values())
        aggregates: dict[str, Aggregate] = {}
        results: dict[str, Node] = {}
        computed: dict[str, str] = {}

        def input_of(node: Node) -> str:
            if isinstance(node, exp.Column):
                return rows.column(node)
            if (column := computed.get(_text(node))) is None:
                column = computed[_text(node)] = f"input {len(computed)}()"
                made.append(_polars(node, rows).alias(column))
            return column

        for whole in [
            each for item in (*items, *filter(None, [having])) for each in item.find_all(exp.Filter, exp.AggFunc)
        ]:
            if not isinstance(whole.parent, exp.Filter) and _text(whole) not in names:
                column = names[_text(whole)] = f"total {len(aggregates)}()"
                node = _filtered(whole) if isinstance(whole, exp.Filter) else whole
                aggregates[column] = _aggregate(node, input_of)
                found, other = (exp.column(each, quoted=True) for each in (column, f"any of {column}"))
                results[column] = found
                if isinstance(node, exp.Sum):  # of no values it is null
                    aggregates[other.name] = agg.max(input_of(_there(node.this)))
                    results[column] = exp.Case().when(other.eq(1), found)
                if aggregates[column].kind == "n_unique":  # null is no value
                    aggregates[other.name] = agg.min(input_of(_there(node.this.expressions[0])))
                    results[column] = exp.Paren(this=found + other - 1)
        stream = rows.stream.with_columns(*made) if made else rows.stream
        if not aggregates:
            aggregates["total 0()"] = agg.count()
        totals = (
            stream.group_by(*of_key).agg(over=self._over, **cast(Any, aggregates))
            if of_key
            else stream.agg(over=self._over, **cast(Any, aggregates))
        )

        def result(node: Node) -> Node:
            """With its keys and aggregates as columns."""
            column = names.get(_text(node))
            if column is not None:
                return results[column].copy() if column in results else exp.column(column, quoted=True)
            if isinstance(node, exp.Column):
                if rows.column(node) in of_key:
                    return exp.column(rows.column(node), quoted=True)
                _refuse(f"column {_text(node)!r} must be in group by, or in an aggregate")
            return node

        if having is not None:
            totals = totals.filter(_expression(_replaced(having.this, result)))
        if any(isinstance(item, exp.Star) for item in items):
            _refuse("select * beside aggregates: name the keys")
        return _selected(totals, [_expression(_replaced(item.unalias(), result)).alias(_name(item)) for item in items])


def _aggregate(node: Node, input_of: Any) -> Aggregate:
    from sqlglot import exp

    of = node.this
    if isinstance(node, exp.Count):
        if of is None or isinstance(of, exp.Star):
            return agg.count()
        if isinstance(of, exp.Distinct) and len(of.expressions) == 1:
            return agg.n_unique(input_of(of.expressions[0]))
        if isinstance(of, exp.Distinct) or node.expressions:
            _refuse(f"{_text(node)}: count takes *, one expression, or distinct and one expression")
        return agg.sum(input_of(_there(of)))
    if isinstance(node, exp.ArgMin | exp.ArgMax) and not node.args.get("count"):
        ends = agg.first if isinstance(node, exp.ArgMin) else agg.last
        return ends(input_of(of), order_by=input_of(node.expression))
    if isinstance(node, exp.ApproxQuantile) and set(node.args) <= {"this", "quantile"}:
        share = node.args["quantile"]
        if not isinstance(share, exp.Literal) or share.is_string or not 0 <= float(share.name) <= 1:
            _refuse(f"{_text(node)}: a quantile is a number from 0 to 1")
        return agg.quantile(input_of(of), float(share.name))
    makers = {exp.Sum: agg.sum, exp.Min: agg.min, exp.Max: agg.max, exp.Avg: agg.mean}
    makers |= {exp.Variance: agg.var, exp.Stddev: agg.std, exp.StddevSamp: agg.std}
    makers |= {exp.LogicalAnd: agg.min, exp.LogicalOr: agg.max}
    maker = makers.get(type(node))
    if maker is None or isinstance(of, exp.Distinct):
        _refuse(
            f"{_text(node)}: aggregates are count, sum, min, max, avg, variance, stddev, bool_and, bool_or, arg_min, "
            "arg_max and approx_quantile"
        )
    return maker(input_of(of))


def _filtered(node: Node) -> Node:
    """An aggregate of what its filter leaves, as one of all: what the filter does not leave is null."""
    from sqlglot import exp

    found, condition = node.this.copy(), node.expression.this
    of = found.this.expressions[0] if isinstance(found.this, exp.Distinct) else found.this
    one = isinstance(found, exp.Count) and (of is None or isinstance(of, exp.Star))
    if not isinstance(found, exp.AggFunc) or isinstance(found, exp.ArgMin | exp.ArgMax):
        _refuse(f"{_text(node)}: a filter is for aggregates of one expression")
    left = exp.Case().when(condition.copy(), exp.Literal.number(1) if one else of.copy())
    if isinstance(found.this, exp.Distinct):
        found.this.set("expressions", [left, *found.this.expressions[1:]])
    else:
        found.set("this", left)
    return found


def _there(of: Node) -> Node:
    """1 where there is a value, 0 where there is none."""
    from sqlglot import exp

    return exp.cast(exp.not_(exp.Is(this=of.copy(), expression=exp.null())), "bigint")


def _named(key: Node, items: list[Node]) -> Node:
    """The expression of a key of `group by`, which may name an item by its place or its alias."""
    from sqlglot import exp

    if isinstance(key, exp.Literal) and not key.is_string:
        place = int(key.name)
        if not 1 <= place <= len(items):
            _refuse(f"group by {place}: the query has {len(items)} columns")
        return items[place - 1].unalias()
    if isinstance(key, exp.Column) and not key.table:
        for item in items:
            if isinstance(item, exp.Alias) and item.alias == key.name:
                return item.this
    return key


def _items(items: list[Node], rows: _Rows) -> Iterator[pl.Expr]:
    from sqlglot import exp

    for item in items:
        if isinstance(item, exp.Star):
            if item.args.get("except_") or item.args.get("replace") or item.args.get("rename"):
                _refuse(f"{_text(item)}: name the columns")
            yield from _all(rows)
        else:
            yield _polars(item.unalias(), rows).alias(_name(item))


def _all(rows: _Rows) -> Iterator[pl.Expr]:
    """The columns of all tables, in order. One whose name has come before is `name:table`, as in Polars."""
    if len(rows.tables) == 1:
        yield pl.all()
        return
    given = set[str]()
    for table in rows.tables:
        for name, column in (rows.alone(table) or {}).items():
            yield pl.col(column).alias(f"{name}:{table}" if name in given else name)
            given.add(name)


def _selected(stream: Columns, chosen: list[pl.Expr]) -> Columns:
    """A row for each row, where no expression is a column, too: Polars' `select` gives one row for numbers alone."""
    if any(each.meta.is_column_selection(allow_aliasing=True) for each in chosen):
        return stream.select(*chosen)
    return stream.with_columns(*chosen).select(*(each.meta.output_name() for each in chosen))


def _polars(node: Node, rows: _Rows) -> pl.Expr:
    """An expression over the columns of `rows`."""
    from sqlglot import exp

    def column(each: Node) -> Node:
        if isinstance(each, exp.Window | exp.Subquery | exp.Exists):
            _refuse(f"{_text(each)}: not within an expression over streams")
        return exp.column(rows.column(each), quoted=True) if isinstance(each, exp.Column) else each

    try:
        return _expression(_replaced(node, column))
    except pl.exceptions.PolarsError as error:
        _refuse(f"{_text(node)}: {str(error).partition(chr(10))[0]}", error)


def _expression(node: Node) -> pl.Expr:
    """An expression that names columns of a stream. Raises PolarsError for what Polars does not know."""
    from sqlglot import exp

    around = exp.Paren(this=node.copy())
    for each in reversed(list(around.find_all(exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Func))):  # inner ones first
        each.replace(_said_to_polars(each))
    return pl.sql_expr(_text(around))


def _said_to_polars(node: Node) -> Node:
    """The expression that means in Polars' SQL what `node` means in SQL."""
    from sqlglot import exp

    copy = node.copy()
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return exp.Paren(this=copy)  # without, all that follows would be taken for its right side
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        value = copy.this if node.expression.this else exp.not_(copy.this)
        return exp.Coalesce(this=value, expressions=[exp.false()])  # of a null it would be null
    text = _text(node)
    if isinstance(node, exp.Func) and text.startswith(_NARROW) and not text.startswith("EXTRACT(EPOCH"):
        return exp.cast(copy, "bigint")
    return copy


def _replaced(node: Node, change: Callable[[Node], Node]) -> Node:
    """`node` with others in the place of those of its parts that `change` changes; these are not looked into further."""
    from sqlglot import exp

    around = exp.Paren(this=node.copy())
    todo = [around.this]
    while todo:
        part = todo.pop()
        new = change(part)
        if new is part:
            todo.extend(part.iter_expressions())
        else:
            part.replace(new)
    return around.this


def _name(item: Node) -> str:
    """The name of a column of the results."""
    return item.alias_or_name or _text(item)


def _text(node: Node) -> str:
    text: str = node.sql(dialect=_DIALECT)
    return text


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    raise GraphError(f"{user_site()}: sql: {why}") from cause
