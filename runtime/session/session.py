"""One worker with its driver: sources, sinks, jobs and links, in this thread.

>>> from timely.dataflow.dataflow import Dataflow
>>> flow = Dataflow("lengths")
>>> lengths = flow.input("words").map(len)
>>> done, seen = lengths.probe(), lengths.capture()
>>> with Session(flow) as session:
...     words = session.input("words")
...     words.send(["falkirk", "wheel"])
...     words.advance_to(1)
...     session.step_until(lambda: session.probe(done).done(0))
...     session.captured(seen)
[((0,), [7, 5])]
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Protocol

from recovery.place import Place, places
from runtime.control import JobStats
from runtime.folders.workspace import Workspace
from runtime.links.interface import Link
from runtime.session.explain import Hold, explain, report
from runtime.session.handles import InputHandle, ProbeHandle
from runtime.session.outputs import OutputDriver
from runtime.sources.driver import SourceDriver
from runtime.sources.limits import Limits
from timely.data.batch import Batch
from timely.data.messages import Effect, Frame
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.graph import captured_as
from timely.dataflow.plan import Plan, compile_plan
from timely.dataflow.wire import Capture, Probe, naming_options
from timely.errors import FalkirkError, GraphError, at_line, naming_the_line
from timely.io.waiting import wait_readable
from timely.time import Time, visible
from timely.worker.worker import Worker

_TURN = 10_000
"""Events handled by a worker before its driver polls links and sources again."""

_SHORT_SECONDS = 5e-4
"""Seconds for reading on from sources in one turn."""

_MANY_ROWS = 1 << 15
"""Maximum number of rows read on in one turn."""

_LONG_SECONDS = 2e-4
"""Seconds of a turn until its frames are due, before more work begins.

