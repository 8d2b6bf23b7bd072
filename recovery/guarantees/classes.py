"""Classes of operators: how far what they give depends on the division of their input into epochs.

Each class contains the ones before it, as in section 3.2 of Hwang and others. There a restart aligns windows anew; here what
may be aligned anew are epochs, for the state of an operator always comes back.
"""

from __future__ import annotations

from enum import IntEnum

from timely.dataflow.graph import Node
from timely.operators.aggregate import ColumnAggregate
from timely.operators.base import Operator
from timely.operators.borders import Enter, Feedback, Leave
from timely.operators.column_join import ColumnJoin
from timely.operators.gate import Gate
from timely.operators.keyed import Distinct, KeyedJoin, Reduce
from timely.operators.shaping import AttemptOperator, Branch
from timely.state import is_transient


class OperatorClass(IntEnum):
    """The class of an operator; a greater one promises more."""

    ARBITRARY = 0
    """It may give something else each time."""
    DETERMINISTIC = 1
    """The records that it gives at a time follow from those that it was given up to that time."""
    CONVERGENT_CAPABLE = 2
    """And the last that it says of each key follows from all that it was given, in whatever epochs."""
    REPEATABLE = 3
    """The records that it gives follow from all that it was given, in whatever epochs."""


_SAME_KEYS = {"exchange", "broadcast", "inspect", "map_values", "drop"}
"""Kinds of stages behind which a pair, or a row, has the key that it had before."""


def class_of(node: Node) -> OperatorClass:
    """The class of an operator.

    What a program's own functions and operators do is taken to be deterministic, unless it says that it is not.
    """
    if why_arbitrary(node) is not None:
        return OperatorClass.ARBITRARY
    if node.stages:
        by_record = not any(stage.by_batch for stage in node.stages)
        return OperatorClass.REPEATABLE if by_record else OperatorClass.DETERMINISTIC
    return OperatorClass.DETERMINISTIC if node.factory is None else _class_of_operator(node, node.factory())


def why_arbitrary(node: Node) -> str | None:
    """The reason why an operator may send something else when it does a time again; None: it does not."""
    if node.nondeterministic is not None:
        return node.nondeterministic
    if node.holds and not (node.factory is not None and node.factory().repeats):
        return "it may have work done outside of its worker, of which nobody knows that it gives the same again"
    return None


def keeps_keys(node: Node) -> bool:
    """True if each pair that leaves has the key of one that came."""
    return node.kind == "gate" or (bool(node.stages) and all(stage.kind in _SAME_KEYS for stage in node.stages))


def keeps_state(node: Node) -> bool:
    """True if it keeps state from one time to the next, and tells of it."""
    operator = node.factory() if node.factory is not None else None
    return operator is not None and _runs_on(operator)


def gives_each_once(node: Node) -> bool:
    """True if it gives each record once, however often that is given to it."""
    operator = node.factory() if node.factory is not None else None
    return isinstance(operator, Distinct) and node.scope.depth == 1 and _runs_on(operator)


def _class_of_operator(node: Node, operator: Operator) -> OperatorClass:
    if isinstance(operator, Branch):
        return OperatorClass.REPEATABLE if operator.by_record else OperatorClass.DETERMINISTIC
    if isinstance(operator, AttemptOperator | Enter | Leave | Feedback | Gate):
        return OperatorClass.REPEATABLE
    if node.scope.depth > 1 or not _runs_on(operator):
        return OperatorClass.DETERMINISTIC  # its state ends with the epoch, or with each time
    if isinstance(operator, Distinct | KeyedJoin) or (
        isinstance(operator, ColumnJoin) and operator.how in ("inner", "semi")
    ):
        return OperatorClass.REPEATABLE
    if isinstance(operator, ColumnAggregate) and operator.ttl is not None:
        return OperatorClass.DETERMINISTIC
    if isinstance(operator, Reduce | ColumnAggregate):
        return OperatorClass.CONVERGENT_CAPABLE
    return OperatorClass.DETERMINISTIC


def _runs_on(operator: Operator) -> bool:
    return operator.state is not None and not is_transient(operator.state)
