"""Replay buffer for sources not readable twice: keeps unacknowledged input.

A worker that lives on loses none of it.
"""

from __future__ import annotations

from collections import deque

from timely.errors import SourceError
from timely.io.interface import Chunk, End, Partition, Position, Wait


class KeptPartition:
    """Partition with a replay buffer, for sources not readable twice.

    It can go back to unacknowledged positions in this process, and no further.
    """

    def __init__(self, partition: Partition) -> None:
        self.name = partition.name
        self._partition = partition
        self._kept: deque[Chunk] = deque()
        """Chunks since the last acknowledged position."""
        self._acknowledged: Position = None
        self._again: deque[Chunk] = deque()

    def read(self) -> Chunk | Wait | End:
        """Next chunk, from the buffer or from the source."""
        if self._again:
            chunk = self._again.popleft()
            self._kept.append(chunk)
            return chunk
        found = self._partition.read()
        if isinstance(found, Chunk):
            self._kept.append(found)
        return found

    def seek(self, position: Position) -> None:
        """Go back to an unacknowledged position, after the last chunk with it."""
        while self._kept and self._kept[-1].position != position:
            self._again.appendleft(self._kept.pop())
        if not self._kept and position != self._acknowledged:
            raise SourceError(f"partition {self.name} cannot go back to {position}: what came then was acknowledged")

    def ack(self, position: Position) -> None:
        """Drop chunks up to `position`, and acknowledge it to the source."""
        if any(chunk.position == position for chunk in self._kept):
            while self._kept[0].position != position:
                self._kept.popleft()
            while self._kept and self._kept[0].position == position:
                self._kept.popleft()
        self._acknowledged = position
        self._partition.ack(position)

    def close(self) -> None:
        """Release files and sockets."""
        self._partition.close()
