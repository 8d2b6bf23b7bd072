"""Interface of sources and sinks, and the simplest ones; for the runtime.

The contract is in `interface`. Every source says whether it is `rereadable`, and whether it `repeats`: puts
the same into an epoch that is read again, whoever reads it when. Every sink says
whether it is `exactly_once`, and its docstring why; one with `outlives = False` keeps what it takes in its process only.

Files, tables, sockets and databases are in `libraries.connect`.

Enters: objects of the program, a seed, a clock. Leaves: chunks with positions; lines, calls, lists.
"""

from __future__ import annotations

from timely.io.batches import Batches
from timely.io.console import Console
from timely.io.interface import Chunk, End, Partition, Position, Sink, Source, Wait, Writer
from timely.io.iterable import Iterable
from timely.io.memory import Callback, Memory
from timely.io.rate import Rate
from timely.io.scripted import Abort, Eof, Pause, Scripted, ScriptedAbort

__all__ = [
    "Abort",
    "Batches",
    "Callback",
    "Chunk",
    "Console",
    "End",
    "Eof",
    "Iterable",
    "Memory",
    "Partition",
    "Pause",
    "Position",
    "Rate",
    "Scripted",
    "ScriptedAbort",
    "Sink",
    "Source",
    "Wait",
    "Writer",
]
