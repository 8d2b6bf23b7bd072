"""Detection of unsaved attributes kept by user operators across times.

Where all that came has been dealt with, an operator must look as it did when it was made, but for its `state`. It is compared
at cuts, and made so in a rollback; at a cut containers may hold what belongs to later times that are under way. What is
compared is which objects the attributes are, and of plain containers what they hold: what an operator changes deep inside an
object of its own is not seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, TypeAlias

from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound, at_cut, within
from timely.dataflow.graph import Node
from timely.errors import OperatorError
from timely.operators.base import Capability, Operator
from timely.operators.exchange_check import WRAPPED
from timely.state import State
from timely.worker.worker import Worker

_MOST = 64
"""Largest container compared by elements; of larger ones only the length counts."""

_PLAIN = (int, float, str, bytes, bool, type(None), tuple, frozenset)
_CONTAINERS = (list, dict, set, deque, bytearray)

_Look: TypeAlias = dict[str, tuple[Any, Any]]
"""Object and copied content of each attribute, by name."""


class Attributes:
    """Attributes of a worker's user operators, but for those restored by replay."""

    def __init__(self, layout: Layout, worker: Worker, recorder: WorkerRecorder) -> None:
        self._layout = layout
        self._worker = worker
        self._recorder = recorder
        self._of = [
            p for p, info in enumerate(layout.processors) if info.kind in ("unary", "binary") and not info.history
        ]
        self._looks: dict[int, tuple[Operator, _Look]] = {}
        self._states: dict[int, State | None] = {}
        self.look()

    def look(self) -> None:
        """Record initial attributes of new operators, before these handle anything."""
        for p in self._of:
            operator = self._worker.runtimes[p].operator
            now = _look(operator)
            if p not in self._looks or self._looks[p][0] is not operator:
                self._states[p] = operator.state
            if p not in self._looks:
                self._looks[p] = (operator, now)
            elif self._looks[p][0] is not operator:  # which may have heard of its capabilities already
                made = {name: seen for name, seen in self._looks[p][1].items() if _is_comparable(*seen)}
                self._looks[p] = (operator, now | made)

    def changed(self, p: int) -> list[str]:
        """Attributes of processor `p` visibly different from their initial values."""
        if p not in self._looks:
            return []
        operator, before = self._looks[p]
        now = _look(operator)
        return sorted(
            name
            for name in before.keys() | now.keys()
            if (name not in before or name not in now or not _same(before[name], now[name]))
            # A capability is given back after a rollback: those for later times by on_restore, others in an event.
            and not isinstance(vars(operator).get(name), Capability)
        )

    def check(self, group: int, at: Bound) -> None:
        """Check a group before a cut; raise OperatorError for unsaved attributes."""
        for p in self._layout.members(group):
            if p in self._looks:
                operator = self._worker.runtimes[p].operator
                if operator.state is not self._states[p]:
                    raise OperatorError(
                        f"{self._worker.runtimes[p].processor.node} has another `state` than {type(operator).__name__} was "
                        "made with, and nobody could go back to what that held: change what is in the state"
                    )
                names = [name for name in self.changed(p) if name not in operator.transient]
                if names and not self._at_rest(p, at_cut(at, self._layout.processors[p].depth)):
                    names = [name for name in names if not isinstance(vars(operator).get(name), _CONTAINERS)]
                if names:
                    raise _error(self._worker.runtimes[p].processor.node, type(operator).__name__, names)

    def _at_rest(self, p: int, bound: Bound) -> bool:
        return (
            not self._worker.runtimes[p].ctx.pending
            and not any(op == p for op, _ in self._worker.held)
            and all(within(delivered, bound) for delivered in self._recorder.delivered_bounds(p))
        )


def _error(node: Node, kind: str, names: list[str]) -> OperatorError:
    listed = " and ".join(f"`{name}`" for name in names)
    return OperatorError(
        f"{node} keeps {listed} of {kind} from one time to the next, which nobody would remember after a failure: keep it in "
        "`state` instead (falkirk.KeyedState, TimedValues, TimedBatches, Parts), or give the operator .policy(LogHistory()), "
        f"which brings back attributes as well. If no result depends on it, say so in class {kind}: transient = "
        f"({', '.join(map(repr, names))},)"
    )


def _look(operator: Operator) -> _Look:
    return {
        name: (value, _content(value))
        for name, value in getattr(operator, "__dict__", {}).items()
        if name not in ("state", *WRAPPED)
    }


def _content(value: Any) -> Any:
    if not isinstance(value, _CONTAINERS):
        return None
    if len(value) > _MOST:
        return len(value)
    return [each for item in value.items() for each in item] if isinstance(value, Mapping) else list(value)


def _is_comparable(value: Any, held: Any) -> bool:
    """True if equally built operators have equal values here.

    Other objects are different in each operator.
    """
    if isinstance(value, _CONTAINERS):
        return not isinstance(held, list) or all(map(_is_plain, held))
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _same(before: tuple[Any, Any], now: tuple[Any, Any]) -> bool:
    (old, held), (new, holds) = before, now
    if held is None or type(old) is not type(new):
        return _equal(old, new)
    if isinstance(held, list) and isinstance(holds, list):
        return len(held) == len(holds) and all(map(_equal, held, holds))
    return bool(held == holds)


def _equal(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and bool(one == other))
