"""Files with the last lines that each process of a job wrote, beside its store.

Two files a place, the older one replaced when the newer is full. A line of a file is: its number, milliseconds since 1970,
process id, stream (o, e: its standard output and error; s: what its supervisor says), and the text. What cannot be read is
passed over: the files are for people.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import msgspec

HALF_BYTES = 128 << 10
"""Most bytes of one of the two files of a place."""

LONGEST = 4096
"""Most bytes of one line; longer ones are divided."""

MOST_PLACES = 2048
"""Most places listed."""

_SECOND_BYTES = 256 << 10
"""Most bytes of a place kept in one second; of more only the number of lines is."""

_NAME = re.compile(r"(monitor|spare|worker-[0-9]{1,9}(?:\.[0-9]{1,9})?)\.log")
_LINE = re.compile(rb"([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,10}) ([oes]) (.*)")


class Written(msgspec.Struct, frozen=True):
    """Line that a process wrote: number, seconds since 1970, process id, stream, text."""

    n: int
    at: float
    pid: int
    stream: str
    text: str


class LogWriter:
    """Writer of the lines of one place. Errors of the disk are ignored: the job goes on, and lines are missing."""

    def __init__(self, folder: Path, place: str) -> None:
        self._path = folder / f"{place}.log"
        self._number = max((line.n for line in read_log(folder, place)), default=0)
        self._size = 0
        with suppress(OSError):
            self._size = self._path.stat().st_size
        self._second, self._room, self._left_out = 0, 0, 0

    def write(self, pid: int, stream: str, lines: list[bytes]) -> None:
        """Append lines, without their line ends."""
        now = time.time()
        if int(now) != self._second:
            self._second, self._room = int(now), _SECOND_BYTES
            if self._left_out:
                left, self._left_out = self._left_out, 0
                self._append([self._line(now, pid, "s", b"%d lines more are not kept: too much in a second" % left)])
        kept = []
        for line in lines:
            self._room -= len(line) + 40
            if self._room < 0:
                self._left_out += 1
            else:
                kept += [
                    self._line(now, pid, stream, line[at : at + LONGEST]) for at in range(0, max(len(line), 1), LONGEST)
                ]
        if kept:
            self._append(kept)

    def _line(self, now: float, pid: int, stream: str, text: bytes) -> bytes:
        self._number += 1
        return b"%d %d %d %s %s\n" % (self._number, int(now * 1000), pid, stream.encode(), text.replace(b"\r", b""))

    def _append(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        with suppress(OSError):
            if self._size and self._size + len(data) > HALF_BYTES:
                os.replace(self._path, f"{self._path}.1")
                self._size = 0
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                self._size += os.write(descriptor, data)
            finally:
                os.close(descriptor)


def log_places(folder: Path) -> list[str]:
    """Places with lines, workers first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [match[1] for name in names if (match := _NAME.fullmatch(name))]
    return sorted(found, key=lambda place: (not place.startswith("worker"), _numbers(place), place))[:MOST_PLACES]


def read_log(folder: Path, place: str, since: int = 0, most: int | None = None) -> list[Written]:
    """Lines of a place with greater numbers than `since`, the last `most` of them.

    Empty for an unknown place.
    """
    if not _NAME.fullmatch(f"{place}.log"):
        return []
    data = b""
    for name in (f"{place}.log.1", f"{place}.log"):
        with suppress(OSError), open(os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            data += file.read(2 * HALF_BYTES)
    return read_lines(data, since, most)


def read_lines(data: bytes, since: int = 0, most: int | None = None) -> list[Written]:
    """Lines in the bytes of a file, in their order."""
    found = []
    for raw in data.split(b"\n"):
        match = _LINE.fullmatch(raw)
        if match and (n := int(match[1])) > since:
            text = match[5].decode(errors="replace")
            found.append(Written(n, int(match[2]) / 1000, int(match[3]), match[4].decode(), text))
    return found if most is None else found[max(0, len(found) - most) :]


def _numbers(place: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"[0-9]+", place))
