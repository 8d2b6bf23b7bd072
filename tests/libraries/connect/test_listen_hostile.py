"""A listening source among clients that do what they like: none of them ends it, or keeps it from the others."""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libraries.connect import Listen
from libraries.connect import sockets as sockets_module
from libraries.connect.lines import LONGEST_LINE
from tests.support.few_descriptors import few_descriptors
from timely.errors import SourceError
from timely.io import Chunk, End, Wait
from timely.io.acceptor import Acceptor

CLOSE, RESET, HALF = "close", "reset", "half"


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=60)


def reset(peer: socket.socket) -> None:
    """Close with a reset."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def take(partition: Any, seconds: float = 10.0) -> Any:
    """The next chunk of the partition; a wait only if nothing comes for so long."""
    while isinstance(result := partition.read(), Wait):
        if not select.select([result.fileno], [], [], seconds)[0]:
            return result
    return result


def all_lines(partition: Any) -> list[Any]:
    found: list[Any] = []
    while isinstance(chunk := take(partition), Chunk):
        found += chunk.data or []
    assert isinstance(chunk, End)
    return found


@dataclass(frozen=True)
class Client:
    """Sends `data` in pieces that end at `cuts`, and leaves in a way of its own."""

    data: bytes
    cuts: tuple[int, ...]
    ending: str


pieces = st.one_of(
    st.sampled_from([b"a\n", b"line\r\n", b"\n", "für\n".encode(), b"\xff\xfe\n", b"no end"]), st.binary(max_size=9)
)
clients = st.builds(
    Client,
    st.lists(pieces, max_size=6).map(b"".join),
    st.lists(st.integers(0, 40), max_size=3).map(tuple),
    st.sampled_from([CLOSE, RESET, HALF]),
)


def whole(data: bytes) -> list[str]:
    """The lines of `data` that are whole, up to one that is not text."""
    found = []
    for line in data.split(b"\n")[:-1]:
        try:
            found.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError:
            break
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(clients, min_size=1, max_size=5), st.integers(1, 5))
def test_every_client_gives_its_whole_lines_whatever_the_others_do(
    capfd: pytest.CaptureFixture[str], given_clients: list[Client], most_open: int
) -> None:
    source = Listen(0, connections=len(given_clients) + 1, most_open=most_open, epoch_lines=3)
    [partition] = source.partitions(0, 1)
    assert source.address is not None
    found: list[Any] = []
    peers = []
    for client in given_clients:
        peer = connect(source.address)
        edges = [0, *sorted(min(cut, len(client.data)) for cut in client.cuts), len(client.data)]
        for a, b in pairwise(edges):
            with suppress(ConnectionError):  # it was hung up on, for what it had said before
                peer.sendall(client.data[a:b])
            if isinstance(chunk := partition.read(), Chunk):
                found += chunk.data or []
        if client.ending == RESET:
            reset(peer)
        elif client.ending == HALF:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
            peers.append(peer)
        else:
            peer.close()
    with connect(source.address) as last:  # whoever comes after all of them is heard
        last.sendall(b"the last one\n")
    found += all_lines(partition)
    for peer in peers:
        peer.close()
    partition.close()
    assert found.count("the last one") == 1
    found.remove("the last one")
    for client in given_clients:
        lines = whole(client.data)
        if client.ending == RESET:  # what was under way is lost with it
            while lines and lines[-1] not in found:
                lines.pop()
            continue
        for line in lines:
            found.remove(line)
    for left in found:  # of those that were reset, before they were
        assert any(left in whole(client.data) for client in given_clients if client.ending == RESET)


def test_what_a_client_does_wrong_is_said_and_ends_only_its_connection(capfd: pytest.CaptureFixture[str]) -> None:
    source = Listen(0, connections=5, epoch_lines=100)
    [partition] = source.partitions(0, 1)
    assert source.address is not None
    good = connect(source.address)
    good.sendall(b"first\n")
    assert take(partition).data == ["first"]
    for sent, leave in ((b"half", None), (b"ok\n\xff\n", None), (b"x", reset)):
        peer = connect(source.address)
        peer.sendall(sent)
        assert take(partition, 0.2) is not None
        if leave is not None:
            leave(peer)
        peer.close()
        while isinstance(take(partition, 0.2), Chunk):
            pass
    peer = connect(source.address)
    peer.settimeout(0.0)
    sent_bytes, dropped = 0, False
    while not dropped:  # a line that never ends: the source hangs up
        try:
            sent_bytes += peer.send(b"x" * (1 << 20))
        except BlockingIOError:
            partition.read()
        except OSError:
            dropped = True
        assert sent_bytes < 4 * LONGEST_LINE
    good.sendall(b"second\n")
    good.close()
    assert all_lines(partition) == ["second"]
    notes = capfd.readouterr().err
    for said in ("ended within this line", "not utf-8", "the connection broke", "longer than 16 MiB"):
        assert notes.count(said) == 1, notes
    partition.close()


def test_callers_beyond_the_most_wait_until_one_has_gone() -> None:
    source = Listen(0, most_open=2, epoch_lines=100)
    [partition] = source.partitions(0, 1)
    assert source.address is not None
    peers = [connect(source.address) for _ in range(4)]
    for i, peer in enumerate(peers):
        peer.sendall(f"{i}\n".encode())
    found: list[str] = []
    while isinstance(chunk := take(partition, 0.3), Chunk):
        found += chunk.data  # type: ignore[arg-type]
    assert sorted(found) == ["0", "1"]
    peers[0].close()
    assert take(partition).data == ["2"]
    reset(peers[1])
    assert take(partition).data == ["3"]
    for peer in peers[2:]:
        peer.close()
    partition.close()


def test_callers_who_say_nothing_make_room_for_others(capfd: pytest.CaptureFixture[str]) -> None:
    """They would hold all places for good: only with `idle_seconds` are they hung up on, also if they dribble."""
    now = [0.0]
    source = Listen(0, most_open=3, idle_seconds=10.0, epoch_lines=100, clock=lambda: now[0])
    [partition] = source.partitions(0, 1)
    assert source.address is not None
    peers = [connect(source.address) for _ in range(5)]
    peers[4].sendall(b"waited for a place\n")
    assert isinstance(waiting := take(partition, 0.3), Wait)
    assert waiting.seconds == 10.0
    now[0] = 6.0
    peers[0].sendall(b"alive\n")
    peers[1].sendall(b"x")
    assert take(partition).data == ["alive"]
    assert isinstance(waiting := take(partition, 0.3), Wait)
    assert waiting.seconds == 4.0
    now[0] = 10.0
    assert take(partition).data == ["waited for a place"]
    for peer in peers[1:3]:
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    peers[0].sendall(b"still here\n")
    assert take(partition).data == ["still here"]
    assert capfd.readouterr().err.count("no line has come for 10 s") == 2
    now[0] = 1000.0
    assert isinstance(waiting := take(partition, 0.3), Wait)
    assert waiting.seconds is None
    for peer in peers:
        peer.close()
    partition.close()
    with pytest.raises(
        SourceError, match=r"test_listen_hostile.py:\d+: idle_seconds=0: must be a finite number above 0"
    ):
        Listen(0, idle_seconds=0)


def test_unfinished_lines_of_many_have_a_bound_together(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sockets_module, "MOST_UNFINISHED", 1000)
    source = Listen(0, connections=3, epoch_lines=100)
    [partition] = source.partitions(0, 1)
    assert source.address is not None
    peers = [connect(source.address) for _ in range(3)]
    for peer, count in zip(peers, (300, 600, 200), strict=True):
        peer.sendall(b"x" * count)
        assert isinstance(take(partition, 0.3), Wait)
    with suppress(ConnectionResetError):
        assert peers[1].recv(1) == b""  # the longest was hung up on
    for i in (0, 2):
        peers[i].sendall(b"!\n")
        peers[i].close()
    assert sorted(map(len, all_lines(partition))) == [201, 301]
    assert "without an end" in capfd.readouterr().err
    partition.close()


def test_without_descriptors_callers_are_turned_away_and_then_heard_again() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    acceptor = Acceptor(server)
    peers = [socket.socket() for _ in range(6)]
    with few_descriptors():
        for peer in peers[:5]:
            peer.settimeout(5)
            peer.connect(server.getsockname())
        for _ in range(8):
            assert acceptor.accept() is None
        assert not select.select([server], [], [], 0)[0]  # nobody is left who would keep its owner busy
        for peer in peers[:5]:
            assert peer.recv(1) == b""
    peers[5].connect(server.getsockname())
    found = acceptor.accept()
    assert found is not None
    found[0].close()
    for peer in peers:
        peer.close()
    acceptor.close()
