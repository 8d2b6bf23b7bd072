"""Digests of user functions and values of each operator, to detect changed code.

A store keeps them, to tell a program whose functions were changed from the one that wrote it. Seen are bytecode without lines
and file names, constants, names, defaults, plain values that are closed over or global, expressions of Polars by their text,
and so the functions and classes of the user's that a function names. Not seen are lists, dictionaries and other objects that
functions may change, paths, which say where and not what, functions of modules that are named by their module
(`module.function`), code in C, and what a class of the project's says (`says_where`) may be another in each run.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import hashlib
import os
import re
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from dis import hasconst, opmap
from enum import Enum
from fractions import Fraction
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple
from uuid import UUID

import polars as pl
import pyarrow as pa

from timely.dataflow.graph import Edge, Graph, Input, Node, Output
from timely.dataflow.wire import Wire
from timely.errors import PACKAGES, Site
from timely.operators.channels import Exchange
from timely.seen_functions import Functions

SCHEME = 1
"""Version of this format, raised when an unchanged program's digests would change."""

PYTHON = f"{sys.implementation.cache_tag}-O{sys.flags.optimize}"
"""Bytecode version of this Python; functions are comparable within it only."""

MOST = 1000
"""Maximum number of functions and objects inspected per operator, nearest first."""

LONG = 120
"""Text length limit; longer texts are kept as a digest only."""


def functions_of(graph: Graph) -> Functions:
    """The functions of the operators of `graph`."""
    codes: dict[int, _Code] = {}
    incoming = graph.incoming()
    of = {node.name: found for node in graph.nodes if (found := _of_node(node, incoming[node.index], codes))}
    sites = {node.name: str(node) for node in graph.nodes if node.name in of}
    return Functions(SCHEME, PYTHON, pl.__version__, of, sites)


def function_changes(before: Functions | None, now: Functions | None, code: bool = False) -> dict[str, list[str]]:
    """Changes of each operator's functions, one sentence each.

    Only operators in both programs are compared, as far as versions of Python and Polars allow.

    `code`: values do not count, which may differ between workers of one job.
    """
    if before is None or now is None or before.scheme != now.scheme:
        return {}
    kinds = [(_CODE, before.python == now.python), (_EXPRESSION, before.polars == now.polars and not code)]
    leave_out = tuple(kind for kind, alike in kinds if not alike)
    changes = {}
    for name, old in before.of.items():
        new = now.of.get(name)
        if new is not None and new != old:
            if code:
                old, new = (_only_code(each) for each in (old, new))
            if lines := _changes(old, new, leave_out):
                changes[name] = lines
    return changes


def _only_code(found: Mapping[str, str]) -> dict[str, str]:
    return {place: text for place, text in found.items() if text.startswith(_CODE)}


def _changes(before: Mapping[str, str], now: Mapping[str, str], leave_out: tuple[str, ...]) -> list[str]:
    lines = []
    for place, old in before.items():
        new = now.get(place)
        if new is None or new == old or (leave_out and (old.startswith(leave_out) or new.startswith(leave_out))):
            continue
        if old.startswith(_CODE) and new.startswith(_CODE):
            lines.append(f"the code of {place} is another one")
        else:
            lines.append(f"{place} was {_in_words(old)} and is {_in_words(new)}")
    if not lines and _CODE not in leave_out:  # code that was changed may well look at something else
        lines += [f"{place} is gone: it was {_in_words(old)}" for place, old in before.items() if place not in now]
        lines += [f"{place} is new: it is {_in_words(new)}" for place, new in now.items() if place not in before]
    return lines


def _in_words(text: str) -> str:
    if text.startswith(_EXPRESSION):
        return text.partition(" ")[2]
    return "a function" if text.startswith(_CODE) else text


# What is written down: a kind, and a text. Plain values are written as they are: of a text, that is with quotes.
_CODE = "code "
_EXPRESSION = "expression "
_PATH = "a path"


