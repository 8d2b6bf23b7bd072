"""A process's signs of life, sent by a thread: a user's function may take as long as it likes.

The supervisor ends a process that is silent; with each beat it also hears how long the turn has lasted that the process is in,
and with what, so that a person can be told of a function that never returns.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType

from runtime.control import Beat, FromChild, confession, tell
from timely.dataflow.graph import Node
from timely.operators.stateless import Stage, Stateless


class SupervisorChannel:
    """The sending half of a process's connection to its supervisor. Any thread may speak."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._lock = threading.Lock()
        self._gone = False
        """True once a message could not be passed on."""

    def tell(self, message: FromChild) -> None:
        """Pass a message on. Blocks while the supervisor does not read; raises OSError when it is gone."""
        with self._lock:
            try:
                tell(self.sock, message)
            except OSError:
                self._gone = True
                raise

    def confess(self, error: BaseException, processor: int = -1) -> None:
        """Tell the supervisor why this process ends; if it is gone, whoever reads standard error, unless that is why.

        `processor`: which one was at work.
        """
        if self._gone and isinstance(error, OSError):
            return
        try:
            self.tell(confession(error, processor))
        except OSError:
            traceback.print_exception(error)


class Heartbeat:
    """Beats every `seconds`, from now on and for as long as the process lives; never if that is 0."""

    def __init__(self, voice: SupervisorChannel, seconds: float) -> None:
        self._voice = voice
        self._seconds = seconds
        self._began: float | None = None
        self._doing: Callable[[], tuple[str, int, str]] = lambda: ("", -1, "")
        if seconds:
            threading.Thread(target=self._beat, name="falkirk-heartbeat", daemon=True).start()

    def turn(self) -> None:
        """The main thread begins another turn. If none follows for long, that is worth telling."""
        self._began = time.monotonic()

    def describe(self, doing: Callable[[], tuple[str, int, str]]) -> None:
        """`doing` says what the process is at, at which processor (-1: at none) and operator; another thread calls it."""
        self._doing = doing

    def _beat(self) -> None:
        while True:  # the first at once: who has never been heard is given more time
            began = self._began
            busy = 0.0 if began is None else time.monotonic() - began
            try:
                self._voice.tell(Beat(busy, *(self._doing() if busy > self._seconds else ("", -1, ""))))
            except OSError:
                return  # the supervisor is gone, and this process will be
            time.sleep(self._seconds)


def doing(node: Node | None) -> tuple[str, str]:
    """The current work of a worker: in words, with the main thread's line in the file of the operator, and the operator."""
    if node is None:
        return "", ""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stage = _stage_in(frame)
    site = node.site if stage is None else stage.site
    what = f"{node}" if stage is None else f"{stage.kind} {stage.name!r} ({site})"
    line = _line_in(site.file, frame)
    name = node.name if stage is None else stage.name
    return what + (f", now in line {line} of {os.path.basename(site.file)}" if line else ""), name


def _stage_in(frame: FrameType | None) -> Stage | None:
    """The stage of a fused chain at which the main thread is; None: it is in no chain, or has left it."""
    while frame is not None:
        if frame.f_code is Stateless.on_batch.__code__:
            stages = frame.f_locals.get("doing")
            return stages[0] if stages else None
        frame = frame.f_back
    return None


def _line_in(file: str, frame: FrameType | None) -> int | None:
    """The innermost line of `file` that leads to `frame`."""
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back
    return None
