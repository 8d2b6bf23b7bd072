"""Sources and sinks, with their I/O; called by the runtime only.

The contract is in `interface`. Every source says whether it is `rereadable`, and whether it `repeats`: puts
the same into an epoch that is read again, whoever reads it when. Every sink says
whether it is `exactly_once`, and its docstring why; one with `outlives = False` keeps what it takes in its process only.

Enters: files, sockets, databases, objects of the program. Leaves: chunks with positions; files, rows, lines.
"""

from __future__ import annotations

from timely.io.any_files import Files
from timely.io.batches import Batches
from timely.io.console import Console
from timely.io.csv_files import Csv
from timely.io.file_sink import FileSink
from timely.io.interface import Chunk, End, Partition, Position, Sink, Source, Wait, Writer
from timely.io.iterable import Iterable
from timely.io.json_lines import JsonLines
from timely.io.memory import Callback, Memory
from timely.io.parquet_files import Parquet
from timely.io.rate import Rate
from timely.io.scripted import Abort, Eof, Pause, Scripted, ScriptedAbort
from timely.io.sockets import Listen, Socket
from timely.io.sqlite import SqliteSink
from timely.io.tables.delta_sink import DeltaSink
from timely.io.tables.delta_source import Delta
from timely.io.tables.iceberg_sink import IcebergSink
from timely.io.tables.iceberg_source import Iceberg

__all__ = [
    "Abort",
    "Batches",
    "Callback",
    "Chunk",
    "Console",
    "Csv",
    "Delta",
    "DeltaSink",
    "End",
    "Eof",
    "FileSink",
    "Files",
    "Iceberg",
    "IcebergSink",
    "Iterable",
    "JsonLines",
    "Listen",
    "Memory",
    "Parquet",
    "Partition",
    "Pause",
    "Position",
    "Rate",
    "Scripted",
    "ScriptedAbort",
    "Sink",
    "Socket",
    "Source",
    "SqliteSink",
    "Wait",
    "Writer",
]
