"""Faults of user-defined operators, found before any data moves.

They are in the class, or in the `state` that it made.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from types import CodeType, FunctionType
from typing import Any

from timely.operators.base import Operator
from timely.state.interface import State

HANDLERS = tuple(name for name in vars(Operator) if name.startswith("on_"))
"""Methods called by the engine."""

_METHODS = tuple(name for name in vars(State) if not name.startswith("_"))

_OURS = ("timely.", "recovery.", "libraries.", "falkirk.")

_STATES = (
    "falkirk.KeyedState, TimedValues or TimedBatches, several of them as Parts, or an object with the methods of "
    "falkirk.State"
)


def fault_of(kind: type[Operator]) -> str | None:
    """The fault of a class of operators, with advice; None where there is none.

    A method with nearly the name of one that the engine calls is taken for that, unless the class calls it itself.
    """
    methods = dict(_own_methods(kind))
    called = {name for function in methods.values() for name in _names(function.__code__)}
    for name in methods:
        close = get_close_matches(name, HANDLERS, 1, 0.6 if name.startswith("on_") else 0.75)
        if close and name not in called and not hasattr(Operator, name):
            return f"nobody calls {name} of {kind.__name__}: the method is {close[0]}"
    if isinstance(kind.transient, str):
        return f"transient of {kind.__name__} is a text, and means each of its letters: write ({kind.transient!r},)"
    if kind.spans and kind.on_span is Operator.on_span and kind.on_notify_several is Operator.on_notify_several:
        return f"{kind.__name__} says spans = True, and has neither on_span nor on_notify_several: leave it away"
    if kind.undoes_spans and not kind.spans:
        return f"{kind.__name__} says undoes_spans = True, which means nothing without spans = True"
    if "state" in vars(kind) and hasattr(kind.__dict__["state"], "snapshot"):
        return f"state of {kind.__name__} is of the class, and all its operators would share it: make it in __init__"
    return None


def fault_of_state(operator: Operator) -> str | None:
    """Fault in the `state` of an operator, with advice; None if there is none."""
    state: Any = operator.state
    kind, of = type(state).__name__, type(operator).__name__
    if state is None:
        return None
    if isinstance(state, type):
        return f"state of {of} is the class {state.__name__}: make one of it, {state.__name__}()"
    missing = [name for name in _METHODS if not callable(getattr(state, name, None))]
    if not missing:
        return None
    if len(missing) < len(_METHODS):
        return f"state of {of} is a {kind}, and has no {' and no '.join(missing)}: a state is {_STATES}"
    return (
        f"state of {of} is a {kind}, which nobody would save or take back: a state is {_STATES}. What need not outlive a time "
        "can be an attribute of another name"
    )


def _own_methods(kind: type[Operator]) -> Iterator[tuple[str, FunctionType]]:
    """User-defined methods of a class."""
    for base in kind.__mro__:
        if base is not object and not f"{base.__module__}.".startswith(_OURS):
            yield from ((name, each) for name, each in vars(base).items() if isinstance(each, FunctionType))


def _names(code: CodeType) -> Iterator[str]:
    """All names used in a function and in functions nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
