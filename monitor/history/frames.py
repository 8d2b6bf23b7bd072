"""Frames: seconds of a job in brief, packed by the minute. Pure.

A frame has the job's numbers exactly, 5 bytes an operator (`OPERATOR`) and 12 a worker's process (`WORKER`), each a code of
`monitor.history.scales`. Epochs of operators and workers are said relative to the frame's `top`. In a pack all frames of one
field stand together, as differences in time, which are mostly zeros: then they are compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timely.errors import ProtocolError

OPERATOR = ("lag", "unsafe", "rate", "busy", "state")
"""Bytes of an operator.

Epochs behind the top (COUNT), epochs not yet safe (COUNT), records a second (RATE), share of the workers' time (SHARE), bytes
of state (SIZE).
"""

WORKER = (
    "presence",  # index in PRESENCES
    "incarnation",  # low byte
    "incarnation_high",
    "failures",
    "lag",  # epochs of its slowest source behind the top, COUNT
    "rate",  # records read a second, RATE
    "busy",  # SHARE
    "age",  # seconds since it was heard, COUNT
    "state",  # bytes, SIZE
    "logged",  # bytes, SIZE
    "kept",  # bytes of exchanges in memory, SIZE
    "queued",  # batches, COUNT
)
"""Bytes of a worker's process."""

PRESENCES = ("alive", "joined", "behind", "absent", "awaited", "gone", "not running")

NUMBERS = (
    "at",  # milliseconds since 1970
    "generation",
    "phase",  # index in PHASES
    "top",  # newest epoch that anything had reached
    "newest",  # of the furthest source; -1: ended, -2: unknown, as for all that follow
    "slowest",
    "open",
    "low",
    "read",
    "written",
    "rate",
    "p50",  # tenths of milliseconds
    "p99",
    "covered",  # thousandths
)
"""Numbers of the job."""

PHASES = ("assembling", "gathering", "deciding", "restoring", "running", "closing", "over")

MOST_FRAMES = 120
"""Most frames in a pack."""

_HEAD = struct.Struct("<IHH")
_MOST_BYTES = 1 << 28

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Frame:
    """One second of a job.

    Attributes:
        numbers: by NUMBERS.
        operators: `[field, operator]`, fields as in OPERATOR.
        workers: `[field, process]`, fields as in WORKER, processes in the order of `recovery.place.places`.
    """

    numbers: tuple[int, ...]
    operators: Bytes
    workers: Bytes

    @property
    def at(self) -> int:
        """Its time, in milliseconds since 1970."""
        return self.numbers[0]

    def number(self, name: str) -> int | None:
        """Number of the job; None if it was unknown."""
        found = self.numbers[NUMBERS.index(name)]
        return None if found == -2 else found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Frame)
            and self.numbers == other.numbers
            and np.array_equal(self.operators, other.operators)
            and np.array_equal(self.workers, other.workers)
        )


def pack(frames: Sequence[Frame], level: int = 6) -> bytes:
    """Frames of one layout, compressed together."""
    first = frames[0]
    operators, workers = first.operators.shape[1], first.workers.shape[1]
    parts = [_HEAD.pack(operators, workers, len(frames))]
    numbers = np.array([frame.numbers for frame in frames], dtype=np.int64)
    parts.append(_by_byte(np.diff(numbers, axis=0, prepend=np.zeros((1, len(NUMBERS)), np.int64))))
    for of in ("operators", "workers"):
        codes = np.stack([getattr(frame, of) for frame in frames], axis=-1)  # [field, each, second]
        steps = np.diff(codes, axis=-1, prepend=np.zeros((*codes.shape[:-1], 1), np.uint8))
        parts.append(steps.tobytes())
    return zlib.compress(b"".join(parts), level)


def unpack(data: bytes | memoryview) -> list[Frame]:
    """Frames of a pack. Raises ProtocolError for anything else."""
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(data, _MOST_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise ProtocolError("a pack of frames has no end")
        operators, workers, count = _HEAD.unpack_from(plain)
        sizes = [8 * len(NUMBERS) * count, len(OPERATOR) * operators * count, len(WORKER) * workers * count]
        if not 0 < count <= MOST_FRAMES or len(plain) != _HEAD.size + sum(sizes):
            raise ProtocolError("a pack of frames has another size than it says")
    except (zlib.error, struct.error) as error:
        raise ProtocolError(f"a pack of frames cannot be read: {error}") from None
    at = _HEAD.size
    planes = np.frombuffer(plain, np.uint8, sizes[0], at).reshape(8, -1)
    numbers = np.cumsum(np.ascontiguousarray(planes.T).view(np.int64).reshape(count, -1), axis=0)
    found: list[Bytes] = []
    for size, fields in ((sizes[1], len(OPERATOR)), (sizes[2], len(WORKER))):
        at += sizes[0] if not found else sizes[1]
        steps = np.frombuffer(plain, np.uint8, size, at).reshape(fields, -1, count)
        found.append(np.cumsum(steps, axis=-1, dtype=np.uint8))
    return [
        Frame(tuple(numbers[second].tolist()), found[0][:, :, second].copy(), found[1][:, :, second].copy())
        for second in range(count)
    ]


def _by_byte(numbers: npt.NDArray[np.int64]) -> bytes:
    """Bytes of all numbers, the lowest ones first, then the next: most are zeros."""
    columns = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(columns.T).tobytes()
