"""Page process: `python -m runtime.page.process`, started by the monitor.

It isolates untrusted input from the job: connections of browsers, their requests, and the cost of answering them. It
knows the job only from the monitor's messages, has no store, and can end or be ended at any time: the monitor starts
another one. It ends with the monitor.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from contextlib import suppress

from monitor.web.app import Access
from monitor.web.questions import Reply, WrongQuestion
from runtime.control import cut, frame
from runtime.page.history import HistoryFiles
from runtime.page.protocol import (
    TO_PAGE,
    DifferenceReader,
    Looking,
    PageAnswer,
    PageQuestion,
    Passed,
    Seen,
    Serve,
    encode,
)
from runtime.page.server import PageServer

_CHUNK = 1 << 20
_POLITE = 5
"""Increment of the process's nice value: the job comes first."""


class PageProcess:
    """Process of a page: relays messages between the monitor and the web server."""

    def __init__(self, sock: socket.socket, listener: socket.socket) -> None:
        self._sock = sock
        self._listener = listener
        self._buffer = bytearray()
        self._server: PageServer | None = None
        self._received = DifferenceReader()
        self._open: dict[int, Reply] = {}
        self._asked = 0
        self._looking = Looking(0, ())

    def run(self) -> None:
        """Serve until the monitor is gone."""
        while self._read():
            server = self._server
            if server is None:
                continue
            looking = Looking(server.viewers, server.closely)
            if looking != self._looking:
                self._looking = looking
                self._tell(looking)
            for question, reply in server.asked():
                self._asked += 1
                self._open[self._asked] = reply
                self._tell(PageQuestion(self._asked, question))
        if self._server is not None:
            self._server.linger()

    def _read(self) -> bool:
        """Wait for the monitor or the server; False if the monitor is gone."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if self._server is not None:
            poll.register(self._server.wake, select.POLLIN)
        if self._sock.fileno() not in dict(poll.poll()):
            return True
        try:
            data = self._sock.recv(_CHUNK)
        except OSError:
            return False
        self._buffer += data
        for message in cut(self._buffer):
            self._obey(TO_PAGE.decode(message))
        return bool(data)

    def _obey(self, message: Serve | Passed | Seen | PageAnswer) -> None:
        if isinstance(message, Serve):
            self._server = PageServer(
                self._listener,
                Access(message.token),
                message.title,
                HistoryFiles(message.history) if message.history else None,
            )
            self._server.know(message.layout)
            return
        assert self._server is not None
        match message:
            case Passed(events):
                self._server.happened(events)
            case Seen():
                self._server.publish(self._received.next(message))
            case PageAnswer(number, answer, error, status):
                reply = self._open.pop(number, None)
                if reply is not None:
                    reply(WrongQuestion(error, status) if error else answer)

    def _tell(self, message: Looking | PageQuestion) -> None:
        with suppress(OSError):  # it is gone, which is read
            self._sock.sendall(frame(encode(message)))


def main() -> int:
    """Entry point of the page process; ends with the monitor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(_POLITE)
    PageProcess(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))).run()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
