"""Bytes that were made to do harm: they name no module that is not here, and make nothing that is larger than they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from libraries.connect import JsonLines
from timely.data.codec import decode, decode_batch, encode_batch
from timely.data.messages import Message
from timely.errors import CodecError, ProtocolError, SourceError
from timely.worker.outbox import decode_message


def test_bytes_import_nothing(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("def __getattr__(name):\n    import package.inner\n    return package.inner\n")
    (package / "inner.py").write_text("print('imported')\n")
    program = (
        "import sys, msgspec, package\nfrom timely.data.codec import decode\nfrom timely.errors import CodecError\n"
        "before = set(sys.modules)\n"
        "for column in ([48, 'package.inner:X', ['a'], [1, 1, [1]]], [49, 'package:inner', ['A']],\n"
        "               [49, 'antigravity:X', ['A']], [49, 'package:inner.X', ['A']],\n"
        "               [28, ['package.inner/x']], [28, ['../package/x']]):\n"
        "    try:\n        decode(msgspec.msgpack.encode(column))\n    except CodecError:\n        pass\n"
        "    else:\n        raise SystemExit(f'{column} was read')\n"
        "assert set(sys.modules) == before, set(sys.modules) - before\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "column",
    [
        [4, 1 << 27, 0, []],
        [4, 1 << 27, 0, None],
        [4, 0, 1 << 60, None],
        [4, 1, 1 << 40, [1]],
        [4, 1 << 62, [0] * 9, [1]],
        [4, 1 << 62, b"\x00" * 9, [1]],
        [20, [0, ["a"]], [1 << 27, 0, []]],
        [35, [1 << 31]],
        [58, [1 << 31]],
        [16, [5, -5] * 10 + [3], [0, [1, 2, 3]]],
        [1, b"\x00" * 9, [0, []]],
        [56, ["|O8"], [b"12345678"]],
        [56, ["(9999999,9999999)f8"], [b"12345678"]],
    ],
    ids=repr,
)
def test_numbers_in_a_value_ask_for_no_more_than_there_is(column: list[Any]) -> None:
    with pytest.raises(CodecError, match="damaged value"):
        decode(msgspec.msgpack.encode(column))


@pytest.mark.parametrize("kind", ["<M8", [["at", "<M8"]], [["at", "<M8", [2]]]], ids=repr)
def test_dates_that_cannot_be_shown_are_refused_and_no_date_is_one(kind: Any) -> None:
    count = 2 if len(kind[0]) == 3 else 1
    array = [59, [0, [kind]], [[1]], ["C"], [np.int64(7).tobytes() * count]]
    with pytest.raises(CodecError, match="a date without a unit"):
        decode(msgspec.msgpack.encode(array))
    array[-1] = [np.int64(-(1 << 63)).tobytes() * count]
    assert "NaT" in repr(decode(msgspec.msgpack.encode(array)))


def _stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


HEADER = encode_batch(pa.table({"a": [1]}))[0]
FRAME_HEADER = encode_batch(pl.DataFrame({"a": [1]}))[0]


@pytest.mark.parametrize("dictionary", [False, True])
def test_compressed_columns_are_refused(dictionary: bool) -> None:
    text = pa.array(["a" * 1000] * 100)
    table = pa.table({"a": text.dictionary_encode() if dictionary else text})
    assert decode_batch(HEADER, _stream(table)).equals(table)
    with pytest.raises(CodecError, match="compressed"):
        decode_batch(HEADER, _stream(table, compression="zstd"))


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(1 << 25),
        pa.RunEndEncodedArray.from_arrays([1 << 25], ["x"]),
        pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 25), 1 << 25),
    ],
    ids=["nulls", "runs", "one list"],
)
def test_rows_that_take_no_bytes_are_few(column: Any) -> None:
    table = pa.table({"a": column})
    if len(table) > 1 << 24:
        with pytest.raises(CodecError, match="give a column a type"):
            encode_batch(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(CodecError, match="type"):
        decode_batch(HEADER, sink.getvalue())


def test_columns_that_would_read_memory_of_others_are_refused_unless_the_sender_is_trusted() -> None:
    table = pa.table({"a": ["abc", "de"]})
    payload = bytearray(encode_batch(table)[1][0])
    offsets = payload.index(b"\x00\x00\x00\x00\x03\x00\x00\x00\x05\x00\x00\x00")
    payload[offsets + 8 : offsets + 12] = (1 << 30).to_bytes(4, "little")
    for header in (HEADER, FRAME_HEADER):
        with pytest.raises(CodecError, match="damaged columns"):
            decode_batch(header, bytes(payload))
        with pytest.raises(CodecError, match="damaged columns"):
            decode_message(Message(0, 1, (0,), (0,), header, [bytes(payload)]))
    # Within one job on one host nobody looks: who wrote it has read it already.
    assert len(decode_message(Message(0, 1, (0,), (0,), HEADER, [bytes(payload)], trusted=True))) == 2


def test_names_with_nul_are_refused() -> None:
    with pytest.raises(CodecError, match="named"):
        encode_batch(pl.DataFrame({"a\0b": [1]}))
    table = pa.table({"a\0b": [1]})
    assert decode_batch(HEADER, encode_batch(table)[1][0]).equals(table)
    with pytest.raises(CodecError, match="NUL"):
        decode_batch(FRAME_HEADER, encode_batch(table)[1][0])


@pytest.mark.parametrize("lines", ["null\n", 'null\n{"a": 1}\n', '{"a": 1}\nnull\n', '{"a": 1} null\n', "\n null \n"])
@pytest.mark.parametrize("as_records", [False, True])
def test_null_is_no_json_object(tmp_path: Path, lines: str, as_records: bool) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(lines)
    with pytest.raises(SourceError, match=r"line \d: this is not"):
        JsonLines(file, as_records=as_records).partitions(0, 1)[0].read()


def test_an_error_of_a_message_says_what_was_read() -> None:
    from recovery.protocol import decode_to_monitor
    from runtime.hosts.host import read_greeting

    deep = b"\x91" * 100_000
    for data in (
        b"",
        b"\xc1",
        b"\xa2\xff\xff",
        deep,
        b"\x81\xa4type\xa2\xff\xff",
        json.dumps({"type": "Join"}).encode(),
    ):
        with pytest.raises(ProtocolError, match=r"^a message of a worker cannot be read: "):
            decode_to_monitor(data)
        with pytest.raises(ProtocolError, match=r"^the greeting of another worker cannot be read: "):
            read_greeting(data)


def of_unknown_type(table: pa.Table) -> Iterator[bytes]:
    """The columns of a table of `month_day_nano_interval`, as such of the types of intervals that Python has nothing for."""
    data = _stream(table)
    schema = data[: 8 + int.from_bytes(data[4:8], "little")]
    for at, byte in enumerate(schema):
        for unit in (0, 1) if byte == 2 else ():
            changed = data[:at] + bytes([unit]) + data[at + 1 :]
            with suppress(pa.ArrowException, OSError):
                kind = str(pa.ipc.open_stream(changed).schema)
                if "day_time_interval" in kind or "month_interval" in kind:
                    yield changed


def test_types_for_which_python_has_nothing_are_refused() -> None:
    values = pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())])
    inside = pa.ListArray.from_arrays([0, 1], values)
    for column in (values, inside, pa.StructArray.from_arrays([inside], ["a"])):
        found = list(of_unknown_type(pa.table({"a": column})))
        assert found
        for data in found:
            with pytest.raises(CodecError, match="there is nothing in Python for"):
                decode_batch(HEADER, data)
