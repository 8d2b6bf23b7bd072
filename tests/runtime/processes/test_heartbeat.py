"""Signs of life of a process."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_who_cannot_tell_its_supervisor_is_silent_about_that_alone(capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs = socket.socketpair()
    mine.close()
    with theirs:
        voice = SupervisorChannel(theirs)
        with pytest.raises(BrokenPipeError) as raised:
            voice.tell(Beat(0.0, ""))
        voice.confess(raised.value)
        assert capsys.readouterr().err == ""
        voice.confess(ValueError("another thing"))
        assert "ValueError: another thing" in capsys.readouterr().err


def test_a_monitor_whose_supervisor_dies_before_it_has_said_anything_ends_without_a_word(tmp_path: Path) -> None:
    mine, theirs = socket.socketpair()
    mine.close()
    with theirs:
        command = [sys.executable, "-m", "runtime.processes.monitor", str(theirs.fileno()), "0", str(tmp_path)]
        ended = subprocess.run(command, pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("", "")
