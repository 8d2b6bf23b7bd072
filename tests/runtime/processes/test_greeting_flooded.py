"""The monitor's door among strangers: many, silent, half open, talking nonsense. Workers get through."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.cluster.calls import Calls
from recovery.layout import Layout, lay_out
from recovery.place import Place
from recovery.protocol import Join, ToMonitor, encode_message
from runtime.control import frame
from runtime.processes import greeting
from runtime.processes.greeting import MOST_STRANGERS, Strangers, connect, listen, new_token
from runtime.processes.monitor_connections import WorkerConnections
from runtime.processes.monitor_link import SocketMonitorLink
from timely.dataflow.plan import compile_plan
from timely.io import Iterable


def layout() -> Layout:
    flow = Dataflow()
    flow.source("in", Iterable([1])).capture()
    return lay_out(compile_plan(flow.graph, 1))


LAYOUT = layout()


class Door:
    """The monitor's connections, in this process; `says` are its notes."""

    def __init__(self, listener: socket.socket, token: bytes) -> None:
        self.selector = selectors.DefaultSelector()
        self.says: list[str] = []
        self.workers = WorkerConnections(self.selector, listener, token, 1, self.says.append)

    def turn(self, seconds: float = 0.1) -> list[tuple[ToMonitor, int]]:
        self.workers.tick()
        return [message for key, events in self.selector.select(seconds) for message in key.data(events)]

    def until_joined(self, link: SocketMonitorLink, join: Join) -> None:
        link.send(join)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if (join, join.incarnation) in self.turn():
                return
            if link.poll()[1]:  # it was hung up on, and has connected again
                link.send(join)
        raise AssertionError("the worker never got through")

    @property
    def open(self) -> int:
        return len(self.selector.get_map()) - 1

    def close(self) -> None:
        self.workers.close()
        self.selector.close()


@contextmanager
def door(folder: Path | None = None) -> Iterator[tuple[Door, str | tuple[str, int], bytes]]:
    with ExitStack() as stack:
        if folder is None:
            listener = stack.enter_context(listen("127.0.0.1"))
            token = new_token()
            address: str | tuple[str, int] = ("127.0.0.1", listener.getsockname()[1])
        else:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            address, token = os.fspath(folder / "door"), b""
            listener.bind(address)
            listener.listen(16)
        yield stack.enter_context(closing(Door(listener, token))), address, token


def stranger(address: str | tuple[str, int]) -> socket.socket:
    if not isinstance(address, str):
        return connect(address)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(address)
    return sock


@pytest.mark.parametrize("tcp", [True, False])
def test_a_flood_of_silent_strangers_is_bounded_and_a_worker_gets_through(tmp_path: Path, tcp: bool) -> None:
    with door(None if tcp else tmp_path) as (there, address, token), ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(stranger(address))
            there.turn(0)
        while there.turn(0.05):
            pass
        assert there.open <= MOST_STRANGERS + 1
        link = SocketMonitorLink(address, token=token)
        there.until_joined(link, Join(Place(0), 1, 0, False, LAYOUT, ()))
        for _ in range(100):  # and stays, whoever comes
            stack.enter_context(stranger(address))
            there.turn(0)
        assert link.poll() == ([], False)
        link.close()


def test_who_does_not_say_the_secret_in_time_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "GREETING_SECONDS", 0.2)
    with door() as (there, address, token), stranger(address) as silent, stranger(address) as slow:
        link = SocketMonitorLink(address, token=token)  # says it at once, and joins late
        began = time.monotonic()
        while there.open != 1 or time.monotonic() < began + 0.5:
            with suppress(OSError):
                slow.sendall(token[:1])
            there.turn(0.05)
            assert time.monotonic() < began + 120
        silent.settimeout(60)
        assert silent.recv(1) == b""
        there.until_joined(link, Join(Place(0), 1, 0, False, LAYOUT, ()))
        link.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.booleans())
def test_nonsense_ends_the_connection_that_it_came_over_and_nothing_else(said: list[bytes], framed: bool) -> None:
    with door() as (there, address, token), stranger(address) as knows:
        link = SocketMonitorLink(address, token=token)
        there.until_joined(link, Join(Place(0), 1, 0, False, LAYOUT, ()))
        with suppress(OSError):
            knows.sendall(token + b"".join(frame(each) if framed else each for each in said))
            knows.shutdown(socket.SHUT_WR)
        while there.turn(0.02):
            pass
        link.send(Join(Place(0), 1, 0, False, LAYOUT, ()))
        there.until_joined(link, Join(Place(0), 2, 0, False, LAYOUT, ()))
        link.close()


def test_the_nonsense_of_a_worker_is_told() -> None:
    with door() as (there, address, token), stranger(address) as worker:
        worker.sendall(token + frame(encode_message(Join(Place(0), 1, 0, False, LAYOUT, ()))) + frame(b"\xc1"))
        while there.open or not there.says:
            there.turn()
    assert "worker 0 said to the monitor what is no message" in there.says[0]


def test_whoever_runs_a_job_on_a_cluster_is_not_flooded() -> None:
    token = new_token()
    with closing(Calls("127.0.0.1", token, 2)) as calls, ExitStack() as stack:
        address = "127.0.0.1", calls.port
        for _ in range(200):
            stack.enter_context(stranger(address))
            calls.wait(0)
        assert len(calls.callers) <= MOST_STRANGERS + 2
        task = stack.enter_context(stranger(address))
        task.sendall(token)
        deadline = time.monotonic() + 120
        while not any(caller.greeting is None for caller in calls.callers):
            calls.wait(0.1)
            assert time.monotonic() < deadline


@given(st.lists(st.one_of(st.just("come"), st.integers(0, 30), st.floats(0, 20)), max_size=60), st.integers(1, 5))
def test_strangers_are_never_more_than_the_most_and_leave_in_order(steps: list[object], most: int) -> None:
    strangers: Strangers[int] = Strangers(most)
    there: dict[int, float] = {}
    now, number = 0.0, 0
    for step in steps:
        if step == "come":
            gone = strangers.come(number, now)
            there[number] = now
            number += 1
        elif isinstance(step, int):
            strangers.know(step)
            there.pop(step, None)
            gone = []
        else:
            assert isinstance(step, float)
            now += step
            gone = strangers.overdue(now)
            assert gone == [each for each, since in there.items() if now >= since + greeting.GREETING_SECONDS]
        for each in gone:
            assert each == min(there)
            del there[each]
        assert len(there) <= most
