"""`sql("select ...", s=stream)`: a query compiled to operators on columns.

sqlglot parses the statement; Polars' own SQL reads the expressions in it. What a stream cannot do is refused by name: rows that
would have to be taken back, where nobody has asked for that, and an order of rows that go on coming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, cast

import polars as pl

from libraries.columns.verbs.columns import Columns
from libraries.sql.aggregates import totals
from libraries.sql.expressions import Expression, check_known, listed, output_of, polars, refuse
from libraries.sql.nodes import DIALECT, Node, is_star, name_of, replaced, text
from libraries.sql.orders import order_of, ordered
from libraries.sql.pushdown import filtered, narrowed
from libraries.sql.relations import Mode, Relation, computed, distinct, united
from libraries.sql.subqueries import Conditions, conjuncts, has_query
from libraries.sql.subqueries import listed as listed_tables
from libraries.sql.tables import Rows, join, table
from libraries.sql.windows import check_outside, has_window
from timely.dataflow.keyed import Over, check_over
from timely.errors import GraphError, user_site
from timely.operators.window_shapes import Length

_CLAUSES = {
    *("expressions", "from_", "joins", "where", "group", "having", "distinct", "with_", "this", "expression"),
    *("order", "limit", "offset"),
}
"""Supported clauses of a query; any other is an error that quotes its text."""


def sql(
    query: str,
    *unnamed: Any,
    over: Over = "scope",
    changes: bool = False,
    lateness: Length | None = None,
    **streams: Columns,
) -> Columns:
    """Results of a query over streams of columns by name.

    `select`, `where`, `join` (inner, left, right, full, semi, anti), `group by` with `count`, `sum`, `min`, `max`, `avg`,
    `variance`, `stddev`, `var_pop`, `stddev_pop`, `count(distinct x)`, `bool_and`, `bool_or`, these with `filter (where ...)`,
    `arg_min(x, y)` and `arg_max`, `median(x)` and `approx_quantile(x, 0.9)` (`agg.median`, `agg.quantile`: within 1 %),
    `having`, `distinct`, `union`, `union all`, `order by`, `limit`, subqueries, `in`, `exists` and `with`. Expressions
    are those of Polars' SQL, but integers do not wrap round: what does not fit into 64 bits with a sign is an
    OperatorError. As in PostgreSQL, nulls come last in `order by`, and first with `desc`: say `desc nulls last`.

    Windows of event time are among the keys of `group by`: `tumble(at, interval '10 seconds')`, `hop(at, slide, size)`,
    `session(at, gap)`; `tumble_start(...)` and `tumble_end(...)`, with the same arguments, are their bounds. Of integers,
    lengths are numbers. `lateness` is that of `Columns.window`; rows that are later are in no window.

    Args:
        over: "scope": totals, joins and distinct rows run on; what comes out are changed totals and new rows. "time": each
            epoch is a query by itself, and `order by` puts its rows in order.
        changes: of results over all epochs: all that comes out is `Changes`, whose signs add up to what SQL gives of all rows
            so far. Needed where a row may have to be taken back: for left, right, full and anti joins, `having`, `order by`
            with `limit`, and totals of totals.

    Raises:
        GraphError: with the user's line, for SQL that cannot be read, and for what streams cannot do.

    >>> import polars as pl
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"shop": ["n", "s", "n"], "price": [3, 4, 5]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
    >>> sales = flow.columns("sales", falkirk.Batches(days))
    >>> totals = falkirk.sql("select shop, sum(price) / count(*) as mean from sales where price > 3 group by shop", sales=sales)
    >>> seen = totals.capture("out")
    >>> [pl.DataFrame(batch).sort("shop").rows() for _, batch in falkirk.run(flow).captured("out")]
    [[('n', 5.0), ('s', 4.0)], [('s', 5.0)]]

    The shop that has sold most, as changes:

    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches(days))
    >>> query = "select shop, sum(price) as sold from sales group by shop order by sold desc limit 1"
    >>> seen = falkirk.sql(query, sales=sales, changes=True).capture("out")
    >>> [pl.DataFrame(batch).rows() for _, batch in falkirk.run(flow).captured("out")]
    [[('n', 8, 1)], [('n', 8, -1), ('s', 10, 1)]]
    """
    if unnamed:
        raise GraphError(
            f"{user_site()}: sql takes streams by the names that the query has for them: sql(query, name=stream)"
        )
    if check_over(over, "sql") < changes:
        raise GraphError(f"{user_site()}: sql(changes=True) is of results over all epochs: over='scope'")
    for name, stream in streams.items():
        if not isinstance(stream, Columns):
            raise GraphError(f"{user_site()}: sql({name}=...) takes a stream of columns, not {stream!r}")
    try:
        import sqlglot
    except ImportError as error:
        raise GraphError(f"{user_site()}: sql() needs sqlglot: pip install 'falkirk[sql]'") from error
    try:
        statements = sqlglot.parse(query, dialect=_dialect())
    except (sqlglot.ParseError, sqlglot.TokenError) as error:
        hint = "; a whole quotient is div(a, b), and a comment begins with --" if "//" in query else ""
        raise GraphError(f"{user_site()}: sql: {str(error).partition(chr(10))[0]}{hint}") from error
    if statements[0] is None:
        raise GraphError(f"{user_site()}: sql() takes a query, and this one is empty: select ... from ...")
    if len(statements) != 1:
        raise GraphError(f"{user_site()}: sql() takes one query, not {len(statements)}")
    if lateness is not None and not has_window(statements[0]):
        raise GraphError(f"{user_site()}: sql(lateness=...) is of windows in group by, and there is none")
    relations = {name: Relation(stream) for name, stream in streams.items()}
    found = _Compiler(Mode(over, changes, lateness), relations).query(statements[0])
    return found.signed() if changes else found.stream


@cache
def _dialect() -> Any:
    """PostgreSQL's dialect with `session` as the name of a function."""
    from sqlglot import tokens
    from sqlglot.dialects.postgres import Postgres

    base: Any = Postgres.Parser
    parser = type("Parser", (base,), {"FUNC_TOKENS": {*base.FUNC_TOKENS, cast(Any, tokens).TokenType.SESSION}})
    return type("FalkirkSql", (Postgres,), {"Parser": parser})


