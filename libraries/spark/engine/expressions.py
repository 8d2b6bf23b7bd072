"""Translation of Polars expressions to Spark SQL.

Polars resolves them over the columns that there are: selectors become columns, and casts are put in where types differ. The
result is translated node by node, and only where both engines give the same for all values: nulls, NaN, zeros and what does not
fit included. The settings of the session that this rests on are in `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from libraries.spark.engine.refused import Refused
from libraries.spark.engine.types import EPOCH, FLOATS, INTEGERS, UNSIGNED, listed, literal, quoted, spark_type

_NONE = pl.QueryOptFlags.none()
_NONE._pyoptflags.type_coercion = True

_COMPARED = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "EqValidity": "<=>"}
_ARITHMETIC = {"Plus": "+", "Minus": "-", "Multiply": "*"}
_PARTS_OF_TIME = {
    **{name: f"{name.lower()}({{}})" for name in ("Year", "Month", "Day", "Hour", "Minute", "Second", "Quarter")},
    "WeekDay": "weekday({}) + 1",
    "OrdinalDay": "dayofyear({})",
}
_BITS = {kind: 8 * size for kind, size in zip((*INTEGERS, *UNSIGNED), (1, 2, 4, 8, 1, 2, 4), strict=True)}


def resolved(frame: pl.LazyFrame) -> Any:
    """Polars plan in a traversable form, not optimized.

    An optimizer would see that there are no rows yet.
    """
    return frame._ldf.with_optimizations(_NONE._pyoptflags).visit()


class Expressions:
    """Translator for the expressions of one plan node.

    The plan stands at that node's input.
    """

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self.reads = False
        """True if a translated expression reads a column.

        Others give one row for each batch.
        """

    def sql(self, number: int) -> str:
        """SQL of an expression by its number in the plan.

        Raises Refused, naming the part that Spark does not have.
        """
        try:
            node = self._plan.view_expression(number)
        except NotImplementedError as error:
            raise Refused(str(error).replace("anonymousfunction", "a Python function")) from error
        kind = type(node).__name__
        translate: Callable[[Any, int], str] | None = getattr(self, f"_{kind.lower()}", None)
        if translate is None:
            name = getattr(node, "name", "")
            raise Refused(f"{name or kind.lower()}, which looks at several rows" if kind in _OF_ROWS else kind)
        return translate(node, number)

    def kind(self, number: int) -> Any:
        """The type of an expression."""
        return self._plan.get_dtype(number)

    def _column(self, node: Any, number: int) -> str:
        self.reads = True
        return quoted(node.name)

    def _literal(self, node: Any, number: int) -> str:
        if type(node.value).__name__ == "PySeries":
            raise Refused("a Series among the expressions")
        return literal(node.value, node.dtype)

    def _ternary(self, node: Any, number: int) -> str:
        then, other = self.sql(node.truthy), self.sql(node.falsy)
        return f"(case when {self.sql(node.predicate)} then {then} else {other} end)"

    def _cast(self, node: Any, number: int) -> str:
        before, after = self.kind(node.expr), node.dtype
        if before == pl.Null:
            return literal(None, after)
        inner = self.sql(node.expr)
        if before == after:
            return inner
        if not _keeps(before.base_type(), after):
            raise Refused(f"cast from {before} to {after}")
        return f"cast({inner} as {spark_type(after)})"

    # ------------------------------------------------------------------------------------------ operators

    def _binaryexpr(self, node: Any, number: int) -> str:
        operator = str(node.op).partition(".")[2]
        left, right = self.kind(node.left), self.kind(node.right)
        of, kind = left.base_type(), self.kind(number)
        a, b = self.sql(node.left), self.sql(node.right)
        alike = left == right and of != pl.Binary
        if operator in _COMPARED and alike:
            return f"({a} {_COMPARED[operator]} {b})"
        if operator == "NotEqValidity" and alike:
            return f"(not {a} <=> {b})"
        if of == pl.Boolean and right == pl.Boolean:
            if operator in ("And", "LogicalAnd"):
                return f"({a} and {b})"
            if operator in ("Or", "LogicalOr"):
                return f"({a} or {b})"
            if operator == "Xor":
                return f"({a} <> {b})"
        if alike and operator in _ARITHMETIC and of in (*INTEGERS, *FLOATS):
            return f"cast({a} {_ARITHMETIC[operator]} {b} as {spark_type(kind)})"
        if operator == "Plus" and of == right == pl.String:
            return f"concat({a}, {b})"
        if operator == "TrueDivide" and kind == pl.Float64 and all(_is_number(each) for each in (left, right)):
            return _divided(f"double({a})", f"double({b})", _may_be_minus_zero(right))
        if alike and operator in ("FloorDivide", "Modulus") and of in INTEGERS:
            return f"cast({_floored(operator, a, b)} as {spark_type(kind)})"
        raise Refused(f"{operator} of {left} and {right}")

    # ------------------------------------------------------------------------------------------ functions

    def _function(self, node: Any, number: int) -> str:
        name, *options = node.function_data
        family, _, short = str(name).rpartition(".")
        of = [self.kind(each) for each in node.input]
        if short == "IsIn":
            return self._is_in(node, of, bool(options[0]))
        given = [self.sql(each) for each in node.input]
        first, kind = given[0], of[0].base_type()
        match family, short:
            case "", "fill_null" | "coalesce":
                return f"coalesce({', '.join(given)})"
            case "", "negate" if kind in (*INTEGERS, *FLOATS):
                return f"cast(- {first} as {spark_type(of[0])})"
            case "", "abs" if kind in (*INTEGERS, *FLOATS):
                return f"cast(abs({first}) as {spark_type(of[0])})"
            case "", "sqrt" if _is_number(of[0]):
                return f"sqrt(double({first}))"
            case "BooleanFunction", "Not" if kind == pl.Boolean:
                return f"(not {first})"
            case "BooleanFunction", "IsNull" | "IsNotNull":
                return f"({first} is {'not ' if short == 'IsNotNull' else ''}null)"
            case "BooleanFunction", "IsNan" | "IsNotNan" if kind in FLOATS:
                return f"({first} {'<>' if short == 'IsNotNan' else '='} double('NaN'))"
            case "BooleanFunction", "IsFinite" | "IsInfinite" if kind in FLOATS:
                return f"(abs({first}) {'<' if short == 'IsFinite' else '='} double('Infinity'))"
            case "BooleanFunction", "IsBetween" if of[0] == of[1] == of[2]:
                low = ">=" if options[0] in ("both", "left") else ">"
                high = "<=" if options[0] in ("both", "right") else "<"
                return f"({first} {low} {given[1]} and {first} {high} {given[2]})"
            case "StringFunction", "LenChars":
                return f"bigint(char_length({first}))"
            case "StringFunction", "LenBytes":
                return f"bigint(octet_length({first}))"
            case "StringFunction", "StartsWith" | "EndsWith":
                return f"{short.lower()}({first}, {given[1]})"
            case "StringFunction", "Contains" if options[0]:
                return f"contains({first}, {given[1]})"
            case "StringFunction", "ConcatHorizontal" if not options[1]:
                between = literal(options[0], pl.String())
                return f"concat({f', {between}, '.join(given)})" if options[0] else f"concat({', '.join(given)})"
            case "TemporalFunction", _ if short in _PARTS_OF_TIME and _has_no_zone(of[0]):
                part = _PARTS_OF_TIME[short].format(first)
                return f"cast({part} as {spark_type(self.kind(number))})"
        raise Refused(f"{short} of {of[0]}")

    def _is_in(self, node: Any, of: list[Any], nulls_are_equal: bool) -> str:
        item, found = node.input
        kind = of[1].inner if isinstance(of[1], pl.List) else None
        among = self._plan.view_expression(found)
        alike = kind == of[0] and kind.base_type() in (*INTEGERS, pl.String, pl.Date)
        if not alike or type(among).__name__ != "Literal" or nulls_are_equal:
            raise Refused(f"IsIn of {of[0]} in {of[1]}")
        first = self.sql(item)
        values = [literal(each, kind) for each in among.value if each is not None]
        return f"({first} in ({', '.join(values)}))" if values else f"({first} <> {first})"


_OF_ROWS = ("Agg", "Len", "Window", "Sort", "SortBy", "Gather", "Filter", "Slice", "Rolling")


def _keeps(before: Any, after: Any) -> bool:
    """True if a cast keeps every value, in both engines alike."""
    into = after.base_type()
    whole = before in INTEGERS or before in UNSIGNED
    if before == pl.Boolean:
        return into in INTEGERS
    if whole and into in INTEGERS:
        return _BITS[into] > _BITS[before] or (_BITS[into] == _BITS[before] and before in INTEGERS)
    if whole and into in UNSIGNED:
        return before in UNSIGNED and _BITS[into] >= _BITS[before]
    if whole:
        return into in (pl.Float64, pl.String)
    if before == pl.Date:
        return isinstance(after, pl.Datetime) and after.time_unit == "us" and after.time_zone is None
    return bool(before == pl.Float32 and into == pl.Float64)


def _is_number(kind: Any) -> bool:
    return kind.base_type() in (*INTEGERS, *UNSIGNED, *FLOATS)


def _may_be_minus_zero(kind: Any) -> bool:
    return kind.base_type() in FLOATS


def _has_no_zone(kind: Any) -> bool:
    return kind == pl.Date or (isinstance(kind, pl.Datetime) and kind.time_unit == "us" and kind.time_zone is None)


def _divided(a: str, b: str, minus_zero: bool) -> str:
    """IEEE quotient of floats in SQL.

    Spark itself divides nothing by zero.
    """
    infinity = "double('Infinity')"
    if minus_zero:
        infinity = f"(case when string({b}) = '-0.0' then - double('Infinity') else {infinity} end)"
    return f"(case when {b} = 0 then {a} * {infinity} else {a} / {b} end)"


def _floored(operator: str, a: str, b: str) -> str:
    """Integer quotient or remainder rounded down; null for divisor 0.

    Spark's are rounded towards zero.
    """
    uneven = f"{a} % {b} <> 0 and ({a} % {b} < 0) <> ({b} < 0)"
    if operator == "Modulus":
        return f"(case when {uneven} then {a} % {b} + {b} else {a} % {b} end)"
    return f"(case when {uneven} then {a} div {b} - 1 else {a} div {b} end)"


def columns_of(plan: Any, exprs: Any) -> Iterator[tuple[str, str, Expressions]]:
    """Names and SQL of a plan node's expressions.

    The plan stands at that node's input.
    """
    for each in exprs:
        inside = Expressions(plan)
        yield each.output_name, inside.sql(each.node), inside


def query_of(plan: Callable[[Any], Any], view: str, schema: pl.Schema) -> tuple[str, pl.Schema]:
    """Query for a Polars verb over the rows of a view, with its columns.

    Raises:
        Refused: naming what Spark does not have.
        PolarsError: if the verb cannot work.
    """
    frame = plan(pl.LazyFrame(schema=schema))
    made: pl.Schema = frame.collect_schema()
    for kind in made.values():
        spark_type(kind)
    return _query(resolved(frame), view), made


def mask_of(predicate: pl.Expr, schema: pl.Schema) -> str:
    """Predicate in SQL."""
    plan = resolved(pl.LazyFrame(schema=schema).select(mask=predicate))
    (one,) = plan.view_current_node().expr
    plan.set_node(plan.get_inputs()[0])
    return Expressions(plan).sql(one.node)


def _query(plan: Any, view: str) -> str:
    node, kind = plan.view_current_node(), type(plan.view_current_node()).__name__
    if kind == "DataFrameScan":
        return f"select * from {view}"
    inputs = plan.get_inputs()
    if kind not in ("Select", "HStack", "Filter"):
        raise Refused(kind)
    (below,) = inputs
    plan.set_node(below)
    if kind == "Filter":
        where = Expressions(plan).sql(node.predicate.node)
        return f"select * from ({_query(plan, view)}) where {where}"
    found = list(columns_of(plan, node.expr if kind == "Select" else node.exprs))
    if kind == "Select":
        if not any(inside.reads for *_, inside in found):
            raise Refused("a select without any column, which gives a row for each batch")
        made = {name: sql for name, sql, _ in found}
    else:
        made = {name: quoted(name) for name in plan.get_schema()} | {name: sql for name, sql, _ in found}
    columns = listed(quoted(EPOCH), *(f"{sql} as {quoted(name)}" for name, sql in made.items()))
    return f"select {columns} from ({_query(plan, view)})"
