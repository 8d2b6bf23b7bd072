"""A job without data: workers, stores, links and the monitor's journal, moved one step at a time, and judged all along.

Workers here do what real ones do with messages and stores; what they compute is only how far they are. The judge is told
nothing by the coordinator: it looks at the effects, at the journal and at the workers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from monitor.coordination.coordinator import Settings
from monitor.coordination.effects import Fail, Fence, Finished, Persist, Respawn, Send, TimelineEvent
from monitor.coordination.records import KeptDecision, KeptWatermarks, Record, SavedJob, decode_record, encode_record
from monitor.coordination.workers import JobPhase
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound, Xi, at_cut, at_epoch, nothing, project
from recovery.protocol import (
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    InMemory,
    Join,
    Refused,
    Released,
    Restored,
    ToMonitor,
    ToWorker,
    Watermarks,
    decode_to_monitor,
    decode_to_worker,
    encode_message,
)
from tests.monitor.coordination.driven import DrivenCoordinator

LAST_EPOCH = 6
"""After this one the input has ended."""


@dataclass
class Disk:
    """A worker's store: survives its processes."""

    generation: int = 0
    xis: dict[tuple[int, Bound], Xi] = field(default_factory=dict)

    def apply(self, decision: Decision, worker: int) -> None:
        if decision.generation <= self.generation:
            return
        self.generation = decision.generation
        bounds = decision.bounds[worker]
        self.xis = {
            key: xi for key, xi in self.xis.items() if (bound := bounds[xi.processor]) is None or xi.bound <= bound
        }


