"""Output of a job's processes: passed on as before, with last lines kept.

Each process has a pipe of its own for each stream, or a pseudo-terminal where this process has a terminal, so that programs
print line by line and in colour as before. The pipes end here, not in the process, so the last words of one that is killed
are read after its death.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a job without a store keeps no output
    from runtime.page.logs import LogWriter

_CHUNK = 1 << 16
_LONGEST_REST = 4096
"""Bytes of an unfinished line, at most, before it counts as a line."""
_MOST_WORDS = 60
"""Most lines of a process's standard error kept as its last words."""
_MOST_BYTES = 8192
_IDLE_WORDS = b"Extension modules: "
"""Beginning of a long line without information about a crash."""
_LAST_SECONDS = 1.0
"""Longest wait for showing the rest of the output at the end, in seconds."""


class Streams:
    """Output of one process; `files`: descriptors of its standard output and error."""

    def __init__(self) -> None:
        self.pid = 0
        self.place: Callable[[], str] = lambda: "spare"
        self.files: list[int] = []
        self.sources: dict[int, str] = {}
        """Ends to read from, with the letter of their stream."""
        self.rest: dict[str, bytes] = {}
        """Begun line of each stream."""
        self.words: deque[bytes] = deque(maxlen=_MOST_WORDS)

    @property
    def last_words(self) -> str:
        """Last lines on standard error."""
        text = b"\n".join((*self.words, *filter(None, [self.rest.get("e", b"")]))).decode(errors="replace")
        return text[-_MOST_BYTES:].strip("\n")

    def started(self, pid: int, place: Callable[[], str]) -> None:
        """Note the process, and close its ends here."""
        self.pid, self.place = pid, place
        self.close_files()

    def close_files(self) -> None:
        """Close the ends of the process here."""
        for file in self.files:
            os.close(file)
        self.files = []


class Output:
    """Output of all processes of a job, kept in `folder` (None: not kept at all).

    A thread passes it on. `begin` and `end` are called for each process.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        """Lock for reading, never held while showing: a terminal may be paused."""
        self._selector = selectors.DefaultSelector()
        self._waiting: deque[tuple[int, bytes]] = deque()
        """Output not shown yet: descriptor and bytes."""
        self._taken = self._shown = 0
        """Number of pieces read, and shown, so far."""
        self._closing = False
        self._writers: dict[str, LogWriter] = {}
        self._wake, self._waker = os.pipe()
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._thread: threading.Thread | None = None
        if folder is not None:
            with suppress(OSError):
                folder.mkdir(0o700, parents=True, exist_ok=True)

    def open(self) -> Streams | None:
        """Streams for a new process; None if nothing is kept, or files have run out."""
        if self._folder is None:
            return None
        streams = Streams()
        try:
            for number, letter in ((1, "o"), (2, "e")):
                source, end = _terminal() if _is_terminal(number) else os.pipe()
                streams.files.append(end)
                streams.sources[source] = letter
                os.set_blocking(source, False)
        except OSError:
            streams.close_files()
            for source in streams.sources:
                os.close(source)
            return None
        with self._lock:
            for source in streams.sources:
                self._selector.register(source, selectors.EVENT_READ, streams)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="falkirk-output", daemon=True)
            self._thread.start()
        self._nudge()
        return streams

    def end(self, streams: Streams, how: str) -> str:
        """Read the rest of an ended process's output; returns its last words.

        `how` it ended. Processes that it has left behind may go on to write.
        """
        with self._lock:
            for source in tuple(streams.sources):
                while self._read(source, streams):
                    pass
            self._keep_rest(streams)
            self._write(streams, "s", [f"process {streams.pid} {how}".encode()])
        self._nudge()
        return streams.last_words

    def close(self) -> None:
        """Show all output until now."""
        self._closing = True
        self._nudge()
        until = time.monotonic() + _LAST_SECONDS
        while self._thread is not None and self._shown < self._taken and time.monotonic() < until:
            time.sleep(0.002)

    def _run(self) -> None:
        """Pass output on until the job is over, and all that it has left behind."""
        while not (self._closing and len(self._selector.get_map()) == 1):
            ready = self._selector.select()
            with self._lock:
                for key, _ in ready:
                    if key.data is None:
                        os.read(self._wake, _CHUNK)
                    elif key.fd in key.data.sources:
                        self._read(key.fd, key.data)
            while self._waiting:
                _show(*self._waiting.popleft())
                self._shown += 1

    def _read(self, source: int, streams: Streams) -> bool:
        """Take one piece of a stream; False if nothing is there now, or will be."""
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # how a pseudo-terminal says that nobody can write any more
            data = b""
        if not data:
            self._selector.unregister(source)
            os.close(source)
            del streams.sources[source]
            return False
        letter = streams.sources[source]
        self._waiting.append((1 if letter == "o" else 2, data))
        self._taken += 1
        *lines, rest = (streams.rest.get(letter, b"") + data).split(b"\n")
        if len(rest) >= _LONGEST_REST:
            lines, rest = [*lines, rest], b""
        streams.rest[letter] = rest
        if letter == "e":
            streams.words.extend(line for line in lines if not line.startswith(_IDLE_WORDS))
        if lines:
            self._write(streams, letter, lines)
        return True

    def _keep_rest(self, streams: Streams) -> None:
        for letter, rest in streams.rest.items():
            if rest:
                self._write(streams, letter, [rest])
                streams.rest[letter] = b""
                if letter == "e":
                    streams.words.append(rest)

    def _write(self, streams: Streams, letter: str, lines: list[bytes]) -> None:
        from runtime.page.logs import LogWriter

        place = streams.place()
        if place not in self._writers:
            assert self._folder is not None
            self._writers[place] = LogWriter(self._folder, place)
        self._writers[place].write(streams.pid, letter, lines)

    def _nudge(self) -> None:
        with suppress(OSError):
            os.write(self._waker, b"x")


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def _terminal() -> tuple[int, int]:
    """Pseudo-terminal: the end to read from, and that of a process."""
    import pty
    import tty

    source, end = pty.openpty()
    tty.setraw(end)
    return source, end


def _show(number: int, data: bytes) -> None:
    """Write to a standard stream of this process, if it is there."""
    view = memoryview(data)
    with suppress(OSError):
        while view:
            try:
                view = view[os.write(number, view) :]
            except BlockingIOError:  # somebody has made the terminal so, for all
                time.sleep(0.01)
