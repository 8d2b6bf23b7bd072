"""Strangers who connect over a network without the secret are not heard."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import Layout, lay_out
from recovery.place import Place
from recovery.protocol import Cut, Join, ToMonitor, encode_message
from runtime.control import frame
from runtime.processes.greeting import TOKEN_BYTES, Greeting, connect, listen, new_token
from runtime.processes.monitor_connections import WorkerConnections
from runtime.processes.monitor_link import SocketMonitorLink
from timely.dataflow.plan import compile_plan
from timely.io import Iterable


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with listen("127.0.0.1") as listener:
        theirs = connect(("127.0.0.1", listener.getsockname()[1]))
        ours, _ = listener.accept()
        with ours, theirs:
            yield ours, theirs


def verdict(greeting: Greeting, sock: socket.socket) -> bool | None:
    """The answer of the greeting, when all has come that was sent."""
    deadline = time.monotonic() + 0.2
    while (known := greeting.hear(sock)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return known


def test_the_secret_lets_in_and_what_comes_behind_it_is_left() -> None:
    token = new_token()
    with connected() as (ours, theirs):
        greeting = Greeting(token)
        assert greeting.hear(ours) is None
        for byte in token[:-1]:
            theirs.sendall(bytes([byte]))
        assert verdict(greeting, ours) is None
        theirs.sendall(token[-1:] + b"behind")
        assert verdict(greeting, ours) is True
        assert ours.recv(100) == b"behind"


@pytest.mark.parametrize("wrong", [0, TOKEN_BYTES - 1])
def test_another_secret_does_not(wrong: int) -> None:
    token = new_token()
    with connected() as (ours, theirs):
        said = bytearray(token)
        said[wrong] ^= 1
        theirs.sendall(said)
        assert verdict(Greeting(token), ours) is False


def test_who_leaves_before_the_end_of_the_secret_is_not_let_in() -> None:
    token = new_token()
    with connected() as (ours, theirs):
        theirs.sendall(token[:-1])
        theirs.close()
        assert verdict(Greeting(token), ours) is False


def test_the_monitor_hears_workers_over_tcp_and_no_stranger() -> None:
    layout = _layout()
    join = Join(Place(0), 1, 0, False, layout, ())
    token = new_token()
    with listen("127.0.0.1") as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
        selector = selectors.DefaultSelector()
        workers = WorkerConnections(selector, listener, token)
        with connect(address) as stranger, connect(address) as silent:
            stranger.sendall(bytes(TOKEN_BYTES) + frame(encode_message(Join(Place(0), 99, 0, False, layout, ()))))
            link = SocketMonitorLink(address, token=token)
            link.send(join)
            heard: list[tuple[ToMonitor, int]] = []
            while not heard:
                heard += _turn(selector)
            assert heard == [(join, 1)]
            stranger.settimeout(5)
            with suppress(ConnectionResetError):  # hung up on, with what it said unread
                assert stranger.recv(1) == b""
            workers.send(Place(0), Cut(1, 0, (5,)))
            assert _poll(link) == [Cut(1, 0, (5,))]
            assert silent.fileno() >= 0  # who says nothing does not keep others out
        link.close()
        workers.close()
        selector.close()


def _layout() -> Layout:
    flow = Dataflow()
    flow.source("in", Iterable([1])).capture()
    return lay_out(compile_plan(flow.graph, 1))


def _turn(selector: selectors.BaseSelector) -> list[tuple[ToMonitor, int]]:
    ready = selector.select(5)
    assert ready, "nothing came"
    return [message for key, events in ready for message in key.data(events)]


def _poll(link: SocketMonitorLink) -> list[object]:
    deadline = time.monotonic() + 60
    found: list[object] = []
    while not found and time.monotonic() < deadline:
        found += link.poll()[0]
    return found
