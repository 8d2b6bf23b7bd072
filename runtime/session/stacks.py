"""Python stacks of this process: its operator at work, its threads now, and the last minute.

One account for Ctrl-\\, for heartbeats of a long turn, for `falkirk stacks` and for the page.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

import msgspec

from timely.dataflow.graph import Node
from timely.operators.stateless import Stage, Stateless

MINUTE = 60
"""Seconds of samples that are kept."""

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_ENGINE = tuple(
    os.path.join(_ROOT, name, "") for name in ("runtime", "falkirk", "recovery", os.path.join("timely", "worker"))
)
"""Folders whose frames lead to an operator, and say nothing about it."""

_START = (os.path.join(_ROOT, "runtime", "processes", "fork_server.py"), threading.__file__, "<frozen")
"""Files with the first functions of each stack."""

_WAITING = (
    *(os.path.join(_ROOT, *name) for name in (("timely", "io", "waiting.py"), ("runtime", "links", "unix.py"))),
    os.path.join(_ROOT, "runtime", "links", "zeromq.py"),
    *(os.path.join(os.sep, name) for name in ("selectors.py", "threading.py", "queue.py")),
)
_OF_SERVICE = ("falkirk-heartbeat", "falkirk-stacks", "falkirk-end")
"""Names of threads that always wait, for others."""

_MOST_FRAMES = 200
"""Most frames of one stack, innermost ones."""


class Line(msgspec.Struct, frozen=True):
    """Line of a function in a stack; of a native function there is no line (0)."""

    name: str
    file: str
    line: int


class ThreadStack(msgspec.Struct, frozen=True):
    """Stack of one thread, innermost line first."""

    thread: str
    lines: tuple[Line, ...]


class Stacks(msgspec.Struct, frozen=True):
    """Stacks of a process's threads, the main one first.

    `operator` is the one at work, `doing` the same in words (both empty: none, or unknown). `note`: limits of the account.
    """

    place: str
    pid: int
    threads: tuple[ThreadStack, ...]
    operator: str = ""
    doing: str = ""
    note: str = ""

    @property
    def work(self) -> str:
        """Operator at work, in words; seen from outside it is not known."""
        return self.doing or ("its operator is not known" if self.note else "no operator is at work")

    @property
    def text(self) -> str:
        """Account for a terminal."""
        lines = [f"{self.place}, process {self.pid}: {self.work}"]
        if self.note:
            lines.append(f"  {self.note}")
        for each in self.threads:
            lines.append(f"  thread {each.thread}, innermost first:")
            lines += [f"    {_where(line)}{line.name}" for line in each.lines]
        return "\n".join(lines)


class Folded(msgspec.Struct, frozen=True):
    """Time of one stack: its root, and frames by number, outermost first."""

    kind: str
    """Kind of the root: operator, waiting, engine (of Falkirk itself), or thread."""
    root: str
    frames: tuple[int, ...]
    milliseconds: int


class Profile(msgspec.Struct, frozen=True):
    """Sampled stacks of the last minute of one process.

    `seconds` is the time that they stand for; a frame's line is the first one of its function.
    """

    place: str
    pid: int
    seconds: float
    frames: tuple[Line, ...]
    stacks: tuple[Folded, ...]


def doing(node: Node | None) -> tuple[str, str]:
    """Text for a worker's current work, with the user's line; its operator."""
    if node is None:
        return "", ""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stage = _stage_in(frame)
    site = node.site if stage is None else stage.site
    what = f"{node}" if stage is None else f"{stage.kind} {stage.name!r} ({site})"
    line = _line_in(site.file, frame)
    name = node.name if stage is None else stage.name
    return what + (f", now in line {line} of {os.path.basename(site.file)}" if line else ""), name


def stacks_now(place: str, node: Node | None) -> Stacks:
    """Stacks of all threads but the asking one; `node` is the operator at work."""
    what, name = doing(node)
    asking = threading.get_ident()
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sorted(sys._current_frames().items(), key=lambda each: each[0] != main)
    threads = tuple(
        ThreadStack(names.get(ident, f"{ident:#x}"), tuple(_lines(frame)))
        for ident, frame in frames
        if ident != asking or ident == main
    )
    return Stacks(place, os.getpid(), threads, name, what)


class StackSamples:
    """Samples of the last minute, a ring of seconds: time by stack.

    A sample stands for the time since the one before, so what native code keeps from being sampled is counted too.

    Args:
        at_work: gives the operator at work, if any.
        clock: in seconds.
    """

    def __init__(self, at_work: Callable[[], Node | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._at_work, self._clock = at_work, clock
        self._main = threading.main_thread().ident
        self._names: dict[int, str] = {}
        self._last = clock()
        self._ring: deque[tuple[int, dict[_Key, float]]] = deque(maxlen=MINUTE)
        self._codes: dict[int, CodeType] = {}

    def sample(self) -> None:
        """Take one sample of each thread that does not wait for work."""
        now = self._clock()
        spent, self._last = now - self._last, now
        if not self._ring or self._ring[-1][0] != int(now):
            self._begin_second(int(now))
        kept = self._ring[-1][1]
        for ident, frame in sys._current_frames().items():
            key = self._key(ident, frame)
            if key is not None:
                kept[key] = kept.get(key, 0.0) + spent

    def profile(self, place: str) -> Profile:
        """Sum of the last minute."""
        first = int(self._clock()) - MINUTE
        total: dict[_Key, float] = {}
        numbers: dict[int, int] = {}
        seconds = 0.0
        for second, kept in tuple(self._ring):
            if second <= first:
                continue
            for key, spent in kept.items():
                total[key] = total.get(key, 0.0) + spent
                if key[0] != "thread":
                    seconds += spent
        stacks = tuple(
            Folded(kind, root, tuple(numbers.setdefault(code, len(numbers)) for code in codes), round(1000 * spent))
            for (kind, root, codes), spent in sorted(total.items(), key=lambda each: -each[1])
        )
        frames = tuple(_function(self._codes[code]) for code in numbers)
        return Profile(place, os.getpid(), round(seconds, 3), frames, stacks)

    def _begin_second(self, second: int) -> None:
        self._ring.append((second, {}))
        if second % MINUTE == 0:
            used = {code for _, kept in self._ring for _, _, codes in kept for code in codes}
            self._codes = {code: self._codes[code] for code in used}

    def _key(self, ident: int, frame: FrameType) -> _Key | None:
        """Root and functions of a stack, outermost first; None for a thread that waits for others."""
        waits = frame.f_code.co_filename.endswith(_WAITING)
        if ident != self._main:
            if waits or ident == threading.get_ident():
                return None
            name = self._name(ident)
            return None if name in _OF_SERVICE else ("thread", name, self._inside(frame))
        if waits:
            return "waiting", "waiting", ()
        node = self._at_work()
        if node is None:
            return "engine", "Falkirk", self._inside(frame)
        stage = _stage_in(frame)
        return "operator", node.name if stage is None else stage.name, self._inside(frame, _ENGINE)

    def _inside(self, frame: FrameType, outer: tuple[str, ...] = ()) -> tuple[int, ...]:
        """Functions of a stack, outermost first, without those that lead to it: of Python's start, and of `outer`."""
        codes = [each.f_code for each in _outwards(frame)][::-1]
        first = 0
        while first < len(codes) and codes[first].co_filename.startswith((*_START, *outer)):
            first += 1
        for code in codes[first:]:
            self._codes.setdefault(id(code), code)
        return tuple(map(id, codes[first:]))

    def _name(self, ident: int) -> str:
        if ident not in self._names:
            self._names = {thread.ident or 0: thread.name for thread in threading.enumerate()}
        return self._names.setdefault(ident, f"{ident:#x}")