class _Compiler:
    """Compiler of queries over named streams."""

    def __init__(self, mode: Mode, streams: Mapping[str, Relation]) -> None:
        self._mode = mode
        self._streams = dict(streams)

    def query(self, node: Node) -> Relation:
        """Results of a select or a union."""
        from sqlglot import exp

        inside = self
        if (common := node.args.get("with_")) is not None:
            if common.args.get("recursive"):
                refuse(f"{text(common)}: what goes round is Columns.iterate")
            inside = _Compiler(self._mode, self._streams)
            for each in common.expressions:
                columns = [column.name for column in each.args["alias"].args.get("columns") or ()]
                inside._streams[each.alias] = _renamed(inside.query(each.this), columns, each)
        if isinstance(node, exp.Subquery):
            self._only(node)
            return inside.query(node.this)
        if isinstance(node, exp.Union):
            self._only(node)
            return inside._union(node)
        if isinstance(node, exp.Except | exp.Intersect):
            refuse(f"{text(node)}: say anti join, or semi join, on all columns, in the place of except and intersect")
        if not isinstance(node, exp.Select):
            refuse(f"{text(node)}: sql() takes queries: select ... from ...")
        self._only(node)
        return inside._select(node)

    @staticmethod
    def _only(node: Node) -> None:
        for clause, given in node.args.items():
            if given and clause not in _CLAUSES:
                as_sql = text(given[0] if isinstance(given, list) else given)
                refuse(f"{as_sql.strip()}: it has no meaning over streams")

    def _union(self, node: Node) -> Relation:
        from sqlglot import exp

        parts = [self.query(node.this), self.query(node.expression)]
        first, second = (part.schema for part in parts)
        if first is not None and second is not None:
            if len(first) != len(second):
                refuse(f"union of {len(first)} columns with {len(second)}")
            if list(first) != list(second):
                names = (pl.col(name).alias(new) for name, new in zip(second, first, strict=True))
                parts[1] = replace(parts[1], stream=parts[1].stream.select(*names))
        found = united(parts)
        if node.args.get("distinct"):
            found = self._distinct("union", found)
        order = order_of(node, [exp.column(name) for name in first or ()], distinct=True)
        return found if order is None else ordered(found, order, self._mode)

    def _distinct(self, what: str, found: Relation) -> Relation:
        if found.schema is None:
            refuse(f"{what} is of all columns, which must be known: see Columns.schema")
        return Relation(distinct(found, list(found.schema), self._mode.over))

    def _select(self, node: Node) -> Relation:
        from sqlglot import exp

        having = node.args.get("having")
        if having is not None and has_query(having):
            return self.query(_of_groups(node))
        rows, conditions = self._from(node)
        if conditions:
            plain = [each for each in conditions if not has_query(each)]
            where = exp.Where(
                this=exp.and_(*(each.copy() for each in plain)) if len(plain) > 1 else (plain or conditions)[0]
            )
            if any(list(each.find_all(exp.AggFunc)) for each in plain):
                refuse(f"{text(where)}: an aggregate belongs into having, or into a query around this one")
            for each in plain:
                check_known(each)
                check_outside(each)
            if plain:
                rows = rows.filter("where", where.this)
            rows = Conditions(self.query, self._names, self._mode).hold(
                rows, [each for each in conditions if has_query(each)]
            )
        group = node.args.get("group")
        if group is not None and any(given for clause, given in group.args.items() if clause != "expressions"):
            refuse(f"{text(group)}: group by takes columns and expressions")
        once = node.args.get("distinct")
        order = order_of(node, node.expressions, distinct=once is not None)
        items = [*node.expressions, *(order.extra if order is not None else ())]
        for each in (*items, *filter(None, [group, having])):
            check_known(each.unalias())
        if group is not None or any(item.find(exp.AggFunc) for item in items):
            found, chosen = totals(items, group.expressions if group is not None else [], having, rows, self._mode)
        elif having is not None:
            refuse(f"{text(having)}: there is no aggregate; say where")
        else:
            for item in items:
                check_outside(item)
            found, chosen = rows.relation, list(_items(items, rows))
        found = replace(found, stream=_selected(found.stream, chosen))
        if once is not None:
            if once.args.get("on") is not None:
                refuse(f"{text(once)}: the first row of each key is that of group_by(...).top_k(1, by=...)")
            found = self._distinct("select distinct", found)
        return found if order is None else ordered(found, order, self._mode)

    def _from(self, node: Node) -> tuple[Rows, list[Node]]:
        """Rows of all tables, and the remaining conditions of `where`."""
        if (of := node.args.get("from_")) is None:
            refuse(f"{text(node)}: a query over streams needs from")
        joins, where = node.args.get("joins") or (), node.args.get("where")
        tables = [self._table(each.this) for each in (of, *joins)]
        conditions = conjuncts(where and where.this)
        if not joins:
            return tables[0], conditions if any(map(has_query, conditions)) else [where.this] if where else []
        tables, conditions = filtered(narrowed(tables, node), joins, conditions)
        rows, *others = tables
        if any(map(_is_listed, joins)):
            return listed_tables(rows, list(zip(joins, others, strict=True)), conditions, self._mode)
        for each, other in zip(joins, others, strict=True):
            rows = join(rows, other, each, self._mode)
        return rows, conditions

    def _names(self, node: Node) -> Rows:
        """Tables of a query with the names of their columns."""
        from sqlglot import exp

        tables: dict[str, dict[str, str] | None] = {}
        of = node.args.get("from_")
        for each in [*filter(None, [of]), *(node.args.get("joins") or ())]:
            as_sql = each.this
            if isinstance(as_sql, exp.Subquery):
                names = as_sql.this.named_selects
                known = None if "*" in names else names
            else:
                relation = self._streams.get(as_sql.name)
                known = None if relation is None or relation.schema is None else list(relation.schema)
            tables[as_sql.alias_or_name] = None if known is None else {name: name for name in known}
        return Rows(next(iter(self._streams.values())), tables)

    def _table(self, node: Node) -> Rows:
        from sqlglot import exp

        alias = node.args.get("alias")
        others = any(given for clause, given in node.args.items() if clause not in ("this", "alias", "with_"))
        columns = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
        if others:
            refuse(f"{text(node)}: from takes names of streams and subqueries, with a name, and no more")
        if isinstance(node, exp.Subquery):
            return table(node.alias, _renamed(self.query(node.this), columns, node))
        if "TUMBLE" in (as_sql := text(node).upper()) or "HOP(" in as_sql:
            refuse(
                f"{text(node)}: windows are keys here: select ..., tumble_start(at, interval '1 minute') from stream group by "
                "tumble(at, interval '1 minute')"
            )
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            refuse(f"{text(node)}: from takes names of streams and subqueries")
        if node.name not in self._streams:
            refuse(f"no stream {node.name!r}; there are {listed(self._streams)}: sql(query, {node.name}=stream)")
        return table(node.alias_or_name, _renamed(self._streams[node.name], columns, node))


