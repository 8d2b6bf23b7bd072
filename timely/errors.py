"""The errors that a user can meet. Each says what happened, where, and what to do about it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar


class FalkirkError(Exception):
    """Root of everything that this project raises on purpose.

    >>> try:
    ...     falkirk.run(falkirk.Dataflow("empty"))
    ... except falkirk.FalkirkError as error:
    ...     print("refused")
    refused
    """


class GraphError(FalkirkError):
    """The program does not describe a dataflow that can run: found while it is built, before any data moves."""


class CodecError(FalkirkError):
    """A value that must cross an exchange, a log or a checkpoint is of a type that the codec does not carry."""


class ProtocolError(FalkirkError):
    """Bytes from another process or a store are nothing that this version of the project writes."""


class SourceError(FalkirkError):
    """Input cannot be read: missing, cut off, or not what it was said to be."""


class SinkError(FalkirkError):
    """Output cannot be written."""


class OperatorError(FalkirkError):
    """A user's function raised, or broke the engine's rules; the cause is chained."""


class WorkerLost(FalkirkError):
    """A worker process ended, or its connection closed, before the job was over."""


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's program, in which an operator was made."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def shown(value: object, limit: int = 300) -> str:
    """`value` as Python writes it, in at most `limit` characters. Where a user's `__repr__` raises, that is said instead."""
    try:
        text = repr(value)
    except Exception as error:
        if isinstance(value, list | tuple):
            text = ", ".join(shown(each, limit) for each in value[:3])
        else:
            text = f"<{type(value).__name__}, whose __repr__ raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


LONGEST_TEXT = 4000
"""The most characters that are shown of what an error says."""


def told(error: BaseException) -> str:
    """The class of an error and what it says. Where a user's `__str__` raises, that is said instead."""
    try:
        text = str(error)
    except Exception as another:
        text = f"<its __str__ raised {type(another).__name__}>"
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}... ({len(text):,} characters in all)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


PACKAGES = ("timely", "recovery", "monitor", "runtime", "libraries", "falkirk")
"""The project's own packages, lowest first: frames of their code are not the user's."""

_ROOT = str(Path(__file__).resolve().parent.parent) + os.sep
_NOT_THE_USERS = (
    *(_ROOT + package + os.sep for package in PACKAGES),
    contextlib.__file__,  # `with flow.region(...)`
)
_COMMAND_LINE = os.path.join(_ROOT, "falkirk", "cli.py")


def user_site() -> Site:
    """The innermost line of the call stack that is not this project's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _file_of(frame).startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def at_line(text: str) -> str:
    """`text`, about what the user has written, behind his line; alone where the command line itself is what he wrote."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _file_of(frame).startswith(_NOT_THE_USERS):
        if _file_of(frame) == _COMMAND_LINE:
            return text
        frame = frame.f_back
    return text if frame is None else f"{Site(frame.f_code.co_filename, frame.f_lineno)}: {text}"


_NAMES_A_LINE = re.compile(r"\([^()]+:\d+\)|^\S+:\d+(: | in )")

P = ParamSpec("P")
R = TypeVar("R")


def naming_the_line(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose errors name the user's line that called it, where they name none."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except FalkirkError as error:
            name_the_line(error)
            raise

    return called


def name_the_line(error: FalkirkError) -> None:
    """Add the user's line to an error that names none."""
    text = str(error)
    if error.args[:1] == (text,) and not _NAMES_A_LINE.search(text):
        error.args = (at_line(text), *error.args[1:])


def _file_of(frame: FrameType) -> str:
    """The file of the code that runs; for the `__init__` that `dataclass` has written, that of its class."""
    file = frame.f_code.co_filename
    return str(frame.f_globals.get("__file__") or file) if file == "<string>" else file
