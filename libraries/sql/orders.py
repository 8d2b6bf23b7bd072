"""`order by` and `limit`: sorted rows of each epoch, or the first few rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from libraries.sql.expressions import refuse
from libraries.sql.nodes import Node, is_star, name_of, text
from libraries.sql.relations import Mode, Relation


@dataclass(frozen=True, slots=True)
class By:
    """Column to sort by."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Order:
    """Sort order of a query, with its limit.

    `extra`: columns computed for the order alone.
    """

    text: str
    by: Sequence[By]
    limit: int | None
    extra: Sequence[Node]


def order_of(node: Node, items: Sequence[Node], distinct: bool) -> Order | None:
    """Sort order of a query; None if it has neither `order by` nor `limit`.

    `distinct`: all sort columns must be among the results.
    """
    from sqlglot import exp

    order, limit = node.args.get("order"), node.args.get("limit")
    if (offset := node.args.get("offset")) is not None:
        refuse(
            f"{text(offset)}: rows of streams have no numbers; take as many more by limit, and leave out the first of them"
        )
    count = None if limit is None else _count(limit)
    if order is None:
        if count is not None:
            refuse(f"{text(limit)}: which rows are the first? say order by")
        return None
    names = [name_of(item) for item in items if not is_star(item)]
    by: list[By] = []
    extra: list[Node] = []
    for each in order.expressions:
        of = each.this
        column = None
        if isinstance(of, exp.Literal) and not of.is_string:
            if not of.name.isdigit() or not 1 <= int(of.name) <= len(items) or len(names) < len(items):
                refuse(f"order by {of.name}: a number is the place of a column that is named, from 1 to {len(names)}")
            column = names[int(of.name) - 1]
        elif isinstance(of, exp.Column) and not of.table and of.name in names:
            column = of.name
        elif distinct:
            refuse(f"{text(order).strip()}: it is by columns of the results here")
        else:
            column = f"order {len(extra)}()"
            extra.append(exp.alias_(of.copy(), column, quoted=True))
        by.append(By(column, bool(each.args.get("desc")), bool(each.args.get("nulls_first"))))
    return Order(text(order).strip(), by, count, extra)


def _count(limit: Node) -> int | None:
    from sqlglot import exp

    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    options = limit.args.get("limit_options")
    if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
        refuse(f"{text(limit).strip()}: it is a number of rows")
    if isinstance(count, exp.Var | exp.Null) and text(count).upper() in ("ALL", "NULL"):
        return None
    if not isinstance(count, exp.Literal) or not count.name.isdigit() or int(count.name) < 1:
        refuse(f"{text(limit).strip()}: it is a number of rows, 1 or more")
    return int(count.name)


def ordered(found: Relation, order: Order, mode: Mode) -> Relation:
    """Rows sorted within each epoch, or limited to the first few."""
    stream = found.stream
    if mode.running:
        if order.limit is None:
            refuse(
                f"{order.text}: rows that go on coming have no last order; say over='time' for the rows of each epoch in "
                "order, or limit n for the first few"
            )
        mode.check_taking_back("order by with limit")
        stream = found.settled(order.text)
    if order.limit is not None:
        by: list[pl.Expr] = []
        least: list[bool] = []
        for each in order.by:
            if each.nulls_first:
                by.append(pl.col(each.column).is_null().cast(pl.Int64))
                least.append(False)
            by.append(pl.col(each.column))
            least.append(not each.descending)
        stream = stream.top_k(order.limit, by=by, reverse=least, over=mode.over)
    if not mode.running:
        stream = stream.sort(
            [each.column for each in order.by],
            descending=[each.descending for each in order.by],
            nulls_last=[not each.nulls_first for each in order.by],
            over="time",
        )
    return Relation(stream.drop(*map(name_of, order.extra)) if order.extra else stream)
