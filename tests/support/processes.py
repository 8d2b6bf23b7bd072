"""Processes and ports of this machine, and waiting for what they do."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from runtime.supervisor.processes import MONITOR
from runtime.supervisor.supervisor import Job


def wait_for(condition: Callable[[], object], seconds: float = 180) -> None:
    """Until a condition holds; `seconds` only ends tests of what never comes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never comes"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """True if a process is no more, or has ended and nobody has asked how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def waited_for(pid: int) -> bool:
    """True if a process is no more, and its parent has asked how it ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def parent(pid: int) -> int:
    """The process that has started one, or has taken it over."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def monitor_pid(job: Job) -> int | None:
    """The process id of a job's monitor, while there is one."""
    return next((child.pid for child in list(job.children.all) if child.module == MONITOR), None)


def descendants(pid: int) -> list[int]:
    """The processes that one has started, and those that these have."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def free_addresses(count: int) -> list[str]:
    """TCP addresses that nobody listened at a moment ago."""
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"tcp://127.0.0.1:{sock.getsockname()[1]}" for sock in socks]
    for sock in socks:
        sock.close()
    return addresses
