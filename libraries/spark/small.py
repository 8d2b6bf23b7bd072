"""Small results of runs: as bytes, in the messages that otherwise name files."""

from __future__ import annotations

from typing import TypeAlias

SMALL = 1 << 20
"""Bytes of rows, as Arrow holds them, that a message may carry."""

Written: TypeAlias = tuple[tuple[str, int], ...] | bytes
"""The result of a run: files, in order, each with its rows; or, of a small one, the rows."""