def _is_listed(join: Node) -> bool:
    """True for a table in a comma-separated list, without a join condition."""
    return not (join.args.get("on") or join.args.get("using") or join.side or join.method) and join.kind in (
        "",
        "CROSS",
    )


def _renamed(relation: Relation, columns: list[str], node: Node) -> Relation:
    """Rows with columns renamed by an alias."""
    if not columns:
        return relation
    schema = relation.schema
    if schema is None or len(schema) != len(columns):
        refuse(f"{text(node)}: it has {'unknown' if schema is None else len(schema)} columns, not {len(columns)}")
    names = (pl.col(old).alias(new) for old, new in zip(schema, columns, strict=True))
    return replace(relation, stream=relation.stream.select(*names))


def _of_groups(node: Node) -> Node:
    """Query with subqueries in `having`, rewritten as `where` over a grouped subquery."""
    from sqlglot import exp

    inner, condition = node.copy(), node.args["having"].this
    outer = exp.select(*(exp.column(name_of(item), quoted=True) for item in node.expressions))
    for clause in ("having", "order", "limit", "offset", "with_"):
        inner.set(clause, None)
        if clause in ("order", "limit", "offset"):
            outer.set(clause, node.args.get(clause) and node.args[clause].copy())
    made: dict[str, str] = {}

    def total(each: Node) -> Node:
        if isinstance(each, exp.Query):
            return each.copy()
        if not isinstance(each, exp.AggFunc):
            return each
        name = made.setdefault(text(each), f"having {len(made)}")
        return exp.column(name, quoted=True)

    condition = replaced(condition, total)
    totals = [exp.alias_(exp.maybe_parse(as_sql, dialect=DIALECT), name, quoted=True) for as_sql, name in made.items()]
    items = [exp.alias_(item.unalias().copy(), name_of(item), quoted=True) for item in node.expressions]
    inner.set("expressions", [*items, *totals])
    return outer.from_(inner.subquery("groups")).where(condition)


def _items(items: list[Node], rows: Rows) -> Iterator[Expression]:
    given = set[str]()
    for item in items:
        if is_star(item):
            star = item.this if item.args.get("table") else item
            if star.args.get("except_") or star.args.get("replace") or star.args.get("rename"):
                refuse(f"{text(item)}: name the columns")
            yield from rows.all_of(item.table, given) if star is not item else rows.all(given)
        else:
            yield polars(item.unalias(), rows.column, rows.relation.schema).alias(name_of(item))


def _selected(stream: Columns, chosen: list[Expression]) -> Columns:
    """Projection with a row for each input row, even for constants only."""
    if any(isinstance(each, pl.Expr) and each.meta.is_column_selection(allow_aliasing=True) for each in chosen):
        return computed(stream, "select", *chosen)
    return computed(stream, "with_columns", *chosen).select(*map(output_of, chosen))