class Process:
    """One incarnation of a worker."""

    def __init__(self, worker: int, incarnation: int, layout: Layout, disk: Disk) -> None:
        self.worker, self.incarnation, self.layout, self.disk = worker, incarnation, layout, disk
        self.inbox: deque[bytes] = deque()
        self.outbox: deque[bytes] = deque()
        self.generation = 0  # of the memory; 0: none
        self.paused = False
        self.epochs = [0] * len(layout.groups)
        self.low: list[Bound] = [info.nothing for info in layout.processors]
        self.cuts: deque[Cut] = deque()
        self.released = False
        self.round = 0
        self.join()

    def say(self, message: ToMonitor) -> None:
        self.outbox.append(encode_message(message))

    def join(self) -> None:
        self.say(
            Join(
                self.worker,
                self.incarnation,
                self.disk.generation,
                self.generation > 0,
                self.layout,
                tuple(self.disk.xis.values()),
                self.paused,
            )
        )
        self.released = False

    def upto(self, processor: int) -> Bound:
        """The completed times there."""
        info = self.layout.processors[processor]
        saved = [xi.bound for xi in self.disk.xis.values() if xi.processor == processor]
        return max([at_epoch(self.epochs[info.group], info.depth), self.low[processor], *saved])

    def memory(self) -> tuple[InMemory, ...]:
        result = []
        outgoing, incoming = self.layout.outgoing(), self.layout.incoming()
        for p in range(len(self.layout.processors)):
            upto = self.upto(p)
            begun = at_epoch(upto[0] + 1, len(upto)) if upto[0] <= LAST_EPOCH else upto  # the next epoch, in part
            lost = [self.layout.edges[index] for index in outgoing[p]]
            discards = tuple(
                nothing(edge.summary.result_depth) if edge.logged else project(edge.summary, begun) for edge in lost
            )
            result.append(InMemory(upto, upto, (begun,) * len(incoming[p]), discards))
        return tuple(result)

    def receive(self) -> None:
        """Take one message and do what it asks for."""
        message: ToWorker = decode_to_worker(self.inbox.popleft())
        if isinstance(message, Decision):
            self.decide(message)
        elif isinstance(message, Drain):
            assert self.worker in message.alive, "a worker that must not drain was paused"
            assert self.generation, "a worker without memory was told to drain"
            assert message.round > self.round, "a number of a round was used twice"
            self.round = message.round
            self.paused = True
            self.say(Drained(self.worker, message.round, self.memory()))
        elif isinstance(message, Cut):
            if message.generation == self.generation:
                assert (self.epochs[message.group],) >= message.at, "a cut at what is not complete"
                self.cuts.append(message)
        elif isinstance(message, Watermarks):
            for p, w, bound in message.changed:
                if w == self.worker:
                    self.rise(p, bound)
            self.release()
        else:
            assert isinstance(message, Refused)
            raise AssertionError(f"refused: {message.reason}")

    def decide(self, decision: Decision) -> None:
        bounds = decision.bounds[self.worker]
        assert not (decision.catch_up and self.generation), "memory cannot catch up without restoring"
        if decision.catch_up:
            self.disk.apply(decision, self.worker)
            self.join()
            return
        assert decision.generation > self.generation, "an old decision was sent again"
        for p, (info, bound) in enumerate(zip(self.layout.processors, bounds)):
            if not self.generation:
                assert bound is not None, "who has no memory cannot stay as he is"
                if info.chain:
                    there = bound == info.nothing or (p, bound) in self.disk.xis
                    assert there, f"{info.name} of worker {self.worker} cannot be restored to {bound}"
            else:
                assert bound is None or bound <= self.upto(p), "a living processor was sent forward"
            assert bound is None or bound >= self.low[p], "below what was said to be safe"
        self.disk.apply(decision, self.worker)
        for group in range(len(self.epochs)):
            members = [p for p in self.layout.members(group) if bounds[p] is not None]
            kept = [bound[0] for p in members if (bound := bounds[p]) is not None]
            self.epochs[group] = min([*kept, self.epochs[group]] if self.generation else kept)
        for p, bound in enumerate(decision.watermarks[self.worker]):
            self.rise(p, bound)
        self.generation = decision.generation
        self.paused = self.released = False
        self.cuts.clear()
        self.say(Restored(self.worker, self.generation))
        self.report()
        self.release()

    def rise(self, p: int, bound: Bound) -> None:
        """A low-watermark: collect what is below."""
        assert bound >= self.low[p], "a low-watermark fell"
        self.low[p] = bound
        self.disk.xis = {
            key: xi for key, xi in self.disk.xis.items() if xi.processor != p or xi.bound >= bound or self.keeps(xi)
        }

    def keeps(self, xi: Xi) -> bool:
        """Some garbage is left for later."""
        return (xi.processor + xi.bound[0]) % 3 == 0

    def report(self) -> None:
        if self.generation and not self.paused:
            self.say(Completed(self.worker, self.generation, tuple((epoch,) for epoch in self.epochs)))

    def work(self, group: int, upto: int) -> None:
        """Complete an epoch. Epochs of a group end only when those before it are over on every worker."""
        if self.generation and not self.paused and self.epochs[group] < upto:
            epoch = self.epochs[group] + 1
            self.epochs[group] = NEVER if epoch > LAST_EPOCH else epoch
            self.report()

    def persist(self) -> None:
        """Write the next cut durably, and say so."""
        if not self.cuts:
            return
        cut = self.cuts.popleft()
        outgoing = self.layout.outgoing()
        xis = []
        for p in self.layout.members(cut.group):
            info = self.layout.processors[p]
            if info.chain:
                bound = at_cut(cut.at, info.depth)
                edges = [self.layout.edges[index] for index in outgoing[p]]
                discards = tuple(
                    nothing(edge.summary.result_depth) if edge.logged else project(edge.summary, bound)
                    for edge in edges
                )
                xis.append(Xi(p, bound, discards))
        self.disk.xis.update({(xi.processor, xi.bound): xi for xi in xis})
        self.say(Durable(self.worker, cut.generation, cut.group, cut.at, tuple(xis), 10, 0.01))

    def release(self) -> None:
        done = all(low == info.everything for low, info in zip(self.low, self.layout.processors))
        if done and self.generation and not self.paused and not self.released:
            self.released = True
            self.say(Released(self.worker))


