"""Lines from a byte stream, and their epochs; no I/O, no clock."""

from __future__ import annotations

from collections import deque

from timely.errors import SourceError, at_line
from timely.io.arguments import above_zero, whole

LONGEST_LINE = 16 << 20


class LineBuffer:
    """Splitter of bytes into whole lines, decoded if there is an encoding."""

    def __init__(self, who: str, encoding: str | None) -> None:
        self._who = who
        self._encoding = encoding
        self._rest = bytearray()
        self._count = 0
        self.wrong: SourceError | None = None
        """Error after the lines returned last by `feed`."""

    @property
    def waiting(self) -> int:
        """Bytes of the incomplete line."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[str] | list[bytes]:
        """Lines completed by `data`, up to the first bad one.

        Raises SourceError for a line that is too long or not in the encoding: at once, or at the next call if other lines
        came before it.
        """
        if self.wrong is not None:
            raise self.wrong
        searched = len(self._rest)
        self._rest += data
        end = self._rest.rfind(b"\n", searched) + 1
        if not end:
            if len(self._rest) > LONGEST_LINE:
                raise SourceError(
                    f"{self._who}, line {self._count + 1}: longer than {LONGEST_LINE >> 20} MiB. Does the "
                    "sender end its lines with a line feed?"
                )
            return []
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        lines = [line.removesuffix(b"\r") for line in whole[:-1].split(b"\n")]
        first, self._count = self._count + 1, self._count + len(lines)
        if self._encoding is None:
            return lines
        found: list[str] = []
        try:
            for line in lines:
                found.append(line.decode(self._encoding))
        except UnicodeDecodeError as error:
            self.wrong = SourceError(
                f"{self._who}, line {first + len(found)}: not {self._encoding}: {error.reason} at byte {error.start}. "
                "Give the right encoding=, or encoding=None for bytes."
            )
            if not found:
                raise self.wrong from None
        return found

    def finish(self) -> None:
        """End the stream.

        Raises SourceError if it ended within a line, or a line was wrong.
        """
        if self.wrong is not None:
            raise self.wrong
        if self._rest:
            raise SourceError(
                f"{self._who}, line {self._count + 1}: the connection ended within this line "
                f"({len(self._rest)} bytes came). The sender must end its last line with a line feed."
            )


class LineEpochs:
    """Epochs of lines, by line count or by the caller's clock."""

    def __init__(self, lines: int | None, seconds: float | None, who: str) -> None:
        if (lines is None) == (seconds is None):
            raise SourceError(at_line(f"{who}: give either epoch_lines= or epoch_seconds=."))
        if lines is not None:
            whole(lines, "epoch_lines")
        if seconds is not None:
            above_zero(seconds, "epoch_seconds")
        self._lines = lines
        self._seconds = seconds
        self._started: float | None = None
        self._epoch = 0
        self.count = 0

    def tick(self, now: float) -> int | None:
        """Epoch begun by `now`, if new.

        `now` is in seconds, from any start.
        """
        if self._seconds is None:
            return None
        if self._started is None:
            self._started = now
        epoch = int((now - self._started) / self._seconds)
        if epoch <= self._epoch:
            return None
        self._epoch = epoch
        return epoch

    def until_next(self, now: float) -> float | None:
        """Seconds from `now` to the next epoch; None for epochs by count."""
        if self._seconds is None or self._started is None:
            return None
        return max(0.0, self._started + (self._epoch + 1) * self._seconds - now)

    def cut(self, lines: deque[str | bytes]) -> tuple[int, list[str | bytes], bool]:
        """Take the lines of one epoch from the left: (epoch, lines, epoch is over)."""
        if self._lines is None:
            taken = list(lines)
            lines.clear()
            self.count += len(taken)
            return self._epoch, taken, False
        epoch = self.count // self._lines
        room = self._lines - self.count % self._lines
        taken = [lines.popleft() for _ in range(min(room, len(lines)))]
        self.count += len(taken)
        return epoch, taken, self.count % self._lines == 0
