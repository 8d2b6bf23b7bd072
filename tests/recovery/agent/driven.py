"""The agents of a small program, driven by hand: a test is their driver, their links, their stores and their monitor.

Nothing happens by itself. What an agent sends waits until it is delivered, a write is durable when the test says so, and the
clock moves only where it is said. Everything they say and do is kept for the test to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from falkirk.simulate.disk import SimulatedDisk
from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.agent import Agent
from recovery.agent.effects import Delete, Effect, Halt, Put, Report, Rewind, Run, Save, Saved, SendFrame
from recovery.agent.events import (
    Connected,
    Event,
    FromMonitor,
    PieceDue,
    Received,
    Stored,
    TurnEnded,
    for_the_engine,
)
from recovery.agent.state import AGENT
from recovery.checkpoint.checkpoints import PIECE_ROWS
from recovery.checkpoint.records import SourcePosition
from recovery.layout import Layout, lay_out
from recovery.metadata import Bound, everything
from recovery.place import Place
from recovery.policy import Eager, Lazy
from recovery.protocol import Cut, Decision, Drain, Watermarks
from recovery.store.reading import take_over
from tests.recovery.store.owners import STORE, memory_disk
from timely.dataflow.plan import compile_plan
from timely.io import Iterable
from timely.worker.restoring import resume

_Message = TypeVar("_Message")
_Effect = TypeVar("_Effect")


@dataclass
class Said:
    """What an agent has its driver do from now on."""

    runs: Run | None = None
    """None: the worker is not to be run."""
    generation: int | None = None
    begins: bool = False
    done: bool = False
    save: Save | None = None


class DrivenAgents:
    """The agents of all workers of a program; `of[worker]` is one of them."""

    def __init__(self, build: Callable[[], Dataflow], workers: int = 2) -> None:
        self._build = build
        self.workers = workers
        self.now = 0.0
        self.disks: list[SimulatedDisk] = [memory_disk() for _ in range(workers)]
        self.of: list[Agent] = []
        self.said: list[Said] = []
        self.did: list[list[Effect]] = [[] for _ in range(workers)]
        """By worker, its effects since `take`."""
        self.writes: list[list[Put]] = [[] for _ in range(workers)]
        """By worker, the segments that are not durable yet."""
        self.sent: list[list[tuple[int, Received]]] = [[] for _ in range(workers)]
        """By worker, the frames that it has sent and that have not arrived: receiver and frame."""
        self._incarnations = [0] * workers
        self._epoch = 0
        for worker in range(workers):
            self.of.append(self._process(worker))
            self.said.append(Said())

    def _process(self, worker: int) -> Agent:
        self._incarnations[worker] += 1
        plan = compile_plan(self._build().graph, self.workers)
        owner, incarnation = f"worker-{worker:03d}", self._incarnations[worker]
        journal, found, _ = take_over(self.disks[worker], owner, STORE, incarnation)
        return Agent(plan, lay_out(plan), Place(worker), incarnation, journal, found.read())

    # What happens to them

    def tell(self, worker: int, *events: Event) -> list[Effect]:
        """The effects of events that come together. With pieces of cuts come the positions that are wanted."""
        agent, said = self.of[worker], self.said[worker]
        wanted = () if said.save is None else said.save.sources
        found = {(p, epoch): (SourcePosition("all", epoch, False, epoch, 0),) for p, epoch in wanted}
        events = tuple(PieceDue(each.rows, found) if isinstance(each, PieceDue) else each for each in events)
        effects = agent.step(self.now, *events)
        agent.check()
        self.did[worker] += effects
        for effect in effects:
            match effect:
                case Put():
                    self.writes[worker].append(effect)
                case Delete(name):
                    self.disks[worker].delete(name)
                case SendFrame(receiver, frame):
                    self.sent[worker].append((receiver.worker, Received(frame)))
                case Save():
                    said.save = effect
                case Saved(_, over):
                    said.save = None if over else said.save
                case Rewind():
                    said.generation = None
                case Run(generation):
                    said.runs, said.generation, said.begins, said.done = effect, generation, True, False
                case Halt(done):
                    said.runs, said.done = None, done
        if said.save is not None and said.save.at_once:
            effects = effects + self.tell(worker, PieceDue(PIECE_ROWS))
        return effects

    def hear(self, worker: int, *messages: Any) -> list[Effect]:
        """The monitor says something."""
        return self.tell(worker, *map(FromMonitor, messages))

    def dies(self, worker: int) -> None:
        """A new process takes the place of a worker. What the old one was writing, and had sent, is lost."""
        self.writes[worker].clear()
        self.sent[worker].clear()
        self.of[worker], self.said[worker] = self._process(worker), Said()

    def store(self, worker: int, told: bool = True) -> list[Effect]:
        """The oldest write is durable. Not `told`: and the worker will not hear of it."""
        write = self.writes[worker].pop(0)
        self.disks[worker].put(write.name, write.parts)
        return self.tell(worker, Stored(write.name)) if told else []

    def store_all(self) -> None:
        """All writes are durable, and those that follow."""
        for worker in range(self.workers):
            while self.writes[worker]:
                self.store(worker)

    def deliver(self, worker: int) -> None:
        """All that a worker has sent arrives."""
        sent, self.sent[worker] = self.sent[worker], []
        for receiver, event in sent:
            if for_the_engine(event.frame, self.said[receiver].generation):
                self.of[receiver].worker.receive(event.frame)
            else:
                self.tell(receiver, event)

    def turn(self, worker: int, quiet: bool = True, worked: float = 0.0) -> list[Effect]:
        """A worker has a turn, in which it works for so many seconds. Not `quiet`: it says that it has more to do."""
        agent, said = self.of[worker], self.said[worker]
        assert (said.runs is not None and agent.worker.awaited <= {AGENT}) == agent.running
        if agent.running:
            if said.begins:
                said.begins = False
                agent.worker.awaited.discard(AGENT)
                resume(agent.worker)
            agent.worker.run()
            for receiver, frame in agent.worker.take_frames(quiet=True).items():
                self.sent[worker].append((receiver, Received(frame)))
        return self.tell(worker, TurnEnded(quiet, worked))

    def settle(self) -> None:
        """Turns of all workers, a second from one to the next, until nothing happens any more."""
        for _ in range(20):
            self.now += 1.0
            something = False
            for worker in range(self.workers):
                self.turn(worker)
                something |= bool(self.sent[worker] or self.writes[worker])
                self.deliver(worker)
            self.store_all()
            if not something:
                return
        raise AssertionError("they do not come to rest")

    # A job

    def begin(self, generation: int = 1) -> DrivenAgents:
        """The first decision: all begin from nothing."""
        for worker in range(self.workers):
            self.tell(worker, Connected())
            self.hear(worker, self.decision(generation, failed=range(self.workers), otherwise="nothing"))
        self.store_all()
        for worker in range(self.workers):
            self.deliver(worker)
        self.settle()
        self.take()
        return self

    def decision(
        self,
        generation: int,
        bounds: Sequence[dict[str, Bound]] = (),
        failed: Sequence[int] = (),
        otherwise: str = "live",
        **more: Any,
    ) -> Decision:
        """`bounds[worker]` by name; all others stay as they are, or go back to nothing."""
        layout = self.layout
        chosen = tuple(
            tuple(
                (bounds[worker] if bounds else {}).get(info.name, info.nothing if otherwise == "nothing" else None)
                for info in layout.processors
            )
            for worker in range(self.workers)
        )
        low = tuple(map(tuple, self.of[0].low))
        return Decision(generation, chosen, tuple(failed), more.pop("watermarks", low), **more)

    def drain(self, round: int, alive: Sequence[int] | None = None) -> None:
        """A round begins."""
        for worker in range(self.workers):
            self.hear(worker, Drain(round, tuple(map(Place, alive if alive is not None else range(self.workers)))))

    def feed(self, worker: int, epoch: int, records: Sequence[Any], name: str = "in") -> None:
        """A source has records in an epoch, which is over then."""
        agent = self.of[worker]
        node = agent.plan.processors[self.named(name)].node.index
        time = agent.worker.input_time(node)
        assert time is not None
        if records:
            agent.worker.feed(node, (epoch,), records)
        agent.worker.advance(node, (epoch + 1,))

    def end(self, name: str = "in") -> None:
        """A source has come to its end on all workers."""
        for agent in self.of:
            agent.worker.advance(agent.plan.processors[self.named(name)].node.index, None)

    def epochs(self, count: int) -> None:
        """All workers read, and complete, so many epochs of eight records each."""
        begin = self._epoch
        self._epoch += count
        for epoch in range(begin, self._epoch):
            for worker in range(self.workers):
                self.feed(worker, epoch, list(range(8 * epoch, 8 * epoch + 8)))
        self.settle()

    def finish(self) -> None:
        """The sources end, all is complete, saved and released."""
        self.end()
        self.settle()
        for worker in range(self.workers):
            for number in range(len(self.layout.groups)):
                self.cut(worker, everything(1), number)
        self.store_all()
        self.raise_to(everything(1))
        self.settle()

    def cut(self, worker: int, at: Bound, group: int = 0) -> None:
        """A worker makes a whole cut; it is not durable yet."""
        agent = self.of[worker]
        self.hear(worker, Cut(agent.worker.generation, group, at))
        while self.said[worker].save is not None:
            self.tell(worker, PieceDue(PIECE_ROWS))
        self.turn(worker)

    def save(self, *epochs: int) -> None:
        """All workers cut the first group at these epochs, and that is durable."""
        for epoch in epochs:
            for worker in range(self.workers):
                self.cut(worker, (epoch,))
            self.store_all()

    def raise_to(self, bound: Bound, *names: str) -> None:
        """W of all processors of these names, or of all, rises, and all hear of it."""
        layout = self.layout
        wanted = [p for p, info in enumerate(layout.processors) if not names or info.name in names]
        changed = tuple((p, worker, bound) for p in wanted for worker in range(self.workers))
        for worker in range(self.workers):
            self.hear(worker, Watermarks(changed))

    # What they did

    def take(self) -> list[list[Effect]]:
        """By worker, what it has done since the last call."""
        did, self.did = self.did, [[] for _ in range(self.workers)]
        return did

    @property
    def layout(self) -> Layout:
        return self.of[0].layout

    def named(self, name: str) -> int:
        return next(p for p, info in enumerate(self.layout.processors) if info.name == name)


def reported(effects: Sequence[Effect], kind: type[_Message]) -> list[_Message]:
    """The reports of a kind."""
    return [effect.message for effect in effects if isinstance(effect, Report) and isinstance(effect.message, kind)]


def of_kind(effects: Sequence[Effect], kind: type[_Effect]) -> list[_Effect]:
    """The effects of a kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


