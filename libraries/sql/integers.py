"""Integers in queries: signed 64-bit arithmetic with overflow as an error.

Polars computes in the type of its columns, and what does not fit wraps round there: 8 bits of `x * x`. So operands are cast to
128 bits, and results to 64, which is an error for what does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from libraries.sql.nodes import Node


def may_wrap(node: Node) -> bool:
    """True if the result of `node` may have more bits than its operands."""
    from sqlglot import exp

    if isinstance(node, exp.Neg):
        return not isinstance(node.this, exp.Literal)
    return isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Abs)


def least(node: Node) -> Node | None:
    """Least 64-bit integer if `node` is its literal with a minus, else None."""
    from sqlglot import exp

    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and node.this.name == str(2**63):
        return exp.cast(exp.Literal.string(str(-(2**63))), "bigint")
    return None


def widened(node: Node) -> Node:
    """Integer operation computed in 128 bits, with an error for overflow of 64."""
    from sqlglot import exp

    wide = node.copy()
    operands = list(wide.iter_expressions())
    numbers = [each for each in operands if isinstance(each, exp.Literal)]
    for each in operands:
        if len(numbers) == len(operands) or each not in numbers:  # beside 128 bits a number has as many
            each.replace(exp.cast(each.copy(), "int128"))
    found = exp.cast(wide, "bigint")
    found.meta["checked"] = True
    return found


def guarded(case: Node) -> Node:
    """`case` guarded from overflow errors in branches that do not apply to a row.

    Polars computes all branches of all rows.
    """

    found = case.copy()
    conditions = [each.this.copy() for each in case.args["ifs"]]
    for place, each in enumerate(found.args["ifs"]):
        _guard(each.args["true"], found.this, conditions[:place], conditions[place])
    if (default := found.args.get("default")) is not None:
        _guard(default, found.this, conditions, None)
    return found


def _guard(branch: Node, of: Node | None, before: Sequence[Node], condition: Node | None) -> None:
    """Make a branch's computation null for rows to which the branch does not apply."""
    from sqlglot import exp

    for each in list(branch.find_all(exp.Cast)):
        if each.meta.get("checked"):
            only = exp.Case(this=of and of.copy())
            for other in before:
                only = only.when(other.copy(), exp.null())
            wide = each.this.copy()
            each.set("this", only.else_(wide) if condition is None else only.when(condition.copy(), wide))
