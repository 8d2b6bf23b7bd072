"""Errors for users: cause, place and remedy."""

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
    """Base of all errors raised on purpose by this project.

    >>> try:
    ...     falkirk.run(falkirk.Dataflow("empty"))
    ... except falkirk.FalkirkError as error:
    ...     print("refused")
    refused
    """


class GraphError(FalkirkError):
    """Invalid dataflow program, found while it is built, before any data moves."""


class CodecError(FalkirkError):
    """Value of a type unknown to the codec, at an exchange, a log or a checkpoint."""


class ProtocolError(FalkirkError):
    """Bytes from another process or a store in no format of this version."""


class SourceError(FalkirkError):
    """Unreadable input: missing, cut off, or of another format."""


class SinkError(FalkirkError):
    """Failure to write output."""


class OperatorError(FalkirkError):
    """Failure of a user's function, or breach of the engine's rules; cause chained."""


class WorkerLost(FalkirkError):
    """Loss of a worker process, or of its connection, before the job was over."""


@dataclass(frozen=True, slots=True)
class Site:
    """Source line of an operator in the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def shown(value: object, limit: int = 300) -> str:
    """`repr` of `value` in at most `limit` characters.

    Where a user's `__repr__` raises, the text names that error.
    """
    try:
        text = repr(value)
    except Exception as error:
        if isinstance(value, list | tuple):
            text = ", ".join(shown(each, limit) for each in value[:3])
        else:
            text = f"<{type(value).__name__}, whose __repr__ raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


LONGEST_TEXT = 4000
"""Longest text shown of an error, in characters."""


def error_text(error: BaseException) -> str:
    """Class and message of an error.

    Where a user's `__str__` raises, the message names that error.
    """
    try:
        text = str(error)
    except Exception as another:
        text = f"<its __str__ raised {type(another).__name__}>"
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}... ({len(text):,} characters in all)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


PACKAGES = ("timely", "recovery", "monitor", "runtime", "libraries", "falkirk")
"""Packages of this project, lowest first.

Frames of their code are not the user's.
"""

_ROOT = str(Path(__file__).resolve().parent.parent) + os.sep
_NOT_THE_USERS = (
    *(_ROOT + package + os.sep for package in PACKAGES),
    contextlib.__file__,  # `with flow.region(...)`
)
_COMMAND_LINE = os.path.join(_ROOT, "falkirk", "cli.py")


def user_site() -> Site:
    """Innermost line of the call stack outside this project's code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _file_of(frame).startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def at_line(text: str) -> str:
    """`text` prefixed with the user's line in the call stack.

    It stays as it is where the user has written a command line.
    """
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
    """Decorator to add the calling user's line to errors without one."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except FalkirkError as error:
            name_the_line(error)
            raise

    return called


def name_the_line(error: FalkirkError) -> None:
    """Add the user's line to an error without one."""
    text = str(error)
    if error.args[:1] == (text,) and not _NAMES_A_LINE.search(text):
        error.args = (at_line(text), *error.args[1:])


def _file_of(frame: FrameType) -> str:
    """File of the running code; for a generated `__init__`, that of its dataclass."""
    file = frame.f_code.co_filename
    return str(frame.f_globals.get("__file__") or file) if file == "<string>" else file