class World:
    """All of it. Every method is one step; each does nothing where there is nothing to do."""

    def __init__(self, layout: Layout, settings: Settings | None = None) -> None:
        self.layout = layout
        self.settings = settings or Settings(attempts=1_000_000)
        self.now = 0.0
        self.disks = [Disk() for _ in range(layout.workers)]
        self.processes: list[Process | None] = [None] * layout.workers
        self.incarnations = [0] * layout.workers
        self.journal: list[bytes] = []
        self.writing: Persist | None = None
        self.failing: list[tuple[int, int, deque[bytes]]] = []  # dead, and the monitor has not noticed yet
        self.events: list[TimelineEvent] = []
        self.sent: list[tuple[int, ToWorker]] = []
        self.decisions: dict[int, tuple[tuple[Bound | None, ...], ...]] = {}
        self.promised: list[list[Bound]] = [[info.nothing for info in layout.processors]] * layout.workers
        self.finished = False
        self.working = True
        self.failed: str | None = None
        self.coordinator = DrivenCoordinator(self.layout, None, self.settings, self.now)
        self.obey()

    # ---------------------------------------------------------------- the driver, with a judge

    def obey(self) -> None:
        """Carry out all effects."""
        for effect in self.coordinator.take():
            if isinstance(effect, Send):
                self.judge(effect.message)
                self.sent.append((effect.worker, effect.message))
                process = self.processes[effect.worker]
                if process is not None:
                    process.inbox.append(encode_message(effect.message))
            elif isinstance(effect, Persist):
                assert self.writing is None, "two writes at a time"
                self.writing = effect
            elif isinstance(effect, Respawn):
                self.spawn(effect.worker)
            elif isinstance(effect, Fence):
                process = self.processes[effect.worker]
                if process is not None and effect.incarnation in (-1, process.incarnation):
                    self.processes[effect.worker] = None
            elif isinstance(effect, TimelineEvent):
                self.events.append(effect)
            elif isinstance(effect, Finished):
                assert self.saved().finished, "finished before the journal says so"
                self.finished = True
            else:
                assert isinstance(effect, Fail)
                self.failed = effect.reason

    def spawn(self, worker: int) -> None:
        self.incarnations[worker] += 1
        self.failing = [each for each in self.failing if each[0] != worker]
        self.processes[worker] = Process(worker, self.incarnations[worker], self.layout, self.disks[worker])

    def saved(self) -> SavedJob:
        return SavedJob.of([decode_record(data) for data in self.journal])

    def judge(self, message: ToWorker) -> None:
        """Nothing is said that is not durable; no decision is contradicted; no low-watermark falls."""
        saved = self.saved()
        if isinstance(message, Decision):
            assert saved.decision is not None, "a decision was sent and not written"
            assert message.generation == saved.decision.generation, "a decision was sent that is not the last one"
            assert message.bounds == saved.decision.bounds, "another decision was sent than written"
            for w, bounds in enumerate(message.bounds):
                for p, bound in enumerate(bounds):
                    assert bound is None or bound >= self.promised[w][p], "a decision below a promised low-watermark"
                    self.promise(p, w, message.watermarks[w][p], saved)
        elif isinstance(message, Watermarks):
            for p, w, bound in message.changed:
                assert bound >= self.promised[w][p], "a low-watermark fell"
                self.promise(p, w, bound, saved)

    def promise(self, p: int, w: int, bound: Bound, saved: SavedJob) -> None:
        written = self.layout.processors[p].nothing if saved.watermarks is None else saved.watermarks[w][p]
        assert bound <= written, "a low-watermark was announced and not written"
        self.promised = [list(each) for each in self.promised]
        self.promised[w][p] = max(self.promised[w][p], bound)

    def write(self, record: Record) -> None:
        if isinstance(record, KeptDecision):
            earlier = self.decisions.setdefault(record.generation, record.bounds)
            assert earlier == record.bounds, "a decision was contradicted"
            assert record.generation == max(self.decisions), "a decision with a number that is too low"
            for worker in record.failed:
                assert None not in record.bounds[worker], "who has failed cannot stay as he is"
        elif isinstance(record, KeptWatermarks):
            before = self.saved().watermarks
            for w, bounds in enumerate(before or ()):
                assert all(old <= new for old, new in zip(bounds, record.bounds[w])), "W fell in the journal"
        self.journal.append(encode_record(record))

    # ---------------------------------------------------------------- steps

    def hear(self, worker: int) -> None:
        """The monitor hears one message, or that the process is gone."""
        self.now += 0.001
        for index, (dead, incarnation, outbox) in enumerate(self.failing):
            if dead == worker:
                if outbox:
                    self.coordinator.hear(decode_to_monitor(outbox.popleft()), self.now, incarnation)
                else:
                    del self.failing[index]
                    self.coordinator.lost(worker, incarnation, self.now, "it was killed")
                self.obey()
                return
        process = self.processes[worker]
        if process is not None and process.outbox:
            self.coordinator.hear(decode_to_monitor(process.outbox.popleft()), self.now, process.incarnation)
            self.obey()

    def receive(self, worker: int) -> None:
        """A worker takes one message."""
        process = self.processes[worker]
        if process is not None and process.inbox:
            process.receive()

    def work(self, worker: int, group: int) -> None:
        """A worker completes an epoch of a group."""
        process = self.processes[worker]
        if process is not None:
            process.work(group % len(self.layout.groups), NEVER)

    def persist(self, worker: int) -> None:
        """A worker takes a checkpoint that it was asked for."""
        process = self.processes[worker]
        if process is not None:
            process.persist()

    def beat(self) -> None:
        """Time passes a little; workers say that they are there."""
        self.now += 0.3
        for process in self.processes:
            if process is not None and len(process.outbox) < 20:
                process.report()
        self.coordinator.tick(self.now)
        self.obey()

    def wait(self, seconds: float) -> None:
        """Time passes, and nobody says anything."""
        self.now += seconds
        self.coordinator.tick(self.now)
        self.obey()

    def store(self) -> None:
        """The monitor's write becomes durable."""
        if self.writing is not None:
            write, self.writing = self.writing, None
            for record in write.records:
                self.write(record)
            self.coordinator.stored(write.ticket, self.now)
            self.obey()

    def kill(self, worker: int, heard: int = 0) -> None:
        """A worker's process dies; `heard` of its messages are on their way."""
        process = self.processes[worker]
        if process is not None:
            self.processes[worker] = None
            messages = deque(list(process.outbox)[:heard])
            self.failing.append((worker, process.incarnation, messages))

    def kill_monitor(self, written: bool) -> None:
        """The monitor dies and is started again; its last write may have become durable."""
        if self.finished:
            return
        if written and self.writing is not None:
            for record in self.writing.records:
                self.write(record)
        self.writing = None
        self.failing = []
        awaited = tuple(process.worker for process in self.processes if process is not None)
        settings = Settings(awaited, attempts=self.settings.attempts)
        for process in self.processes:
            if process is not None:
                process.inbox.clear()
                process.outbox.clear()
                process.join()
                process.report()
                process.release()
        self.coordinator = DrivenCoordinator(self.layout, self.saved(), settings, self.now)
        self.obey()

    # ---------------------------------------------------------------- drives

    def settle(self, until: JobPhase = JobPhase.OVER, rounds: int = 400) -> None:
        """Everything happens in a fixed order, and nothing fails any more, until the job is in this phase."""
        for _ in range(rounds):
            if self.coordinator.phase is until:
                return
            for step in self.schedule():
                step()
                assert self.failed is None, self.failed
        raise AssertionError(f"still {self.coordinator.phase} after {rounds} rounds, though nothing fails any more")

    def schedule(self):  # type: ignore[no-untyped-def]  # of steps
        """One turn of everybody."""
        for worker in range(self.layout.workers):
            yield lambda w=worker: self.hear(w)
            yield lambda w=worker: self.receive(w)
            yield lambda w=worker: self.persist(w)
            for group in range(len(self.layout.groups)):
                if self.working and (worker == 0 or self.now % 3 < 2):
                    yield lambda w=worker, g=group: self.work(w, g)
        yield self.store
        yield self.beat

    def disturb(self, random: Random, steps: int) -> None:
        """Anything may happen."""
        workers = range(self.layout.workers)
        for _ in range(steps):
            worker = random.choice(workers)
            what = random.random()
            if what < 0.40:
                self.hear(worker)
            elif what < 0.65:
                self.receive(worker)
            elif what < 0.75:
                self.work(worker, random.randrange(len(self.layout.groups)))
            elif what < 0.82:
                self.persist(worker)
            elif what < 0.92:
                self.store()
            elif what < 0.96:
                self.beat()
            elif what < 0.985:
                self.kill(worker, random.randrange(4))
            elif what < 0.995:
                self.kill_monitor(random.random() < 0.5)
            else:
                self.wait(random.choice([5.0, 20.0, 200.0]))
            assert self.failed is None, self.failed
