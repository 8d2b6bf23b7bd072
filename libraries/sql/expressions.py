"""SQL expressions as Polars expressions, and errors for unsupported ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import polars as pl

from libraries.columns.schemas.inference import no_rows
from libraries.sql.functions import guarded, in_polars, least, may_wrap, quotient, widened
from libraries.sql.nodes import Node, replaced, text
from libraries.sql.times import alike, dated, is_text, may_be_dated, put, truncated
from libraries.sql.values import KINDS, of_text, to_digits, to_integer
from timely.errors import GraphError, user_site

_NARROW = ("BIT_LENGTH(", "EXTRACT(", "LENGTH(", "OCTET_LENGTH(", "POSITION(")
"""Functions with results of 8 to 32 bits in Polars, and 64 in SQL."""


_OF_THE_MOMENT = {
    *("CurrentDate", "CurrentDatetime", "CurrentTime", "CurrentTimestamp", "CurrentTimestampLTZ", "Localtime"),
    *("Localtimestamp", "Systimestamp", "UtcDate", "UtcTime", "UtcTimestamp", "Rand", "Randn", "Uuid"),
    *("random", "rand", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "clock_timestamp", "timeofday"),
    *("statement_timestamp", "transaction_timestamp", "today", "get_current_timestamp"),
}
"""Non-deterministic functions, by sqlglot's names or their own."""


@dataclass(frozen=True, slots=True)
class Late:
    """Expression with a type-dependent meaning, over a stream of types not yet known."""

    node: Node
    name: str | None = None

    def alias(self, name: str) -> Late:
        """Same expression with another name for its column."""
        return Late(self.node, name)

    def over(self, schema: pl.Schema) -> pl.Expr:
        """Polars expression for columns of these types."""
        found = _expression(self.node, schema)
        return found if self.name is None else found.alias(self.name)


Expression: TypeAlias = pl.Expr | Late


def output_of(given: Expression) -> str:
    """Name of an expression's output column."""
    return given.name or "" if isinstance(given, Late) else given.meta.output_name()


def polars(node: Node, column: Callable[[Node], str], schema: pl.Schema | None) -> Expression:
    """Expression over a stream; `column` resolves the query's columns."""
    from sqlglot import exp

    check_known(node)

    def meant(each: Node) -> Node:
        return exp.column(column(each), quoted=True) if isinstance(each, exp.Column) else each

    return expression(replaced(node, meant), schema, node)


def check_known(node: Node) -> None:
    """Reject non-deterministic calls, window functions and queries in an expression."""
    from sqlglot import exp

    for each in node.walk():
        if type(each).__name__ in _OF_THE_MOMENT or (
            isinstance(each, exp.Anonymous) and each.name.lower() in _OF_THE_MOMENT
        ):
            refuse(
                f"{text(each)}: rows that are computed again after a failure must be the same, and this would be another value "
                "each time: send it as a column of the rows, or write it into the query as a constant"
            )
        if isinstance(each, exp.Window):
            refuse(
                f"{text(each)}: window functions are not known over streams: totals are those of group by, and the first few "
                "rows of each key those of group_by(...).top_k"
            )
        if isinstance(each, exp.Exists) or (isinstance(each, exp.In) and each.args.get("query")):
            refuse(
                f"{text(each)}: not known within an expression over streams, but as one of the conditions of where that all "
                "hold: say so, or say semi join or anti join in the place of in and exists"
            )
        if isinstance(each, exp.Any | exp.All) and isinstance(each.this, exp.Query):
            refuse(
                f"{text(each)}: any, some and all of a query are not known: join with a query that gives its least or its "
                "greatest value"
            )
        if isinstance(each, exp.Query):
            as_sql = each.this if isinstance(each, exp.Subquery) else each
            refuse(f"({text(as_sql)}): a query as a value is not known: join with it, on columns that are equal")


def expression(node: Node, schema: pl.Schema | None, as_sql: Node) -> Expression:
    """Polars expression over a stream's columns, or a `Late` one if types are unknown.

    `as_sql`: the expression as written in the query, for errors.
    """
    from sqlglot import exp

    try:
        if schema is None and any(_depends(each) and each.find(exp.Column) for each in node.walk()):
            _expression(node, None)  # what Polars does not know, it does not know of any types
            return Late(node)
        return _expression(node, schema)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        refuse(f"{text(as_sql)}: {str(error).partition(chr(10))[0]}", error)


def _depends(node: Node) -> bool:
    """True if the meaning of an expression depends on types."""
    from sqlglot import exp

    by_type = exp.TimestampTrunc | exp.Div | exp.Extract | exp.Cast | exp.Date | exp.Round
    return may_wrap(node) or isinstance(node, by_type) or may_be_dated(node)


