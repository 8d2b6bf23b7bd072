"""Output driver: carries out a worker's sink writes, captures and jobs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from runtime.control import JobStats
from runtime.folders.workspace import RunningJob, Workspace
from timely.data.batch import Batch
from timely.data.messages import Captured, CommitSink, Effect, Incomplete, StartJob, WriteSink
from timely.dataflow.graph import Node
from timely.errors import FalkirkError, OperatorError, SinkError, error_text
from timely.io.descriptors import with_descriptors
from timely.io.interface import Writer
from timely.time import FINITE, Time, visible
from timely.worker.worker import Worker

OnCapture = Callable[[int, Time, Batch], None]

_MOST_JOBS = 32
"""Maximum number of concurrent jobs of a worker.

Most of them wait: for a disk, or for another process.
"""


def _nobody() -> None:
    """Do nothing: no session waits for jobs any more."""


class OutputDriver:
    """Driver of this worker's share of all sinks, and of the jobs of its operators.

    `job` is the identity by which sinks recognise the writes of this job; None: its workers have no common one.
    """

    def __init__(
        self,
        worker: Worker,
        on_capture: OnCapture,
        wake: Callable[[], None],
        workspace: Workspace,
        clock: Callable[[], float],
        job: str | None = None,
    ) -> None:
        self._worker = worker
        self._job = job
        self._workspace = workspace
        self._clock = clock
        self._on_capture = on_capture
        self._wake = wake
        self._nodes = worker.plan.graph.nodes
        self._writers: dict[int, Writer] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._results: SimpleQueue[tuple[int, StartJob, Future[Any]]] = SimpleQueue()
        self._running: dict[int, RunningJob] = {}
        self.jobs = 0
        """Number of jobs started and not yet returned."""
        self.written = 0
        """Records given to sinks so far."""

    def open(self) -> None:
        """Open all sinks, to find an unwritable folder before any data moves."""
        for node in self._nodes:
            if node.sink is not None:
                try:
                    sink, for_job = node.sink, getattr(node.sink, "for_job", None)
                    if for_job is not None and self._job is not None:
                        sink = for_job(self._job, node.name)
                    opening = partial(sink.open, self._worker.index, self._worker.plan.workers)
                    self._writers[node.index] = with_descriptors(opening)
                except Exception as error:
                    raise _blame(node, error) from error

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out the worker's effects, in order."""
        for effect in effects:
            if type(effect) is Captured:  # as a rule most are
                self._on_capture(effect.node, effect.time, effect.batch)
                continue
            match effect:
                case WriteSink(node, epoch, batch):
                    self.written += len(batch)
                    self._write(node, partial(_write, visible((epoch,))[0], batch))
                case CommitSink(node, epoch):
                    self._write(node, partial(_commit, visible((epoch,))[0]))
                case Incomplete(node, first, last):
                    self._write(node, partial(_tell_incomplete, first, last))
                case StartJob():
                    self._start(effect)

    def take_results(self) -> bool:
        """Pass results of finished jobs to the worker; True if there were any."""
        some = False
        while self.jobs:
            try:
                number, job, future = self._results.get_nowait()
            except Empty:
                break
            self.jobs -= 1
            some = True
            self._running.pop(number, None)
            if number not in self._worker.jobs:
                continue  # what started it has been rolled back
            if (error := future.exception()) is not None:
                node = self._nodes[job.node]
                raise OperatorError(
                    f"{node.kind} {node.name!r} ({node.site}): the job that it started at time {visible(job.time)} failed: "
                    f"{error_text(error)}"
                ) from error
            self._worker.finish(number, future.result())
        return some

    def jobs_done(self) -> bool:
        """True if results of jobs are ready to be taken."""
        return not self._results.empty()

    def stop_void(self) -> None:
        """Stop the jobs made void by a rollback."""
        for number, running in self._running.items():
            running.stopped = running.stopped or number not in self._worker.jobs

    def running_jobs(self) -> tuple[JobStats, ...]:
        """Reported progress of the running jobs."""
        now = self._clock()
        return tuple(
            JobStats(
                running.operator,
                -1 if running.epoch >= FINITE else running.epoch,
                *running.last_progress,
                now - running.began,
            )
            for running in self._running.values()
            if running.last_progress is not None and not running.stopped
        )

    def close(self) -> None:
        """Close the sinks and wait for the jobs, at the end of the job."""
        for index, writer in self._writers.items():
            try:
                writer.close()
            except Exception as error:
                raise _blame(self._nodes[index], error) from error
        if self._pool is not None:
            self._pool.shutdown()
        self._wake = _nobody

    def abort(self) -> None:
        """Abort the sinks and jobs after a failure, ignoring further errors."""
        for running in self._running.values():
            running.stopped = True
        for writer in self._writers.values():
            try:
                writer.abort()
            except Exception:
                continue
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._wake = _nobody

    def _write(self, index: int, action: Callable[[Writer], None]) -> None:
        self._worker.acting = self._nodes[index]
        try:
            action(self._writers[index])
        except Exception as error:
            raise _blame(self._nodes[index], error) from error

    def _start(self, job: StartJob) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=_MOST_JOBS, thread_name_prefix="falkirk-job")
        self.jobs += 1
        work = job.job
        if job.context:
            running = RunningJob(self._workspace, self._nodes[job.node].name, job.time[0], self._clock())
            self._running[job.number] = running
            work = partial(work, running)
        future = self._pool.submit(work)

        def done(finished: Future[Any]) -> None:
            self._results.put((job.number, job, finished))
            self._wake()

        future.add_done_callback(done)


def _write(epoch: int, batch: Batch, writer: Writer) -> None:
    writer.write(epoch, batch)


def _commit(epoch: int, writer: Writer) -> None:
    writer.commit(epoch)


def _tell_incomplete(first: int, last: int | None, writer: Writer) -> None:
    tell = getattr(writer, "incomplete", None)
    if tell is not None:
        tell(first, last)


def _blame(node: Node, error: Exception) -> SinkError:
    text = error if isinstance(error, FalkirkError | OSError) else error_text(error)
    return SinkError(f"sink {node.name!r} ({node.site}): {text}")
