"""All that an operator of the user's keeps, its `state` aside: attributes, what is deep inside them, closures.

A full history may end in a snapshot of `state` only where nothing else is kept. So an operator is looked at after each event,
and compared with how it looked when it was made. Where that cannot be told, it counts as keeping more: then its history stays
whole, which is always right.
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
from timely.operators.carried import WRAPPED
from timely.state import Parts
from timely.worker.processor import build_operator
from timely.worker.worker import Worker

MOST = 512
"""Of an operator with more to look at than so many values nobody can tell, for it is looked at after every event."""

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
"""Types that remember nothing, or nothing of an operator's: values are the same if they are the same object."""
_OURS = ("timely.", "recovery.", "libraries.")

Look: TypeAlias = list[Any] | None
"""Equal for operators that keep the same; None where nobody can tell."""


class Unclear(Exception):
    """There is something that cannot be looked into."""


class _Same:
    """Stands for an object that is equal to itself only. It keeps the object, so no other can come to have its address."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it

    __hash__ = None  # type: ignore[assignment]


def look(operator: Operator) -> Look:
    """A snapshot of `operator`. Its `state`, its transient attributes and the methods that the engine wraps do not count."""
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
    """True if this is the method, or what the engine has put around it for the first batch."""
    if isinstance(method, MethodType):
        return method.__self__ is operator
    return isinstance(method, FunctionType) and method.__module__.startswith(_OURS)


class _Walk:
    """Goes through everything that can be reached, and writes down what it finds."""

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
        """A function remembers in what it closes over, in its defaults and in attributes; not in what is global."""
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
        """The attributes of an object, and what its class remembers."""
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
    """True if all that objects of this class hold are attributes: nothing of it is written in C."""
    return all(
        not isinstance(each, _Wrapper | _Method | BuiltinFunctionType)
        for base in kind.__mro__
        if base is not object
        for each in vars(base).values()
    )


@cache
def _users(kind: Any) -> tuple[type, ...]:
    """The classes of the user's that `kind` is made of."""
    return tuple(base for base in kind.__mro__ if base is not object and not base.__module__.startswith(_OURS))


def _of_class(kind: Any) -> list[Any]:
    """The means by which a class of the user's remembers: its attributes, and functions that are more than their code."""
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
    """The user's operators with full histories on one worker: how they looked when they were made."""

    def __init__(self, layout: Layout, worker: Worker) -> None:
        self._worker = worker
        self.of = frozenset(
            p for p, info in enumerate(layout.processors) if info.history and info.kind in ("unary", "binary")
        )
        self._made = {p: look(worker.runtimes[p].operator) for p in self.of}
        self._first: dict[int, Look] = {}
        """Snapshots of new operators; only of those that are made in the same way each time."""
        for p in self.of:
            again = look(build_operator(worker.runtimes[p].processor, []))
            if again == self._made[p]:
                self._first[p] = again

    def made(self, p: int, operator: Operator) -> None:
        """Processor `p` has a new operator, which has not handled anything yet.

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
        """True if processor `p` keeps anything now but its `state`, or nobody can tell."""
        now = look(operator or self._worker.runtimes[p].operator)
        return now is None or now != self._made[p]

    def watched(self) -> dict[int, Callable[[], bool]]:
        """Those with a `state`, each with the question whether it keeps more."""
        return {p: partial(self.keeps, p) for p in self.of if self._worker.runtimes[p].operator.state is not None}
