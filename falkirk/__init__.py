"""Falkirk: timely dataflow in Python. The public names, in one import.

>>> import falkirk
>>> flow = falkirk.Dataflow("lengths")
>>> lengths = flow.source("words", falkirk.Iterable(["timely", "dataflow"])).map(len).capture("lengths")
>>> falkirk.run(flow).captured("lengths")
[((0,), [6, 8])]
"""

from timely.dataflow import Dataflow
from timely.drivers.inputs import Limits
from timely.drivers.session import Session
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
from timely.run import Result, run
from timely.windows import Epochs, Sliding, Tumbling, Window
from timely.windows import Session as SessionWindow

__all__ = [
    "Batches",
    "Callback",
    "Capability",
    "Console",
    "Context",
    "Csv",
    "Dataflow",
    "Epochs",
    "FalkirkError",
    "FileSink",
    "Files",
    "Iterable",
    "JsonLines",
    "Limits",
    "Listen",
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
]
