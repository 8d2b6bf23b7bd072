"""Modules of libraries, loaded by worker processes ahead of a program.

The engine imports no library, so whoever puts both together names them: the front door does. One that has a function
`warm_up()` runs there on a few rows what compiles at first use.
"""

from __future__ import annotations

from collections.abc import Iterable

MODULES: list[str] = []
"""Names of modules, in order."""


def preload(modules: Iterable[str]) -> None:
    """Add names of modules to those loaded by worker processes."""
    MODULES.extend(name for name in modules if name not in MODULES)
