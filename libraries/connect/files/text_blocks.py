"""Whole rows of a text file, in blocks of bounded size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from libraries.connect.files.discovery import cannot_read
from timely.errors import SourceError

BLOCK_BYTES = 4 << 20
LONGEST_ROW = 64 << 20
"""Limit of bytes in one row.

Without it, a file of another format would be read into memory as one line.
"""


LONG_INTEGER = re.compile(rb"[0-9]{19}")
"""Pattern of long digit runs; without one, all integers fit 64 bits."""


def beyond_64_bits(value: int, column: str) -> str:
    """Message for an integer in a file without an exact 64-bit form."""
    return (
        f"{value} is beyond 64-bit integers. Give the column's type: schema={{{column!r}: pa.decimal128(38, 0)}} keeps such "
        "numbers exact, pa.float64() rounds them."
    )


class TextBlocks:
    """Reader of blocks of whole rows.

    `last_row_end(bytes)` gives the number of bytes up to the end of the last whole row, 0 if there is none.
    A file must end with a line end, since otherwise a number cut in half would pass for a number;
    `allow_unfinished_line` accepts a last line without one.
    """

    def __init__(
        self,
        path: Path,
        block_bytes: int,
        last_row_end: Callable[[bytes], int],
        allow_unfinished_line: bool,
    ) -> None:
        self.path = path
        self._block_bytes = block_bytes
        self._last_row_end = last_row_end
        self._unfinished = False
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise cannot_read(path, error) from error
        self.size = os.fstat(self._fd).st_size
        if self.size and self._pread(1, self.size - 1) != b"\n":
            if not allow_unfinished_line:
                line = self.line_at(self.size)
                self.close()
                raise SourceError(
                    f"{path}, line {line}: the file ends within this line, so it may have been cut off. Copy "
                    "it again; if it is whole, add a line end or pass allow_unfinished_line=True."
                )
            self._unfinished = True

    def read(self, at: int) -> tuple[bytes, int]:
        """Rows from byte `at` on, and the byte after them."""
        if at > self.size:
            raise SourceError(f"{self.path}: byte {at} is behind the end of the file, which has {self.size}.")
        want = self._block_bytes
        while True:
            data = self._pread(want, at)
            at_end = at + len(data) == self.size
            if at_end and self._unfinished:
                data += b"\n"
            end = self._last_row_end(data)
            if end:
                return (data[:end] if end < len(data) else data), min(at + end, self.size)
            if at_end:
                line = self.line_at(at + end)
                raise SourceError(
                    f"{self.path}, line {line}: the row that begins here does not end before the file does. "
                    "It is cut off, or a quote is not closed."
                )
            if want >= LONGEST_ROW:
                raise SourceError(
                    f"{self.path}, line {self.line_at(at)}: this row is longer than {LONGEST_ROW >> 20} MiB. "
                    "Is a quote left open, or is this another kind of file?"
                )
            want *= 2

    def check_utf8(self, block: bytes, at: int) -> None:
        """Raise SourceError if `block`, read at byte `at`, is not UTF-8."""
        if block.isascii():
            return
        try:
            block.decode()
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self.path}, line {self.line_at(min(at + error.start, self.size))}: this is not text in UTF-8 (byte "
                f"0x{block[error.start]:02x}). Convert the file to UTF-8."
            ) from None

    def _pread(self, count: int, at: int) -> bytes:
        try:
            if os.fstat(self._fd).st_size != self.size:
                raise SourceError(f"{self.path}: the file changed while it was read. Read it when it is finished.")
            parts, left = [], min(count, self.size - at)
            while left > 0:
                part = os.pread(self._fd, left, at)
                if not part:
                    raise SourceError(
                        f"{self.path}: the file became shorter while it was read. Read it when it is finished."
                    )
                parts.append(part)
                at, left = at + len(part), left - len(part)
        except OSError as error:
            raise cannot_read(self.path, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def line_at(self, at: int) -> int:
        """Line number, from 1, of byte `at`.

        Reads everything before it: for errors only.
        """
        line, done = 1, 0
        while done < at:
            part = self._pread(min(1 << 20, at - done), done)
            line, done = line + part.count(b"\n"), done + len(part)
        return line

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
