"""Checks of user arguments to sources and sinks, with the user's line in errors."""

from __future__ import annotations

import codecs
import math
import os
from collections.abc import Sequence
from typing import Any

from timely.errors import FalkirkError, SourceError, at_line


def whole(value: Any, what: str, least: int = 1, most: int | None = None) -> int:
    """Check for a whole number from `least` up."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least and (most is None or value <= most):
        return value
    bounds = f"{least} or more" if most is None else f"from {least} to {most}"
    raise SourceError(at_line(f"{what}={value!r}: must be a whole number, {bounds}."))


def above_zero(value: Any, what: str, kind: type[FalkirkError] = SourceError) -> float:
    """Check for a finite number above 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e300 and math.isfinite(value):
        return float(value)
    raise kind(at_line(f"{what}={value!r}: must be a finite number above 0."))


def function(value: Any, what: str, kind: type[FalkirkError] = SourceError) -> Any:
    """Check for a callable."""
    if callable(value):
        return value
    raise kind(at_line(f"{what} takes a function, not {value!r} ({type(value).__name__})."))


def path(value: Any, what: str, kind: type[FalkirkError] = SourceError) -> Any:
    """Check for the path of a file or folder."""
    if isinstance(value, str | os.PathLike) and value != "" and "\0" not in os.fspath(value):
        return value
    raise kind(at_line(f"{what} takes the path of a file or folder, not {value!r}."))


def paths(value: Any, what: str) -> Any:
    """Check for a path or a sequence of paths."""
    if isinstance(value, str | os.PathLike):
        return path(value, what)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [path(each, what) for each in value]
    raise SourceError(at_line(f"{what} takes a path, a glob, or a list of these, not {value!r}."))


def encoding(value: Any) -> Any:
    """Check for the name of an encoding, or None."""
    try:
        if value is None or codecs.lookup(value).name:
            return value
    except (LookupError, TypeError, ValueError):
        pass
    raise SourceError(at_line(f'encoding={value!r}: is not known. Take "utf-8", "latin-1", ..., or None for bytes.'))