def _of_node(node: Node, incoming: list[Edge], codes: dict[int, _Code]) -> dict[str, str]:
    walk = _Walk(codes)
    for stage in node.stages:
        for each in (stage.each, stage.apply, stage.plan):
            walk.value(each, "the function", _OURS)
    walk.value(node.factory, "the operator", _OURS)
    for edge in incoming:
        if isinstance(edge.channel, Exchange):
            walk.value(edge.channel.key, f"the key of input {edge.target.port}", _OURS)
            walk.value(edge.channel.prepare, f"the key of input {edge.target.port}", _OURS)
    # Of those the functions count: where and how much they read and write is in their positions, or theirs to check.
    ends = _Walk(codes)
    ends.value(node.source, "the source", _INSIDE)
    ends.value(node.sink, "the sink", _INSIDE)
    return walk.finish() | _only_code(ends.finish())


# Whose value it is
_USERS = 0
_OURS = 1
"""Kind of value: held by Falkirk's code and never changed, as arguments of a verb."""
_INSIDE = 2
"""Kind of value: inside a changeable Falkirk object; only functions in it count."""

_PLAIN = frozenset(
    {int, float, complex, bool, type(...), range, Decimal, Fraction, UUID}
    | {dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
)
_SCHEMAS = (pl.Schema, pl.DataType, type(pl.Int64), pa.DataType, pa.Schema)
_LEFT_OUT = (Wire, Graph, Node, Input, Output, Site, ModuleType, os.PathLike)
_BUILT_IN = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)


class _Code(NamedTuple):
    """Summary of code: digest, globals read, and outer names assigned."""

    digest: str
    globals: list[str]
    stored: frozenset[str]


