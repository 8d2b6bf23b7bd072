"""Aggregates and `group by`, over rows and over windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import polars as pl

from libraries.columns import agg
from libraries.columns.agg import Aggregate
from libraries.columns.verbs.columns import Columns
from libraries.sql.expressions import Expression, expression, polars, refuse
from libraries.sql.nodes import Node, is_star, name_of, replaced, text
from libraries.sql.relations import Mode, Relation, computed
from libraries.sql.tables import Rows
from libraries.sql.windows import WindowCall, bound_of, check_outside, window_in


class _Names:
    """Names for computed columns: as in the query, made unique among its columns."""

    def __init__(self, schema: pl.Schema | None) -> None:
        self._known = schema is not None
        self._taken = set(schema or ())

    def name(self, node: Node) -> str:
        """Name for a computed column, taken by no other."""
        name = text(node).replace('"', "") + ("" if self._known else "()")
        while name in self._taken:
            name += "()"
        self._taken.add(name)
        return name


def totals(
    items: list[Node], keys: list[Node], having: Node | None, rows: Rows, mode: Mode
) -> tuple[Relation, list[Expression]]:
    """Totals of each group, and the query's result expressions over them."""
    from sqlglot import exp

    window, keys = window_in([_named(key, items) for key in keys])
    if having is not None and window is None:
        mode.check_taking_back("having")
    if having is not None:
        having = _without_aliases(having, items, keys, rows)
    if any(map(is_star, items)):
        refuse("select * beside aggregates: name the keys")
    made: list[Expression] = []
    names: dict[str, str] = {}
    of_columns: dict[str, str] = {}
    free = _Names(rows.relation.schema)
    for key in keys:
        column = rows.column(key) if isinstance(key, exp.Column) else None
        name = column
        if name is None or window is not None:  # windows have columns of their own, which may have the name of a key
            name = free.name(key)
            made.append(polars(key, rows.column, rows.relation.schema).alias(name))
        names[text(key)] = name
        if column is not None:
            of_columns[column] = name
    of_key = list(dict.fromkeys(names.values()))
    aggregates: dict[str, Aggregate] = {}
    results: dict[str, Node] = {}
    inputs: dict[str, str] = {}

    def input_of(node: Node) -> str:
        if isinstance(node, exp.Column):
            return rows.column(node)
        if (column := inputs.get(text(node))) is None:
            column = inputs[text(node)] = free.name(node)
            made.append(polars(node, rows.column, rows.relation.schema).alias(column))
        return column

    for whole in [
        each for item in (*items, *filter(None, [having])) for each in item.find_all(exp.Filter, exp.AggFunc)
    ]:
        if isinstance(whole.parent, exp.Filter | exp.WithinGroup) or text(whole) in names:
            continue
        column = names[text(whole)] = free.name(whole)
        node = _filtered(whole) if isinstance(whole, exp.Filter) else whole
        aggregates[column] = _aggregate(node, input_of)
        found, other = (exp.column(each, quoted=True) for each in (column, f"any of {column}"))
        results[column] = found
        taken_back = rows.relation.taken_back
        if isinstance(node, exp.Sum):  # of no values it is null
            there = input_of(_there(node.this))
            aggregates[other.name] = agg.sum(there) if taken_back else agg.max(there)
            results[column] = exp.Case().when(exp.GT(this=other, expression=exp.Literal.number(0)), found)
        if aggregates[column].kind == "n_unique":  # null is no value
            of = node.this.expressions[0]
            if taken_back:
                aggregates[other.name] = agg.sum(input_of(_missing(of)))
                some = exp.Case().when(other.eq(0), exp.Literal.number(0)).else_(exp.Literal.number(1))
                results[column] = exp.Paren(this=found - exp.Paren(this=some))
            else:
                aggregates[other.name] = agg.min(input_of(_there(of)))
                results[column] = exp.Paren(this=found + other - 1)
    if not aggregates:
        aggregates["total 0()"] = agg.count()
    if window is not None:
        found_totals = Relation(_in_windows(window, rows, made, of_key, aggregates, mode, input_of))
    else:
        stream = rows.relation.settled("an aggregate")
        stream = computed(stream, "with_columns", *made) if made else stream
        given = cast(Any, aggregates)
        found_totals = Relation(
            stream.group_by(*of_key).agg(over=mode.over, changes=mode.changes, **given)
            if of_key
            else stream.agg(over=mode.over, changes=mode.changes, **given),
            replaces=mode.running and not mode.changes,
        )

    def result(node: Node) -> Node:
        """Part of a result with keys and aggregates replaced by columns."""
        column = names.get(text(node)) or bound_of(window, node)
        if column is not None:
            return results[column].copy() if column in results else exp.column(column, quoted=True)
        if isinstance(node, exp.Anonymous):
            check_outside(node)
        if isinstance(node, exp.Column):
            if (of := of_columns.get(rows.column(node))) is not None:
                return exp.column(of, quoted=True)
            refuse(f"column {text(node)!r} must be in group by, or in an aggregate")
        return node

    if having is not None:
        condition = expression(replaced(having.this, result), found_totals.schema, having.this)
        kept = computed(found_totals.stream, "filter", condition)
        found_totals = Relation(kept, found_totals.replaces)
    schema = found_totals.schema
    return found_totals, [
        expression(replaced(item, result), schema, item).alias(name)
        for item, name in ((each.unalias(), name_of(each)) for each in items)
    ]


