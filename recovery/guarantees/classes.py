"""Classes of operators by dependence on the division of input into epochs.

Each class contains the ones before it, as in section 3.2 of Hwang and others. There a restart aligns windows anew; here what
may be aligned anew are epochs, for the state of an operator always comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from recovery.guarantees.repeating import obligation_of
from timely.dataflow.graph import Graph, Node
from timely.operators.base import Operator
from timely.operators.keyed import Distinct
from timely.operators.obligations import Obligation
from timely.state import is_transient


class OperatorClass(IntEnum):
    """Class of an operator; a greater one promises more."""

    ARBITRARY = 0
    """Output may differ each time."""
    DETERMINISTIC = 1
    """Records sent at a time follow from the input up to that time."""
    CONVERGENT_CAPABLE = 2
    """And the last value of each key follows from all input, in whatever epochs."""
    REPEATABLE = 3
    """All records sent follow from all input, in whatever epochs."""


_SAME_KEYS = {"exchange", "broadcast", "inspect", "map_values", "drop"}
"""Kinds of stages with the key of each pair or row kept."""


Operators = Mapping[int, Operator]
"""Operator of each node with a factory, by the node's index."""


def operators_of(graph: Graph) -> Operators:
    """One operator of each node, made to read its declarations."""
    return {node.index: node.factory() for node in graph.nodes if node.factory is not None}


def class_of(node: Node, operators: Operators) -> OperatorClass:
    """Class of an operator, given the input that it repeats over.

    `recovery.guarantees.repeating` says whether it is given that.
    """
    if why_arbitrary(node, operators) is not None:
        return OperatorClass.ARBITRARY
    operator = operators.get(node.index)
    in_one_scope = node.scope.depth == 1 or not _runs_on(operator)  # in a loop state ends with the epoch
    known = bool(node.stages) or operator is not None
    if (
        in_one_scope
        and known
        and all(obligation_of(node, operator, port) == Obligation.RECORD for port in range(node.inputs))
    ):
        return OperatorClass.REPEATABLE
    if node.scope.depth > 1 or not _runs_on(operator):
        return OperatorClass.DETERMINISTIC  # its state ends with the epoch, or with each time
    converges = operator is not None and operator.converges
    return OperatorClass.CONVERGENT_CAPABLE if converges else OperatorClass.DETERMINISTIC


def why_arbitrary(node: Node, operators: Operators) -> str | None:
    """Reason for different output when a time is redone; None if it is the same."""
    if node.nondeterministic is not None:
        return node.nondeterministic
    if node.holds and not (node.index in operators and operators[node.index].repeats):
        return "it may have work done outside of its worker, of which nobody knows that it gives the same again"
    return None


def keeps_keys(node: Node) -> bool:
    """True if each output pair has the key of an input pair."""
    return node.kind == "gate" or (bool(node.stages) and all(stage.kind in _SAME_KEYS for stage in node.stages))


def keeps_state(node: Node, operators: Operators) -> bool:
    """True if it keeps and declares state from one time to the next."""
    return _runs_on(operators.get(node.index))


def gives_each_once(node: Node, operators: Operators) -> bool:
    """True if it sends each record once, however often it receives it."""
    operator = operators.get(node.index)
    return isinstance(operator, Distinct) and node.scope.depth == 1 and _runs_on(operator)


def _runs_on(operator: Operator | None) -> bool:
    return operator is not None and operator.state is not None and not is_transient(operator.state)
