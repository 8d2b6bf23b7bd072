"""Memory of a user operator beyond `state`: attributes, nested objects, closures.

A full history may end in a snapshot of `state` only where nothing else is kept. So an operator is inspected after
each event, and compared with its initial look. If the inspection fails, it counts as keeping more: then its history
stays whole, which is always right.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from logging import Logger
from pathlib import PurePath
from re import Pattern
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from types import MethodDescriptorType as _Method
from types import WrapperDescriptorType as _Wrapper
from typing import Any, TypeAlias
from uuid import UUID

import polars as pl
import pyarrow as pa

from recovery.layout import Layout
from timely.errors import OperatorError
from timely.operators.base import Capability, Context, Operator
from timely.operators.exchange_check import WRAPPED
from timely.state import Parts
from timely.worker.processor import build_operator
from timely.worker.worker import Worker

MOST = 512
"""Most values inspected in an operator; one with more counts as unknown.

It is inspected after every event.
"""

_PLAIN = frozenset(
    {int, complex, str, bytes, bool, type(None), range, Decimal, UUID}
    | {dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
)
_LISTS = frozenset({list, tuple, deque})
_DICTS = frozenset({dict, defaultdict, OrderedDict, Counter})
_CONSTANT = (
    type,
    ModuleType,
    Enum,
    Pattern,
    PurePath,
    Logger,
    Context,
    pa.DataType,
    pa.Schema,
    pl.Expr,
)
"""Types without memory of an operator's, compared by identity."""
_OURS = ("timely.", "recovery.", "libraries.")

Look: TypeAlias = list[Any] | None
"""Comparable snapshot of an operator; None if its memory cannot be inspected."""


class Unclear(Exception):
    """Object with memory out of reach of an inspection."""


class _Same:
    """Wrapper for comparison by identity.

    It keeps the object, so no other can come to have its address.
    """

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it

    __hash__ = None  # type: ignore[assignment]


def look(operator: Operator) -> Look:
    """Snapshot of `operator`, without `state`, transient and wrapped attributes."""
    walk = _Walk()
    state = operator.state
    for own in (state, *(state.parts if isinstance(state, Parts) else ())):
        walk.seen[id(own)] = -1
    walk.seen[id(operator)] = 0
    apart = {"state", *operator.transient}
    apart.update(name for name in WRAPPED if _is_wrapped(operator, vars(operator).get(name)))
    try:
        walk.parts(operator, apart)
    except (Unclear, RecursionError):
        return None
    return walk.tokens


def _is_wrapped(operator: Operator, method: Any) -> bool:
    """True for the operator's own method, or the engine's wrapper for a first batch."""
    if isinstance(method, MethodType):
        return method.__self__ is operator
    return isinstance(method, FunctionType) and method.__module__.startswith(_OURS)


class _Walk:
    """Traversal of all reachable objects, recording a token for each."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.seen: dict[int, int] = {}

    def value(self, value: Any) -> None:
        tokens, kind = self.tokens, type(value)
        if len(tokens) > MOST:
            raise Unclear
        if kind in _PLAIN:
            tokens += (kind, value)
        elif kind is float:
            tokens += (kind, value.hex())
        elif isinstance(value, _CONSTANT):
            tokens.append(_Same(value))
        elif id(value) in self.seen:
            tokens += ("again", self.seen[id(value)])
        else:
            self.seen[id(value)] = len(self.seen)
            tokens.append(kind)
            self._inside(value, kind)

    def _inside(self, value: Any, kind: type) -> None:
        if kind in _LISTS:
            self._all(value)
        elif kind in _DICTS:
            self.value(getattr(value, "default_factory", None))
            self._all([each for item in value.items() for each in item])
        elif kind is set or kind is frozenset:  # in no order, so only what is plain can be compared
            if len(value) > MOST or not all(type(each) in _PLAIN for each in value):
                raise Unclear
            self.tokens.append(frozenset((type(each), each) for each in value))
        elif kind is bytearray:
            if len(value) > MOST:
                raise Unclear
            self.tokens.append(bytes(value))
        elif kind is FunctionType:
            self.function(value)
        elif kind is MethodType:
            self._all((value.__func__, value.__self__))
        elif kind is BuiltinFunctionType:  # a function of a module, or the method of an object that may remember
            self._all((value.__name__, value.__self__))
        elif kind is partial:
            self._all((value.func, value.args, value.keywords))
        elif kind is CellType:
            self._cell(value)
        elif kind is Capability:
            self.tokens.append(value.time)
        elif _is_python(kind):
            self.parts(value, ())
        else:
            raise Unclear

    def _all(self, values: Any) -> None:
        if len(values) > MOST:
            raise Unclear
        self.tokens.append(len(values))
        for each in values:
            self.value(each)

    def function(self, function: FunctionType) -> None:
        """Record a function's memory: closure, defaults and attributes, not globals."""
        self.tokens.append(_Same(function.__code__))
        if function.__closure__:
            self._all(function.__closure__)
        if function.__defaults__:
            self.value(function.__defaults__)
        if function.__kwdefaults__:
            self.value(function.__kwdefaults__)
        if function.__dict__:
            self.value(function.__dict__)

    def _cell(self, cell: CellType) -> None:
        try:
            self.value(cell.cell_contents)
        except ValueError:
            self.tokens.append("empty")

    def parts(self, value: Any, apart: Any) -> None:
        """Record an object's attributes and its class's memory."""
        found = dict(getattr(value, "__dict__", {}))
        kind: Any = type(value)
        for name in _slots(kind):
            if hasattr(value, name):
                found[name] = getattr(value, name)
        for name in sorted(found.keys() - apart):
            self.tokens.append(name)
            self.value(found[name])
        for each in _of_class(kind):
            self.value(each)


