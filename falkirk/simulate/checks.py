"""Invariants of a simulated job, checked at every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from falkirk.simulate.again import Sends
from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.outside import Violation
from falkirk.simulate.process import Process
from monitor.coordination.records import KeptDecision, KeptFinished, KeptWatermarks, Record
from recovery.agent.agent import Agent
from recovery.epoch_ends import KnownEnds
from recovery.layout import Layout
from recovery.metadata import Bound, at_cut, holds, union, within
from recovery.protocol import (
    LIVE,
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    InMemory,
    Restored,
    ToMonitor,
    ToWorker,
    Watermarks,
)
from recovery.store.interface import Buffer
from runtime.recovery.driver import RecoveryDriver
from timely.data.batch import Batch
from timely.data.messages import Captured, CommitSink, Effect
from timely.dataflow.plan import Route
from timely.operators.channels import Exchange
from timely.time import Time, leq, maximal

_Output = tuple[int, Time]
"""An exactly-once output of a worker at a time: (node, time)."""

_FENCE = 1024
"""Upper bound of the bytes of a fence, and of a small segment's overhead."""


def _is_durable(agent: Agent, processor: int, time: Time) -> bool:
    """True if a durable checkpoint covers `time` at a processor."""
    return any(xi.processor == processor and holds(xi.bound, time) for xi in agent.checkpoints.durable())


def _may_go_out(agent: Agent, processor: int, time: Time) -> bool:
    """True if a checkpoint lets exactly-once output at a time go out."""
    if not agent.layout.processors[processor].early:
        return _is_durable(agent, processor, time)
    return any(
        saved.checkpoint.xi.processor == processor and holds(saved.bound, time) for saved in agent.checkpoints.saved()
    )


class Closed:
    """Complete times of one process's processors, as notified and as reported.

    Args:
        layout: of the job.
        worker: whose process it is.
        decisions: all that were sent, by generation, rising.
        sends: of this worker.
    """

    def __init__(
        self,
        layout: Layout,
        worker: int,
        decisions: Mapping[int, Sequence[Sequence[Bound | None]]],
        sends: Sends,
    ) -> None:
        self._layout = layout
        self._worker = worker
        self._decisions = decisions
        self._sends: Sends | None = sends
        """Outputs of the worker; None once another process has taken its place."""
        self._generation = 0
        self._complete: list[Bound] = [info.nothing for info in layout.processors]
        self._notified: list[tuple[Time, ...]] = [()] * len(layout.processors)
        """Maximal times notified to each processor."""
        self.restored = 0
        """Generation last reported as restored."""

    def at(self, generation: int) -> None:
        """Enter a generation: reopen times after its rollback bounds."""
        if generation == self._generation:
            return
        for number in [number for number in self._decisions if self._generation < number <= generation]:
            for p, bound in enumerate(self._decisions[number][self._worker]):
                if bound is not None:
                    if self._sends is not None:
                        self._sends.taken_back(p, bound, self._complete[p])
                    self._complete[p] = bound
                    self._notified[p] = ()  # within the bound that says nothing new, and outside it holds no more
        self._generation = generation

    def notified(self, processor: int, time: Time) -> None:
        """Record a delivered notification."""
        self._notified[processor] = maximal((*self._notified[processor], time))

    def on_message(self, message: ToMonitor) -> None:
        """Record a report of the process to the monitor."""
        if isinstance(message, Completed) and message.generation == self._generation:
            for p, info in enumerate(self._layout.processors):
                self._say(p, at_cut(message.upto[info.group], info.depth))
        elif isinstance(message, Drained):
            for p, held in enumerate(message.memory):
                self._say(p, held.upto)
        elif isinstance(message, Restored):
            self.restored = message.generation

    def _say(self, processor: int, bound: Bound) -> None:
        self._complete[processor] = union(bound, self._complete[processor])
        if self._sends is not None:
            self._sends.complete(processor, self._complete[processor])

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """Record a batch sent by an event."""
        if self._sends is not None:
            self._sends.sent(processor, port, event, time, batch)

    def routed(self, processor: int, edge: int, event: Time, time: Time, receiver: int, batch: Batch) -> None:
        """Record the part of an output for one worker."""
        if self._sends is not None:
            self._sends.routed(processor, edge, event, time, receiver, batch)

    def lost(self) -> None:
        """Replace the process by a new one, to which all its work may be repeated."""
        assert self._sends is not None
        for p, info in enumerate(self._layout.processors):
            self._sends.taken_back(p, info.nothing, self._complete[p])
        self._sends = None

    def has_reported(self, processor: int, time: Time) -> bool:
        """True if the process has reported `time` complete."""
        return holds(self._complete[processor], time)

    def upto(self, processor: int) -> Bound:
        """Times reported complete by the process."""
        return self._complete[processor]

    def was_notified(self, processor: int, time: Time) -> bool:
        """True if the processor was notified of `time`, or of a later one."""
        return any(leq(time, known) for known in self._notified[processor])


