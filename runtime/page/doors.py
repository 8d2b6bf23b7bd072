"""Stacks of a running job's processes, asked for from outside of them.

Each process of a job with a store has a door: a unix socket in the private folder of its supervisor, at which a thread answers
(`runtime.processes.stack_door`). Nothing of the monitor is needed, and a worker that hangs in a Python function answers like
any other. Native code that keeps Python's lock lets no thread answer: then py-spy looks, where it is installed and allowed,
else the process writes its stacks from a signal, which has Python's functions only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from runtime.folders.store_folder import StoreFolder
from runtime.page.address import door_of
from runtime.session.stacks import Line, Profile, Stacks, ThreadStack
from timely.data.codec.typed import Typed
from timely.errors import FalkirkError, ProtocolError

STACKS, PROFILE = b"s", b"p"
"""Requests at a door."""

TRACE_SIGNAL: int | None = signal.SIGRTMIN + 9 if hasattr(signal, "SIGRTMIN") else None
"""Signal for writing stacks; unused by programs."""

_STACKS: Typed[Stacks] = Typed("the stacks of a process", Stacks)
_PROFILE: Typed[Profile] = Typed("the samples of a process", Profile)

_DOOR = re.compile(r"stacks-(monitor|worker-[0-9]{1,9}(?:\.[0-9]{1,9})?)-([0-9]{1,9})")
_ANSWER_SECONDS = 3.0
"""Longest wait for a process's own answer, in seconds."""
_SPY_SECONDS = 10.0
_TRACE_SECONDS = 3.0
_QUIET_SECONDS = 0.2
"""Seconds without growth until written stacks count as whole."""
_MOST_BYTES = 16 << 20

_HELD = f"the process did not answer in {_ANSWER_SECONDS:.0f} s: native code holds Python's lock, or the process does not run"


class NotRunning(FalkirkError):
    """Question about stacks of a job without running processes on this host."""


@dataclass(frozen=True, slots=True)
class Door:
    """Door of one process: its place (worker-1, monitor), id and socket."""

    place: str
    pid: int
    path: str


def door_path(private: str, place: str) -> str:
    """Path of the door of this process."""
    return os.path.join(private, f"stacks-{place}-{os.getpid()}")


def trace_file(private: str, pid: int) -> str:
    """Path of the file with the stacks of process `pid` after a signal."""
    return os.path.join(private, f"trace-{pid}")


def doors_of(folder: StoreFolder) -> list[Door]:
    """Doors of the processes of a store's job, workers first.

    Raises NotRunning. Some may be of processes that have ended.
    """
    try:
        private = os.path.dirname(door_of(folder))
        names = os.listdir(private)
    except (OSError, ValueError) as error:
        raise NotRunning("the job does not run here: stacks and samples are there only while it does") from error
    found = [(match, name) for name in names if (match := _DOOR.fullmatch(name))]
    doors = [Door(match[1], int(match[2]), os.path.join(private, name)) for match, name in found]
    return sorted(doors, key=lambda door: (door.place == "monitor", _numbers(door.place), door.pid))


def all_stacks(folder: StoreFolder, place: str | None = None) -> list[Stacks]:
    """Stacks of all processes of a job, or of one place. Raises NotRunning."""
    doors = [door for door in doors_of(folder) if place in (None, door.place)]
    found = [each for door in doors if (each := stacks_of(door)) is not None]
    if not found:
        raise NotRunning(_nobody(place))
    return found


def all_profiles(folder: StoreFolder) -> list[Profile]:
    """Samples of all processes of a job that answer. Raises NotRunning."""
    found = []
    for door in doors_of(folder):
        with suppress(TimeoutError):
            data = _ask(door, PROFILE)[0]
            if data is not None:
                found.append(_PROFILE.decode(data))
    if not found:
        raise NotRunning(_nobody(None))
    return found


def stacks_of(door: Door) -> Stacks | None:
    """Stacks of one process; None if it has ended."""
    try:
        data, pid = _ask(door, STACKS)
    except TimeoutError:
        return stacks_from_outside(door)
    if data is None or pid not in (0, door.pid):
        return None
    return _STACKS.decode(data)


def stacks_from_outside(door: Door) -> Stacks:
    """Stacks of an unresponsive process: by py-spy, else from a signal."""
    spy = find_spy()
    why = "py-spy is not installed"
    if spy is not None:
        for more in (("--native",), ()):
            try:
                data = _run_spy([spy, "dump", "--json", *more, "--pid", str(door.pid)])
                return Stacks(door.place, door.pid, read_spy(data), note=f"{_HELD}; py-spy looked from outside")
            except (OSError, subprocess.SubprocessError, ProtocolError) as error:
                why = f"py-spy could not look ({_last_line(error)})"
    threads = read_trace(traced(os.path.dirname(door.path), door.pid))
    if threads:
        note = f"{_HELD}; {why}, so only functions of Python are shown, as the process wrote them on a signal"
    else:
        note = f"{_HELD}; {why}, and the process wrote nothing on a signal: install py-spy to look into it"
    return Stacks(door.place, door.pid, threads, note=note)


