"""Memory, Callback and Console."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from timely.errors import SinkError
from timely.io import Callback, Console, Memory


def test_memory_shows_committed_epochs_in_order_and_replaces_on_replay() -> None:
    sink = Memory()
    one, two = sink.open(0, 2), sink.open(1, 2)
    two.write(0, [3])
    one.write(0, [1])
    one.write(1, pa.table({"n": [9]}))
    one.write(0, [2])
    assert sink.records() == []
    two.commit(0)
    one.commit(0)
    one.commit(1)
    assert sink.records(0) == [1, 2, 3]
    assert sink.records() == [1, 2, 3, {"n": 9}]
    assert sink.epochs == [0, 1]
    again = sink.open(0, 2)
    again.write(0, [1, 2])
    again.commit(0)
    assert sink.batches == [(0, [1, 2]), (0, [3]), (1, pa.table({"n": [9]}))]
    again.write(5, [0])
    again.abort()
    again.commit(5)
    assert sink.records(5) == []


def test_memory_gives_columns_as_one_table() -> None:
    sink = Memory()
    writer = sink.open(0, 1)
    writer.write(0, pa.table({"n": [1]}))
    writer.write(0, pl.DataFrame({"n": [2]}))
    writer.commit(0)
    assert sink.table()["n"].to_pylist() == [1, 2]
    writer.write(1, [3])
    writer.commit(1)
    with pytest.raises(SinkError, match=r"records\(\)"):
        sink.table()


def test_callback_is_called_when_an_epoch_is_complete() -> None:
    calls: list[Any] = []
    writer = Callback(lambda epoch, batch: calls.append((epoch, batch))).open(0, 1)
    writer.write(1, [1])
    writer.write(2, [3])
    writer.write(1, [2])
    assert calls == []
    writer.commit(1)
    assert calls == [(1, [1]), (1, [2])]
    writer.abort()
    writer.commit(2)
    assert len(calls) == 2


def test_an_error_in_a_callback_names_function_line_and_epoch() -> None:
    def explode(epoch: int, batch: Any) -> None:
        raise KeyError("gone")

    writer = Callback(explode).open(0, 1)
    writer.write(4, [1])
    with pytest.raises(
        SinkError, match=r"explode \(.*test_memory_sinks\.py:\d+\) raised KeyError at epoch 4"
    ) as caught:
        writer.commit(4)
    assert isinstance(caught.value.__cause__, KeyError)


def test_console_prints_a_line_a_record_at_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    writer = Console("out> ").open(0, 1)
    writer.write(3, ["a", ("b", 1)])
    writer.write(3, pa.table({"n": [1, 2]}))
    assert capsys.readouterr().out == ""
    writer.commit(3)
    writer.write(4, ["never"])
    writer.close()
    assert capsys.readouterr().out == "out> 3: a\nout> 3: ('b', 1)\nout> 3: {'n': 1}\nout> 3: {'n': 2}\n"


def test_console_says_when_nobody_reads_any_more() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = io.TextIOWrapper(io.FileIO(write, "w"))
    writer = Console(stream=stream).open(0, 1)
    writer.write(0, [1])
    with pytest.raises(SinkError, match="reader of the output gone away"):
        writer.commit(0)
    with contextlib.suppress(OSError):  # what was not printed is still in the stream
        stream.close()
