"""Columns of its inputs used by a query, from Spark's analysis.

The analysis is over empty inputs with all their columns, so that stars, natural joins and columns named by their places mean
what they mean over the stream; nothing is run. It is what does not change from run to run: what the optimizer makes of a query
depends on the data, and on the time of day.

This is for a Spark in a Java beside us, of whose plans we see every node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

_MARK = "falkirk.column"
"""Metadata key to identify an input's column in a plan, under any name."""

_ID = re.compile(r"#(\d+)\D*$")

_BY_NAME = (
    *("Aggregate", "Filter", "Generate", "GlobalLimit", "Join", "LocalLimit", "PipeOperator", "Project", "Repartition"),
    *("RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "SubqueryAlias", "View", "Window", "WithCTE"),
)
"""Plan nodes without use of columns beyond those they refer to.

All others, such as a union, count as using all.
"""


def referenced(session: SparkSession, sql: str, inputs: Mapping[str, pa.Schema]) -> dict[str, frozenset[str]]:
    """Columns of each input needed by a query; at least one each.

    `sql` knows the inputs by the names in `inputs`.

    Other names are those of the session's views, and of its tables. The views of the inputs' names are replaced by empty ones.

    Raises what Spark raises for a query that is wrong, and whatever else keeps it from saying.
    """
    needed = _needed(session, sql, inputs)
    least = {
        name: pa.schema([each for each in schema if each.name in needed[name]] or [schema.field(0)])
        for name, schema in inputs.items()
    }
    try:
        enough = _needed(session, sql, least) == needed
    except Exception:  # it names a column that it does not need, as in `* except (this)`
        enough = False
    return {name: frozenset((least if enough else inputs)[name].names) for name in inputs}


def _needed(session: SparkSession, sql: str, inputs: Mapping[str, pa.Schema]) -> dict[str, set[str]]:
    spark: Any = session
    java, jvm = spark._jsparkSession, spark._jvm
    for name, schema in inputs.items():
        fields = from_arrow_schema(schema, prefer_timestamp_ntz=True).jsonValue()
        for field in fields["fields"]:
            field["metadata"] = {_MARK: json.dumps([name, field["name"]])}
        empty = java.createDataFrame(jvm.java.util.ArrayList(), java.parseDataType(json.dumps(fields)))
        empty.createOrReplaceTempView(name)
    state = java.sessionState()
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # a command is not to be run by its analysis
    plan = state.executePlan(state.sqlParser().parsePlan(sql), skip).analyzed()
    found: dict[str, set[str]] = {name: set() for name in inputs}
    for name, column in _used(plan, _ids(plan.output())):
        found[name].add(column)
    return found


def _used(plan: Any, wanted: set[int]) -> Iterator[tuple[str, str]]:
    """Input columns used by a plan, given the ids `wanted` of its used output columns."""
    below = list(_each(plan.children()))
    if not below:
        for each in _each(plan.output()):
            if each.exprId().id() in wanted and each.metadata().contains(_MARK):
                name, column = json.loads(each.metadata().getString(_MARK))
                yield name, column
    kind = plan.nodeName()
    if kind == "Project":  # what it only hands through is used if that is wanted
        wanted = set[int]().union(
            *(
                _ids(each.references())
                for each in _each(plan.projectList())
                if each.nodeName() != "AttributeReference" or each.exprId().id() in wanted
            )
        )
    else:
        wanted = wanted | _ids(plan.references())
    if kind not in _BY_NAME:
        wanted |= _ids(plan.inputSet())
    for each in below:
        yield from _used(each, wanted)
    for each in _each(plan.subqueries()):
        yield from _used(each, _ids(each.output()))


def _ids(attributes: Any) -> set[int]:
    """Ids of columns, parsed from their text, as in `price#12L`.

    That is a call of Java for all, not three for each.
    """
    texts = attributes.mkString("\0")
    return {int(_ID.search(text)[1]) for text in texts.split("\0")} if texts else set()  # type: ignore[index]


def _each(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)