@cache
def _slots(kind: Any) -> tuple[str, ...]:
    names = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                names.append(f"_{base.__name__.lstrip('_')}{name}")
            elif name not in ("__dict__", "__weakref__"):
                names.append(name)
    return tuple(names)


@cache
def _is_python(kind: Any) -> bool:
    """True if objects of this class hold attributes only, nothing written in C."""
    return all(
        not isinstance(each, _Wrapper | _Method | BuiltinFunctionType)
        for base in kind.__mro__
        if base is not object
        for each in vars(base).values()
    )


@cache
def _users(kind: Any) -> tuple[type, ...]:
    """User-defined classes among the bases of `kind`."""
    return tuple(base for base in kind.__mro__ if base is not object and not base.__module__.startswith(_OURS))


def _of_class(kind: Any) -> list[Any]:
    """Memory of user-defined classes: attributes, and functions with closures.

    Functions with defaults or attributes count as well.
    """
    found: list[Any] = []
    for base in _users(kind):
        for name, each in vars(base).items():
            if isinstance(each, FunctionType):
                function: Any = each
            elif name.startswith(("__", "_abc_")) or name == "transient":
                continue
            elif not hasattr(type(each), "__get__"):
                found += (name, each)
                continue
            else:  # what a descriptor wraps: of a static or class method, of a property
                function = getattr(each, "__func__", None) or getattr(each, "fget", None) or getattr(each, "func", None)
            if isinstance(function, FunctionType) and (
                function.__closure__ or function.__defaults__ or function.__kwdefaults__ or function.__dict__
            ):
                found.append(function)
    return found


class OperatorMemory:
    """Initial snapshots of a worker's user operators with full histories."""

    def __init__(self, layout: Layout, worker: Worker) -> None:
        self._worker = worker
        self.of = frozenset(
            p for p, info in enumerate(layout.processors) if info.history and info.kind in ("unary", "binary")
        )
        self._made = {p: look(worker.runtimes[p].operator) for p in self.of}
        self._first: dict[int, Look] = {}
        """Snapshots of new operators, for those built alike each time."""
        for p in self.of:
            again = look(build_operator(worker.runtimes[p].processor, []))
            if again == self._made[p]:
                self._first[p] = again

    def made(self, p: int, operator: Operator) -> None:
        """Record a new operator of processor `p`, before it handles anything.

        Raises OperatorError if it begins with what another one has left: then no replay can be right.
        """
        if p not in self.of:
            return
        now = self._made[p] = look(operator)
        first = self._first.get(p)
        if now is not None and first is not None and now != first:
            node = self._worker.runtimes[p].processor.node
            raise OperatorError(
                f"{node} remembers something outside of {type(operator).__name__}, in a class or in a function around it, so "
                "a new one begins with what the one before has left, and its history cannot be replayed in this process: "
                "keep it in attributes, set in __init__. What is in the store is safe: run the job again"
            )

    def keeps(self, p: int, operator: Operator | None = None) -> bool:
        """True if processor `p` keeps memory beyond its `state`, or may do so."""
        now = look(operator or self._worker.runtimes[p].operator)
        return now is None or now != self._made[p]

    def watched(self) -> dict[int, Callable[[], bool]]:
        """Tests for further memory, by processor with a `state`."""
        return {p: partial(self.keeps, p) for p in self.of if self._worker.runtimes[p].operator.state is not None}
