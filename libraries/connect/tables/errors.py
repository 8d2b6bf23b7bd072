"""Errors of the lakehouse libraries, and of missing packages."""

from __future__ import annotations

from importlib import import_module

from timely.errors import FalkirkError, at_line, error_text


def need(package: str, extra: str, what: str, kind: type[FalkirkError]) -> None:
    """Import `package`, or raise `kind` with the user's line and the remedy.

    It says what to install.
    """
    try:
        import_module(package)
    except ImportError as error:
        raise kind(
            at_line(
                f"{what} needs the package {package}, which cannot be imported ({error}). Install it: pip install "
                f"'falkirk[{extra}]'"
            )
        ) from error


def error_line(error: Exception) -> str:
    """Class and first line of a library's error.

    Behind the first line come traces and addresses.
    """
    return error_text(error).splitlines()[0].rstrip(" .")
