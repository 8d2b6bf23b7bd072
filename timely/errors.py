"""The errors that a user can meet. Each says what happened, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


class FalkirkError(Exception):
    """Root of everything that this project raises on purpose."""


class GraphError(FalkirkError):
    """The program does not describe a dataflow that can run: found while it is built, before any data moves."""


class CodecError(FalkirkError):
    """A value that must cross an exchange, a log or a checkpoint is of a type that the codec does not carry."""


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
    """Where in the user's program an operator was made."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
