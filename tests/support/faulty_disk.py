"""A simulated disk that stops on demand and breaks what no disk may break: for tests that must see it."""

from __future__ import annotations

from falkirk.simulate.disk import SimulatedDisk, Writer, aligned


class FaultyDisk(SimulatedDisk):
    """A simulated disk with a hand in its inside."""

    def next_time(self) -> float | None:
        """The time of the next event; None if nothing is under way."""
        return self._moments[0][0] if self._moments else None

    def stall(self, writer: Writer, seconds: float) -> None:
        """Everything that this writer has begun takes so much longer: the disk of a process that seems to be dead."""
        for operation in self._waiting.values():
            if operation.writer == writer and not operation.late:
                operation.applied_at += seconds
                operation.acknowledged_at += seconds
        self._moments = sorted(
            (operation.acknowledged_at if operation.applied else operation.applied_at, ticket)
            for ticket, operation in self._waiting.items()
        )

    def lose_acknowledged(self, name: str) -> None:
        """Forget a blob, although its writer was told that it is durable."""
        if not self._blobs[name].acknowledged:
            raise ValueError(f"{name} was never acknowledged")
        del self._blobs[name]

    def damage(self, name: str, bit: int) -> None:
        """Flip one bit of a blob."""
        data = bytearray(self._blobs[name].data)
        data[bit // 8] ^= 1 << bit % 8
        self._blobs[name].data = aligned(data)
