"""Bounded output of Spark's processes, for display and error messages; no I/O."""

from __future__ import annotations

import re
from collections import deque

LINES_AT_ONCE = 20
"""Most lines shown at once; the rest is counted."""

_LONGEST = 300
_MOST_LINES = 400
_UNFINISHED = 1 << 16

_TRACE = re.compile(r"\s+at |\s+\.\.\. \d+ (more|common frames)")
_NOISE = re.compile(
    r"WARNING: (A terminally deprecated method|sun\.misc\.Unsafe|Please consider reporting|A restricted method|"
    r"java\.lang\.System::load|Use --enable-native-access|Restricted methods|Using incubator modules)|Picked up JAVA_"
)
"""Pattern of Java's messages about itself."""


class ProcessOutput:
    """Buffer of output, split into lines."""

    def __init__(self) -> None:
        self._unfinished = b""
        self._shown: list[str] = []
        self._omitted = 0
        self._last_lines: deque[str] = deque(maxlen=_MOST_LINES)

    def add(self, data: bytes) -> None:
        """Add output."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > _UNFINISHED:
            lines.append(self._unfinished)
            self._unfinished = b""
        for line in lines:
            self._add(line.decode(errors="replace").rstrip())

    def take(self) -> str:
        """Output since the last call, to be shown; without Java stack frames.

        Empty if there is nothing to show.
        """
        lines, self._shown = self._shown, []
        if self._omitted:
            lines.append(f"... and {self._omitted} more lines")
            self._omitted = 0
        return "\n".join(lines)

    @property
    def last_lines(self) -> str:
        """Last lines of the unfiltered output."""
        return "\n".join([*self._last_lines, self._unfinished.decode(errors="replace")]).strip()

    def _add(self, line: str) -> None:
        self._last_lines.append(line[: 4 * _LONGEST])
        if not line or _TRACE.match(line) or _NOISE.match(line):
            return
        if len(self._shown) < LINES_AT_ONCE:
            self._shown.append(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ...")
        else:
            self._omitted += 1
