"""Public names of Falkirk, timely dataflow in Python.

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

from timely.preloaded import preload  # noqa: E402

preload(["libraries.columns.warm", "libraries.connect"])

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any, TypeAlias  # noqa: E402

if TYPE_CHECKING:
    from falkirk.saved_state import state
    from falkirk.upgrading import upgrade
    from libraries import differential, graph, lindi, spark
    from libraries.columns import agg
    from libraries.columns.verbs.changes import Changes
    from libraries.columns.verbs.columns import Columns, GroupBy, Stream
    from libraries.columns.verbs.dataflow import Dataflow
    from libraries.columns.verbs.windows import WindowedColumns as _WindowedColumns
    from libraries.connect import (
        Csv,
        Delta,
        DeltaSink,
        Files,
        FileSink,
        Iceberg,
        IcebergSink,
        JsonLines,
        Listen,
        Parquet,
        Socket,
        SqliteSink,
    )
    from libraries.sql.query import sql
    from recovery.policy import (
        Amnesia,
        AtLeastOnce,
        Batch,
        Eager,
        Ephemeral,
        Lazy,
        LogHistory,
        PassiveStandby,
        Snapshot,
    )
    from runtime.session.explain import Hold
    from runtime.session.handles import InputHandle, ProbeHandle
    from runtime.session.job import Result
    from runtime.session.session import Session
    from runtime.sources.limits import Limits
    from timely.data.codec import register
    from timely.dataflow.graph import Region, Scope
    from timely.dataflow.keyed import Keyed as _Keyed
    from timely.dataflow.windows import Epochs, Sliding, Tumbling, Window
    from timely.dataflow.windows import Session as SessionWindow
    from timely.dataflow.windows import Windowed as _Windowed
    from timely.dataflow.wire import Capture, Loop, Probe
    from timely.errors import FalkirkError
    from timely.io import (
        Abort,
        Batches,
        Callback,
        Chunk,
        Console,
        End,
        Eof,
        Iterable,
        Memory,
        Partition,
        Pause,
        Position,
        Rate,
        Scripted,
        Sink,
        Source,
        Wait,
        Writer,
    )
    from timely.operators.base import Capability, Context, Operator
    from timely.operators.channels import Broadcast, Exchange
    from timely.operators.process import Timers
    from timely.state import KeyedState, Parts, State, TimedBatches, TimedValues
    from timely.time import END, Frontier, Time

    # For type checkers: of which streams they are made.
    Keyed: TypeAlias = _Keyed[Stream]
    Windowed: TypeAlias = _Windowed[Keyed]
    WindowedColumns: TypeAlias = _WindowedColumns[Columns]

__all__ = [
    "END",
    "Abort",
    "Amnesia",
    "AtLeastOnce",
    "Batch",
    "Batches",
    "Broadcast",
    "Callback",
    "Capability",
    "Capture",
    "Changes",
    "Chunk",
    "Columns",
    "Console",
    "Context",
    "Csv",
    "Dataflow",
    "Delta",
    "DeltaSink",
    "Eager",
    "End",
    "Eof",
    "Ephemeral",
    "Epochs",
    "Exchange",
    "FalkirkError",
    "FileSink",
    "Files",
    "Frontier",
    "GroupBy",
    "Hold",
    "Iceberg",
    "IcebergSink",
    "InputHandle",
    "Iterable",
    "JsonLines",
    "Keyed",
    "KeyedState",
    "Lazy",
    "Limits",
    "Listen",
    "LogHistory",
    "Loop",
    "Memory",
    "Operator",
    "Parquet",
    "Partition",
    "Parts",
    "PassiveStandby",
    "Pause",
    "Position",
    "Probe",
    "ProbeHandle",
    "Rate",
    "Region",
    "Result",
    "Scope",
    "Scripted",
    "Session",
    "SessionWindow",
    "Sink",
    "Sliding",
    "Snapshot",
    "Socket",
    "Source",
    "SqliteSink",
    "State",
    "Stream",
    "Time",
    "TimedBatches",
    "TimedValues",
    "Timers",
    "Tumbling",
    "Wait",
    "Window",
    "Windowed",
    "WindowedColumns",
    "Writer",
    "agg",
    "differential",
    "graph",
    "lindi",
    "register",
    "run",
    "spark",
    "sql",
    "state",
    "upgrade",
]

_HOMES = {
    "END": "timely.time",
    "Abort": "timely.io",
    "Amnesia": "recovery.policy",
    "AtLeastOnce": "recovery.policy",
    "Batch": "recovery.policy",
    "Batches": "timely.io",
    "Broadcast": "timely.operators.channels",
    "Callback": "timely.io",
    "Capability": "timely.operators.base",
    "Capture": "timely.dataflow.wire",
    "Changes": "libraries.columns.verbs.changes",
    "Chunk": "timely.io",
    "Columns": "libraries.columns.verbs.columns",
    "Console": "timely.io",
    "Context": "timely.operators.base",
    "Csv": "libraries.connect",
    "Dataflow": "libraries.columns.verbs.dataflow",
    "Delta": "libraries.connect",
    "DeltaSink": "libraries.connect",
    "Eager": "recovery.policy",
    "End": "timely.io",
    "Eof": "timely.io",
    "Ephemeral": "recovery.policy",
    "Epochs": "timely.dataflow.windows",
    "Exchange": "timely.operators.channels",
    "FalkirkError": "timely.errors",
    "FileSink": "libraries.connect",
    "Files": "libraries.connect",
    "Frontier": "timely.time",
    "GroupBy": "libraries.columns.verbs.columns",
    "Hold": "runtime.session.explain",
    "Iceberg": "libraries.connect",
    "IcebergSink": "libraries.connect",
    "InputHandle": "runtime.session.session",
    "Iterable": "timely.io",
    "JsonLines": "libraries.connect",
    "Keyed": "timely.dataflow.keyed",
    "KeyedState": "timely.state",
    "Lazy": "recovery.policy",
    "Limits": "runtime.sources.driver",
    "Listen": "libraries.connect",
    "LogHistory": "recovery.policy",
    "Loop": "timely.dataflow.wire",
    "Memory": "timely.io",
    "Operator": "timely.operators.base",
    "Parquet": "libraries.connect",
    "Partition": "timely.io",
    "Parts": "timely.state",
    "PassiveStandby": "recovery.policy",
    "Pause": "timely.io",
    "Position": "timely.io",
    "Probe": "timely.dataflow.wire",
    "ProbeHandle": "runtime.session.session",
    "Rate": "timely.io",
    "Region": "timely.dataflow.graph",
    "Result": "runtime.session.job",
    "Scope": "timely.dataflow.graph",
    "Scripted": "timely.io",
    "Session": "runtime.session.session",
    "SessionWindow": "timely.dataflow.windows",
    "Sink": "timely.io",
    "Sliding": "timely.dataflow.windows",
    "Snapshot": "recovery.policy",
    "Socket": "libraries.connect",
    "Source": "timely.io",
    "SqliteSink": "libraries.connect",
    "State": "timely.state",
    "Stream": "libraries.columns.verbs.columns",
    "Time": "timely.time",
    "TimedBatches": "timely.state",
    "TimedValues": "timely.state",
    "Timers": "timely.operators.process",
    "Tumbling": "timely.dataflow.windows",
    "Wait": "timely.io",
    "Window": "timely.dataflow.windows",
    "Windowed": "timely.dataflow.windows",
    "WindowedColumns": "libraries.columns.verbs.windows",
    "Writer": "timely.io",
    "agg": "libraries.columns.agg",
    "differential": "libraries.differential",
    "graph": "libraries.graph",
    "lindi": "libraries.lindi",
    "register": "timely.data.codec",
    "run": "falkirk.run_job",
    "spark": "libraries.spark",
    "sql": "libraries.sql.query",
    "state": "falkirk.saved_state",
    "upgrade": "falkirk.upgrading",
}


_NAMES_THERE = {"SessionWindow": "Session"}
_MODULES = ("agg", "differential", "graph", "lindi", "spark")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'falkirk' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value = globals()[name] = home if name in _MODULES else getattr(home, _NAMES_THERE.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
