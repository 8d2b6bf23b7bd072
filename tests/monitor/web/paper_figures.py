"""Jobs that stand as Figures 3 and 7 of *Falkirk Wheel* do, for their pictures in docs/page.md.

    falkirk run tests/monitor/web/paper_figures.py --ui --store DIR --arg figure=7b

Then what stands still stays there: sources have more to give, and never give it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from falkirk import Batch, Chunk, Dataflow, End, Lazy, Stream, Wait
from timely.io.interface import Partition, Position


class Held:
    """Source of some epochs of records at worker 0; the last one is never over."""

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(self, epochs: Sequence[Sequence[int]]) -> None:
        self.epochs = epochs

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """All of it, at worker 0."""
        return [HeldPartition(self.epochs)] if worker == 0 else []


class HeldPartition:
    """See `Held`. The position is the number of epochs that were read."""

    name = "held"

    def __init__(self, epochs: Sequence[Sequence[int]]) -> None:
        self._epochs = epochs
        self._at = 0

    def read(self) -> Chunk | Wait | End:
        """The next epoch."""
        if self._at == len(self._epochs):
            return Wait(0.2)
        self._at += 1
        return Chunk(self._at - 1, list(self._epochs[self._at - 1]), self._at, self._at < len(self._epochs))

    def seek(self, position: Position) -> None:
        """Go on behind so many epochs."""
        self._at = position if isinstance(position, int) else 0

    def ack(self, position: Position) -> None:
        """No-op: records stay where they are."""

    def close(self) -> None:
        """No-op."""


def build(figure: str | int = 3) -> Dataflow:
    """The dataflow of a figure: 3, 7b or 7c."""
    return {"3": selective, "7b": firewall, "7c": loop}[str(figure)]()


def selective() -> Dataflow:
    """Figure 3: Select, Sum and Buffer. Time A is epoch 0, and over; time B is epoch 1, and under way."""
    flow = Dataflow("figure 3")
    with flow.region("selective", policy=Lazy(every=1)):
        words = flow.source("words", Held([["three", "five"], ["two"]]))
        sums = words.map(numbered, name="Select").keyed().sum(over="time", name="Sum")
        sums.sum(over="scope", name="Buffer").capture("seen")
    return flow


def firewall() -> Dataflow:
    """Figure 7 (b): p logs what it sends, like an RDD; x and y have saved nothing."""
    flow = Dataflow("figure 7 (b)")
    with flow.region("in front", policy=Batch(log_outputs=True)):
        q = flow.source("q", Held([[1, 2], [3, 4], [5]]))
        r = flow.source("r", Held([[6], [7], [8]]))
        p = q.concat(r).key_by(parity, name="p")
    with flow.region("behind", policy=Lazy(every=1000)):
        p.sum(over="scope", name="x").sum(over="scope", name="y").capture("seen")
    return flow


def loop() -> Dataflow:
    """Figure 7 (c): q logs what it sends round the loop, and y nothing."""
    flow = Dataflow("figure 7 (c)")

    def body(stream: Stream) -> tuple[Stream, Stream]:
        q = stream.map(onward, name="q")
        with flow.region("not logging", policy=Batch()):
            home, away = q.map(slowly, name="y").branch(is_large, name="home")
        return away, home

    p = flow.source("source", Held([[1], [2]])).map(onward, name="p")
    with flow.region("loop", policy=Batch(log_outputs=True)):
        walks = p.iterate(body, name="loop")
    walks.capture("seen")
    return flow


def numbered(word: str) -> tuple[str, int]:
    """The number of a word."""
    return "all", ("one", "two", "three", "four", "five").index(word) + 1


def parity(n: int) -> int:
    """A key."""
    return n % 2


def is_large(n: int) -> bool:
    """True of no number for years."""
    return n > 10**9


def onward(n: int) -> int:
    """The next number."""
    return n + 1


def slowly(n: int) -> int:
    """A step of the loop, which takes a while."""
    time.sleep(0.2)
    return n
