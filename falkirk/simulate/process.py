"""Simulated worker process: the production session with simulated I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from falkirk.simulate.disk import SimulatedDisk
from recovery.agent.agent import Agent
from recovery.agent.effects import Effect
from recovery.agent.events import Event, Held, MateBegan, MateEnded, TurnEnded
from recovery.place import Place
from recovery.protocol import ToMonitor, ToWorker, encode_message
from recovery.store.segments import as_bytes
from runtime.recovery.driver import RecoveryDriver
from runtime.session.session import Session
from timely.data.messages import Frame
from timely.operators.base import Operator


class Killed(BaseException):
    """Raised to kill a process in the middle of its turn."""


class Network(Protocol):
    """Simulated environment, as needed by a process."""

    disk: SimulatedDisk

    def at_io(self, worker: int) -> None:
        """Signal an externally visible action of a process, a possible crash point."""

    def carry(self, process: Process, place: Place, frame: Frame) -> None:
        """Carry a frame from a process to that at another place."""


@dataclass(eq=False, slots=True)
class Process:
    """One process at a place, with its queues of messages to and from the monitor."""

    place: Place
    incarnation: int
    session: Session | None = None
    recovery: RecoveryDriver | None = None
    """Recovery driver of the session."""
    connected: bool = True
    """True if connected to the monitor."""
    joined: bool = False
    """True if the current monitor knows this process as that of its place."""
    anew: bool = False
    zombie_until: float | None = None
    """End of its life after being given up, in simulated seconds; None: not given up."""
    frames: list[Frame] = field(default_factory=list)
    inbox: list[ToWorker] = field(default_factory=list)
    to_monitor: deque[bytes] = field(default_factory=deque)
    from_monitor: deque[bytes] = field(default_factory=deque)
    to_mate: deque[tuple[str, bytes | None]] = field(default_factory=deque)
    """Segments on their way to its mate, by name; None: to be let go."""
    of_mate: list[MateBegan | MateEnded | Held] = field(default_factory=list)
    jobs: list[tuple[Callable[[], Any], Future[Any]]] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    generation: int = 0
    """Generation of the last check of `operators`."""

    @property
    def worker(self) -> int:
        """Index of its worker, a share of the dataflow."""
        return self.place.worker

    @property
    def owner(self) -> tuple[int, int]:
        """The identity of this process as a writer to the store."""
        return self.worker, self.incarnation

    def disconnect(self) -> None:
        """Cut the connection to the monitor, with all messages under way."""
        self.connected = self.joined = False
        self.to_monitor.clear()
        self.from_monitor.clear()

    def finish_job(self, number: int) -> None:
        """Complete a job started by an operator."""
        job, future = self.jobs.pop(number)
        try:
            future.set_result(job())
        except Exception as error:  # as an executor does: it is raised where the result is taken
            future.set_exception(error)


class SimulatedAgent(Agent):
    """Production agent, with a check of its invariants after every step."""

    def step(self, now: float, *events: Event) -> list[Effect]:
        """Step of the agent.

        Raises InvariantBroken if an invariant fails.
        """
        effects = super().step(now, *events)
        if effects or not isinstance(events[-1], TurnEnded):  # a turn that leads to nothing has changed nothing
            self.check()
        return effects


class SimulatedLink:
    """Simulated links to the other workers.

    See `runtime.links.interface.Link`.
    """

    unsent = 0

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def send(self, place: Place, frame: Frame) -> None:
        """Send a frame to a place."""
        self._network.at_io(self._process.worker)
        self._network.carry(self._process, place, frame)
        self._network.at_io(self._process.worker)

    def poll(self, seconds: float | None, extra: Sequence[int] = ()) -> list[Frame]:
        """Frames received since the last poll."""
        frames, self._process.frames = self._process.frames, []
        return frames

    def close(self) -> None:
        """Close the link."""
        self._process.frames.clear()

    abandon = close


class SimulatedMonitorLink:
    """Simulated connection to the monitor.

    See `runtime.recovery.driver.MonitorLink`.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    def send(self, message: ToMonitor) -> None:
        """Send a message to the monitor."""
        if self._process.connected:
            self._process.to_monitor.append(encode_message(message))

    def poll(self) -> tuple[list[ToWorker], bool]:
        """Messages received, and True if the connection is new."""
        process = self._process
        messages, process.inbox = process.inbox, []
        anew, process.anew = process.anew, False
        return messages, anew

    def files(self) -> list[int]:
        """File descriptors to wait for: none."""
        return []

    def close(self) -> None:
        """Close the connection."""
        self._process.disconnect()


class SimulatedStore:
    """Simulated store client of a process.

    See `runtime.recovery.driver.StoreClient`.
    """

    def __init__(self, disk: SimulatedDisk, owner: tuple[int, int], at_io: Callable[[], None]) -> None:
        self._disk = disk
        self._owner = owner
        self._at_io = at_io
        self.spent = 0.0

    def put(self, name: str, parts: Sequence[Any]) -> None:
        """Begin to write a blob."""
        self._at_io()
        self._disk.begin(self._owner, name, parts)
        self._at_io()

    def delete(self, name: str) -> None:
        """Begin to remove a blob."""
        self._at_io()
        self._disk.begin_delete(self._owner, name)
        self._at_io()

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """Finished puts, with their errors."""
        return self._disk.take_done(self._owner)

    def files(self) -> list[int]:
        """File descriptors to wait for: none."""
        return []

    def close(self) -> None:
        """Close the store; operations under way go on."""


class SimulatedMateLink:
    """Simulated connection to the mate.

    See `runtime.recovery.driver.MateLink`.
    """

    def __init__(self, process: Process, at_io: Callable[[], None]) -> None:
        self._process = process
        self._at_io = at_io

    def hold(self, name: str, parts: Sequence[Any]) -> None:
        """Send a segment."""
        self._at_io()
        self._process.to_mate.append((name, b"".join(map(as_bytes, parts))))
        self._at_io()

    def let_go(self, name: str) -> None:
        """Send an order to drop a segment."""
        self._process.to_mate.append((name, None))

    def poll(self) -> list[MateBegan | MateEnded | Held]:
        """Events since the last call."""
        events, self._process.of_mate = self._process.of_mate, []
        return events

    def files(self) -> list[int]:
        """File descriptors to wait for: none."""
        return []

    def close(self) -> None:
        """Close the connection; the mate sees it."""


class WritesAtIO:
    """Store with a possible crash point before and after each write."""

    def __init__(self, disk: SimulatedDisk, at_io: Callable[[], None]) -> None:
        self._disk = disk
        self._at_io = at_io
        self.get, self.names, self.size = disk.get, disk.names, disk.size

    def put(self, name: str, parts: Sequence[Any]) -> None:
        """Write a blob at once."""
        self._at_io()
        self._disk.put(name, parts)
        self._at_io()

    def delete(self, name: str) -> None:
        """Remove a blob at once."""
        self._at_io()
        self._disk.delete(name)


class SimulatedPool:
    """Simulated thread pool for jobs of operators; the world completes them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Start a job."""
        future: Future[Any] = Future()
        self._process.jobs.append((job, future))
        return future

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Drop all jobs; there are no threads to end."""
        self._process.jobs.clear()
