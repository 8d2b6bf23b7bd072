"""Functions with another meaning in Polars' SQL, rewritten to have SQL's."""

from __future__ import annotations

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