def _in_windows(
    window: WindowCall,
    rows: Rows,
    made: list[Expression],
    keys: list[str],
    aggregates: dict[str, Aggregate],
    mode: Mode,
    input_of: Callable[[Node], str],
) -> Columns:
    """Totals of windows, emitted when the windows close."""
    stream = rows.relation.settled("a window")
    if rows.relation.taken_back:
        refuse(
            "a window of rows that are taken back: a window that has closed is told once; say over='time', or windows first"
        )
    time = input_of(window.time)
    stream = computed(stream, "with_columns", *made) if made else stream
    windows = stream.window(window.shape, time=time, lateness=mode.lateness)
    return (windows.group_by(*keys) if keys else windows).agg(**cast(Any, aggregates))


def _aggregate(node: Node, input_of: Callable[[Node], str]) -> Aggregate:
    from sqlglot import exp

    of = node.this
    if isinstance(node, exp.Count):
        if of is None or isinstance(of, exp.Star):
            return agg.count()
        if isinstance(of, exp.Distinct) and len(of.expressions) == 1:
            return agg.n_unique(input_of(of.expressions[0]))
        if isinstance(of, exp.Distinct) or node.expressions:
            refuse(f"{text(node)}: count takes *, one expression, or distinct and one expression")
        return agg.sum(input_of(_there(of)))
    if isinstance(node, exp.ArgMin | exp.ArgMax) and not node.args.get("count"):
        ends = agg.first if isinstance(node, exp.ArgMin) else agg.last
        return ends(input_of(of), order_by=input_of(node.expression))
    if isinstance(node, exp.ApproxQuantile) and set(node.args) <= {"this", "quantile"}:
        share = node.args["quantile"]
        if not isinstance(share, exp.Literal) or share.is_string or not 0 <= float(share.name) <= 1:
            refuse(f"{text(node)}: a quantile is a number from 0 to 1")
        return agg.quantile(input_of(of), float(share.name))
    makers: dict[Any, Callable[[str], Aggregate]] = {
        exp.Sum: agg.sum,
        exp.Min: agg.min,
        exp.Max: agg.max,
        exp.Avg: agg.mean,
        exp.Median: agg.median,
    }
    makers |= {exp.Variance: agg.var, exp.Stddev: agg.std, exp.StddevSamp: agg.std}
    makers |= {exp.VariancePop: partial(agg.var, ddof=0), exp.StddevPop: partial(agg.std, ddof=0)}
    makers |= {exp.LogicalAnd: agg.min, exp.LogicalOr: agg.max}
    maker = makers.get(type(node))
    if maker is None or isinstance(of, exp.Distinct):
        refuse(
            f"{text(node)}: aggregates are count, sum, min, max, avg, median, variance, var_pop, stddev, stddev_pop, bool_and, "
            "bool_or, arg_min, arg_max and approx_quantile"
        )
    return maker(input_of(of))


def _filtered(node: Node) -> Node:
    """Aggregate with a `filter` as a plain aggregate: rejected rows become null."""
    from sqlglot import exp

    found, condition = node.this.copy(), node.expression.this
    of = found.this.expressions[0] if isinstance(found.this, exp.Distinct) else found.this
    one = isinstance(found, exp.Count) and (of is None or isinstance(of, exp.Star))
    if not isinstance(found, exp.AggFunc) or isinstance(found, exp.ArgMin | exp.ArgMax):
        refuse(f"{text(node)}: a filter is for aggregates of one expression")
    left = exp.Case().when(condition.copy(), exp.Literal.number(1) if one else of.copy())
    if isinstance(found.this, exp.Distinct):
        found.this.set("expressions", [left, *found.this.expressions[1:]])
    else:
        found.set("this", left)
    return found


def _there(of: Node) -> Node:
    """Integer 1 for a value, 0 for a null."""
    from sqlglot import exp

    return exp.cast(exp.not_(exp.Is(this=of.copy(), expression=exp.null())), "bigint")


def _missing(of: Node) -> Node:
    """Integer 0 for a value, 1 for a null."""
    from sqlglot import exp

    return exp.cast(exp.Paren(this=exp.Is(this=of.copy(), expression=exp.null())), "bigint")


def _without_aliases(having: Node, items: list[Node], keys: list[Node], rows: Rows) -> Node:
    """`having` with aliases replaced by their expressions, unless they name columns."""
    from sqlglot import exp

    aliases = {item.alias: item.this for item in items if isinstance(item, exp.Alias)}
    as_sql = set(map(text, keys))

    def meant(node: Node) -> Node:
        if isinstance(node, exp.AggFunc):
            return node.copy()
        if not isinstance(node, exp.Column) or node.table or text(node) in as_sql or rows.knows(node.name):
            return node
        return exp.Paren(this=aliases[node.name].copy()) if node.name in aliases else node

    return exp.Having(this=replaced(having.this, meant))


def _named(key: Node, items: list[Node]) -> Node:
    """Expression of a key of `group by`, which may be an item's place or alias."""
    from sqlglot import exp

    if isinstance(key, exp.Literal) and not key.is_string:
        if not key.name.isdigit() or not 1 <= int(key.name) <= len(items):
            refuse(f"group by {key.name}: a number is the place of a column of the query, from 1 to {len(items)}")
        return items[int(key.name) - 1].unalias()
    if isinstance(key, exp.Column) and not key.table:
        for item in items:
            if isinstance(item, exp.Alias) and item.alias == key.name:
                return item.this
    return key
