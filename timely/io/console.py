"""Sink for standard output."""

from __future__ import annotations

import sys
from typing import ClassVar, TextIO

from timely.data.batch import Batch
from timely.errors import SinkError
from timely.io.memory import PendingEpochs, rows_of


class Console:
    """Prints `{prefix}{epoch}: {record}`, a line a record, when the epoch is complete.

    Not exactly once: nobody can take back what was printed, so after a failure some epochs are printed again.

    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable(["a", "b"], epoch_every=1)).to(falkirk.Console("epoch "))
    >>> result = falkirk.run(flow)
    epoch 0: a
    epoch 1: b
    """

    exactly_once: ClassVar[bool] = False

    def __init__(self, prefix: str = "", stream: TextIO | None = None) -> None:
        self._prefix = prefix
        self._stream = stream

    def open(self, worker: int, workers: int) -> ConsoleWriter:
        """Writer to standard output, or to `stream`."""
        return ConsoleWriter(self._prefix, self._stream)


class ConsoleWriter:
    """Writer of one worker's lines."""

    def __init__(self, prefix: str, stream: TextIO | None) -> None:
        self._prefix = prefix
        self._stream = stream
        self._pending = PendingEpochs()

    def write(self, epoch: int, batch: Batch) -> None:
        """Buffer the batch until its epoch is complete."""
        self._pending.add(epoch, batch)

    def commit(self, epoch: int) -> None:
        """Print the epoch in one write, so that lines of several workers do not mix."""
        start = f"{self._prefix}{epoch}: "
        lines = [f"{start}{row}\n" for batch in self._pending.take(epoch) for row in rows_of(batch)]
        stream = self._stream or sys.stdout
        try:
            stream.write("".join(lines))
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            raise SinkError(f"Console: cannot print: {error}. Has the reader of the output gone away?") from error

    def abort(self) -> None:
        """Discard unprinted batches."""
        self._pending.clear()

    def close(self) -> None:
        """Discard unprinted batches."""
        self._pending.clear()