# Programs


def counts() -> Dataflow:
    """Running counts in one group: a source, an exchange, a capture."""
    flow = Dataflow("counts")
    with flow.region("all", policy=Lazy(every=1)):
        flow.source("in", Iterable(range(10))).key_by(lambda x: x).count(name="count").records().capture("out")
    return flow


def logged() -> Dataflow:
    """Two groups: what the first sends to all workers is logged, and told apart in the second."""
    flow = Dataflow("logged")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10))).map(lambda x: x, name="same")
    with flow.region("back", policy=Lazy(every=2.0)):
        numbers.exchange(by=lambda x: x).distinct(name="count").capture("out")
    return flow


def eager() -> Dataflow:
    """An eager group with an output of its own, which nothing comes to, and counts behind it."""
    flow = Dataflow("eager")
    with flow.region("front", policy=Eager()):
        numbers = flow.source("in", Iterable(range(10))).map(lambda x: x, name="same")
        numbers.capture("seen")
    with flow.region("back", policy=Lazy(every=1)):
        numbers.key_by(lambda x: x).count(name="count").records().capture("out")
    return flow


def looping() -> Dataflow:
    """A loop that is cut between its iterations, in which a number goes down to nought, and what is behind it."""
    flow = Dataflow("looping")
    with flow.region("loop", policy=Lazy(every=1.0, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
        out = numbers.iterate(
            lambda inner: inner.map(lambda n: n - 1).filter(lambda n: n >= 0).distinct(name="new"), name="round"
        )
    with flow.region("back", policy=Lazy(every=1)):
        out.map(lambda n: n, name="same").capture("out")
    return flow


def timed() -> Dataflow:
    """Three groups with intervals: by epochs, 3 seconds, half a second."""
    flow = Dataflow("timed")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10))).map(lambda x: x, name="same")
    with flow.region("middle", policy=Lazy(every=3.0, log_outputs=True)):
        counts = numbers.key_by(lambda x: x).count(name="first").records()
    with flow.region("back", policy=Lazy(every=0.5)):
        counts.key_by(lambda pair: pair[1]).count(name="second").records().capture("out")
    return flow


def passing() -> Dataflow:
    """A source and a capture, which keep nothing from one epoch to the next."""
    flow = Dataflow("passing")
    with flow.region("all", policy=Lazy(every=1)):
        flow.source("in", Iterable(range(10))).capture("out")
    return flow