def _expression(node: Node, schema: pl.Schema | None) -> pl.Expr:
    reading = _Reading(schema)
    found = reading.expr(reading.for_polars(node))
    if schema is not None:
        no_rows(schema).select(found).collect()  # much is seen only when it is computed, if only of no rows
    return found


class _Reading:
    """Translator of expressions over columns of given types; None: types unknown."""

    def __init__(self, schema: pl.Schema | None) -> None:
        self._schema = dict(schema or {})
        self._made: dict[str, pl.Expr] = {}
        """Expressions outside of Polars' SQL, by the names of columns in their place."""

    def expr(self, node: Node) -> pl.Expr:
        """Polars expression parsed from an expression of Polars' SQL."""
        return put(pl.sql_expr(text(node)), self._made)

    def for_polars(self, node: Node) -> Node:
        """Expression of Polars' SQL with the meaning that `node` has in SQL."""
        from sqlglot import exp

        around = exp.Paren(this=node.copy())
        for each in reversed(list(around.walk(bfs=True))):  # inner ones first
            as_sql = each if each is around else self._for_polars(each)
            if as_sql is not each:
                each.replace(as_sql)
        return around

    def _kind(self, node: Node) -> pl.DataType | None:
        """Type of an expression of Polars' SQL; None if it has none."""
        try:
            found = no_rows(self._schema).select(of=pl.sql_expr(text(node))).collect_schema()
        except pl.exceptions.PolarsError:  # told of where the whole is read
            return None
        return found["of"]

    def _for_polars(self, node: Node) -> Node:
        from sqlglot import exp

        if (number := least(node)) is not None:
            return number
        if may_wrap(node):
            self._time(node)
            kind = self._kind(node)
            if kind is None or not kind.is_integer():
                return node
            for each in list(node.iter_expressions()):
                if self._kind(each) in (pl.Int128, pl.UInt128):  # of which products need more than 128 bits
                    each.replace(exp.cast(each.copy(), "bigint"))
            return widened(node)
        self._read_texts(node)
        if isinstance(node, exp.Case):
            return guarded(node)
        if isinstance(node, exp.TimestampTrunc):
            return self._truncated(node)
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Date) and not node.args.get("zone") and not node.expressions:
            return self._cast(exp.cast(node.this.copy(), "date"))
        if isinstance(node, exp.Log):
            return self._logarithm(node)
        if isinstance(node, exp.IsNan):
            return self._standing_for(self.expr(node.this).is_nan(), pl.Boolean())
        if isinstance(node, exp.Div):
            return self._quotient(node)
        if isinstance(node, exp.Pow):  # of integers Polars gives integers, which wrap round
            return exp.Pow(this=_double(node.this), expression=node.expression.copy())
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            return exp.Paren(this=node.copy())  # without, all that follows would be taken for its right side
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
            of = node.this.copy()
            value = of if node.expression.this else exp.not_(of)
            return exp.Coalesce(this=value, expressions=[exp.false()])  # of a null it would be null
        if isinstance(node, exp.Round):
            return self._rounded(node)
        if isinstance(node, exp.Func):
            as_sql, meant = text(node), in_polars(node)
            if as_sql.startswith("EXTRACT(EPOCH"):
                return self._seconds(node)
            if as_sql.startswith(_NARROW):
                return exp.cast(meant.copy(), "bigint")
            return meant
        return node

    def _quotient(self, node: Node) -> Node:
        """Quotient as doubles for decimals; with a column as divisor for a constant one.

        Polars' decimals have few digits, and a division by 0 fails.
        """
        from sqlglot import exp

        of, by = node.this, node.expression
        kinds = [self._kind(of), self._kind(by)]
        if any(isinstance(kind, pl.Decimal) for kind in kinds):
            of, by = _double(of), _double(by)
        if (
            all(kind is not None and kind.is_numeric() for kind in kinds)
            and of.find(exp.Column)
            and not by.find(exp.Column)
        ):
            return quotient(of, by)
        return node if of is node.this else exp.Div(this=of, expression=by)

    def _logarithm(self, call: Node) -> Node:
        """Logarithm to a base, by default 10, exact for powers of 2 and 10."""
        from sqlglot import exp

        base, of = (call.this, call.expression) if call.expression is not None else (exp.Literal.number(10), call.this)
        if not (base.is_number and base.name in ("2", "10")):
            ln = exp.Ln(this=of.copy()), exp.Ln(this=base.copy())
            return self._quotient(exp.Div(this=ln[0], expression=ln[1]))
        value = self.expr(of).cast(pl.Float64)
        found = value.log(float(base.name))
        nearest = found.round()
        exact = pl.when(pl.lit(float(base.name)) ** nearest == value).then(nearest).otherwise(found)
        return self._standing_for(exact, pl.Float64())

    def _time(self, node: Node) -> None:
        """Cast dates to timestamps in sums with hours, minutes or seconds."""
        from sqlglot import exp

        operands = [node.this, node.expression] if isinstance(node, exp.Add | exp.Sub) else []
        kinds = [self._kind(each) for each in operands]
        for date, other, kind, of in zip(operands, operands[::-1], kinds, kinds[::-1], strict=True):
            if isinstance(kind, pl.Date) and isinstance(of, pl.Duration):
                length = None if other.find(exp.Column) else pl.select(self.expr(other)).item()
                if length is None or length % dt.timedelta(days=1):
                    date.replace(exp.cast(date.copy(), "timestamp"))

    def _seconds(self, call: Node) -> Node:
        """Seconds since 1970 as a quotient of microseconds, also for dates."""
        from sqlglot import exp

        if not isinstance(self._kind(call.expression), pl.Date | pl.Datetime):
            return call
        since = self.expr(call.expression).cast(pl.Datetime("us")).dt.timestamp("us")
        return quotient(self._standing_for(since, pl.Int64()), exp.Literal.number(1_000_000))

    def _cast(self, cast: Node) -> Node:
        """Cast, with texts, rounding and `try_cast` as in SQL."""
        from sqlglot import exp

        tried = isinstance(cast, exp.TryCast)
        of = self._kind(cast.this)
        if of is not None and (of.is_float() or of.is_decimal()) and cast.to.this in exp.DataType.INTEGER_TYPES:
            cast = cast.copy()
            cast.this.replace(self._standing_for(to_integer(self.expr(cast.this), of), of))
        kind = KINDS.get(cast.to.this.name)
        known = kind is not None and kind != pl.Boolean() and not tried and is_text(cast.this)
        if kind is not None and not known and isinstance(self._kind(cast.this), pl.String):
            return self._standing_for(of_text(self.expr(cast.this), kind, strict=not tried), kind)
        if not tried:
            return cast
        null = exp.cast(exp.null(), cast.to.copy())
        kind = pl.select(pl.sql_expr(text(null))).to_series().dtype
        return self._standing_for(self.expr(cast.this).cast(kind, strict=False), kind)

    def _rounded(self, call: Node) -> Node:
        from sqlglot import exp

        digits = call.args.get("decimals") or exp.Literal.number(0)
        if not isinstance(digits, exp.Literal) or digits.is_string or not digits.name.isdigit():
            refuse(
                f"{text(call)}: round takes a number of decimals from 0 up; divide, round and multiply for fewer digits"
            )
        kind = self._kind(call.this)
        if kind is None or not kind.is_numeric():
            return exp.Anonymous(this="ROUND", expressions=[each.copy() for each in call.iter_expressions()])
        return self._standing_for(to_digits(self.expr(call.this), int(digits.name), kind), kind)

    def _standing_for(self, expr: pl.Expr, kind: pl.DataType) -> Node:
        """Name of a placeholder column for an expression of a type."""
        from sqlglot import exp

        name = f"expression {len(self._made)}()"
        self._made[name], self._schema[name] = expr, kind
        return exp.column(name, quoted=True)

    def _truncated(self, call: Node) -> Node:
        kind = self._kind(call.this)
        made = truncated(call, self.expr(call.this), kind)
        return self._standing_for(made, kind if isinstance(kind, pl.Datetime) else pl.Datetime("us"))

    def _read_texts(self, node: Node) -> None:
        """Cast text literals to dates and times beside operands of such types."""
        for operands in alike(node):
            texts = [each for each in operands if is_text(each)]
            if not texts or len(texts) == len(operands):
                continue
            kinds = [self._kind(each) for each in operands if each not in texts]
            kind = next((each for each in kinds if each is not None and each.is_temporal()), None)
            if kind is not None:
                dated(texts, kind)


def _double(node: Node) -> Node:
    from sqlglot import exp

    return exp.cast(node.copy(), "double precision")


def listed(names: Any) -> str:
    """Names as a list for messages."""
    return ", ".join(map(repr, names)) or "none"


def refuse(why: str, cause: BaseException | None = None) -> NoReturn:
    """Raise GraphError with the user's line."""
    raise GraphError(f"{user_site()}: sql: {why}") from cause
