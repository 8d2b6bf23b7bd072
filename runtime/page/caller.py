"""Caller of a running job, such as a command: asks its monitor, and leaves."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import TracebackType

from monitor.web.questions import OfJob, Question, WrongQuestion
from monitor.web.view import Observation
from recovery.layout import Layout
from runtime.control import cut, frame
from runtime.page.protocol import (
    TO_PAGE,
    DifferenceReader,
    PageAnswer,
    PageQuestion,
    Passed,
    Seen,
    Serve,
    encode,
)

_CHUNK = 1 << 20


class Caller:
    """Connection to the monitor at the unix socket `path`, for some seconds.

    Attributes:
        layout: of the job.

    Raises OSError if nobody listens there or the monitor goes, TimeoutError if nothing comes in time, ProtocolError for
    another version of Falkirk; so do the methods.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = bytearray()
        self._received = DifferenceReader()
        self._messages = self._replies()
        try:
            self._sock.settimeout(seconds)
            self._sock.connect(path)
            self.layout: Layout = next(message.layout for message in self._messages if isinstance(message, Serve))
        except BaseException:
            self._sock.close()
            raise

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sock.close()

    def ask(self, question: Question) -> bytes:
        """Answer in JSON; raises WrongQuestion, too."""
        self._sock.sendall(frame(encode(PageQuestion(1, question))))
        for message in self._messages:
            if isinstance(message, PageAnswer):
                if message.error:
                    raise WrongQuestion(message.error, message.status)
                return message.answer
        raise AssertionError("unreachable: the messages end in an error")

    def observe(self) -> Observation:
        """Job as it is now."""
        self._sock.sendall(frame(encode(PageQuestion(1, OfJob()))))
        return next(self._received.next(message) for message in self._messages if isinstance(message, Seen))

    def _replies(self) -> Iterator[Serve | Passed | Seen | PageAnswer]:
        while True:
            self._sock.settimeout(max(0.001, self._until - time.monotonic()))
            data = self._sock.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the monitor has gone")
            self._buffer += data
            for each in cut(self._buffer):
                yield TO_PAGE.decode(each)
