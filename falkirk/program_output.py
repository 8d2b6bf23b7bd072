"""Redirection of a program's output above a live view on the terminal.

Meanwhile the standard streams of this process, and of the worker processes that it starts, lead to a pseudo-terminal,
whose lines are handed on one by one. A pipe would do as well, but for one thing: programs would no longer print line by
line, nor in colour, because they would not see a terminal.
"""

from __future__ import annotations

import codecs
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress


class ProgramOutput:
    """Context manager to send lines written to the descriptors `files` to `show`.

    Whole lines are shown, by a thread of its own. `terminal` is where standard error led before: for output that
    must reach the screen all the same.
    """

    def __init__(self, files: list[int]) -> None:
        self._files = files
        self._saved: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._show: Callable[[str], None] = lambda text: None
        self.terminal = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace", closefd=True)

    def to(self, show: Callable[[str], None]) -> ProgramOutput:
        """The receiver of the lines."""
        self._show = show
        return self

    def __enter__(self) -> ProgramOutput:
        import pty
        import tty

        sys.stdout.flush()
        sys.stderr.flush()
        master, slave = pty.openpty()
        tty.setraw(slave)
        with suppress(OSError):
            _same_size(self.terminal.fileno(), slave)
        for file in self._files:
            self._saved[file] = os.dup(file)
            os.dup2(slave, file)
        os.close(slave)
        self._thread = threading.Thread(target=self._hand_on, args=(master,), daemon=True, name="falkirk-output")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        for file, saved in self._saved.items():
            os.dup2(saved, file)
            os.close(saved)
        self._saved.clear()
        if self._thread is not None:
            # A process that the program left behind may hold the other end for ever: do not wait for that.
            self._thread.join(timeout=1.0)

    def _hand_on(self, master: int) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        rest = ""
        while True:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # how Linux says that nobody can write any more
                data = b""
            text = rest + decode(data, final=not data)
            lines, newline, rest = text.rpartition("\n")
            if lines or newline:
                self._show(lines + newline)
            if not data:
                break
        if rest:
            self._show(rest)
        os.close(master)


def _same_size(terminal: int, other: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(terminal, termios.TIOCGWINSZ, b"\0" * 8))
