"""Job on a Spark cluster: one barrier stage runs its workers, its store is shared.

The store is a folder that all hosts share. The monitor runs beside this process, as for a job on one machine. A worker's
process that dies is started again by its task, and the others keep what they have. When a task dies, with its executor
perhaps, Spark ends all tasks of the stage, so that nobody's memory is left; the next attempt's workers go back to what each
had persisted, as the monitor decides, and no further. Every process has a new incarnation, which fences the journal off from
what may be left of earlier ones.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from msgspec.msgpack import encode

from libraries.spark.cluster.attempt import StageAttempt
from libraries.spark.cluster.calls import Calls
from libraries.spark.cluster.session import On, SparkCluster
from libraries.spark.cluster.start import begin
from libraries.spark.cluster.task import TaskOrders, as_task
from libraries.spark.cluster.worker import PATIENCE, StageTask
from libraries.spark.errors import SparkError
from monitor.coordination.supervision import Happened, Lost, MateView
from recovery.place import Place
from recovery.store.address import StoreAddress, Where
from runtime.control import Begin, Followed, Here, ToChild
from runtime.page.address import PageSocket
from runtime.processes.greeting import listen, new_token
from runtime.program import Program, packed
from runtime.sources.limits import Limits
from runtime.supervisor.monitored import OnEvent
from runtime.supervisor.placement import Task
from runtime.supervisor.processes import WORKER, Child, Children
from runtime.supervisor.supervisor import HEARTBEAT_TIMEOUT, Job

_LAUNCH_SECONDS = 120.0
"""Seconds for the launch and first connection of a stage's tasks.

Other jobs of a session may have their places.
"""

_TASK = "libraries.spark.cluster.task"

_ASKED_SECONDS = 5.0
"""Seconds until resubmission without the monitor's request for every worker.

A monitor that was replaced in the wrong moment may not ask for a worker unknown to it.
"""

_END_SECONDS = 30.0
"""Seconds for Spark to end a stage."""

_LAST_WORDS_SECONDS = 1.0
"""Seconds to wait for a worker's report of an error, after an error in its task."""


def cluster_job(
    program: Program,
    workers: int,
    store: Where,
    on: On,
    limits: Limits | None = None,
    on_event: OnEvent | None = None,
    on_note: Callable[[str], None] | None = None,
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    page: PageSocket | None = None,
    accept: Collection[str] = (),
) -> Job:
    """One run of a job on a cluster; its placement is a `BarrierStage`.

    Args:
        program: what every worker builds.
        workers: how many tasks.
        store: its address: all hosts of the cluster, and this one, see its folder under the same name.
        on: the cluster: a Spark session, or the address of a master.
        limits, on_event, on_note, heartbeat_timeout, page, accept: as for `runtime.supervisor.supervisor.Job`.

    Raises:
        SparkError: if the cluster cannot be used.
        GraphError, StoreError: as for `Job`.
    """
    address = StoreAddress.of(store)
    if not address.local_is_shared:  # what operators' jobs keep is there
        raise SparkError(
            f"the store {address} is not a folder: a job on a cluster needs one that all hosts share, mounted at the same "
            "place, as over NFS; object stores and HDFS cannot be used yet"
        )
    stage = partial(BarrierStage, on)
    return Job(
        program, workers, address, limits, on_event, on_note, heartbeat_timeout, page=page, place=stage, accept=accept
    )