def find_spy() -> str | None:
    """Path of py-spy, beside this Python or on the path; None if it is not installed."""
    return shutil.which("py-spy", path=os.path.dirname(sys.executable)) or shutil.which("py-spy")


class _SpyFrame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _SpyThread(msgspec.Struct):
    frames: list[_SpyFrame]
    thread_name: str | None = None
    os_thread_id: int | None = None


_SPY = msgspec.json.Decoder(list[_SpyThread])


def read_spy(data: bytes) -> tuple[ThreadStack, ...]:
    """Stacks in the output of `py-spy dump --json`, the main thread first.

    Raises ProtocolError.
    """
    try:
        threads = _SPY.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the answer of py-spy cannot be read: {error}") from error
    found = [
        ThreadStack(
            each.thread_name or f"{each.os_thread_id or 0}",
            tuple(Line(frame.name, frame.filename, max(0, frame.line)) for frame in each.frames),
        )
        for each in threads
    ]
    return tuple(sorted(found, key=lambda each: each.thread != "MainThread"))


_THREAD = re.compile(r"(Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line ([0-9]{1,9}|\?\?\?) in (.*)')


def read_trace(text: str) -> tuple[ThreadStack, ...]:
    """Stacks in the text of Python's `faulthandler`; other lines are passed over.

    The main thread is written last, and comes first here.
    """
    found: list[tuple[str, list[Line]]] = []
    for each in text.splitlines():
        if head := _THREAD.fullmatch(each):
            found.append((head[3] or head[2], []))
        elif found and (frame := _FRAME.fullmatch(each)):
            line = int(frame[2]) if frame[2].isascii() and frame[2].isdecimal() else 0
            found[-1][1].append(Line(frame[3], frame[1], line))
    return tuple(ThreadStack(name, tuple(lines)) for name, lines in reversed(found))


def traced(private: str, pid: int, seconds: float = _TRACE_SECONDS) -> str:
    """Stacks written by a process on a signal, within `seconds`; empty if none.

    `private` is the folder of its supervisor.
    """
    file = Path(trace_file(private, pid))
    try:
        before = file.stat().st_size  # where its file is, the signal is handled
        if TRACE_SIGNAL is None:
            return ""
        os.kill(pid, TRACE_SIGNAL)
    except OSError:
        return ""
    size, since, until = before, time.monotonic(), time.monotonic() + seconds
    while (now := time.monotonic()) < until and (size == before or now - since < _QUIET_SECONDS):
        time.sleep(0.02)
        with suppress(OSError):
            if file.stat().st_size != size:
                size, since = file.stat().st_size, now
    try:
        with open(file, "rb") as opened:
            opened.seek(before)
            return opened.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _ask(door: Door, what: bytes) -> tuple[bytes | None, int]:
    """Answer at a door, or None, and the number of its process (0: unknown).

    Raises TimeoutError.
    """
    until = time.monotonic() + _ANSWER_SECONDS
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_ANSWER_SECONDS)
        try:
            sock.connect(door.path)
            pid = _listener_of(sock)
            sock.sendall(what)
            while len(answer) < _MOST_BYTES:
                sock.settimeout(max(0.001, until - time.monotonic()))
                data = sock.recv(1 << 20)
                if not data:
                    return answer or None, pid
                answer += data
        except TimeoutError:
            raise
        except BlockingIOError as error:  # too many wait at the door
            raise TimeoutError from error
        except OSError:
            return None, 0
    return None, 0


def _listener_of(sock: socket.socket) -> int:
    """Process listening at the other end; 0 if unknown."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])


def _run_spy(command: Sequence[str]) -> bytes:
    return subprocess.run(
        command, capture_output=True, timeout=_SPY_SECONDS, check=True, stdin=subprocess.DEVNULL
    ).stdout


def _last_line(error: Exception) -> str:
    sample = getattr(error, "stderr", None) or b""
    lines: list[str] = [line for line in sample.decode(errors="replace").splitlines() if line.strip()]
    return json.dumps(lines[-1])[1:-1][:200] if lines else type(error).__name__


def _nobody(place: str | None) -> str:
    who = "no process of the job" if place is None else f"no process of {place}"
    return f"{who} has a door for stacks on this host: it has just ended, is starting, or runs elsewhere"


def _numbers(place: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"[0-9]+", place))
