"""Calls and integer arithmetic, rewritten for Polars in the meaning of SQL.

Polars computes in the type of its columns, and what does not fit wraps round there: 8 bits of `x * x`. So operands are cast to
128 bits, and results to 64, which is an error for what does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from libraries.sql.nodes import Node


def in_polars(call: Node) -> Node:
    """Call in Polars' SQL with the meaning that it has in SQL.

    Of a null comes null, also where its value would not matter, as of the first 0 characters. An empty text is nowhere in
    another one, so it is not replaced.
    """
    from sqlglot import exp

    if isinstance(call, exp.StrPosition):
        return _unless_null(call, call.this, call.args["substr"])
    if isinstance(call, exp.Left):
        return _unless_null(call, call.this, call.expression)
    if isinstance(call, exp.Right):
        longer = exp.GTE(this=call.expression.copy(), expression=exp.Length(this=call.this.copy()))
        return _unless_null(_unless(longer, call.this, call), call.this, call.expression)
    if isinstance(call, exp.Replace):
        return _replaced(call)
    return call


def _unless_null(call: Node, *operands: Node) -> Node:
    """Call, or null if one of these operands is null."""
    from sqlglot import exp

    return _unless(exp.or_(*(exp.Is(this=each.copy(), expression=exp.null()) for each in operands)), exp.null(), call)


def _unless(condition: Node, value: Node, call: Node) -> Node:
    from sqlglot import exp

    return exp.Paren(this=exp.Case().when(condition, value.copy()).else_(call.copy()))


def _replaced(call: Node) -> Node:
    from sqlglot import exp

    by = call.args.get("replacement") or exp.Literal.string("")
    sought, made = call.expression, call.copy()
    if not isinstance(by, exp.Literal):
        made.set("replacement", exp.Coalesce(this=by.copy(), expressions=[exp.Literal.string("")]))
    nothing = exp.EQ(this=sought.copy(), expression=exp.Literal.string(""))
    return _unless_null(_unless(nothing, call.this, made), call.this, sought, by)


def quotient(of: Node, by: Node) -> Node:
    """Quotient `of / by` with the constant `by` as a column.

    Of two rows and more Polars multiplies by the reciprocal of a number, and one it divides: the last bit of a row would depend
    on those with which it was read.
    """
    from sqlglot import exp

    zero = exp.Mul(
        this=exp.cast(exp.Is(this=of.copy(), expression=exp.null()), "bigint"), expression=exp.Literal.number(0)
    )
    column = exp.Paren(this=exp.Add(this=zero, expression=exp.Paren(this=by.copy())))
    return exp.Paren(this=exp.Div(this=exp.Paren(this=of.copy()), expression=column))


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
