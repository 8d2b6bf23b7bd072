"""Link of a worker and its mate: what does not fit into the socket goes on as soon as there is room."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from recovery.agent.events import Held, MateBegan, MateEnded
from runtime.control import cut, frame, take_in
from runtime.recovery.mate_link import Kept, SocketMateLink, _encoder
from timely.io.waiting import wait_readable

LARGE = bytes(range(256)) * 40_000


@pytest.fixture
def linked() -> tuple[SocketMateLink, socket.socket]:
    """Link of a worker, and the socket of its mate."""
    link = SocketMateLink()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    link.begin(ours)
    return link, theirs


def test_a_worker_that_rests_is_woken_when_more_can_be_sent(linked: tuple[SocketMateLink, socket.socket]) -> None:
    link, mate = linked
    with closing(mate), closing(link):
        assert link.poll() == [MateBegan()]
        link.hold("held/1", [LARGE])
        assert not wait_readable(link.files(), 0)  # the socket is full: there is nothing to do until the mate reads
        taken, frames, rests = bytearray(), [], 0
        while not frames:
            take_in(mate, taken)
            frames = cut(taken)
            if not frames:
                assert wait_readable(link.files(), 60), "it would rest, though there is room"
                assert link.poll() == []
                rests += 1
        assert rests > 1
        assert not wait_readable(link.files(), 0)  # all is sent: nothing wakes it any more
        mate.send(frame(_encoder.encode(Kept("held/1"))))
        assert wait_readable(link.files(), 60)
        assert link.poll() == [Held("held/1")]


def test_the_end_of_a_mate_wakes_its_worker_once(linked: tuple[SocketMateLink, socket.socket]) -> None:
    link, mate = linked
    link.hold("held/1", [LARGE])
    mate.close()
    assert wait_readable(link.files(), 60)
    assert link.poll() == [MateBegan(), MateEnded()]
    assert link.files() == []
    assert link.poll() == []