class BarrierStage:
    """Placement of workers in one barrier stage: all tasks run, or none.

    See `runtime.supervisor.placement.Placement`.

    Raises:
        SparkError: if the cluster cannot be used.
    """

    def __init__(self, on: On, children: Children, task: Task, note: Callable[[str], None]) -> None:
        self._children, self._task, self._note = children, task, note
        self._source = Path(task.program.path).read_bytes() if task.program.path is not None else None
        self.attempts = 0
        """Number of submitted stages."""
        self.tasks: dict[Place, Child] = {}
        """Connected tasks of the current attempt, by the place of their processes."""
        self.processes: dict[Child, Here] = {}
        """Connected worker processes."""
        self._begun: set[Place] = set()
        """Places believed to have a process, connected or not."""
        self._attempt: StageAttempt | None = None
        self._first: dict[Place, int] = {}
        """Incarnations of the first processes of this attempt."""
        self._incarnations: dict[Place, int] = {}
        self._needed: set[Place] = set()
        """Places requested by the monitor since an attempt failed."""
        self._failed_at = 0.0
        self._connected = False
        """True once a process of this attempt has connected."""
        self._messages: deque[str] = deque()
        """Notices of the attempt for the user, until they are passed on."""
        self._raised_at: float | None = None
        """Detection time of a stage failure due to an error in a task; None before."""
        self._lost_at: float | None = None
        self._resources = ExitStack()
        try:
            self._cluster = SparkCluster(on)
            self._resources.callback(self._cluster.close)
            self.token = new_token()
            try:
                self._calls = Calls(self._cluster.bind, self.token, task.workers)
                self._resources.callback(self._calls.close)
                self.listener = self._resources.enter_context(listen(self._cluster.bind))
            except OSError as error:
                raise SparkError(
                    f"executors are to reach this machine at {self._cluster.bind} (spark.driver.bindAddress), where it cannot "
                    f"listen: {error.strerror}"
                ) from error
        except BaseException:
            self._resources.close()
            raise
        children.attend(self._calls.fileno(), self._meet)

    @property
    def workers(self) -> dict[Place, Child]:
        """Connected worker processes, by place."""
        return {here.place: child for child, here in self.processes.items()}

    def begin(self) -> None:
        """No-op: there is nothing to prepare."""

    def needed(self, place: Place) -> bool:
        """Begin a worker for the monitor: in its task, or with all others in a new stage.

        False: it has no mate.
        """
        self._begin(place)
        return False

    def caught_up(self, child: Child, seconds: float) -> None:
        """Do nothing: there are no mates."""

    def followed(self, child: Child, report: Followed) -> None:
        """Do nothing: there are no mates."""

    @property
    def mate_views(self) -> tuple[MateView, ...]:
        """None: there are no mates."""
        return ()

    def take_lost_mates(self) -> list[Happened]:
        """None: there are no mates."""
        return []

    def _begin(self, place: Place) -> None:
        if place in self._begun:
            return  # its process is on the way: the monitor was replaced, and has not reports of it
        task = self.tasks.get(place)
        if self._attempt is None or task is None:
            self._needed.add(place)
            return
        self._begun.add(place)
        self._incarnations[place] = self._task.incarnation()
        task.tell(Begin(place, self._incarnations[place], ()))

    def fenced(self, place: Place, incarnation: int, reason: str) -> list[Lost]:
        """End a process without reporting a loss; without its task, end the stage.

        Then all workers are lost.
        """
        if self._attempt is None or incarnation not in (-1, self._incarnations[place]):
            return []
        if place not in self.tasks:
            return self._failed(f"{place}: {reason}")
        self._begun.discard(place)
        there = self.workers.get(place)
        if there is not None:
            self._dismiss(there)
        return []

    def gone(self, child: Child) -> list[Lost]:
        """Handle the end of a process or task; a hung task ends the stage."""
        if child.place is not None and self.tasks.get(child.place) is child:
            del self.tasks[child.place]
            return self._failed(f"the task of {child.place} {child.hung}") if child.hung else []
        here = self.processes.pop(child, None)
        if here is None:
            return []
        self._begun.discard(here.place)
        self._lost_at = self._lost_at or time.monotonic()
        return [Lost(here.place, child.incarnation, f"process {here.pid} on {here.host} {child.hung or 'has ended'}")]

    def restored(self) -> None:
        """Note the duration of the recovery."""
        if self._lost_at is not None:
            self._note(f"the job goes on, {time.monotonic() - self._lost_at:.1f} s after the loss")
            self._lost_at = None

    def tell(self, message: ToChild) -> None:
        """Send a message to all connected workers."""
        for child in self.processes:
            child.tell(message)

    def left(self) -> bool:
        """True if the stage is over and all messages of its processes are processed."""
        self._meet()
        return self._attempt is None or (self._attempt.over.is_set() and not self.processes)

    def close(self) -> None:
        """End the stage, and Spark if it was started here."""
        self._end_attempt()
        self._resources.close()

    def turn(self) -> list[Lost]:
        """Submit a stage if one is due, and check the current one."""
        self._meet()
        if self._attempt is None and self._wanted():
            self._submit()
        return self._look_at_attempt()

    # Attempts

    def _wanted(self) -> bool:
        """True if a new stage is due: the first, all places requested, or a time-out.

        If the monitor has given the job up, it does not ask for all places.
        """
        if self.attempts == 0 or self._needed == set(self._task.places):
            return True
        return time.monotonic() > self._failed_at + _ASKED_SECONDS

    def _submit(self) -> None:
        self.attempts += 1
        self._connected = False
        self._raised_at = None
        there = self._task.places
        self._first = {place: self._task.incarnation() for place in there}
        self._incarnations = dict(self._first)
        self._begun = set(there)
        host = self._cluster.host
        monitor, children = (host, int(self.listener.getsockname()[1])), self._children
        every = self._task.packable(monitor, children.liveness.timeout, self.token)
        beat = children.beat_seconds
        stage = StageTask(every, self._source, beat, (host, self._calls.port), self.token)
        group = f"falkirk-{secrets.token_hex(4)}"
        orders = TaskOrders(there, tuple(self._first.values()), beat)
        work = partial(begin, stage.driver, stage.token, packed(stage), encode(orders))
        self._attempt = StageAttempt(
            self._cluster, work, len(there), group, self._cluster.patience, self._messages.append
        )

    def _meet(self) -> None:
        """Register newly connected tasks and worker processes of this attempt."""
        for here, control in self._calls.wait(0):
            task = self._attempt is not None and here.incarnation == as_task(self._first[here.place])
            if self._attempt is None or not (task or here.incarnation == self._incarnations[here.place]):
                control.close()  # of an attempt that was given up
                continue
            child = self._children.meet(_TASK if task else WORKER, control, None, PATIENCE)
            child.place, child.incarnation = here.place, here.incarnation
            if task:
                self.tasks[here.place] = child
            else:
                self._connected = True
                self.processes[child] = here

    def _dismiss(self, child: Child) -> None:
        """Disconnect a process to make it end.

        Its task ends it at the latest when the next process begins.
        """
        del self.processes[child]
        self._children.end(child)

    def _end_attempt(self) -> None:
        """End the current attempt; ignore later messages from it."""
        attempt, self._attempt = self._attempt, None
        for child in (*self.processes, *self.tasks.values()):
            self._children.end(child)
        self.processes.clear()
        self.tasks.clear()
        self._begun.clear()
        if attempt is not None and not attempt.over.is_set():
            attempt.cancel()
            attempt.over.wait(_END_SECONDS)

    def _failed(self, reason: str) -> list[Lost]:
        """Give up the attempt and report all workers lost.

        The monitor decides to which frontier each worker goes back in the next attempt.
        """
        self._end_attempt()
        self._needed.clear()
        self._failed_at = time.monotonic()
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        self._note(f"a task on the cluster was lost ({reason}); the job goes on from its store in a new stage")
        return [Lost(place, incarnation, reason) for place, incarnation in self._incarnations.items()]

    def _look_at_attempt(self) -> list[Lost]:
        attempt, now = self._attempt, time.monotonic()
        if attempt is None:
            return []
        if attempt.over.is_set():
            return self._ended(attempt, now)
        while self._messages:
            self._note(self._messages.popleft())
        if (
            not self.tasks
            and not self._connected
            and attempt.began is not None
            and now > attempt.began + _LAUNCH_SECONDS
        ):
            raise SparkError(
                f"Spark has not launched the {self._task.workers} workers within {now - attempt.began:.0f} s: is the "
                "cluster busy with something else?"
            )
        return []

    def _ended(self, attempt: StageAttempt, now: float) -> list[Lost]:
        """Act on the end of the stage, with a grace period for errors reported by workers."""
        if attempt.refused is not None:
            raise attempt.refused
        ending = attempt.ending
        if ending is not None and ending.raised:
            self._raised_at = self._raised_at or now
            if self.processes and now < self._raised_at + _LAST_WORDS_SECONDS:
                return []
            if not self._connected:
                raise SparkError(
                    f"the workers could not begin on the cluster: {ending.reason}\nExecutors need the Python and the "
                    "packages that this process has (PYSPARK_PYTHON says which Python they use), and must be able to reach "
                    f"{self._cluster.host}"
                )
        return self._failed(ending.reason if ending is not None else "all tasks have ended")
