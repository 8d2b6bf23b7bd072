"""Functions that mean something else in Polars' SQL, or nothing there, as expressions that mean what SQL means."""

from __future__ import annotations

from libraries.sql.nodes import Node


def in_polars(call: Node) -> Node:
    """A call as Polars' SQL says it; itself, if that is as SQL says it.

    Logarithms have the base first, and 10 without one. Of a null comes null, also where its value would not matter, as of the
    first 0 characters. An empty text is nowhere in another one, so it is not replaced.
    """
    from sqlglot import exp

    if isinstance(call, exp.Log):
        return _logarithm(call)
    if isinstance(call, exp.StrPosition):
        return unless_null(call, call.this, call.args["substr"])
    if isinstance(call, exp.Left | exp.Right):
        return unless_null(call, call.this, call.expression)
    if isinstance(call, exp.Replace):
        nothing = exp.EQ(this=call.expression.copy(), expression=exp.Literal.string(""))
        return exp.Paren(this=exp.Case().when(nothing, call.this.copy()).else_(call.copy()))
    if isinstance(call, exp.Date) and not call.args.get("zone") and not call.expressions:
        return exp.cast(call.this.copy(), "date")
    return call


def unless_null(call: Node, *operands: Node) -> Node:
    """A call, or null where one of these operands is."""
    from sqlglot import exp

    null = exp.or_(*(exp.Is(this=each.copy(), expression=exp.null()) for each in operands))
    return exp.Paren(this=exp.Case().when(null, exp.null()).else_(call.copy()))


def _logarithm(call: Node) -> Node:
    from sqlglot import exp

    if call.expression is None:
        return exp.Anonymous(this="LOG10", expressions=[call.this.copy()])
    base, of = call.this, call.expression
    if base.is_number and base.name in ("2", "10"):
        return exp.Anonymous(this=f"LOG{base.name}", expressions=[of.copy()])
    return exp.Paren(this=exp.Div(this=exp.Ln(this=of.copy()), expression=exp.Ln(this=base.copy())))
