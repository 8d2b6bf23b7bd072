"""Errors of the libraries of tables, in words, and what to install where one is missing."""

from __future__ import annotations

from importlib import import_module

from timely.errors import FalkirkError, at_line, told


def need(package: str, extra: str, what: str, kind: type[FalkirkError]) -> None:
    """Load `package`. Raises `kind` with the user's line, and what to install, if it is not there."""
    try:
        import_module(package)
    except ImportError as error:
        raise kind(
            at_line(
                f"{what} needs the package {package}, which cannot be imported ({error}). Install it: pip install "
                f"'falkirk[{extra}]'"
            )
        ) from error


def said(error: Exception) -> str:
    """The class of a library's error and the first line of what it says: behind that come traces and addresses."""
    return told(error).splitlines()[0].rstrip(" .")