_Key = tuple[str, str, tuple[int, ...]]
"""Kind and name of a root, and functions by the identity of their code, which samples keep alive."""


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames from the innermost outwards, not too many."""
    left = _MOST_FRAMES
    while frame is not None and left:
        yield frame
        frame, left = frame.f_back, left - 1


def _lines(frame: FrameType) -> Iterator[Line]:
    for each in _outwards(frame):
        yield Line(each.f_code.co_qualname, each.f_code.co_filename, each.f_lineno or 0)


def _function(code: CodeType) -> Line:
    return Line(code.co_qualname, code.co_filename, code.co_firstlineno)


def _where(line: Line) -> str:
    """Place of a line for people, short."""
    file = os.path.basename(line.file)
    return f"{file}:{line.line} in " if line.line else (f"{file} in " if file else "")


def _stage_in(frame: FrameType | None) -> Stage | None:
    """Stage of a fused chain being run by the main thread; None outside of chains."""
    while frame is not None:
        if frame.f_code is Stateless.on_batch.__code__:
            stages = frame.f_locals.get("doing")
            return stages[0] if stages else None
        frame = frame.f_back
    return None


def _line_in(file: str, frame: FrameType | None) -> int | None:
    """Innermost line of `file` on the stack of `frame`."""
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return None