class _Walk:
    """Traversal of an operator's arguments; `found` has a text for each place."""

    def __init__(self, codes: dict[int, _Code]) -> None:
        self.found: dict[str, str] = {}
        self._seen: dict[int, Any] = {}
        """Visited objects by id, kept alive so that ids stay unique."""
        self._due: deque[tuple[Any, str, int]] = deque()
        self._codes = codes
        """Summaries by id of code object; the graph keeps those alive."""

    def finish(self) -> dict[str, str]:
        """Finish the traversal, and return all texts found."""
        while self._due:
            self._look(*self._due.popleft())
        return self.found

    def value(self, value: Any, place: str, whose: int) -> None:
        """Record `value` at `place`."""
        plain = _plain(value, whose != _USERS)
        if plain is not None:
            if whose != _INSIDE:
                self._put(place, plain)
            return
        if value is None or id(value) in self._seen or len(self._seen) > MOST or isinstance(value, _LEFT_OUT):
            return
        self._seen[id(value)] = value
        self._due.append((value, place, whose))

    def _look(self, value: Any, place: str, whose: int) -> None:
        if isinstance(value, FunctionType):
            self._function(value, place, whose)
        elif isinstance(value, MethodType):
            self.value(value.__func__, place, whose)
            self.value(value.__self__, place, whose)
        elif isinstance(value, functools.partial):
            self.value(value.func, place, whose)
            for name, each in [*enumerate(value.args), *sorted(value.keywords.items())]:
                self.value(each, f"argument {name} of {place}", whose)
        elif isinstance(value, _BUILT_IN):
            owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
            owner = owner if isinstance(owner, type | ModuleType) else type(owner)
            self._put(place, f"{_CODE}{owner.__name__}.{value.__name__}")
        elif isinstance(value, type):
            self._class(value, place)
        elif isinstance(value, pl.Expr):
            self._put(place, f"{_EXPRESSION}{_short(_ADDRESS.sub('', str(value)))}")
        elif isinstance(value, dict | list | tuple):
            if whose != _USERS or isinstance(value, tuple):
                for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                    self.value(each, f"{key!r} of {place}" if isinstance(key, str) else place, whose)
        else:
            self._object(value, place, whose)

    def _put(self, place: str, text: str) -> None:
        number = 1
        unique = place
        while unique in self.found:
            number += 1
            unique = f"{place} ({number})"
        self.found[unique] = text

    def _function(self, function: FunctionType, place: str, whose: int) -> None:
        code = function.__code__
        if _is_ours(function):
            for name, each in _closed_over(function):
                # What one of ours closes over is what a verb was given.
                here = name in ("function", "predicate", "factory") or (
                    isinstance(each, FunctionType) and _is_ours(each)
                )
                self.value(each, place if here else f"{name} of {place}", _INSIDE if whose == _INSIDE else _OURS)
            return
        if not is_users(code.co_filename):
            self._put(place, f"{_CODE}{function.__module__}.{function.__qualname__}")
            if hasattr(function, "__wrapped__"):  # functools.cache, contextlib.contextmanager
                self.value(function.__wrapped__, place, _USERS)
            return
        seen = self._code(code)
        self._put(place, f"{_CODE}{seen.digest}")
        if whose == _USERS:  # one that another one of the user's calls is known by its own name
            place = place.partition(" of ")[0]
        for name, each in _defaults(function):
            self.value(each, f"the default {name} of {place}", _USERS)
        for name, each in _closed_over(function):
            if name not in seen.stored:
                self.value(each, f"{name} of {place}", _USERS)
        for name in seen.globals:
            if name in function.__globals__:
                self.value(function.__globals__[name], f"{name} of {place}", _USERS)

    def _code(self, code: CodeType) -> _Code:
        known = self._codes.get(id(code))
        if known is None:
            names: set[str] = set()
            stored: set[str] = set()
            digest = _digest(repr(_described(code, names, stored)))
            known = self._codes[id(code)] = _Code(digest, sorted(names - stored), frozenset(stored))
        return known

    def _object(self, value: Any, place: str, whose: int) -> None:
        """Visit an object: its class, immutable fields, and attributes if callable."""
        kind: Any = type(value)
        ours = _is_ours(kind)
        if getattr(kind, "says_where", False):
            return  # and not what is done: it may be another in each run
        if dataclasses.is_dataclass(value) and (ours or kind.__dataclass_params__.frozen):
            self._class(kind, place)
            for field in dataclasses.fields(value):
                self.value(getattr(value, field.name, None), f"{field.name} of {place}", whose)
        elif ours and whose != _USERS:
            for name, each in sorted(getattr(value, "__dict__", {}).items()):
                self.value(each, f"{name.lstrip('_')} of {place}", _INSIDE)
        elif is_users_class(kind):
            self._class(kind, place)
            if callable(value) or whose != _USERS:
                for name, each in sorted(getattr(value, "__dict__", {}).items()):
                    self.value(each, f"{name} of {place}", _USERS)
        elif callable(value) and hasattr(value, "__wrapped__"):
            self.value(value.__wrapped__, place, whose)

    def _class(self, kind: type, place: str) -> None:
        """Visit methods and plain attributes of the user's classes in `kind`'s MRO."""
        if not is_users_class(kind):
            if not _is_ours(kind):
                self._put(place, f"{_CODE}{kind.__module__}.{kind.__qualname__}")
            return
        for base in kind.__mro__:
            if not is_users_class(base):
                continue
            if base is not kind:
                if id(base) in self._seen:
                    continue
                self._seen[id(base)] = base
            for name, each in sorted(vars(base).items()):
                if isinstance(each, FunctionType | staticmethod | classmethod | property | functools.cached_property):
                    for called in _called(each):
                        file = called.__code__.co_filename
                        if is_users(file) and not file.startswith("<string"):  # by which `dataclass` has written it
                            self.value(called, f"{base.__name__}.{name}", _USERS)
                elif name == "__dataclass_fields__" or not (name.startswith("__") and name.endswith("__")):
                    plain = _plain(tuple(each) if name == "__dataclass_fields__" else each, False)
                    if plain is not None:
                        self._put(f"{base.__name__}.{name}", plain)


def _called(each: Any) -> list[FunctionType]:
    """The functions of a method or a property."""
    if isinstance(each, property):
        found: tuple[Any, ...] = (each.fget, each.fset)
    elif isinstance(each, functools.cached_property):
        found = (each.func,)
    else:
        found = (getattr(each, "__func__", each),)
    return [function for function in found if isinstance(function, FunctionType)]


