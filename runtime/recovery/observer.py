"""Observations of a worker for the monitor's page.

While somebody looks they take a hundredth of the worker's time at most. For the history, which nobody may ever look at, they
are *sampled*: records and time are counted in one of `_WINDOWS` parts of the time, which stands for the others.

`Observed.numbers` is a table of 64-bit integers, one row for each name in `ROWS`, one column a processor. A worker
counts records and time by a recorder put in front of recovery's own. Nothing here has an influence on what the worker does:
an error here is noted once, and ends nothing.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Container
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from recovery.agent.agent import Agent
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import LogEntry
from recovery.protocol import END, ROWS, Closely, Exposed, Observe, Observed, ObservedHold, Working
from recovery.rollback.exposed import exposed
from runtime.control import JobStats
from runtime.recovery.member_samples import MemberSamples
from runtime.recovery.persistence_samples import PersistenceSamples, PortCounts
from runtime.recovery.process_use import process_use
from timely.data.batch import Batch, nbytes
from timely.progress.tracker import culprits, frontier_at
from timely.time import Summary, Time, minimal
from timely.worker import restoring

_SHARE, _SAMPLED_SHARE = 0.01, 0.001
"""Most time for making observations, as shares of the worker's."""
_WINDOW_SECONDS, _WINDOWS = 0.04, 25
"""Length of a sample in seconds, and how many of them would be without gaps."""
_LATENCY_SECONDS = 0.01
"""Distance of looks at ended epochs while sampling, in seconds."""
_SIZES_EVERY = 4
"""Number of observations for each measurement of states and logs."""
_MOST_LATENCIES = 200
_MOST_HOLDS = 20


class Sources(Protocol):
    """Numbers of the driver unknown to the agent."""

    @property
    def sources(self) -> Any:
        """Source drivers, each with `records`, read so far."""

    @property
    def written(self) -> int:
        """Records written by sinks."""

    def running_jobs(self) -> tuple[JobStats, ...]:
        """Running jobs of operators and queries of sources, with reported progress."""


