"""Handles of a session: inputs fed by hand, and probes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from timely.data.batch import Batch
from timely.errors import FalkirkError, OperatorError, name_the_line
from timely.progress.tracker import Antichain, reaches
from timely.time import INF, Time, as_time
from timely.worker.worker import Worker

_GATHER = 8192
"""Records gathered by an input before it feeds the worker."""


class InputHandle:
    """Handle for feeding one `Dataflow.input` of this worker.

    Where the input is in a nested scope, its times are (slow, fast), with a coordinate for each scope. It goes through them in
    order: all fast epochs of a slow one, then the next slow one. At (s, f) may still come what is at (s, f) or later within s,
    and all from (s + 1, 0) on: the frontier is {(s, f), (s + 1, 0)}.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.input("numbers").map(abs).capture("out")
    >>> with falkirk.Session(flow) as session:
    ...     numbers = session.input("numbers")
    ...     numbers.send([-4])
    ...     numbers.advance_to(3)
    ...     numbers.time
    ...     numbers.close()
    ...     session.run()
    ...     session.captured("out")
    (3,)
    [((0,), [4])]

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.input("clicks", flow.scope("hours")).capture("out")
    >>> with falkirk.Session(flow) as session:
    ...     clicks = session.input("clicks")
    ...     clicks.send(["a"])
    ...     clicks.advance_to((0, 5))
    ...     clicks.send(["b"])
    ...     clicks.advance_to((1, 0))
    ...     clicks.send(["c"])
    ...     clicks.close()
    ...     session.run()
    ...     session.captured("out")
    [((0, 0), ['a']), ((0, 5), ['b']), ((1, 0), ['c'])]
    """

    __slots__ = ("_node", "_times", "_worker", "gathered")

    def __init__(self, worker: Worker, node: int) -> None:
        self._worker = worker
        self._node = node
        self._times = worker.input_times
        self.gathered: list[Any] = []

    @property
    def time(self) -> Time | None:
        """Current time of this input; None once it is closed."""
        return self._worker.input_time(self._node)

    def send(self, batch: Batch) -> None:
        """Send a list of records, a frame or a table at the current time.

        Raises:
            OperatorError: `batch` is none, or the input is closed.
        """
        try:
            if isinstance(batch, list):
                if self._times[self._node] is None:
                    raise OperatorError(f"input {self._worker.plan.graph.nodes[self._node].name!r} is closed")
                self.gathered += batch
                if len(self.gathered) >= _GATHER:
                    self.flush()
            elif isinstance(batch, pl.DataFrame | pa.Table):
                self.flush()
                self._worker.feed(self._node, None, batch)
            else:
                raise OperatorError(
                    f"send() takes a list of records, a Polars frame or an Arrow table, not {type(batch).__name__}"
                )
        except FalkirkError as error:
            name_the_line(error)
            raise

    def flush(self) -> None:
        """Feed the gathered records to the worker."""
        if self.gathered:
            records, self.gathered = self.gathered, []
            self._worker.feed(self._node, None, records)

    def advance_to(self, time: int | Time) -> None:
        """Promise to send at `time` or later only; an int is an epoch of the root scope.

        In a nested scope `time` is (slow, fast): from (0, 5) the next may be (0, 6), and (1, 0) ends all of slow epoch 0.

        Raises:
            OperatorError: `time` is before that of the input, or has another number of coordinates; the input is closed.
        """
        try:
            if self.gathered:
                self.flush()
            self._worker.advance(self._node, (time,) if isinstance(time, int) else time)
        except FalkirkError as error:
            name_the_line(error)
            raise

    def close(self) -> None:
        """Close the input: promise to send nothing more."""
        self.flush()
        if self.time is not None:
            self._worker.advance(self._node, None)


class ProbeHandle:
    """Handle for reading the progress at one probe.

    >>> flow = falkirk.Dataflow()
    >>> done = flow.input("numbers").map(abs).probe("done")
    >>> with falkirk.Session(flow) as session:
    ...     numbers, progress = session.input("numbers"), session.probe("done")
    ...     numbers.advance_to(2)
    ...     session.step_until(lambda: progress.done(1))
    ...     progress.frontier
    ...     numbers.close()
    ((2,),)
    """

    __slots__ = ("_depth", "_node", "_worker")

    def __init__(self, worker: Worker, node: int) -> None:
        self._worker = worker
        self._node = node
        self._depth = worker.plan.graph.nodes[node].scope.depth

    @property
    def frontier(self) -> Antichain:
        """Minimal times still able to arrive, on any worker; empty if there are none."""
        return self._worker.probe(self._node)

    def done(self, time: int | Time) -> bool:
        """True if nothing at `time` or before it can arrive any more.

        An int is an epoch, with all that is in it.

        Raises:
            OperatorError: `time` has another number of coordinates than times have where the probe is.
        """
        at = (time,) if type(time) is int and time >= 0 and self._depth == 1 else self._time(time)
        return not reaches(self._worker.probe(self._node), at)

    def _time(self, time: int | Time) -> Time:
        """`time` with the number of coordinates of times at the probe."""
        inner = (INF,) * (self._depth - 1)
        try:
            return as_time((time, *inner) if isinstance(time, int) else time, self._depth)
        except ValueError as error:
            node = self._worker.plan.graph.nodes[self._node]
            raise OperatorError(f"the {node} watches times of {node.scope}: {error}") from None