def _closed_over(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is not known yet
            continue


def _plain(value: Any, ours: bool) -> str | None:
    """Text of an immutable value, or one that is `ours`; None if not reproducible."""
    kind = type(value)
    if kind is str or kind is bytes:
        if ours:
            return _short(ascii(value))
        if kind is str and value.startswith(os.sep):
            return _PATH
        return f"a text ({_digest(ascii(value))})"  # it may be a secret
    if value is None:
        return None if ours else "None"
    if kind is re.Pattern:
        return _short(f"re.compile({value.pattern!a}, {value.flags})")
    if kind in _PLAIN:
        return _short(ascii(value))
    if isinstance(value, Enum):
        return f"{kind.__name__}.{value.name}"
    if isinstance(value, _SCHEMAS):
        return f"{_EXPRESSION}{_short(repr(value))}"
    if kind is tuple or (ours and kind is list) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        texts = [_plain(each, ours) for each in value]
        begin = "" if kind in (tuple, list) else kind.__name__
        return None if None in texts else _short(f"{begin}({', '.join(filter(None, texts))})")
    if kind is frozenset or (ours and kind is set):
        texts = [_plain(each, ours) for each in value]
        return None if None in texts else _short(f"{{{', '.join(sorted(filter(None, texts)))}}}")
    return None


def _short(text: str) -> str:
    if len(text) <= LONG:
        return text
    return f"{text[: LONG // 2]}... ({_digest(text)})"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    defaults = function.__defaults__ or ()
    code = function.__code__
    yield from zip(code.co_varnames[: code.co_argcount][-len(defaults) :] if defaults else (), defaults)
    yield from sorted((function.__kwdefaults__ or {}).items())


# Code

_FLAGS = 0x4 | 0x8 | 0x20 | 0x80 | 0x100 | 0x200
"""Relevant flags of code objects: variable arguments, generator, coroutine."""

_CONSTANT = frozenset(hasconst)
_LOAD_GLOBAL, _STORE_GLOBAL, _STORE_DEREF = opmap["LOAD_GLOBAL"], opmap["STORE_GLOBAL"], opmap["STORE_DEREF"]
_EXTENDED = opmap["EXTENDED_ARG"]
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def _described(code: CodeType, names: set[str], stored: set[str]) -> tuple[Any, ...]:
    """Description of code without lines, files and unused constants.

    `names` gets the names of the globals in it, and `stored` the names outside of it to which it gives other values.
    """
    steps = bytearray(code.co_code)
    constants: list[Any] = []
    extended = 0
    for place in range(0, len(steps), 2):
        step = steps[place]
        argument = steps[place + 1] | extended
        extended = argument << 8 if step == _EXTENDED else 0
        if step in _CONSTANT:
            constants.append(_constant(code.co_consts[argument], names, stored))
            steps[place + 1] = 0
        elif step == _LOAD_GLOBAL:
            names.add(code.co_names[argument >> 1])
        elif step == _STORE_GLOBAL:
            stored.add(code.co_names[argument])
        elif step == _STORE_DEREF:
            stored.add(code._varname_from_oparg(argument))  # type: ignore[attr-defined]
    arguments = code.co_argcount + code.co_kwonlyargcount
    return (
        bytes(steps),
        constants,
        code.co_names,
        code.co_freevars,
        code.co_varnames[:arguments],
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS),
        code.co_exceptiontable,
    )


def _constant(value: Any, names: set[str], stored: set[str]) -> Any:
    if isinstance(value, CodeType):
        return _described(value, names, stored)
    if isinstance(value, tuple):
        return tuple(_constant(each, names, stored) for each in value)
    if isinstance(value, frozenset):  # in the order of its hashes, which differ from process to process
        return "set", sorted(repr(_constant(each, names, stored)) for each in value)
    return type(value).__name__, repr(value)


# Whose code it is


def _is_ours(value: Any) -> bool:
    return (value.__module__ or "").partition(".")[0] in PACKAGES


@functools.cache
def is_users(file: str) -> bool:
    """True if code of this file is the user's, not of Python, a package or Falkirk."""
    return not (file.startswith(_LIBRARIES) or any(part in file for part in _INSTALLED) or file.startswith("<frozen "))


_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@functools.cache
def is_users_class(kind: type) -> bool:
    """True if a class is the user's."""
    if _is_ours(kind) or kind.__module__ == "builtins":
        return False
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:  # of a notebook, a script that came by value, or in C
        return not (module is not None and hasattr(module, "__spec__") and module.__spec__ is not None)
    return is_users(file)
