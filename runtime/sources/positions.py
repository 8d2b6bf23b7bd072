"""Positions of partitions between epochs: for checkpoints, and for reading again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from runtime.sources.fingerprint import Content
from timely.io.interface import Position


class Mark(msgspec.Struct, frozen=True):
    """Position of a partition after an epoch, and data to recognise the epoch."""

    epoch: int
    position: Position
    before: Position = None
    """Position at the start of the epoch."""
    content: Content = msgspec.field(default_factory=Content)


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Partition's part of a checkpoint: position to resume at, and the epoch before.

    That epoch is recognised by its fingerprint.
    """

    partition: str
    position: Position
    ended: bool
    before: Position = None
    fingerprint: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """End positions of the epochs from `begin` on, before `upto`.

    See `recovery.epoch_ends`.
    """

    begin: int
    upto: int
    partitions: Mapping[str, tuple[tuple[int, Position], ...]]
    local_only: bool


NO_MARK = Mark(-1, None)
"""Mark of a partition with nothing read yet."""
