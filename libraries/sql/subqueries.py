"""Conversion of conditions to joins: tables listed in `from`, and subqueries.

`in` and `exists` become semi and anti joins, a query as a value a join with its total, on the columns that it takes from
outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import polars as pl

from libraries.sql.expressions import check_known, refuse
from libraries.sql.nodes import Node, replaced, text
from libraries.sql.relations import Mode, Relation
from libraries.sql.tables import Rows, join, table

Compile = Callable[[Node], Relation]


def conjuncts(condition: Node | None) -> list[Node]:
    """Conditions joined by `and`, with factors common to all branches of an `or`."""
    from sqlglot import exp

    if condition is None:
        return []
    found: list[Node] = []
    for each in _flat(condition, exp.And):
        branches = [_flat(branch, exp.And) for branch in _flat(each, exp.Or)]
        common = [one for one in branches[0] if len(branches) > 1 and all(one in branch for branch in branches)]
        found += common
        rest = [[one for one in branch if one not in common] for branch in branches]
        if not common:
            found.append(each)
        elif all(rest):
            found.append(exp.or_(*(exp.and_(*branch) for branch in rest)))
    return found


def _flat(node: Node, kind: Any) -> list[Node]:
    node = node.unnest()
    return [part for each in node.flatten() for part in _flat(each, kind)] if isinstance(node, kind) else [node]


def has_query(node: Node) -> bool:
    """True if an expression contains a query."""
    from sqlglot import exp

    return node.find(exp.Query) is not None


def listed(rows: Rows, others: list[tuple[Node, Rows]], conditions: list[Node], mode: Mode) -> tuple[Rows, list[Node]]:
    """Join of all tables of `from` in a feasible order, and the remaining conditions."""
    from sqlglot import exp

    left, todo = list(conditions), list(others)
    while todo:
        for place, (as_sql, other) in enumerate(todo):
            if as_sql.args.get("on") or as_sql.args.get("using") or as_sql.kind not in ("", "CROSS") or as_sql.side:
                if place and not _are_known(as_sql.args.get("on"), rows, other):
                    continue
                rows = join(rows, other, as_sql, mode)
            else:
                equal = [each for each in left if _meet(each, rows, other)]
                if not equal:
                    continue
                left = [each for each in left if not any(each is one for one in equal)]
                rows = join(rows, other, exp.Join(this=as_sql.this, on=exp.and_(*equal)), mode)
            del todo[place]
            break
        else:
            refuse(
                f"{text(todo[0][0].this)}: no condition of where says which of its columns equals one of the tables before"
            )
    return rows, left


def _are_known(on: Node | None, *sides: Rows) -> bool:
    from sqlglot import exp

    return on is None or all(any(_has(side, each) for side in sides) for each in on.find_all(exp.Column))


def _has(rows: Rows, column: Node) -> bool:
    names = rows.tables.get(column.table, ()) if column.table else None
    return rows.knows(column.name) if names is None else column.name in (names or ())


def _meet(condition: Node, one: Rows, other: Rows) -> bool:
    from sqlglot import exp

    if not isinstance(condition, exp.EQ):
        return False
    sides = condition.this, condition.expression
    if not all(isinstance(each, exp.Column) for each in sides):
        return False
    return any(_has(one, a) and _has(other, b) and not _has(other, a) for a, b in (sides, sides[::-1]))


@dataclass
class Conditions:
    """Compiler of conditions with subqueries into joins."""

    compile: Compile
    own: Callable[[Node], Rows]
    """Function from a query to the tables in its `from`, with their columns."""
    mode: Mode
    _made: int = field(default=0)

    def hold(self, rows: Rows, conditions: Iterable[Node]) -> Rows:
        """Rows filtered by all conditions."""
        for each in conditions:
            rows = self._one(rows, each)
        return rows

    def _one(self, rows: Rows, condition: Node) -> Rows:
        from sqlglot import exp

        no = isinstance(condition, exp.Not)
        inner = condition.this.unnest() if no else condition
        if isinstance(inner, exp.Exists):
            return self._exists(rows, inner.this, no)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            query = inner.args["query"]
            return self._is_in(rows, inner.this, query.this if isinstance(query, exp.Subquery) else query, no)
        if not has_query(condition):
            return rows.filter("where", condition)
        if any(has_query(each) for each in condition.find_all(exp.Exists, exp.In) if _within(each, condition)):
            check_known(condition)
        for each in list(condition.find_all(exp.Subquery)):
            if not _within(each, condition):
                continue
            rows, column = self._value(rows, each.this)
            condition = replaced(condition, partial(_in_place_of, each, column))
        return rows.filter("where", condition)

    def _parted(self, query: Node, what: str) -> tuple[Node, list[tuple[Node, Node]], list[Node]]:
        """Query without correlated conditions; its equal columns (outside, own); the rest."""
        from sqlglot import exp

        if not isinstance(query, exp.Select) or query.args.get("limit"):
            refuse(f"{what}: say a join in its place: it is understood of select ... from ... where")
        own = self.own(query)
        equal: list[tuple[Node, Node]] = []
        rest: list[Node] = []
        mine: list[Node] = []
        where = query.args.get("where")
        for each in conjuncts(where and where.this):
            outside = [column for column in _columns(each) if not _has(own, column)]
            if not outside:
                mine.append(each)
            elif isinstance(each, exp.EQ) and len(outside) == 1 and outside[0] in (each.this, each.expression):
                other = each.expression if outside[0] is each.this else each.this
                equal.append((outside[0], other))
            else:
                rest.append(each)
        made = query.copy()
        made.set("where", exp.Where(this=exp.and_(*mine)) if mine else None)
        return made, equal, rest

    def _joined(self, rows: Rows, query: Node, keys: list[tuple[Node, Node]], kind: str) -> tuple[Rows, str]:
        """Join with a query on its columns `key 0`, `key 1` ..., and the query's alias."""
        from sqlglot import exp

        self._made += 1
        name = f"query {self._made}()"
        pairs = [
            exp.EQ(this=mine.copy(), expression=exp.column(f"key {n}", name, quoted=True))
            for n, (mine, _) in enumerate(keys)
        ]
        relation = self.compile(query)
        if not pairs:
            rows = replace(rows, relation=_with_one(rows.relation))
            relation = _with_one(relation)
            rows = replace(rows, tables={**rows.tables, "one()": {_ONE: _ONE}})
            pairs = [
                exp.EQ(this=exp.column(_ONE, "one()", quoted=True), expression=exp.column(_ONE, name, quoted=True))
            ]
        as_sql = exp.Join(this=exp.to_table("query"), on=exp.and_(*pairs))
        if kind in ("LEFT",):
            as_sql.set("side", kind)
        elif kind:
            as_sql.set("kind", kind)
        tables = dict(rows.tables)
        tables.pop("one()", None)
        found = join(rows, table(name, relation), as_sql, self.mode)
        kept = {each: names for each, names in found.tables.items() if each != "one()"}
        if _ONE in (found.relation.schema or ()):
            found = replace(found, relation=Relation(found.relation.stream.drop(_ONE), found.relation.replaces))
            kept = {
                each: names and {key: at for key, at in names.items() if at != _ONE} for each, names in kept.items()
            }
        return replace(found, tables=kept), name

    def _keyed(self, query: Node, keys: list[tuple[Node, Node]], items: list[Node]) -> Node:
        from sqlglot import exp

        made = query.copy()
        made.set(
            "expressions",
            [*(exp.alias_(own.copy(), f"key {n}", quoted=True) for n, (_, own) in enumerate(keys)), *items],
        )
        return made

    def _exists(self, rows: Rows, query: Node, no: bool) -> Rows:
        from sqlglot import exp

        as_sql = f"exists ({text(query)})"
        query, keys, rest = self._parted(query, as_sql)
        if not keys:
            refuse(f"{as_sql}: which of its columns equals one from outside?")
        if not rest:
            return self._joined(rows, self._keyed(query, keys, []), keys, "ANTI" if no else "SEMI")[0]
        own = self.own(query)
        (each,) = rest if len(rest) == 1 else (None,)
        pair = (each.this, each.expression) if isinstance(each, exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE) else ()
        mine = [part for part in pair if isinstance(part, exp.Column) and _has(own, part)]
        if len(mine) != 1 or query.args.get("group"):
            refuse(f"{as_sql}: beside equal columns, one comparison of a column with one from outside is known")
        items = [exp.alias_(kind(this=mine[0].copy()), name) for kind, name in ((exp.Min, "low"), (exp.Max, "high"))]
        made = self._keyed(query, keys, items)
        made.set("group", exp.Group(expressions=[own_.copy() for _, own_ in keys]))
        rows, name = self._joined(rows, made, keys, "LEFT" if no else "")
        either = exp.or_(
            *(
                replaced(each, partial(_in_place_of, mine[0], exp.column(end, name, quoted=True)))
                for end in ("low", "high")
            )
        )
        holds = exp.Coalesce(this=exp.Paren(this=either), expressions=[exp.false()])
        return rows.filter("where", exp.not_(holds) if no else holds)

    def _is_in(self, rows: Rows, value: Node, query: Node, no: bool) -> Rows:
        from sqlglot import exp

        as_sql = f"{text(value)} in ({text(query)})"
        if not isinstance(value, exp.Column):
            refuse(f"{as_sql}: the value must be a column: make it one in a query around")
        if isinstance(query, exp.Select) and len(query.expressions) != 1:
            refuse(f"{as_sql}: the query must have one column")
        query, keys, rest = self._parted(query, as_sql)
        if rest:
            refuse(f"{as_sql}: beside equal columns it takes none from outside")
        item = query.expressions[0].unalias()
        made = [(value, item), *keys]
        if not no:
            return self._joined(rows, self._keyed(query, made, []), made, "SEMI")[0]
        if keys:
            refuse(f"not {as_sql}: say not exists: a null among its values makes not in false")
        # Of a null, and where there is one among the values, not in is not true.
        inner = exp.select(
            exp.alias_(exp.Count(this=exp.Star()), "there"),
            exp.alias_(exp.Count(this=exp.column("key 0", quoted=True)), "known"),
        ).from_(self._keyed(query, made, []).subquery("inside"))
        rows, name = self._joined(rows, inner, [], "LEFT")
        there, known = (
            exp.Coalesce(this=exp.column(each, name), expressions=[exp.Literal.number(0)])
            for each in ("there", "known")
        )
        rows = rows.filter("where", exp.EQ(this=there, expression=known))
        rows = rows.filter(
            "where",
            exp.or_(
                exp.not_(exp.Is(this=value.copy(), expression=exp.null())),
                exp.EQ(this=there.copy(), expression=exp.Literal.number(0)),
            ),
        )
        return self._joined(rows, self._keyed(query, made, []), made, "ANTI")[0]

    def _value(self, rows: Rows, query: Node) -> tuple[Rows, Node]:
        """Rows joined with the value of an aggregate subquery, and its column."""
        from sqlglot import exp

        as_sql = f"({text(query)})"
        query, keys, rest = self._parted(query, as_sql)
        total = len(query.expressions) == 1 and query.expressions[0].find(exp.AggFunc) is not None
        if rest or not total or query.args.get("group"):
            refuse(
                f"{as_sql}: a query as a value is a total, with columns from outside only in equalities; if not, join with it"
            )
        if query.expressions[0].find(exp.Count) is not None and keys:
            refuse(
                f"{as_sql}: a count is 0 where there are no rows: left join a query that counts, and say coalesce(n, 0)"
            )
        made = self._keyed(query, keys, [exp.alias_(query.expressions[0].unalias().copy(), "total")])
        if keys:
            made.set("group", exp.Group(expressions=[own.copy() for _, own in keys]))
        rows, name = self._joined(rows, made, keys, "")
        return rows, exp.column("total", name, quoted=True)


_ONE = "one()"


def _with_one(of: Relation) -> Relation:
    return replace(of, stream=of.stream.with_columns(pl.lit(1, pl.Int64).alias(_ONE)))


def _in_place_of(old: Node, new: Node, node: Node) -> Node:
    return new.copy() if node == old else node


def _columns(node: Node) -> list[Node]:
    """Columns of a condition, without those of its subqueries."""
    from sqlglot import exp

    if isinstance(node, exp.Query):
        return []
    if isinstance(node, exp.Column):
        return [node]
    return [column for each in node.iter_expressions() for column in _columns(each)]


def _within(each: Node, condition: Node) -> bool:
    """True if a query is in the condition itself, not in another query of it."""
    node = each.parent
    while node is not None and node is not condition:
        if node.key in ("subquery", "select"):
            return False
        node = node.parent
    return True
