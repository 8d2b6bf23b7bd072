"""Door of a process for questions about its stacks: a thread that samples them, and answers.

See `runtime.page.doors` for who asks. Nothing that is asked has an influence on the job.
"""

from __future__ import annotations

import faulthandler
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from runtime.page.doors import PROFILE, TRACE_SIGNAL, door_path, trace_file
from runtime.session.stacks import StackSamples, stacks_now
from timely.dataflow.graph import Node

SAMPLE_SECONDS = 0.05
"""Distance of samples, in seconds."""

_TALK_SECONDS = 1.0
"""Longest wait for one who asks, in seconds; nobody is sampled meanwhile."""

_encode = msgspec.msgpack.Encoder().encode


class StackDoor:
    """Door of the process at `place`, in the folder `private`; `at_work` gives its operator."""

    def __init__(self, private: str, place: str, at_work: Callable[[], Node | None] = lambda: None) -> None:
        self._place, self._at_work = place, at_work
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _write_on_signal(private)
        path = door_path(private, place)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(8)
        threading.Thread(target=self._serve, name="falkirk-stacks", daemon=True).start()

    def _serve(self) -> None:
        samples = StackSamples(self._at_work)
        waiting = select.poll()
        waiting.register(self._listener.fileno(), select.POLLIN)
        while True:
            if waiting.poll(1000 * SAMPLE_SECONDS):
                with suppress(OSError):
                    self._answer(samples)
            samples.sample()

    def _answer(self, samples: StackSamples) -> None:
        asking, _ = self._listener.accept()
        with asking:
            asking.settimeout(_TALK_SECONDS)
            what = asking.recv(1)
            if what:
                found = samples.profile(self._place) if what == PROFILE else stacks_now(self._place, self._at_work())
                asking.sendall(_encode(found))


def open_door(private: str, place: str, at_work: Callable[[], Node | None] = lambda: None) -> None:
    """Open the door of this process, if it can have one; the job goes on without."""
    if private:
        with suppress(OSError):
            StackDoor(private, place, at_work)


def _write_on_signal(private: str) -> None:
    """Write all stacks to a file on `TRACE_SIGNAL`, even while native code holds Python's lock."""
    if TRACE_SIGNAL is not None:
        file = os.open(trace_file(private, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.register(TRACE_SIGNAL, file, all_threads=True)
