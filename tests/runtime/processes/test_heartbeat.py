"""Signs of life of a process."""

from __future__ import annotations

import socket

from runtime.control import FROM_CHILD, Beat, Control, FromChild
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from timely.io.waiting import wait_readable


def test_the_first_beat_comes_at_once() -> None:
    """A process that has never been heard may be loading, and is given up much later than one that has."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        Heartbeat(SupervisorChannel(theirs), 1000.0)
        control: Control[FromChild] = Control(mine, FROM_CHILD)
        assert wait_readable([mine.fileno()], 60)
        assert control.read() == [Beat(0.0, "")]
