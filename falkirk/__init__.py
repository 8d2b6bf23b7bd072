"""Falkirk: timely dataflow in Python. The public names, in one import.

>>> import falkirk
>>> flow = falkirk.Dataflow("lengths")
>>> lengths = flow.source("words", falkirk.Iterable(["timely", "dataflow"])).map(len).capture("lengths")
>>> falkirk.run(flow).captured("lengths")
[((0,), [6, 8])]

Each name is imported when it is first used: the command line answers before Arrow and Polars are loaded.
"""

from __future__ import annotations

from runtime.imports import mind_script

mind_script()  # before anything else is imported: beside the script there may be a queue.py

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from libraries import spark
    from recovery.policies import Batch, Ephemeral, Lazy, LogHistory
    from runtime.inputs import Limits
    from runtime.job import Result
    from runtime.session import Session
    from timely.dataflow.dataflow import Dataflow
    from timely.dataflow.windows import Epochs, Sliding, Tumbling, Window
    from timely.dataflow.windows import Session as SessionWindow
    from timely.errors import FalkirkError
    from timely.io import (
        Batches,
        Callback,
        Console,
        Csv,
        Files,
        FileSink,
        Iterable,
        JsonLines,
        Listen,
        Memory,
        Parquet,
        Rate,
        Scripted,
        Socket,
        SqliteSink,
    )
    from timely.operators import agg
    from timely.operators.base import Capability, Context, Operator
    from timely.time import END

__all__ = [
    "END",
    "Batch",
    "Batches",
    "Callback",
    "Capability",
    "Console",
    "Context",
    "Csv",
    "Dataflow",
    "Ephemeral",
    "Epochs",
    "FalkirkError",
    "FileSink",
    "Files",
    "Iterable",
    "JsonLines",
    "Lazy",
    "Limits",
    "Listen",
    "LogHistory",
    "Memory",
    "Operator",
    "Parquet",
    "Rate",
    "Result",
    "Scripted",
    "Session",
    "SessionWindow",
    "Sliding",
    "Socket",
    "SqliteSink",
    "Tumbling",
    "Window",
    "agg",
    "run",
    "spark",
]

_HOMES = {
    "END": "timely.time",
    "Batch": "recovery.policies",
    "Batches": "timely.io",
    "Callback": "timely.io",
    "Capability": "timely.operators.base",
    "Console": "timely.io",
    "Context": "timely.operators.base",
    "Csv": "timely.io",
    "Dataflow": "timely.dataflow.dataflow",
    "Ephemeral": "recovery.policies",
    "Epochs": "timely.dataflow.windows",
    "FalkirkError": "timely.errors",
    "FileSink": "timely.io",
    "Files": "timely.io",
    "Iterable": "timely.io",
    "JsonLines": "timely.io",
    "Lazy": "recovery.policies",
    "Limits": "runtime.inputs",
    "Listen": "timely.io",
    "LogHistory": "recovery.policies",
    "Memory": "timely.io",
    "Operator": "timely.operators.base",
    "Parquet": "timely.io",
    "Rate": "timely.io",
    "Result": "runtime.job",
    "Scripted": "timely.io",
    "Session": "runtime.session",
    "SessionWindow": "timely.dataflow.windows",
    "Sliding": "timely.dataflow.windows",
    "Socket": "timely.io",
    "SqliteSink": "timely.io",
    "Tumbling": "timely.dataflow.windows",
    "Window": "timely.dataflow.windows",
    "agg": "timely.operators.agg",
    "run": "falkirk.run_job",
    "spark": "libraries.spark",
}


_NAMES_THERE = {"SessionWindow": "Session"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'falkirk' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value = globals()[name] = home if name in ("agg", "spark") else getattr(home, _NAMES_THERE.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
