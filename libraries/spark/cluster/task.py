"""Task of a Spark barrier stage: runs the process of one worker on the cluster.

All tasks of the stage are there or none. They find each other (`meeting`), with keys drawn for this stage alone. A worker's
process that dies is replaced by its task, when whoever runs the job says so, while the other workers keep what they have in
memory: the task holds the socket at which its worker listens, so that address and key stay. A task that dies takes the stage
with it; the next one's processes take over the journals, so what is left of earlier ones can write nothing more.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from importlib.util import find_spec
from typing import IO, TYPE_CHECKING

import msgspec

from monitor.coordination.supervision import Note
from recovery.place import Place
from runtime.control import FROM_CHILD, TO_CHILD, Begin, Control, FromChild, Here, ToChild
from runtime.folders.scratch import Scratch, for_sockets
from runtime.imports import environment_for_children
from runtime.processes.greeting import tune
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from runtime.supervisor.forked import Forked, prepare, start

if TYPE_CHECKING:
    from libraries.spark.cluster.meeting import Meeting

PROCESS = "libraries.spark.cluster.worker"

_NEEDED = ("cloudpickle", "msgspec", "numpy", "polars", "pyarrow", "zmq")
_END_SECONDS = 5.0


class TaskOrders(msgspec.Struct, frozen=True):
    """Orders of a task: places, first incarnations, and the heartbeat interval."""

    places: tuple[Place, ...]
    """Place of each task's processes, by partition number."""
    incarnations: tuple[int, ...]
    """Incarnation of each task's first process."""
    beat_seconds: float


class ProcessInput(msgspec.Struct, frozen=True):
    """Input file of each process at `place`: the stage, and all addresses and keys.

    The task hands it over beside the socket at which the process listens.
    """

    stage: bytes
    """Packed `libraries.spark.cluster.worker.StageTask`."""
    place: Place
    first: int
    """Incarnation of the first process there."""
    addresses: tuple[tuple[Place, str], ...]
    public: tuple[tuple[Place, str], ...]
    secret: str


def as_task(first: int) -> int:
    """Incarnation number of a task: its worker's first incarnation, negated."""
    return -first


def run_task(stage: bytes, orders: bytes, number: int, cores: int, sock: socket.socket, meeting: Meeting) -> None:
    """Run the processes at the place of task `number` to the end of the job.

    Args:
        stage: a `libraries.spark.cluster.worker.StageTask`, packed.
        orders: a `TaskOrders`, in MessagePack.
        number: of the partition.
        cores: that Spark gives it.
        sock: the connection to whoever runs the job.
        meeting: finds the other workers.

    Raises:
        ModuleNotFoundError: if a package is missing here.
        ConnectionError: if the tasks do not meet.
        ChildProcessError: if the first process does not even reach whoever runs the job.
    """
    for name in _NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
    variables = {"POLARS_MAX_THREADS": str(cores), **os.environ, **environment_for_children()}
    prepare(variables)  # what processes are forked from loads while the tasks meet
    tune(sock)
    channel = SupervisorChannel(sock)
    task_orders = msgspec.msgpack.decode(orders, type=TaskOrders)
    place, first = task_orders.places[number], task_orders.incarnations[number]
    channel.tell(Here(place, as_task(first), socket.gethostname(), os.getpid()))
    Heartbeat(channel, task_orders.beat_seconds)
    with ExitStack() as resources:
        met = meeting.wait()
        resources.callback(met.listener.close)
        addresses, public = (tuple(zip(task_orders.places, each)) for each in (met.addresses, met.public))
        given = ProcessInput(stage, place, first, addresses, public, met.secret)
        runner = _ProcessRunner(resources, channel, Control(sock, TO_CHILD), met.listener, given, variables)
        runner.run(first)


class _ProcessRunner:
    """Starts a worker's process, and replacements on request.

    What it opens goes with `resources`.
    """

    def __init__(
        self,
        resources: ExitStack,
        channel: SupervisorChannel,
        control: Control[ToChild],
        listener: socket.socket,
        given: ProcessInput,
        variables: Mapping[str, str],
    ) -> None:
        self._channel, self._control, self._listener = channel, control, listener
        self._place, self._variables = given.place, variables
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        resources.callback(self._file.close)
        self._file.write(msgspec.msgpack.encode(given))
        self._file.flush()
        self._private = str(resources.enter_context(closing(Scratch("job", for_sockets()))).path)
        self._process: Forked | subprocess.Popen[bytes] | None = None
        self._reports: Control[FromChild] | None = None
        """Connection from the process; closed when the process ends."""
        self._connected = False
        """True once a process has connected to the driver."""
        resources.callback(self._end)

    def run(self, incarnation: int) -> None:
        """Run processes one after the other, until success or the loss of the driver."""
        self._start(incarnation)
        while not self._control.ended:
            files = [self._control.sock, *([] if self._reports is None else [self._reports.sock])]
            ready = select.select(files, [], [])[0]
            if self._reports is not None and self._reports.sock in ready:
                self._connected = (
                    any(isinstance(reported, Here) for reported in self._reports.read()) or self._connected
                )
                if self._reports.ended and self._end() == 0:
                    return
            for message in self._control.read() if self._control.sock in ready else ():
                if isinstance(message, Begin):
                    self._end()
                    self._start(message.incarnation)

    def _start(self, incarnation: int) -> None:
        mine, theirs = socket.socketpair()
        with theirs:
            files = [theirs.fileno(), self._file.fileno(), self._listener.fileno()]
            arguments: list[str | int] = [0, "0", self._private, 1, 2, str(incarnation)]
            self._process = start(PROCESS, arguments, files, self._variables)
        self._reports = Control(mine, FROM_CHILD)

    def _end(self) -> int | None:
        """Kill the process if it runs, report a failure; its exit code, None without one."""
        process, reports = self._process, self._reports
        self._process = self._reports = None
        if process is None or reports is None:
            return None
        if not reports.ended:
            process.kill()
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        reports.close()
        if reports.ended and code != 0:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            text = f"process {process.pid} of {self._place} on {socket.gethostname()} {how}"
            if not self._connected:
                raise ChildProcessError(f"{text}; what it said is in the log of the executor")
            with suppress(OSError):
                self._channel.tell(Note(text))
        return code
