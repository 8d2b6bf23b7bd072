"""Pushdown of conditions and columns to tables before joins, which then keep less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from libraries.sql.expressions import check_known
from libraries.sql.nodes import Node, is_star
from libraries.sql.subqueries import has_query
from libraries.sql.tables import Rows
from libraries.sql.windows import check_outside


def filtered(tables: list[Rows], joins: Sequence[Node], conditions: list[Node]) -> tuple[list[Rows], list[Node]]:
    """Tables of `from` filtered by their own conditions, and the remaining conditions.

    A table whose columns a join may fill with nulls keeps all rows: a condition is of these nulls as well.
    """
    from sqlglot import exp

    found, left = list(tables), list[Node]()
    for each in conditions:
        place = None if has_query(each) or each.find(exp.AggFunc) else _table_of(each, tables)
        if place is None or _may_be_nulls(place, joins):
            left.append(each)
            continue
        check_known(each)
        check_outside(each)
        found[place] = found[place].filter("where", each)
    return found, left


def narrowed(tables: list[Rows], query: Node) -> list[Rows]:
    """Tables of `from` reduced to the columns in use; unchanged for `*`."""
    from sqlglot import exp

    if any(map(is_star, query.expressions)):
        return tables
    named = {(each.table, each.name) for each in query.find_all(exp.Column)}
    named |= {("", each.name) for join in query.find_all(exp.Join) for each in join.args.get("using") or ()}
    found = list[Rows]()
    for rows in tables:
        ((name, columns),) = rows.tables.items()
        wanted = [each for each in columns or () if {("", each), (name, each)} & named]
        # The others stay known by name, for what is said of a name that is none.
        relation = replace(rows.relation, stream=rows.relation.stream.select(*wanted)) if wanted else rows.relation
        found.append(replace(rows, relation=relation))
    return found


def _table_of(condition: Node, tables: Sequence[Rows]) -> int | None:
    """Number of the one table with all columns of a condition; None without one."""
    from sqlglot import exp

    places = set[int]()
    for column in condition.find_all(exp.Column):
        of = [place for place, rows in enumerate(tables) if _has(rows, column)]
        if len(of) != 1:
            return None
        places.update(of)
    return places.pop() if len(places) == 1 else None


def _has(rows: Rows, column: Node) -> bool:
    ((name, columns),) = rows.tables.items()
    return column.name in (columns or ()) and column.table in ("", name)


def _may_be_nulls(place: int, joins: Sequence[Node]) -> bool:
    """True if a join fills columns of the table with nulls, or omits them."""
    if place and (joins[place - 1].side in ("LEFT", "FULL") or joins[place - 1].kind in ("SEMI", "ANTI")):
        return True
    return any(each.side in ("RIGHT", "FULL") for each in joins[place:])