class Counting:
    """Counting recorder: counts records and busy time, and passes calls on."""

    def __init__(self, inner: WorkerRecorder, processors: int, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._clock = clock
        self.records_in = [0] * processors
        self.records_out = [0] * processors
        self.busy = [0.0] * processors
        self.ports = PortCounts(processors)
        self._working = self._before = -1
        self._since = 0.0
        self.logged: Container[int] = inner.logged
        self.shipping: Container[int] = inner.shipping
        self.keeping: Collection[int] = inner.keeping
        self.requested = inner.requested
        self.held = inner.held
        self.started = inner.started
        self.kept_state = inner.kept_state
        self.completed = inner.completed
        self.shipped = inner.shipped
        self.kept = inner.kept
        self.taken = inner.taken

    def delivered(self, processor: int, port: int, time: Time, batch: Batch) -> None:
        """Called before a batch is handled."""
        self._charge(processor)
        self.records_in[processor] += len(batch)
        self.ports.taken[processor] += 1
        self._inner.delivered(processor, port, time, batch)

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """Called for each batch sent."""
        self.records_out[processor] += len(batch)
        self.ports.add(processor, port, batch)
        self._inner.sent(processor, port, event, time, batch)

    def notified(self, processor: int, time: Time) -> None:
        """Called before a notification is handled."""
        self._charge(processor)
        self._inner.notified(processor, time)

    def resulted(self, processor: int, time: Time, result: Any) -> None:
        """Called before the result of a job is handled."""
        self._charge(processor)
        self._inner.resulted(processor, time, result)

    def splits(self, processor: int) -> None:
        """A batch is divided for a processor, by its functions (-1: that is over)."""
        if processor >= 0:
            self._before = self._working
        self._charge(processor if processor >= 0 else self._before)

    def table(self) -> npt.NDArray[np.float64]:
        """Records in, records out and microseconds of work, by processor."""
        found = np.array((self.records_in, self.records_out, self.busy))
        found[2] *= 1e6
        return found

    def rest(self) -> None:
        """Stop charging time to a processor."""
        self._charge(-1)

    def _charge(self, processor: int) -> None:
        """Charge elapsed time to the running processor; `processor` (-1: none) runs next."""
        now = self._clock()
        if self._working >= 0:
            self.busy[self._working] += now - self._since
        self._working, self._since = processor, now


class Observer:
    """Observer of one worker: answers the monitor's `Observe`.

    `session` is the driver; `clock` in seconds. `say` gets notes for the user. `saving`: processor seconds for pieces of cuts,
    and for writes.
    """

    def __init__(
        self,
        agent: Agent,
        session: Sources,
        clock: Callable[[], float],
        say: Callable[[str], None] = lambda text: None,
        saving: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
    ) -> None:
        self._say = say
        self._persistence = PersistenceSamples(agent, saving)
        self._failed = False
        self._agent = agent
        self._session = session
        self._clock = clock
        self._counting: Counting | None = None
        self._members = MemberSamples(agent.worker, clock)
        self._began = time.time()
        self._asked: Observe | None = None
        self._until = self._due = self._timed = 0.0
        self._counted = np.zeros((3, len(agent.layout.processors)))
        """Estimates of past samples: records in and out, microseconds of work."""
        self._window = self._gap = 0.0
        """Beginnings of the present or next sample, and of the gap before."""
        self._coming: dict[int, list[Time]] = {}
        self._count = 0
        self._sizes = np.zeros((7, len(agent.layout.processors)), dtype=np.int64)
        self._reading: deque[tuple[int, float]] = deque()
        self._latencies: deque[float] = deque(maxlen=_MOST_LATENCIES)
        worker = agent.worker
        plan = worker.plan
        self._named = {plan.graph.nodes[node].name: p for node, p in plan.of_node.items()}
        self._inputs = [node.index for node in plan.graph.of_kind("source", "input")]
        reaches: dict[tuple[tuple[int, Summary], ...], list[int]] = {}
        for p, processor in enumerate(plan.processors):
            origins = plan.arrivals[processor.nodes[0].index]
            reach = tuple((place, s) for place, summaries in sorted(origins.items()) for s in summaries)
            reaches.setdefault(reach, []).append(p)
        self._reaches = list(reaches.items())
        """Processors grouped by upstream places: those of a group share a frontier."""
        edges = agent.layout.edges
        self._outgoing = [[edges[index] for index in out] for out in agent.layout.outgoing()]

    def hear(self, message: Observe) -> None:
        """Begin or extend observation."""
        now = self._clock()
        before = self._asked
        if before is None or message.closely != before.closely or (before.sampled and not message.sampled):
            self._due = now
        self._asked = message
        self._until = now + message.seconds
        if message.sampled:
            self._members.want(())
            if self._counting is None and now >= self._window:
                self._count_from(now)
            return
        if self._counting is None:
            self._gap = now
            self._count_from(now)
        self._members.want(message.closely)

    def _count_from(self, now: float) -> None:
        self._window = now
        self._gap = self._gap or now
        self._counting = Counting(self._agent.recorder, len(self._agent.layout.processors), self._clock)
        restoring.listen(self._agent.worker, self._counting)
        restoring.watch_split(self._agent.worker, self._counting.splits)

    def _stop_counting(self, now: float) -> None:
        """End a sample; its counts stand for the gap before, too."""
        counting, self._counting = self._counting, None
        if counting is not None:
            counting.rest()
            stands_for = (now - self._gap) / max(now - self._window, 1e-6)
            self._counted += counting.table() * stands_for
            self._persistence.take(counting.ports, stands_for)
            restoring.listen(self._agent.worker, self._agent.recorder)
            restoring.watch_split(self._agent.worker, None)
        self._gap, self._window = now, now + (_WINDOWS - 1) * _WINDOW_SECONDS

    def turn(self) -> Observed | None:
        """Make an observation after a turn of the worker, if one is due."""
        asked = self._asked
        if asked is None:
            return None
        if self._counting is not None:
            self._counting.rest()
        self._members.turn()
        now = self._clock()
        if now >= self._until:
            self._asked = None
            self._reading.clear()
            self._stop_counting(now)
            self._gap = 0.0
            self._members.want(())
            return None
        if asked.sampled and now >= self._window + (_WINDOW_SECONDS if self._counting is not None else 0.0):
            if self._counting is None:
                self._count_from(now)
            else:
                self._stop_counting(now)
        if self._agent.worker.awaited:
            return None  # between two generations: nothing is known of frontiers
        if not asked.sampled or now >= self._timed:
            self._timed = now + _LATENCY_SECONDS
            try:
                self._time_epochs(now)
            except Exception as error:
                self._fail(error)
        observed = None
        if now >= self._due:
            began = time.thread_time()
            try:
                observed = self._look(asked)
            except Exception as error:
                self._fail(error)
            spent = time.thread_time() - began
            self._due = now + max(asked.every, spent / (_SAMPLED_SHARE if asked.sampled else _SHARE))
        return observed

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._say(
                f"{self._agent.place} cannot tell the page how it is doing: {type(error).__name__}: {error} "
                f"({os.path.basename(where.filename)}:{where.lineno}). The job goes on. This is a fault of Falkirk: please "
                "report it"
            )

    def _reached(self) -> list[int]:
        """Epochs of the sources still open."""
        times = [self._agent.worker.input_time(node) for node in self._inputs]
        return [time[0] for time in times if time is not None]

    def _time_epochs(self, now: float) -> None:
        """Note the ends of reading of epochs, and their latencies until completion."""
        worker = self._agent.worker
        newest = min(self._reached(), default=None)
        begun = self._reading[-1][0] if self._reading else -1
        if newest is not None and newest > begun:
            self._reading.append((newest, now))
        done = min(
            (t[0] for ends in worker.plan.ends.values() for w in ends for t in worker.tracker.frontier(w)), default=END
        )
        while self._reading and self._reading[0][0] <= done:
            epoch, read = self._reading.popleft()
            if begun >= 0 and epoch > 0:
                self._latencies.append(now - read)

    def _look(self, asked: Observe) -> Observed:
        worker = self._agent.worker
        processors = len(self._agent.layout.processors)
        table = np.zeros((len(ROWS), processors), dtype=np.int64)
        epochs, inners = [END] * processors, [END] * processors
        self._coming = self._waiting()
        for reach, members in self._reaches:
            frontier = frontier_at(worker.tracker, reach)
            for p in members:
                runtime = worker.runtimes[p]
                times = [*frontier, *self._coming.get(p, ()), *runtime.ctx.pending]
                times += (time for _, time in runtime.mail)
                if runtime.processor.place is not None and not runtime.processor.node.inputs:
                    times += worker.tracker.leaving(runtime.processor.place)
                if times:
                    least = min(times)
                    epochs[p] = min(least[0], END)
                    inners[p] = min(least[1], END) if len(least) > 1 else 0
        table[0], table[1] = epochs, inners
        for p, _ in worker.pending():
            table[2, p] += 1
        for p, held in restoring.holding(worker):
            table[3, p] += 1
            if held[0] < table[0, p]:  # it may still send there: nothing from then on is complete
                table[0, p], table[1, p] = held[0], min(held[1], END) if len(held) > 1 else 0
        for p, runtime in enumerate(worker.runtimes):
            if runtime.mail:
                table[4, p] = sum(map(len, runtime.mail.values()))
        if self._count % _SIZES_EVERY == 0:
            self._measure()
        self._count += 1
        table[5:12] = self._sizes
        counted = self._counted
        if self._counting is not None and not asked.sampled:
            counted = counted + self._counting.table()
        table[12:15] = np.rint(counted)
        latencies = tuple(self._latencies)
        self._latencies.clear()
        return Observed(
            self._agent.place,
            worker.generation,
            table.tobytes(),
            sum(source.records for source in self._session.sources),
            self._session.written,
            min(self._reached(), default=None),
            latencies,
            tuple(self._closely(p) for p in asked.closely if 0 <= p < processors),
            tuple(
                Working(self._named[job.operator], job.epoch, job.what, job.done, job.total, round(job.seconds, 1))
                for job in self._session.running_jobs()
                if job.operator in self._named
            ),
            max(self._reached(), default=None),
            tuple(member for p in asked.closely if 0 <= p < processors for member in self._members.members(p)),
            self._agent.incarnation,
            self._exposed(),
            tuple(replace(each, partitions=()) for each in self._agent.known_ends.all()),
            None if asked.sampled else process_use(self._began),
            self._persistence.report(self._counting.ports if self._counting is not None and not asked.sampled else None)
            if asked.sampled or self._count % _SIZES_EVERY == 1
            else None,
        )

    def _waiting(self) -> dict[int, list[Time]]:
        """Earliest times of waiting work at each processor that it can come to.

        The tracker does not count it: of a worker that is busy in a loop it is what is furthest behind.
        """
        found: dict[int, list[Time]] = {}
        todo = restoring.look(self._agent.worker)
        while todo:
            p, time = todo.pop()
            before = found.setdefault(p, [])
            if not any(all(a <= b for a, b in zip(other, time)) for other in before):
                before.append(time)
                todo += [(e.target, e.summary(time)) for e in self._outgoing[p] if e.summary.carries(time)]
        return found

    def _exposed(self) -> Exposed:
        agent = self._agent
        complete = (cut[0] for cut in agent.completion.reported or ())
        cuts = {bound[0] for bound in agent.low[agent.index]} | agent.checkpoints.epochs() | set(complete)
        return exposed(agent.recorder, cuts, agent.worked)

    def _measure(self) -> None:
        """Measure the sizes of states, logs and kept messages."""
        self._sizes[:] = 0
        for p, runtime in enumerate(self._agent.worker.runtimes):
            if (state := runtime.operator.state) is not None:
                size = state.size()
                self._sizes[0, p], self._sizes[1, p] = size.rows, size.bytes
        sender = {edge.edge: edge.source for edge in self._agent.layout.edges}
        for (edge, _), entries in self._agent.recorder.logs.items():
            p = sender[edge]
            self._sizes[2, p] += len(entries)
            self._sizes[3, p] += sum(map(_entry_bytes, entries))
        shipments = self._agent.recorder.shipments
        for (edge, _), *kept in shipments.sizes():
            self._sizes[4:6, sender[edge]] += kept
        self._sizes[6] = -1
        for info in self._agent.layout.edges:
            for receiver in range(self._agent.layout.workers) if info.kept else ():
                if receiver != self._agent.index:
                    bound = shipments.coverage((info.edge, receiver))
                    epoch = min(bound[0] + any(bound[1:]), END)
                    self._sizes[6, info.source] = max(epoch, self._sizes[6, info.source])

    def _closely(self, p: int) -> Closely:
        worker = self._agent.worker
        plan = worker.plan
        runtime = worker.runtimes[p]
        reach = next(reach for reach, members in self._reaches if p in members)
        owner = {processor.place: q for q, processor in enumerate(plan.processors) if processor.place is not None}
        edges = {place: edge for edge, place in worker.edge_places.items()}
        pending, held = set(worker.pending()), set(restoring.holding(worker))
        frontier = [*frontier_at(worker.tracker, reach), *runtime.ctx.pending, *self._coming.get(p, ())]
        frontier += (time for _, time in runtime.mail)
        holds = []
        for place, at, count in culprits(worker.tracker, plan.topology, reach):
            if place in edges:
                target = plan.graph.edges[edges[place]].target
                q = plan.of_node[target.node]
                here = (target.port, at) in worker.runtimes[q].mail
                holds.append(ObservedHold("message", q, at, count, here))
                continue
            q = owner[place]
            node = plan.processors[q].node
            if node.kind in ("source", "input"):
                holds.append(ObservedHold("position", q, at, count, worker.input_time(node.index) == at))
            elif node.kind == "gate":
                holds.append(ObservedHold("commit", q, at, count, (0, at) in worker.runtimes[q].mail))
            elif (q, at) in held:
                holds.append(ObservedHold("capability", q, at, count, True))
            else:
                holds.append(ObservedHold("notification", q, at, count, (q, at) in pending))
        holds += [ObservedHold("notification", p, time, 1, True) for time in sorted(runtime.ctx.pending)]
        holds += [
            ObservedHold("batch", p, time, len(waiting), True) for (_, time), waiting in sorted(runtime.mail.items())
        ]
        return Closely(p, minimal(frontier), tuple(holds[:_MOST_HOLDS]))


def _entry_bytes(entry: LogEntry) -> int:
    """Approximate size of a logged message in bytes."""
    if entry.batch is not None and not entry.header:
        return nbytes(entry.batch)
    return memoryview(entry.payload).nbytes
