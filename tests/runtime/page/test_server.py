"""The server of a page when its job ends before it."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from monitor.web.app import Access
from runtime.page.address import open_door, open_page
from runtime.page.server import PageServer


@pytest.mark.parametrize("unix", [False, True])
def test_a_page_whose_job_shuts_the_door_says_nothing_and_serves_who_is_there(
    unix: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process has the listening socket as well, and would try to accept from it for as long as it lives."""
    page = open_door("made up", str(tmp_path / "door")) if unix else open_page("made up", port=0)
    mine = page.listener.dup()
    with (
        caplog.at_level(logging.WARNING),
        closing(PageServer(mine, Access(""), page.title)) as server,
        socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as caller,
    ):
        caller.settimeout(120)
        caller.connect(str(tmp_path / "door") if unix else page.listener.getsockname())
        connection = http.client.HTTPConnection("localhost")
        connection.sock = caller
        for shut in (False, True):
            if shut:
                page.close()
                deadline = time.monotonic() + 120
                while any(each.is_serving() for each in server._server.servers):
                    assert time.monotonic() < deadline, "it listens for nobody"
                    time.sleep(0.01)
            connection.request("GET", "/nothing")
            response = connection.getresponse()
            response.read()
            assert response.status == 404
    assert caplog.records == []


def test_other_failures_in_the_loop_are_told(caplog: pytest.LogCaptureFixture) -> None:
    page = open_page("made up", port=0)
    with closing(page), closing(PageServer(page.listener.dup(), Access(""), page.title)) as server:
        told = threading.Event()

        def fail() -> None:
            server._loop.call_soon(told.set)
            raise OSError("the disk is gone")

        server._loop.call_soon_threadsafe(fail)
        assert told.wait(120)
    assert "the disk is gone" in caplog.text
