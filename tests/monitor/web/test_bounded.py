"""Connections of strangers: never more than there is room for, and each has only so much time."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from monitor.web import bounded
from monitor.web.bounded import ASK_SECONDS, MOST_CONNECTIONS, STALL_SECONDS, BoundedProtocol, most_connections

ASKED = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """The other end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("localhost", 1) if name in ("peername", "sockname") else default


class Door:
    """A server whose answers come when they are let out."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._app, log_config=None, access_log=False, lifespan="off", ws="none", interface="asgi3"
        )
        self._config.load()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    @property
    def open(self) -> set[Any]:
        return self._state.connections

    def connect(self) -> tuple[BoundedProtocol, Wire]:
        protocol, wire = BoundedProtocol(self._config, self._state, {}, asyncio.get_running_loop()), Wire()
        protocol.connection_made(wire)
        return protocol, wire


def in_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("files", "connections"),
    [(resource.RLIM_INFINITY, MOST_CONNECTIONS), (10**6, MOST_CONNECTIONS), (100, 50), (4, 8), (17, 8), (18, 9)],
)
def test_connections_take_half_of_the_files_that_a_process_may_have(
    files: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections() == connections


@in_a_loop
async def test_time_runs_while_nothing_was_asked_and_not_while_an_answer_is_made() -> None:
    door, loop = Door(), asyncio.get_running_loop()
    protocol, wire = door.connect()
    assert protocol._waits_until == pytest.approx(loop.time() + ASK_SECONDS, abs=1.0)
    until = protocol._waits_until
    protocol.data_received(ASKED[:20])
    assert protocol._waits_until == until, "a part of a head is no request"
    protocol.data_received(ASKED[20:])
    assert protocol._waits_until == 0.0
    door.may_answer.set()
    await turns()
    assert wire.sent.endswith(b"ok")
    assert protocol._waits_until >= until, "the next request has as much time"
    handle = protocol._deadline
    assert handle is not None
    protocol.connection_lost(None)
    assert handle.cancelled()
    assert protocol._waits_until == 0.0
    assert door.open == set()


@in_a_loop
async def test_who_takes_too_long_is_hung_up_on() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "ASK_SECONDS", 0.01)
        patch.setattr(bounded, "STALL_SECONDS", 0.01)
        door = Door()
        (_, silent), (reads_nothing, stalled), (taken_up, fine) = (door.connect() for _ in range(3))
        for protocol in (reads_nothing, taken_up):
            protocol.data_received(ASKED)
            protocol.pause_writing()
        taken_up.resume_writing()
        await asyncio.sleep(0.05)
        for protocol in (reads_nothing, taken_up):
            protocol.connection_lost(None)
    assert (silent.aborted, stalled.aborted, fine.aborted) == (True, True, False)


@in_a_loop
async def test_writing_waits_while_a_client_takes_nothing_and_its_time_ends_with_the_connection() -> None:
    door, loop = Door(), asyncio.get_running_loop()
    protocol, _ = door.connect()
    protocol.pause_writing()
    assert protocol.flow.write_paused
    first = protocol._stalled
    assert first is not None
    assert first.when() == pytest.approx(loop.time() + STALL_SECONDS, abs=1.0)
    protocol.resume_writing()
    assert not protocol.flow.write_paused
    assert (first.cancelled(), protocol._stalled) == (True, None)
    protocol.pause_writing()
    second = protocol._stalled
    assert second is not None
    protocol.connection_lost(None)  # and nobody waits for ever to write
    assert not protocol.flow.write_paused
    assert second.cancelled()


@in_a_loop
async def test_beyond_the_most_the_one_that_has_waited_for_longest_makes_room() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded, "most_connections", lambda: 3)
        door = Door()
        busy, first, second = (door.connect() for _ in range(3))
        busy[0].data_received(ASKED)
        assert len(door.open) == 3
        assert not any(wire.aborted for _, wire in (busy, first, second))
        third = door.connect()
        assert [wire.aborted for _, wire in (busy, first, second, third)] == [False, True, False, False]
        assert door.open == {busy[0], second[0], third[0]}
        for protocol, _ in (second, third):
            protocol.data_received(ASKED)
        late = door.connect()
        assert [wire.aborted for _, wire in (busy, second, third, late)] == [False, False, False, True]
        assert door.open == {busy[0], second[0], third[0]}, "where all are busy the new one goes"
