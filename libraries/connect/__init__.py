"""Sources and sinks of other systems: files, tables, sockets, SQLite.

They keep the contract of `timely.io`. Every source says whether it is `rereadable`, and whether it `repeats`; every sink says
whether it is `exactly_once`, and its docstring why.

Enters: files, sockets, databases. Leaves: chunks with positions; files, rows, lines.
"""

from __future__ import annotations

from libraries.connect.files.any_files import Files
from libraries.connect.files.csv import Csv
from libraries.connect.files.json_lines import JsonLines
from libraries.connect.files.parquet import Parquet
from libraries.connect.files.sink import FileSink
from libraries.connect.sockets import Listen, Socket
from libraries.connect.sqlite import SqliteSink
from libraries.connect.tables.delta_sink import DeltaSink
from libraries.connect.tables.delta_source import Delta
from libraries.connect.tables.iceberg_sink import IcebergSink
from libraries.connect.tables.iceberg_source import Iceberg

__all__ = [
    "Csv",
    "Delta",
    "DeltaSink",
    "FileSink",
    "Files",
    "Iceberg",
    "IcebergSink",
    "JsonLines",
    "Listen",
    "Parquet",
    "Socket",
    "SqliteSink",
]
