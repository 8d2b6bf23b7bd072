"""Limits on work in flight, as given by a program."""

from __future__ import annotations

from dataclasses import dataclass

from timely.errors import FalkirkError, at_line


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on work in flight.

    They are independent of the frequency of checkpoints.

    `epochs`: how many epochs a source may be ahead of the oldest epoch that is not complete where its records end.
    `bytes`: how many bytes may wait in the queues of a worker, or for its links, before sources everywhere pause.
    `seconds`: with a store, how much work, in seconds of a worker's processor time, may be open in epochs that it has read: it
    reads fewer than `epochs` ahead where they take long, two at least (one where others read most epochs), because a failure
    makes others do them again.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.source("items", falkirk.Iterable(range(4), epoch_every=1)).capture("out")
    >>> len(falkirk.run(flow, limits=falkirk.Limits(epochs=2)).captured("out"))
    4
    """

    epochs: int = 32
    bytes: int = 256 << 20
    seconds: float = 0.02

    def __post_init__(self) -> None:
        for limit in (self.epochs, self.bytes):
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise FalkirkError(
                    at_line(f"limits are whole numbers from 1 up, or nothing could ever be read: {self}")
                )
        if not self.seconds >= 0:
            raise FalkirkError(at_line(f"seconds of open work are a number from 0 up, not {self.seconds!r}"))
