"""Invariants of a simulated job, which hold at every moment whatever goes wrong. They are checked while the job runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.outside import Violation
from falkirk.simulate.process import Process
from monitor.coordination.records import KeptDecision, KeptWatermarks, Record
from recovery.layout import Layout
from recovery.metadata import Bound, at_cut
from recovery.protocol import Completed, Decision, Drained, ToMonitor, ToWorker, Watermarks
from recovery.store.interface import Buffer
from runtime.recovery_driver import RecoveryDriver
from timely.data.batch import Batch
from timely.data.messages import Captured, CommitSink, Effect
from timely.time import Time, leq, maximal

_Output = tuple[int, Time]
"""An exactly-once output of a worker at a time: (node, time)."""

_FENCE = 1024
"""More than a fence takes, and what a small segment takes beyond its sections."""


class Closed:
    """The times that the processors of one process have been told, or have said, to be complete.

    Args:
        layout: of the job.
        worker: whose process it is.
        decisions: all that were sent, by generation, rising.
    """

    def __init__(self, layout: Layout, worker: int, decisions: Mapping[int, Sequence[Sequence[Bound | None]]]) -> None:
        self._layout = layout
        self._worker = worker
        self._decisions = decisions
        self._generation = 0
        self._said: list[Bound] = [info.nothing for info in layout.processors]
        self._notified: list[tuple[Time, ...]] = [()] * len(layout.processors)
        """The maximal times of which each processor was notified."""

    def at(self, generation: int) -> None:
        """The process is in this generation: what it was taken back by is open again, and what it keeps is complete."""
        if generation == self._generation:
            return
        for number in [number for number in self._decisions if self._generation < number <= generation]:
            for p, bound in enumerate(self._decisions[number][self._worker]):
                if bound is not None:
                    self._said[p] = bound
                    self._notified[p] = ()  # within the bound that says nothing new, and outside it holds no more
        self._generation = generation

    def notified(self, processor: int, time: Time) -> None:
        """A notification is delivered."""
        self._notified[processor] = maximal((*self._notified[processor], time))

    def heard(self, message: ToMonitor) -> None:
        """The process says something."""
        if isinstance(message, Completed) and message.generation == self._generation:
            for p, info in enumerate(self._layout.processors):
                self._say(p, at_cut(message.upto[info.group], info.depth))
        elif isinstance(message, Drained):
            for p, held in enumerate(message.memory):
                self._say(p, held.upto)

    def _say(self, processor: int, bound: Bound) -> None:
        self._said[processor] = max(bound, self._said[processor])

    def said(self, processor: int, time: Time) -> bool:
        """True if the process has said that `time` is complete."""
        return time < self._said[processor]

    def was_notified(self, processor: int, time: Time) -> bool:
        """True if the processor was notified of `time`, or of a later one."""
        return any(leq(time, known) for known in self._notified[processor])


class Checks:
    """Knows all that was announced, decided and made durable in one job.

    - W never falls, was durable before it was announced, and no decision lies below it.
    - A decision was durable before it was sent, is one and the same for all who hear it, and numbers only rise.
    - A processor that stays as it is keeps its operator; one that goes back handles nothing inside of what it goes back to.
    - Nothing comes to a processor at a time of which it was notified, or that its worker has said to be complete there, in this
      generation or in one before it that it was not taken back by.
    - An epoch that a process had published before it sealed a segment is not published again by those who read that segment.
    - The store holds no more than a constant times what is live.
    """

    def __init__(self) -> None:
        self.low: dict[tuple[int, int], Bound] = {}
        """W as announced, by (worker, processor)."""
        self.decisions: dict[int, tuple[tuple[Bound | None, ...], ...]] = {}
        self.survivors = 0
        """Processors that stayed as they were, in all decisions."""
        """Processors that went back without losing their memory."""
        self._durable: dict[int, tuple[tuple[Bound | None, ...], ...]] = {}
        self._durable_low: dict[tuple[int, int], Bound] = {}
        self._sizes = 0
        self._published: dict[str, frozenset[_Output]] = {}
        """The outputs that were published when each segment was sealed."""

    # The monitor

    def durable(self, records: tuple[Record, ...]) -> None:
        """The monitor's journal holds these."""
        for record in records:
            if isinstance(record, KeptDecision):
                self._durable[record.generation] = record.bounds
            elif isinstance(record, KeptWatermarks):
                for w, bounds in enumerate(record.bounds):
                    for p, bound in enumerate(bounds):
                        self._durable_low[w, p] = max(bound, self._durable_low.get((w, p), bound))

    def said(self, message: ToWorker) -> None:
        """The monitor tells a worker something."""
        if isinstance(message, Watermarks):
            for p, w, bound in message.changed:
                self._announced(w, p, bound)
        elif isinstance(message, Decision):
            self._decided(message)

    def _announced(self, w: int, p: int, bound: Bound) -> None:
        here = f"the low-watermark of processor {p} of worker {w}"
        if any(bound) and bound > self._durable_low.get((w, p), ()):
            raise Violation(f"{here} is announced as {bound} before that is durable")
        if bound < self.low.get((w, p), bound):
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
            if bound is not None and bound < low:
                raise Violation(f"decision {number} takes processor {p} of worker {w} to {bound}, below {low}")
        for w, marks in enumerate(decision.watermarks):
            for p, mark in enumerate(marks):
                self._announced(w, p, mark)
        self.decisions[number] = bounds

    # Workers

    def watch(self, driver: RecoveryDriver) -> None:
        """Look at every event of a worker from now on."""
        recorder, worker, index = driver.agent.recorder, driver.worker, driver.worker.index
        delivered, notified = recorder.delivered, recorder.notified
        layout, link = driver.agent.layout, driver._monitor
        names = [f"{info.name!r} of worker {index}" for info in layout.processors]
        closed = Closed(layout, index, self.decisions)
        send = link.send

        def on_delivered(processor: int, port: int, time: Time, batch: Batch) -> None:
            closed.at(worker.generation)
            self._handled(index, worker.generation, processor, time, "a batch")
            if closed.was_notified(processor, time):
                raise Violation(f"{names[processor]} gets a batch at {time}, and was notified that this is complete")
            if closed.said(processor, time):
                raise Violation(f"{names[processor]} gets a batch at {time}, and has said that this is complete")
            delivered(processor, port, time, batch)

        def on_notified(processor: int, time: Time) -> None:
            closed.at(worker.generation)
            self._handled(index, worker.generation, processor, time, "a notification")
            if closed.said(processor, time):
                raise Violation(f"{names[processor]} is notified of {time}, and has said that this is complete")
            closed.notified(processor, time)
            notified(processor, time)

        def on_send(message: ToMonitor) -> None:
            closed.at(worker.generation)
            closed.heard(message)
            send(message)

        recorder.delivered = on_delivered  # type: ignore[method-assign]
        recorder.notified = on_notified  # type: ignore[method-assign]
        link.send = on_send  # type: ignore[method-assign]

    def _handled(self, worker: int, generation: int, processor: int, time: Time, what: str) -> None:
        bound = self.decisions[generation][worker][processor]
        if bound is not None and time < bound:
            raise Violation(
                f"processor {processor} of worker {worker} handles {what} at {time} in generation {generation}, which "
                f"began with all times before {bound} done"
            )

    def watch_outputs(self, process: Process, newest: str | None) -> None:
        """Look at everything that a process publishes; `newest` is the last segment that it has read."""
        session, recovery = process.session, process.recovery
        assert session is not None
        assert recovery is not None
        outputs, store = session._outputs, recovery._store
        carry_out, put = outputs.carry_out, store.put
        staged = session.worker.staged or ()
        read = self._published.get(newest or "", frozenset())
        known = set(read)

        def on_effects(effects: list[Effect]) -> None:
            for effect in effects:
                output: _Output | None = None
                if isinstance(effect, Captured):
                    output = (effect.node, effect.time)
                elif isinstance(effect, CommitSink) and effect.node in staged:
                    output = (effect.node, (effect.epoch,))
                if output in read:
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
        """A process has taken a turn."""
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
        """Nothing is being written for this process. Looks only once in a while, for it takes long."""
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
        """The job is over for this worker: what only a rollback would need must be gone."""
        assert process.recovery is not None
        agent = process.recovery.agent
        logged = sum(len(entries) for entries in agent.recorder.logs.values())
        logged += sum(key[0] == "log" for key in agent.checkpoints.live_keys())
        if logged:
            raise Violation(f"worker {agent.index} is done, and still keeps {logged} logged messages")
