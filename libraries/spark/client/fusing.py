"""Fusion of two steps into one Spark query, if the result is sure to be the same.

Between two regions are rows: there are such, each is there once, and nobody asks for them again. As one query the first step is
done when the second one's rows are asked for. So that nobody sees a difference

- the first step's plan is deterministic, as far as Spark knows, and of types that files give back as they are;
- Spark does not move, or repeat, expressions of either across the border between them (`joined`);
- the second one's plan takes the first's rows once, whole or in part, and its function has not had Spark run anything;
- from no rows of the first come no rows of the second: it would have had no run;
- the sessions of the two have the same settings.

This is for a Spark in a Java beside us, of whose plans we see every node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from libraries.spark.client.access import group_of

_PASS = (
    *(
        "SubqueryAlias",
        "View",
        "Project",
        "Filter",
        "Distinct",
        "Deduplicate",
        "Window",
        "Generate",
        "Expand",
        "Sample",
    ),
    *("GlobalLimit", "LocalLimit", "Repartition", "ResolvedHint"),
)
"""Plan nodes with one child, read once, and without output for empty input."""

_AS_THEY_ARE = (
    *(t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType),
    *(t.StringType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType),
)

_MARK = "__falkirk_between"
_WAIT_MS = 2000


class Apart(Exception):
    """Fusion of two steps is impossible, with the reason."""


def joined(frame: DataFrame, session: SparkSession, name: str) -> DataFrame:
    """DataFrame of an unexecuted step, moved to another session under the name `name`.

    Spark's optimizer moves no filter, and repeats no function, across the column between the two: it is not deterministic, and
    somebody asks for it. It costs a comparison a row.

    Raises Apart if the step is to be done by itself.
    """
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise Apart("it is not deterministic")
    for field in frame.schema.fields:
        of_text = isinstance(field.dataType, t.StringType)  # which may be compared in a way of its own
        if type(field.dataType) not in _AS_THEY_ARE or (of_text and field.dataType != t.StringType()):
            raise Apart(f"column {field.name!r} would not be the same")
    between = frame.withColumn(_MARK, F.spark_partition_id()).where(f"{_MARK} >= 0").drop(_MARK).alias(_known(name))
    java: Any = session._jvm
    plan = between._jdf.logicalPlan()
    return DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def check(frame: DataFrame, first: SparkSession, name: str, then: SparkSession, begun: int) -> None:
    """Check the use of a step's rows in `frame`: once, as if they were stored.

    The step is `name`, of session `first`; `frame` is in session `then`. It must give nothing for nothing. `begun`
    is the number of jobs that Spark has begun while the frame was made. Raises Apart if it does not.
    """
    if begun:
        raise Apart("the step behind has Spark run something itself")
    uses, nothing = _taken(frame._jdf.queryExecution().analyzed(), name, {})
    if uses != 1:
        raise Apart(f"the step behind takes it {uses} times")
    if not nothing:
        raise Apart("the step behind may make something of nothing")
    one, other = (each._jsparkSession.sessionState().conf().getAllConfs() for each in (first, then))
    if not one.equals(other):
        raise Apart("its session has other settings")


def jobs(session: SparkSession, number: int) -> int:
    """Number of jobs begun by Spark for a run so far."""
    context: Any = session.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(_WAIT_MS)  # it is told of them there
    return len(context.statusTracker().getJobIdsForGroup(group_of(number)))


def _taken(plan: Any, name: str, shared: Mapping[int, Any]) -> tuple[int, bool]:
    """Number of uses of the rows of `name` in a plan; True if none in give none out.

    Raises Apart for a node that we do not know.
    """
    kind = plan.nodeName()
    if kind == "SubqueryAlias" and plan.alias() == _known(name):
        return 1, True
    if plan.subqueries().size():
        raise Apart("the step behind has a query within a query")
    if kind == "WithCTE":
        definitions = _each(plan.cteDefs())
        return _taken(plan.plan(), name, {**shared, **{each.id(): each.child() for each in definitions}})
    if kind == "CTERelationRef":
        return _taken(shared[plan.cteId()], name, shared) if plan.cteId() in shared else _unknown(kind)
    below = [_taken(each, name, shared) for each in _each(plan.children())]
    uses = sum(used for used, _ in below)
    if uses == 0:
        return 0, False
    nothing = [none for _, none in below]
    match kind:
        case "Aggregate":
            return uses, nothing[0] and plan.groupingExpressions().size() > 0
        case "Join":
            left, right = nothing
            if not _by_keys(plan.condition()):
                raise Apart("the step behind has a join without keys, which may take it many times")
            match plan.joinType().sql():
                case "INNER":
                    return uses, left or right
                case "LEFT OUTER" | "LEFT SEMI" | "LEFT ANTI":
                    return uses, left
                case "RIGHT OUTER":
                    return uses, right
        case "Union":
            return uses, all(nothing)
        case _ if kind in _PASS:
            return uses, nothing[0]
    return _unknown(kind)


def _known(name: str) -> str:
    return f"__falkirk_{name}"


def _by_keys(condition: Any) -> bool:
    """True if a join's condition requires an equality."""
    terms = [] if condition.isEmpty() else [condition.get()]
    while terms:
        term = terms.pop()
        if term.nodeName() in ("EqualTo", "EqualNullSafe"):
            return True
        if term.nodeName() == "And":
            terms += [term.left(), term.right()]
    return False


def _unknown(kind: str) -> tuple[int, bool]:
    raise Apart(f"the step behind has {kind}")


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
