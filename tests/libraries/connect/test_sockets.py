"""Lines over real sockets on this machine."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.connect import Listen, Socket
from libraries.connect.lines import LONGEST_LINE, LineBuffer
from timely.errors import SourceError
from timely.io import Chunk, End, Wait


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        yield listening


def next_of(partition: Any) -> Any:
    """The next thing that is not a wait, waiting as a driver would."""
    for _ in range(100):
        result = partition.read()
        if not isinstance(result, Wait):
            return result
        assert result.fileno is not None
        select.select([result.fileno], [], [], 0.5 if result.seconds is None else result.seconds)
    raise AssertionError("nothing came")


def lines_until_end(partition: Any) -> list[tuple[int, Any]]:
    found = []
    while isinstance(chunk := next_of(partition), Chunk):
        found += [(chunk.epoch, line) for line in chunk.data or []]
    assert isinstance(chunk, End)
    return found


def connect(server: socket.socket, **options: Any) -> tuple[Any, socket.socket]:
    [partition] = Socket(*server.getsockname(), **options).partitions(0, 1)
    peer, _ = server.accept()
    return partition, peer


def test_lines_arrive_whole_in_epochs_however_they_are_sent(server: socket.socket) -> None:
    partition, peer = connect(server, epoch_lines=2)
    assert partition.read() == Wait(None, partition._lines.fileno())
    with peer:
        peer.sendall(b"one\ntw")
        assert next_of(partition) == Chunk(0, ["one"], 1)
        peer.sendall("o\r\nthree\nfür\nfive\n".encode())
        assert next_of(partition) == Chunk(0, ["two"], 2, closes=True)
        assert next_of(partition) == Chunk(1, ["three", "für"], 4, closes=True)
        assert next_of(partition) == Chunk(2, ["five"], 5)
    assert isinstance(next_of(partition), End)
    partition.close()


def test_epochs_by_the_clock_go_on_without_lines(server: socket.socket) -> None:
    now = [50.0]
    partition, peer = connect(server, epoch_seconds=2.0, clock=lambda: now[0])
    with peer:
        assert partition.read() == Wait(2.0, partition._lines.fileno())
        peer.sendall(b"a\n")
        assert next_of(partition) == Chunk(0, ["a"], 1)
        now[0] += 1.5
        assert partition.read().seconds == 0.5
        now[0] += 5.0
        assert partition.read() == Chunk(3, None, 1)
        peer.sendall(b"b\n")
        assert next_of(partition) == Chunk(3, ["b"], 2)
    partition.close()


def test_lines_cannot_be_read_again(server: socket.socket) -> None:
    assert Socket.rereadable is False
    partition, peer = connect(server, epoch_lines=10)
    partition.seek(None)
    with pytest.raises(SourceError, match="cannot be read again"):
        partition.seek(3)
    with peer:
        peer.sendall(b"a\nb\n")
        assert next_of(partition).position == 2
    partition.seek(2)
    with pytest.raises(SourceError, match="cannot be read again"):
        partition.seek(None)
    partition.close()


def test_a_connection_that_ends_within_a_line_is_an_error(server: socket.socket) -> None:
    partition, peer = connect(server, epoch_lines=1)
    with peer:
        peer.sendall(b"whole\nhal")
    assert next_of(partition).data == ["whole"]
    with pytest.raises(SourceError, match="line 2: the connection ended within this line"):
        next_of(partition)
    partition.close()


def test_a_connection_that_breaks_is_an_error_not_an_end(server: socket.socket) -> None:
    partition, peer = connect(server, epoch_lines=1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()  # with a reset
    with pytest.raises(SourceError, match="the connection broke"):
        next_of(partition)
    partition.close()


def test_nobody_listening_is_said(server: socket.socket) -> None:
    address = server.getsockname()
    server.close()
    [partition] = Socket(*address, epoch_lines=1).partitions(0, 1)
    with pytest.raises(SourceError, match="nobody listens there"):
        next_of(partition)
    partition.close()


def test_bytes_that_are_not_text_name_the_line(server: socket.socket) -> None:
    partition, peer = connect(server, epoch_lines=9)
    with peer:
        peer.sendall(b"ok\n\xff\xfe\nok\n")
        assert next_of(partition).data == ["ok"]
        with pytest.raises(SourceError, match="line 2: not utf-8"):
            next_of(partition)
    partition.close()
    partition, peer = connect(server, epoch_lines=9, encoding=None)
    with peer:
        peer.sendall(b"\xff\xfe\n")
        assert next_of(partition).data == [b"\xff\xfe"]
    partition.close()


def test_listening_reads_all_connections_and_ends_after_the_last() -> None:
    source = Listen(0, connections=3, epoch_lines=1)
    assert source.partitions(1, 2) == []
    [partition] = source.partitions(0, 2)
    assert source.address is not None
    assert source.address[0] == "127.0.0.1"
    assert isinstance(partition.read(), Wait)
    peers = [socket.create_connection(source.address, timeout=60) for _ in range(3)]
    for i, peer in enumerate(peers):
        for k in range(4):
            peer.sendall(f"{i}:{k}\n".encode())
    for peer in peers:
        peer.close()
    found = lines_until_end(partition)
    assert [e for e, _ in found] == list(range(12))
    for i in range(3):
        assert [line for _, line in found if line.startswith(f"{i}:")] == [f"{i}:{k}" for k in range(4)]
    with pytest.raises(OSError):
        socket.create_connection(source.address, timeout=60).recv(1)
    partition.close()


def test_a_port_in_use_is_said() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SourceError, match="Is the port in use"),
    ):
        Listen(taken.getsockname()[1], epoch_lines=1).partitions(0, 1)


@pytest.mark.parametrize("options", [{}, {"epoch_lines": 1, "epoch_seconds": 1.0}, {"epoch_lines": 0}])
def test_epochs_must_be_given_in_one_way(options: Any) -> None:
    with pytest.raises(SourceError, match="epoch_"):
        Socket("127.0.0.1", 1, **options)
    with pytest.raises(SourceError, match="epoch_"):
        Listen(0, **options)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    buffer = LineBuffer("test", None)
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    found = [line for a, b in pairwise(edges) for line in buffer.feed(data[a:b])]
    assert found == [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]]


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    buffer = LineBuffer("test", None)
    for _ in range(LONGEST_LINE // (1 << 20)):
        assert buffer.feed(b"x" * (1 << 20)) == []
    with pytest.raises(SourceError, match="line 1: longer than 16 MiB"):
        buffer.feed(b"x")