Sending them costs a quarter of that, or less.
"""


class Participant(Protocol):
    """Participant in the turns of a session beside its worker: recovery.

    A session without one pays nothing for it.
    """

    @property
    def done(self) -> bool:
        """True if the job needs this worker no longer, once it is idle."""

    @property
    def paused(self) -> bool:
        """True if the sources of this worker must pause."""

    @property
    def pressed(self) -> bool:
        """True if the sources of other workers must pause, too."""

    def begin(self) -> bool:
        """Start a turn, before frames are taken; True if anything was done."""

    def receive(self, frame: Frame) -> None:
        """Handle a received frame, in place of `Worker.receive`."""

    def resume(self) -> bool:
        """True if sources may be read, unless `paused`, and the worker run.

        Called after frames were taken.
        """

    def work(self) -> bool:
        """Run the worker, in place of `Worker.run`; True if nothing is left to do."""

    def end(self, quiet: bool, busy: bool) -> bool:
        """Finish a turn, after frames were sent; False if the session may rest."""

    def rest(self) -> tuple[list[int], float]:
        """File descriptors to wait for while at rest, and the longest wait in seconds."""

    def close(self) -> None:
        """Close after the end of the job."""

    def abort(self) -> None:
        """Abort after a failure of the job."""


def _check_demands(plan: Plan) -> None:
    """Raise GraphError if an output requires a guarantee: only a store gives one."""
    for node in plan.graph.nodes:
        if node.require is not None:
            raise GraphError(
                f"the {node} requires {node.require}, and without a store nothing is promised: give one, by store= or --store"
            )


def _keep(captured: dict[int, list[tuple[Time, Batch]]], node: int, at: Time, batch: Batch) -> None:
    captured[node].append((visible(at), batch))


class Session:
    """Session of worker `index` of `plan.workers`, driven by the caller.

    `link` connects it to the other workers (None: there are none). `worker` is made here unless it is given.
    `recovery` makes the participant in its turns, once sources and sinks are open. `workspace` is where sources and
    the jobs of operators keep files: by default a temporary folder of this session's own. `job` is the identity of
    the job for sinks, the same on all workers; by default it is this session's own, if it has no others.

    Raises:
        GraphError: the program cannot run, or requires of an output what nobody can promise without a store.
        FalkirkError: `flow` is no dataflow.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.input("words").map(str.upper).capture("out")
    >>> with falkirk.Session(flow) as session:
    ...     words = session.input("words")
    ...     words.send(["a"])
    ...     words.close()
    ...     session.run()
    ...     session.captured("out")
    [((0,), ['A'])]
    """

    @naming_options(
        workers="a session is one worker, in this process; falkirk.run(flow, workers=2, drive=function) runs two"
    )
    def __init__(
        self,
        flow: Dataflow | Plan,
        index: int = 0,
        link: Link | None = None,
        limits: Limits | None = None,
        worker: Worker | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_capture: Callable[[int, Time, Batch], None] | None = None,
        workspace: Workspace | None = None,
        job: str | None = None,
        recovery: Callable[[Session], Participant] | None = None,
    ) -> None:
        if not isinstance(flow, Dataflow | Plan):
            raise FalkirkError(
                at_line(f"Session runs a Dataflow, not {flow!r}; windows of sessions are SessionWindow(gap)")
            )
        self.plan = flow if isinstance(flow, Plan) else compile_plan(flow.graph)
        if recovery is None:
            _check_demands(self.plan)
        self.worker = worker or Worker(self.plan, index)
        self._recovery: Participant | None = None
        self._receive = self.worker.receive
        self.limits = limits or Limits()
        self._link = link
        self._places = places(self.plan.workers)
        self._clock = clock
        self._began = clock()
        if link is not None:
            self.worker.late = self._late
        self._captured: dict[int, list[tuple[Time, Batch]]] = {n.index: [] for n in self.plan.graph.of_kind("capture")}
        self._own_files = Workspace() if workspace is None else None
        files = workspace or self._own_files
        assert files is not None
        if job is None and link is None:
            job = uuid.uuid4().hex
        self._outputs = OutputDriver(
            self.worker, on_capture or partial(_keep, self._captured), self._wake, files, self._clock, job
        )
        self._inputs = {node.name: InputHandle(self.worker, node.index) for node in self.plan.graph.of_kind("input")}
        self._wake_pipe: tuple[int, int] | None = None
        self.sources: list[SourceDriver] = []
        self._closed = False
        self._stop: BaseException | None = None
        try:
            self._outputs.open()
            for node in self.plan.graph.of_kind("source"):
                self.sources.append(SourceDriver(node, self.worker, clock, recovery is not None, files))
            self._gathers = any(source.gathers for source in self.sources)
            if recovery is not None:
                self._recovery = recovery(self)
                self._receive = self._recovery.receive
        except BaseException:
            self.abort()
            raise

    # Handles

    @property
    def index(self) -> int:
        return self.worker.index

    @property
    def workers(self) -> int:
        return self.plan.workers

    @property
    def done(self) -> bool:
        """True if the job is over on all workers, and all effects are carried out."""
        return (self.worker if self._recovery is None else self._recovery).done and not self.worker.effects

    @property
    def written(self) -> int:
        """Number of records given to sinks of this worker so far."""
        return self._outputs.written

    @property
    def jobs(self) -> int:
        """Number of jobs of this worker's operators without a result taken yet."""
        return self._outputs.jobs

    def running_jobs(self) -> tuple[JobStats, ...]:
        """Running jobs of operators and queries of sources, with reported progress."""
        return *self._outputs.running_jobs(), *(each for source in self.sources for each in source.working())

    @naming_the_line
    def input(self, name: str) -> InputHandle:
        """Handle of `Dataflow.input(name)`.

        Raises:
            FalkirkError: there is no such input.
        """
        if name not in self._inputs:
            raise FalkirkError(f"there is no input {name!r}; there are: {', '.join(self._inputs) or 'none'}")
        return self._inputs[name]

    @naming_the_line
    def probe(self, probe: Probe | str) -> ProbeHandle:
        """Handle of a probe.

        Raises:
            FalkirkError: there is no such probe.
        """
        name = probe if isinstance(probe, str) else probe.name
        return ProbeHandle(self.worker, self._node(name, "probe"))

    @naming_the_line
    def captured(self, capture: Capture | str) -> list[tuple[Time, Batch]]:
        """Batches of a capture on this worker so far, with their times.

        Raises:
            FalkirkError: there is no such capture.
        """
        name = capture if isinstance(capture, str) else capture.name
        if not self._closed:
            self.carry_out(self.worker.take_effects())
        beside = [node.index for node in self.plan.graph.of_kind("capture") if node.name == captured_as(name)]
        return self._captured[beside[0] if beside else self._node(name, "capture")]

    @naming_the_line
    def explain(self, name: str) -> list[Hold]:
        """Reasons holding back the progress frontier at the input of operator `name`.

        Raises:
            FalkirkError: there is no such operator.
        """
        return explain(self.worker, self.plan.graph.node_named(name))

    # Running

    def step(self, block: float | None = 0.0) -> bool:
        """Run one turn: take frames, read, work, write, send; True if anything was done.

        When there is nothing to do, waits up to `block` seconds (None: until something comes).
        """
        worker, link, recovery = self.worker, self._link, self._recovery
        if self._stop is not None:
            raise self._stop
        busy = pressed = paused = False
        quiet = runs = True
        if recovery is not None:
            busy = recovery.begin()
        if link is not None:
            self._began = self._clock()
            for frame in link.poll(0):
                self._receive(frame)
                busy = True
            pressed = worker.queued_bytes + link.unsent > self.limits.bytes
        if recovery is not None:
            runs = recovery.resume()
            paused, pressed = recovery.paused, pressed or recovery.pressed
        if runs:
            if self.sources and not (pressed or paused or worker.pressed_by) and self._read():
                busy = True
            for handle in self._inputs.values():
                if handle.gathered:
                    handle.flush()
            if self._outputs.jobs and self._outputs.take_results():
                busy = True
            quiet = worker.run(_TURN) if recovery is None else recovery.work()
        if worker.effects:
            self._outputs.carry_out(worker.take_effects())
            busy = True
        if link is not None and runs:
            for peer, frame in worker.take_frames(quiet, pressed).items():
                link.send(self._places[peer], frame)
                busy = True
        if recovery is not None:
            busy = recovery.end(quiet, busy)
        if not busy and quiet and block != 0.0 and not (recovery is None and self.done):  # it may be needed again
            self._wait(block, pressed or paused or not runs or bool(worker.pressed_by))
        return busy or not quiet

    def _read(self) -> bool:
        """Read a chunk of each source, and more for a short time; True if any was read.

        Of epochs that are there already the worker may do several in one pass.
        """
        sources, limits = self.sources, self.limits
        read = False
        for source in sources:
            if source.pump(limits):
                read = True
        if read and self._gathers:
            live = [source for source in sources if not source.done]
            many = len(live)
            for source in live:
                source.read_on(limits, self._clock() + _SHORT_SECONDS / many, _MANY_ROWS // many)
            for source in sources:
                source.hand_over()
        return read

    def _late(self) -> bool:
        """True if frames are due before the present turn goes on."""
        return self._clock() - self._began > _LONG_SECONDS

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out effects of operators."""
        if effects:
            self._outputs.carry_out(effects)

    def send(self, place: Place, frame: Frame) -> None:
        """Send a frame between two turns; dropped if there are no other processes."""
        if self._link is not None:
            self._link.send(place, frame)

    def stop_void(self) -> None:
        """Stop the jobs made void by a rollback."""
        self._outputs.stop_void()

    def stop(self, reason: BaseException) -> None:
        """Make the next turn raise `reason`.

        May be called from a signal handler: nothing is torn apart.
        """
        self._stop = reason

    def step_until(self, condition: Callable[[], bool], timeout: float | None = None) -> None:
        """Step until `condition()` holds.

        Raises:
            FalkirkError: after `timeout` seconds, or when it never can hold.
        """
        deadline = None if timeout is None else self._clock() + timeout
        while not condition():
            if self.step(0.0):
                continue
            if condition():
                return
            if not self._may_wake:
                raise FalkirkError(
                    "the condition can never come true: all that was sent is worked off and nothing more will come; "
                    "advance_to() or close() an input first"
                )
            left = None if deadline is None else deadline - self._clock()
            if left is not None and left <= 0:
                raise FalkirkError(f"the condition did not come true within {timeout} s")
            self.step(left)

    def run(self) -> None:
        """Step until the job is over.

        All sources have ended, all inputs are closed, and no worker has anything left to do.
        """
        while not self.done:
            self.step(None)

    @property
    def _may_wake(self) -> bool:
        """True if anything but the caller can bring new work."""
        return (
            self._link is not None
            or self._recovery is not None
            or self._outputs.jobs > 0
            or any(s.may_read(self.limits) for s in self.sources)
        )

    def _wait(self, block: float | None, paused: bool) -> None:
        files: list[int] = []
        until: float | None = None
        if self._recovery is not None:
            files, seconds = self._recovery.rest()
            until = self._clock() + seconds
        for source in () if paused else self.sources:
            wake, more = source.waits(self.limits)
            files += more
            if wake is not None:
                until = wake if until is None else min(until, wake)
        if until is not None:
            left = max(0.0, until - self._clock())
            block = left if block is None else min(block, left)
        if self._outputs.jobs:
            files.append(self._wake_file())
            if self._outputs.jobs_done():
                return
        if self._link is not None:
            for frame in self._link.poll(block, files):
                self._receive(frame)
        elif not self._may_wake and all(handle.time is None for handle in self._inputs.values()):
            why = "an operator keeps a capability that it never drops"
            if any(source.held_back(self.limits) for source in self.sources):
                why = (
                    f"an operator keeps a capability, and sources read at most {self.limits.epochs} epochs ahead of the oldest "
                    "one that is not complete. If it waits for epochs that come later, let sources read further ahead: "
                    "limits=falkirk.Limits(epochs=...), or --max-epochs"
                )
            raise FalkirkError(f"nothing can move any more, but the job is not over: {why}\n{report(self.worker)}")
        elif not self._may_wake and block is None:
            inputs = self.plan.graph.of_kind("input")
            names = ", ".join(str(node) for node in inputs if self.input(node.name).time is not None)
            raise FalkirkError(
                f"the job waits for the {names}, which only the caller can feed: close() it when all is "
                "sent, or use step_until() to wait for less"
            )
        else:
            wait_readable(files, block)
        self._drain_wake()

    def _drain_wake(self) -> None:
        if self._wake_pipe is not None:
            with suppress(BlockingIOError):
                os.read(self._wake_pipe[0], 4096)

    def _wake_file(self) -> int:
        if self._wake_pipe is None:
            self._wake_pipe = os.pipe()
            for end in self._wake_pipe:
                os.set_blocking(end, False)
        return self._wake_pipe[0]

    def _wake(self) -> None:
        if self._wake_pipe is not None:
            with suppress(OSError):
                os.write(self._wake_pipe[1], b"!")

    # The end

    def close(self) -> None:
        """Finish if all work is done, else abort; then release all resources."""
        if not self.worker.done:
            self.abort()
        elif not self._closed:
            self._closed = True
            try:
                self.carry_out(self.worker.take_effects())
                for source in self.sources:
                    source.close()
                self._outputs.close()
            except BaseException:
                self._outputs.abort()
                self._release(abandon=True)
                raise
            self._release()
            if self._recovery is not None:
                self._recovery.close()

    def abort(self) -> None:
        """Abort the job here, leaving no partial output."""
        if self._closed:
            return
        self._closed = True
        self._outputs.abort()
        for source in self.sources:
            with suppress(Exception):  # the first error is the one to report
                source.close()
        self._release(abandon=True)
        if self._recovery is not None:
            with suppress(Exception):
                self._recovery.abort()

    def forget(self) -> None:
        """Release the operators after the end of the job.

        They know their worker, and it knows them, so that all that they hold, and what sources read, would stay until Python
        looks for garbage among its oldest objects.
        """
        self.worker.forget()

    def _release(self, abandon: bool = False) -> None:
        if self._own_files is not None:
            self._own_files.close()
        if self._link is not None:
            if abandon:
                self._link.abandon()
            else:
                self._link.close()
        if self._wake_pipe is not None:
            pipe, self._wake_pipe = self._wake_pipe, None
            for end in pipe:
                os.close(end)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _node(self, name: str, kind: str) -> int:
        node = self.plan.graph.node_named(name)
        if node.kind != kind:
            raise FalkirkError(f"{name!r} is a {node.kind}, not a {kind}")
        return node.index