@dataclass(slots=True)
class Talk:
    """Latest round and generation numbers between one process and the monitor.

    0: none.
    """

    round: int = 0
    generation: int = 0
    asked: int = 0
    """Latest round with a request to drain links."""
    answered: int = 0
    """Latest round known to the monitor as answered."""


class Checks:
    """Global observer of a simulated job: announcements, decisions, durable state.

    - W never falls, was durable before it was announced, and no decision lies below it.
    - A decision was durable before it was sent, is one and the same for all who hear it, and numbers only rise.
    - No decision lies below W₁, as long as of each worker that dies the mate lives and has all.
    - Who has failed does not stay as it is. Who lives hears each number of a round or decision once, from any monitor,
      is drained only if it has memory, is not given up for what it has done, never goes forward, and makes no cut at what it
      has not said to be complete.
    - No cut leaves out of a processor with new checkpoints where its state came back as one run.
    - Who lives drops no epoch that all of its worker has completed, where everything is known again and all messages are kept.
    - A worker handles nothing in a generation before it has reported that it is restored.
    - The job has ended in the monitor's journal before it ends.
    - A processor that stays as it is keeps its operator; one that goes back handles nothing inside of what it goes back to.
    - Nothing comes to a processor at a time of which it was notified, or that its worker has said to be complete there, in this
      generation or in one before it that it was not taken back by.
    - What is done again is the same as before, where it is declared to be.
    - What passes a gate, or is published exactly once, is durable where it was made.
    - An epoch that a process had published before it sealed a segment is not published again by those who read that segment.
    - The store holds no more than a constant times what is live.
    """

    def __init__(self) -> None:
        self.low: dict[tuple[int, int], Bound] = {}
        """Announced low-watermarks, by (worker, processor)."""
        self.memory: dict[tuple[int, int], Bound] = {}
        """Announced W₁, as long as no worker has died without a mate that had all."""
        self.decisions: dict[int, tuple[tuple[Bound | None, ...], ...]] = {}
        self.survivors = 0
        """Number of processors left running in all decisions."""
        self.spared = 0
        """Number of workers required to keep epochs lost by others."""
        self._finished = False
        """True once the monitor's journal records the end of the job."""
        self._memory: dict[int, tuple[Drained, Layout]] = {}
        """Latest memory report of each worker, with its round."""
        self._talks: dict[tuple[int, int], Talk] = {}
        self._closed: dict[tuple[int, int], Closed] = {}
        self._sends: dict[int, Sends] = {}
        self._newest: dict[int, Closed] = {}
        """Complete times of the newest process of each worker."""
        self._durable: dict[int, tuple[tuple[Bound | None, ...], ...]] = {}
        self._durable_low: dict[tuple[int, int], Bound] = {}
        self._sizes = 0
        self._published: dict[str, frozenset[_Output]] = {}
        """Published outputs at the time of sealing each segment."""

    def resized(self, bounds: Sequence[Bound]) -> None:
        """Begin anew after a move to another number of workers, at `bounds`.

        Raises Violation where less is safe than was on any former worker.
        """
        for (w, p), low in self.low.items():
            if not within(low, bounds[p]):
                raise Violation(f"the move takes processor {p} to {bounds[p]}, and on worker {w} {low} was safe")
        self.__init__()  # type: ignore[misc]

    def begin(self) -> None:
        """Forget recorded output before a restart of the whole job, as nobody has it now."""
        self._sends.clear()

    # The monitor

    def durable(self, records: tuple[Record, ...]) -> None:
        """Check records now durable in the monitor's journal."""
        for record in records:
            match record:
                case KeptDecision():
                    self._kept(record)
                case KeptWatermarks():
                    for w, bounds in enumerate(record.bounds):
                        for p, bound in enumerate(bounds):
                            if not within(self._durable_low.get((w, p), bound), bound):
                                raise Violation(
                                    f"the low-watermark of processor {p} of worker {w} falls in the journal"
                                )
                            self._durable_low[w, p] = bound
                case KeptFinished():
                    self._finished = True

    def _kept(self, decision: KeptDecision) -> None:
        number = decision.generation
        if number not in self._durable:
            self._spare(decision)
        if self._durable.setdefault(number, decision.bounds) != decision.bounds:
            raise Violation(
                f"decision {number} was {self._durable[number]} in the journal, and is now {decision.bounds}"
            )
        if number < max(self._durable):
            raise Violation(f"decision {number} comes into the journal after {max(self._durable)}")
        for worker in decision.failed:
            if LIVE in decision.bounds[worker]:
                raise Violation(f"decision {number} lets worker {worker} stay as it is, which has failed")

    def _spare(self, decision: KeptDecision) -> None:
        """Check survivors for unnecessary loss of complete epochs."""
        number, bounds = decision.generation, decision.bounds
        gone = min((bound[0] for worker in decision.failed for bound in bounds[worker] if bound is not None), default=0)
        reports = [drained for drained, _ in self._memory.values() if drained.round == number]
        known = KnownEnds(each for drained in reports for each in drained.ends)
        for worker, (drained, layout) in self._memory.items():
            memory = drained.memory
            complete = min(held.upto[0] for held in memory)
            if drained.round != number or not decision.failed or not self._keeps_all(worker, memory, layout, gone):
                continue
            if not self._repeats(layout, known, decision.failed, complete):
                continue
            stays = min((bound[0] for bound in bounds[worker] if bound is not None), default=complete)
            self.spared += complete > gone
            if stays < complete:
                raise Violation(
                    f"decision {number} takes worker {worker} to epoch {stays}, which lives and had completed {complete}: "
                    f"{decision.bounds[worker]}, where the others come back at {gone}"
                )

    def _repeats(self, layout: Layout, known: KnownEnds, failed: Collection[int], upto: int) -> bool:
        """True if everything before epoch `upto` is the same when it is done again."""
        others = [p for p, info in enumerate(layout.processors) if not info.repeats]
        return all(
            layout.processors[p].role == "source"
            and known.repeats((worker, p), self.low.get((worker, p), (0,))[0], worker in failed) >= upto
            for p in others
            for worker in range(layout.workers)
        )

    def _keeps_all(self, worker: int, memory: Sequence[InMemory], layout: Layout, gone: int) -> bool:
        """True if only missing kept messages could make a survivor lose complete times."""
        if any(edge.spread and not edge.kept for edge in layout.edges):
            return False
        if any(held.since[0] > gone for held in memory):
            return False  # it came back from its store, and does not have what it sent before
        for p, out in enumerate(layout.outgoing()):
            edges = [layout.edges[index] for index in out if layout.edges[index].kept]
            for edge, coverage in zip(edges, memory[p].kept):
                for receiver, bound in enumerate(coverage):
                    if receiver == worker:
                        continue  # it keeps that until it has completed it
                    if any(bound) and bound > max(self.low.get((receiver, edge.target), ()), memory[p].since):
                        return False  # there was no room for all
        return True

    def finished(self) -> None:
        """Check the end of the job: it must be durable first."""
        if not self._finished:
            raise Violation("the job ends before that is durable")

    def on_order(self, message: ToWorker) -> None:
        """Check a message from the monitor to a worker."""
        if isinstance(message, Watermarks):
            for p, w, bound in message.changed:
                self._announced(w, p, bound)
            for p, w, bound in message.memory:
                self.memory[w, p] = union(bound, self.memory.get((w, p), bound))
        elif isinstance(message, Decision):
            self._decided(message)

    def _announced(self, w: int, p: int, bound: Bound) -> None:
        here = f"the low-watermark of processor {p} of worker {w}"
        if any(bound) and not within(bound, self._durable_low.get((w, p), ())):
            raise Violation(f"{here} is announced as {bound} before that is durable")
        if not within(self.low.get((w, p), bound), bound):
            raise Violation(f"{here} was {self.low[w, p]}, and falls to {bound}")
        self.low[w, p] = bound

    def _decided(self, decision: Decision) -> None:
        number, bounds = decision.generation, decision.bounds
        known = self.decisions.get(number)
        if known is not None:
            if known != bounds:
                raise Violation(f"decision {number} was {known}, and is now {bounds}")
            return
        if self._durable.get(number) != bounds:
            raise Violation(f"decision {number} is sent before it is durable")
        if self.decisions and number < max(self.decisions):
            raise Violation(f"decision {number} comes after {max(self.decisions)}")
        for (w, p), low in self.low.items():
            bound = bounds[w][p]
            if bound is not None and not within(low, bound):
                raise Violation(f"decision {number} takes processor {p} of worker {w} to {bound}, below {low}")
        for (w, p), low in self.memory.items():
            bound = bounds[w][p]
            if bound is not None and not within(low, bound):
                raise Violation(
                    f"decision {number} takes processor {p} of worker {w} to {bound}, below its W₁ {low}, and mates had all"
                )
        for w, marks in enumerate(decision.watermarks):
            for p, mark in enumerate(marks):
                self._announced(w, p, mark)
        self.decisions[number] = bounds

    def asked(self, process: Process, message: ToWorker) -> None:
        """Record a message sent from the monitor to a process."""
        if isinstance(message, Drain):
            self._talks.setdefault(process.owner, Talk()).asked = message.round

    def answered(self, process: Process, message: ToMonitor) -> None:
        """Record a message from a process to the monitor."""
        if isinstance(message, Drained):
            self._talks.setdefault(process.owner, Talk()).answered = message.round
            if process.recovery is not None:
                self._memory[process.worker] = message, process.recovery.agent.layout

    def given_up(self, process: Process, reason: str) -> None:
        """Check the monitor's reason for giving a process up."""
        known = self._talks.get(process.owner, Talk())
        if "drain" in reason and known.answered >= known.asked:
            raise Violation(f"worker {process.worker} has drained its links in round {known.asked}: {reason}")

    # Workers

    def on_message(self, process: Process, message: ToWorker) -> None:
        """Check a message from the monitor to a process."""
        known = self._talks.setdefault(process.owner, Talk())
        who, closed = f"worker {process.worker}", self._closed.get(process.owner)
        match message:
            case Drain(number, alive):
                if number <= known.round:
                    raise Violation(f"{who} hears of round {number} after round {known.round}")
                if process.place not in alive or not known.generation:
                    raise Violation(f"{who} is to drain its links in round {number}, and has no memory")
                known.round = number
            case Decision(generation=number, catch_up=True):
                if known.generation:
                    raise Violation(f"{who} is to catch up with decision {number}, and has memory")
            case Decision(generation=number, bounds=bounds):
                if number <= known.generation:
                    raise Violation(f"{who} hears decision {number} after {known.generation}")
                for p, bound in enumerate(bounds[process.worker]):
                    if (
                        known.generation
                        and closed is not None
                        and bound is not None
                        and not within(bound, closed.upto(p))
                    ):
                        raise Violation(f"decision {number} takes processor {p} of {who} forward to {bound}")
                known.generation = number
            case Cut(generation, group, at) if closed is not None and process.recovery is not None:
                agent = process.recovery.agent
                closed.at(agent.worker.generation)
                layout = agent.layout
                members = [p for p, info in enumerate(layout.processors) if info.group == group]
                for p in members if generation == agent.worker.generation else ():
                    bound, since = at_cut(at, layout.processors[p].depth), agent.recorder.since[p]
                    if not within(bound, closed.upto(p)):
                        raise Violation(f"{who} is to cut processor {p} at {at}, which it has not said to be complete")
                    if (
                        not within(since, bound)
                        and layout.processors[p].chain
                        and agent.checkpoints._of[p].lacks(bound)
                    ):
                        raise Violation(
                            f"{who} is to cut processor {p} at {at}, which has one run of state up to {since}"
                        )

    def connected_anew(self, process: Process) -> None:
        """Forget messages of the former monitor not received by the process."""
        if process.recovery is not None and (known := self._talks.get(process.owner)) is not None:
            agent = process.recovery.agent
            known.round = min(known.round, agent.round)
            known.generation = agent.worker.generation if agent.alive else 0

    def watch(self, process: Process, driver: RecoveryDriver) -> None:
        """Observe every event of a worker from now on."""
        recorder, worker, index = driver.agent.recorder, driver.agent.worker, driver.agent.index
        delivered, notified = recorder.delivered, recorder.notified
        layout, link = driver.agent.layout, driver._monitor
        names = [f"{info.name!r} of worker {index}" for info in layout.processors]
        sends = self._sends.setdefault(index, Sends(layout, index))
        if (before := self._newest.get(index)) is not None:
            before.lost()
        closed = self._closed[process.owner] = self._newest[index] = Closed(layout, index, self.decisions, sends)
        send, sent = link.send, recorder.sent
        queue, split = worker._queue, worker._outbox.split
        sources = {edge.edge: edge.source for edge in layout.edges}
        going: tuple[Time, Time] = ((), ())
        gates = {edge.target: edge.source for edge in layout.edges if edge.target in worker.gates}

        def on_delivered(processor: int, port: int, time: Time, batch: Batch) -> None:
            closed.at(worker.generation)
            self._handled(index, closed.restored, worker.generation, processor, time, "a batch")
            if closed.was_notified(processor, time):
                raise Violation(f"{names[processor]} gets a batch at {time}, and was notified that this is complete")
            if closed.has_reported(processor, time):
                raise Violation(f"{names[processor]} gets a batch at {time}, and has said that this is complete")
            if processor in gates and not _is_durable(driver.agent, gates[processor], time):
                raise Violation(
                    f"{names[processor]} lets a batch at {time} through, which is not durable in front of it"
                )
            delivered(processor, port, time, batch)

        def on_sent(processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
            closed.at(worker.generation)
            closed.sent(processor, port, event, time, batch)
            sent(processor, port, event, time, batch)

        def on_queued(route: Route, event: Time, time: Time, batch: Batch) -> None:
            nonlocal going
            going = event, time
            queue(route, event, time, batch)

        def on_split(route: Route, batch: Batch) -> list[Batch | None]:
            parts = split(route, batch)
            edge, channel = route.edge, route.edge.channel
            if (
                isinstance(channel, Exchange) and channel.combine is None
            ):  # what is combined depends on the division into batches
                for receiver, part in enumerate(parts):
                    if part is not None and len(part):
                        closed.routed(sources[edge.index], edge.index, *going, receiver, part)
            return parts

        def on_notified(processor: int, time: Time) -> None:
            closed.at(worker.generation)
            self._handled(index, closed.restored, worker.generation, processor, time, "a notification")
            if closed.has_reported(processor, time):
                raise Violation(f"{names[processor]} is notified of {time}, and has said that this is complete")
            closed.notified(processor, time)
            notified(processor, time)

        def on_send(message: ToMonitor) -> None:
            closed.at(worker.generation)
            closed.on_message(message)
            send(message)

        recorder.delivered = on_delivered  # type: ignore[method-assign]
        recorder.sent = on_sent  # type: ignore[method-assign]
        worker._queue = on_queued  # type: ignore[method-assign]
        worker._outbox.split = on_split  # type: ignore[method-assign]
        recorder.notified = on_notified  # type: ignore[method-assign]
        link.send = on_send  # type: ignore[method-assign]

    def _handled(self, worker: int, restored: int, generation: int, processor: int, time: Time, what: str) -> None:
        if restored != generation:
            raise Violation(
                f"processor {processor} of worker {worker} handles {what} at {time} in generation {generation}, and the last "
                f"that it has reported as restored is {restored}"
            )
        bound = self.decisions[generation][worker][processor]
        if bound is not None and holds(bound, time):
            raise Violation(
                f"processor {processor} of worker {worker} handles {what} at {time} in generation {generation}, which "
                f"began with all times before {bound} done"
            )

    def watch_outputs(self, process: Process, newest: str | None) -> None:
        """Watch the publications of a process; `newest` is the last segment read by it."""
        session, recovery = process.session, process.recovery
        assert session is not None
        assert recovery is not None
        outputs, store = session._outputs, recovery._store
        carry_out, put = outputs.carry_out, store.put
        staged = session.worker.staged or ()
        read = self._published.get(newest or "", frozenset())
        known = set(read)
        early = [info.early for info in recovery.agent.layout.processors]
        """Outputs before W, by processor: they may go out twice."""

        def on_effects(effects: list[Effect]) -> None:
            for effect in effects:
                output: _Output | None = None
                if isinstance(effect, Captured):
                    output = (effect.node, effect.time)
                elif isinstance(effect, CommitSink) and effect.node in staged:
                    output = (effect.node, (effect.epoch,))
                if output is not None and not _may_go_out(recovery.agent, session.plan.of_node[output[0]], output[1]):
                    raise Violation(
                        f"worker {session.index} publishes node {output[0]} at {output[1]}, which is not durable"
                    )
                if output in read and not early[session.plan.of_node[output[0]]]:
                    raise Violation(
                        f"worker {session.index} publishes node {effect.node} at {output[1]} again, which it had done before "
                        f"it sealed {newest}"
                    )
                carry_out([effect])
                if output is not None:
                    known.add(output)

        def on_put(name: str, parts: Sequence[Buffer]) -> None:
            self._published[name] = frozenset(known)
            put(name, parts)

        outputs.carry_out = on_effects  # type: ignore[method-assign]
        store.put = on_put  # type: ignore[method-assign]

    def turned(self, process: Process) -> None:
        """Check a process after its turn."""
        session = process.session
        assert session is not None
        generation = session.worker.generation
        if generation == process.generation:
            return
        before, operators = process.operators, [runtime.operator for runtime in session.worker.runtimes]
        between = [self.decisions[g] for g in self.decisions if process.generation < g <= generation]
        for p, operator in enumerate(operators):
            if before and all(bounds[session.index][p] is None for bounds in between):
                self.survivors += 1
                if before[p] is not operator:
                    raise Violation(f"processor {p} of worker {session.index} was to stay, and has a new operator")
        process.operators, process.generation = operators, generation

    # The store

    def size(self, process: Process, disk: SimulatedDisk) -> None:
        """Check the size of a process's store while no write is in progress.

        Looks only once in a while, for it takes long.
        """
        assert process.recovery is not None
        journal = process.recovery.agent.journal
        if journal.in_flight is not None or journal.gathered or disk.busy(process.owner):
            return
        self._sizes += 1
        if self._sizes % 16 == 1:
            folder = f"{journal.owner}/"
            used = sum(len(disk.get(name)) for name in disk.names(folder) if not name.endswith(".damaged"))
            most = 6 * (journal.live + 2 * journal.small) + journal.idle_release + _FENCE * (process.incarnation + 8)
            if used > most:
                raise Violation(f"{folder} takes {used:,} bytes, and only {journal.live:,} of them are live")

    def ended(self, process: Process) -> None:
        """Check the end of the job at a worker: no memory for rollbacks is left."""
        assert process.recovery is not None
        agent = process.recovery.agent
        logged = sum(len(entries) for entries in agent.recorder.logs.values())
        logged += sum(key[0] == "log" for key in agent.checkpoints.live_keys())
        if logged:
            raise Violation(f"worker {agent.index} is done, and still keeps {logged} logged messages")
        if agent.recorder.shipments.size:
            raise Violation(
                f"worker {agent.index} is done, and still keeps {agent.recorder.shipments.size} bytes that it sent"
            )
