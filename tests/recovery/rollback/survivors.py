"""A model of jobs whose survivors keep what they have: decisions by the production solver, everything else in one thread.

Several workers run the same small dataflow: sources, operators that keep totals or sums by time, exchanges, sends into later
epochs, a loop. A random schedule delivers, notifies, saves and kills: one worker or several, also while work is done
again, and the monitor. What sinks publish must be what they publish without failures.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, TypeAlias

from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, Live, PhysicalEdge, Restorable, solve
from recovery.layout import EdgeInfo
from recovery.memory.kept_messages import KeptMessages, Suppression
from recovery.metadata import Bound, after, at_epoch, everything, image, nothing
from recovery.rollback.queues import goes_again, stays
from timely.time import Summary, Time

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]

SAME = Summary.identity(1)
KEYS = 5


@dataclass(frozen=True)
class Edge:
    """Between two processors; `spread` by the first field of a row, or `all`: to every worker."""

    source: int
    target: int
    spread: bool = False
    summary: Summary = SAME
    all: bool = False

    @property
    def ahead(self) -> bool:
        """Messages may cross cuts, so they are logged."""
        return any(self.summary.add)

    def info(self, kept: bool) -> EdgeInfo:
        """As recovery sees it: what is kept is as good as logged, while the sender lives."""
        s = self.summary
        return EdgeInfo(self.source, 0, self.target, 0, 0, self.spread, kept, s.depth, s.add, s.append, self.ahead)


@dataclass(frozen=True)
class Operator:
    """`work(rows at a time, all rows up to it, random)` when a time is complete; None: passes rows on at once."""

    depth: int = 1
    work: Callable[[Rows, Rows, Random], Rows] | None = None
    repeats: bool = True
    """The same again, given the same."""
    rounds: int = 0
    """In a loop: what goes round goes this often."""


@dataclass(frozen=True)
class Program:
    """Operators by number; 0 is the source, the last one the sink."""

    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    clock: bool = False
    """The source cuts its epochs by the clock: done again they differ, unless others know where they ended."""


def totals(rows: Rows, upto: Rows, random: Random) -> Rows:
    found: Counter[Any] = Counter()
    for key, value, *_ in upto:
        found[key] += value
    return [(key, found[key] % 97) for key in sorted({row[0] for row in rows})]


def sums(rows: Rows, upto: Rows, random: Random) -> Rows:
    return [((row[0] * 2 + 1) % KEYS, row[1] % 11) for row in totals(rows, rows, random)]


def dice(rows: Rows, upto: Rows, random: Random) -> Rows:
    return [(random.randrange(KEYS), random.randrange(10**9))]


def turned(rows: Rows, upto: Rows, random: Random) -> Rows:
    return [((row[0] + 1) % KEYS, *row[1:]) for row in rows]


def nothing_more(rows: Rows, upto: Rows, random: Random) -> Rows:
    return []


TOTALS, SUMS, PASS, SINK = Operator(work=totals), Operator(work=sums), Operator(), Operator(work=nothing_more)
UNLIMITED = 10**9
NEXT = Summary(1, (1,), ())
PROGRAMS = {
    "exchanges": Program(
        (PASS, TOTALS, SUMS, TOTALS, SINK),
        (Edge(0, 1, True), Edge(1, 2), Edge(2, 3, True), Edge(3, 4)),
    ),
    "later": Program(
        (PASS, TOTALS, PASS, TOTALS, TOTALS, SINK),
        (Edge(0, 1, True), Edge(1, 2), Edge(2, 3, True), Edge(3, 4, True, NEXT), Edge(3, 5), Edge(4, 5)),
    ),
    "loop": Program(
        (PASS, TOTALS, Operator(2, sums, rounds=3), Operator(2), SUMS, SINK),
        (
            *(Edge(0, 1, True), Edge(1, 2, True, Summary.ingress(1)), Edge(2, 2, True, Summary.feedback(2))),
            *(Edge(2, 3, summary=Summary.identity(2)), Edge(3, 4, True, Summary.egress(2)), Edge(4, 5)),
        ),
    ),
    "dice": Program(
        (PASS, TOTALS, Operator(work=dice, repeats=False), PASS, SINK),
        (Edge(0, 1, True), Edge(1, 2, True), Edge(2, 3), Edge(3, 4, True, all=True)),
    ),
    "clock": Program(
        (PASS, Operator(work=turned), PASS, SINK),
        (Edge(0, 1, True), Edge(1, 3, True), Edge(0, 2), Edge(2, 3, True)),
        True,
    ),
}


@dataclass(frozen=True, eq=False)
class Message:
    """`number` counts what an event sends on one channel, so it is the same when it is done again."""

    event: Time
    time: Time
    rows: tuple[Row, ...]
    number: int = 0


@dataclass
class Checkpoint:
    """Of one processor at a bound: its rows, D̄, and what it sent ahead, by (edge, receiver)."""

    bound: Bound
    state: dict[Time, Rows]
    discards: tuple[Bound, ...]
    ahead: dict[tuple[int, int], list[Message]]
    ends: list[int]


class Process:
    """The memory of a worker."""

    def __init__(self, program: Program, budget: int) -> None:
        count = len(program.operators)
        self.state: list[dict[Time, Rows]] = [{} for _ in range(count)]
        self.fired: list[set[Time]] = [set() for _ in range(count)]
        self.queues: dict[tuple[int, int], list[Message]] = defaultdict(list)
        self.kept: KeptMessages[tuple[Time, Time, Message]] = KeptMessages(
            {e: edge.summary.result_depth for e, edge in enumerate(program.edges)},
            budget,
            lambda _, kept: sum(1 + len(each[2].rows) for each in kept),
        )
        self.ahead: dict[tuple[int, int], list[Message]] = defaultdict(list)
        self.ends: list[int] = []
        """Of the source: where each epoch that it has read ends."""
        self.begin = 0
        """The first of these epochs that this process has read itself."""
        self.again: dict[int, int] = {}
        """Epochs that end as others know them."""
        self.known = KnownEnds()
        self.over = False
        self.delivered: list[dict[int, Time]] = [{} for _ in range(count)]
        """The greatest time by edge. Those of its sender do not matter: over-estimates are safe."""
        self.sent: list[dict[int, Time]] = [{} for _ in range(count)]
        self.acted: list[Bound] = [nothing(o.depth) for o in program.operators]
        self.before = list(self.acted)
        """The bound with which each processor came back last: it has completed that, whatever its frontier says."""
        self.since = list(self.acted)
        """The bound with which each processor came back from the store: messages that it sent before are not in memory."""
        self.taken: dict[tuple[int, int], dict[tuple[Time, Time, int], None]] = defaultdict(dict)


@dataclass
class Monitor:
    """Durable facts: checkpoints and decisions. `completed` is not durable, and only known here."""

    chains: dict[int, list[Checkpoint]]
    low: list[Bound]
    suppression: Suppression
    completed: dict[int, Bound] = field(default_factory=dict)


class Job:
    """One history."""

    def __init__(
        self, program: Program, workers: int, epochs: int, seed: int, faults: int, budget: int = UNLIMITED
    ) -> None:
        self.program, self.workers, self.epochs = program, workers, epochs
        data = Random(seed)
        self.random, self.forgetful = Random(seed * 31 + 7), Random(seed)
        self.faults = faults
        self.within = seed % 8 not in (2, 7)
        """The share that stays on its worker is kept, too. Without that, as without room, more goes back."""
        self.budget = budget
        self.data = [
            [[(data.randrange(KEYS), 1, u, t, n) for n in range(data.randrange(4))] for t in range(epochs)]
            for u in range(workers)
        ]
        self.all_rows = [[row for rows in each for row in rows] for each in self.data]
        count = len(program.operators)
        self.processes = [Process(program, budget) for _ in range(workers)]
        self.flight: dict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        self.published: dict[tuple[Time, int], list[Row]] = {}
        self.generation = 0
        self.handled = 0
        self.spared = 0
        """Processors of survivors that kept more than the dead came back with."""
        self.known = KnownEnds()
        """Ends of epochs that the living knew at the last decision."""
        self.edges: list[PhysicalEdge] = []
        self.physical: list[tuple[int, int, int]] = []
        """Of each of `edges`: number of the edge, sending and receiving worker."""
        for e, edge in enumerate(program.edges):
            discarding = Summary.identity(edge.summary.depth) if edge.ahead else None
            for u in range(workers):
                for v in range(workers) if edge.spread else (u,):
                    ends = edge.source * workers + u, edge.target * workers + v
                    port = [i for i, each in enumerate(program.edges) if each.source == edge.source].index(e)
                    self.physical.append((e, u, v))
                    self.edges.append(PhysicalEdge(*ends, edge.summary, port, discarding, suppressed=u != v))
        self.out = [[e for e, edge in enumerate(program.edges) if edge.source == p] for p in range(count)]
        lows = [nothing(program.operators[flat // workers].depth) for flat in range(count * workers)]
        self.monitor = Monitor(
            {flat: [] for flat in range(len(lows)) if self.is_chain(flat // workers)},
            lows,
            Suppression([[nothing(o.depth) for o in program.operators] for _ in range(workers)]),
            dict(enumerate(lows)),
        )

    def keeps(self, e: int, u: int, v: int) -> bool:
        """True if worker u keeps what it sends to worker v on an edge."""
        return self.program.edges[e].spread and (u != v or self.within)

    def is_chain(self, p: int) -> bool:
        """True if p saves: it keeps rows, or logs, or reads."""
        edges = self.program.edges
        return p == 0 or self.program.operators[p].work is not None or any(edges[e].ahead for e in self.out[p])

    # ------------------------------------------------------------------------------------------ progress

    def frontiers(self) -> dict[tuple[int, int], Bound]:
        """The least time at which anything can still come, of every (worker, processor)."""
        operators, edges = self.program.operators, self.program.edges
        least = {(u, p): everything(o.depth) for u in range(self.workers) for p, o in enumerate(operators)}
        for (e, _, v), messages in self.flight.items():
            for message in messages:
                least[v, edges[e].target] = min(least[v, edges[e].target], message.time)
        self.complete = out = dict(least)
        for u, process in enumerate(self.processes):
            for (e, _), queue in process.queues.items():
                for message in queue:
                    least[u, edges[e].target] = min(least[u, edges[e].target], message.time)
            if not process.over:
                least[u, 0] = (len(process.ends),)
            for p, fired in enumerate(process.fired):
                out[u, p] = min([least[u, p], *(process.state[p].keys() - fired)])
        heap = [(time, at) for at, time in out.items() if time[0] < everything(1)[0]]
        heapify(heap)
        while heap:
            time, (u, p) = heappop(heap)
            for e in self.out[p] if time == out[u, p] else ():
                reached, target = edges[e].summary(time), edges[e].target
                for v in range(self.workers) if edges[e].spread else (u,):
                    least[v, target] = min(least[v, target], reached)
                    if reached < out[v, target]:
                        out[v, target] = reached
                        heappush(heap, (reached, (v, target)))
        return least

    # ------------------------------------------------------------------------------------------ steps

    def send(self, u: int, p: int, event: Time, rows: Rows) -> None:
        process = self.processes[u]
        for e in self.out[p]:
            edge = self.program.edges[e]
            if any(edge.summary.add) and edge.summary.depth == 2 and event[1] >= self.program.operators[p].rounds:
                continue
            time = edge.summary(event)
            if time[0] >= self.epochs:
                continue
            parts: dict[int, Rows] = defaultdict(list)
            for row in rows:
                if edge.all:
                    for v in range(self.workers):
                        parts[v].append((row[0], row[1], u))
                else:
                    parts[(row[0] * 7 + 3) % self.workers if edge.spread else u].append(row)
            for v, part in parts.items():
                number = sum(each.event == event for each in process.ahead[e, v])
                message = Message(event, time, tuple(sorted(part)), number)
                if edge.ahead:
                    process.ahead[e, v].append(message)
                else:
                    process.sent[p][e] = max(process.sent[p].get(e, ()), time)
                    if self.keeps(e, u, v):
                        process.kept.keep((e, v), (event, time, message))
                        process.kept.weigh()
                if v == u or not self.monitor.suppression.has(v, edge.target, time):
                    self.flight[e, u, v].append(message)

    def read(self, u: int) -> None:
        process, t = self.processes[u], len(self.processes[u].ends)
        before = process.ends[-1] if t else 0
        if not self.program.clock:
            end = before + len(self.data[u][t])
        elif t in process.again:
            end = process.again[t]
        else:
            rest = len(self.all_rows[u]) - before
            end = before + (rest if t + 1 == self.epochs else self.random.randrange(min(rest, 4) + 1))
        process.ends.append(end)
        process.over = t + 1 == self.epochs
        rows = self.all_rows[u][before:end]
        self.handled += len(rows)
        self.send(u, 0, (t,), rows)

    def take(self, v: int, key: tuple[int, int]) -> None:
        """A processor may take any message before which none of an earlier or equal time stands."""
        process, (e, u) = self.processes[v], key
        queue = process.queues[key]
        at = self.random.randrange(len(queue))
        at = next(i for i in range(len(queue)) if queue[i].time <= queue[at].time)
        message, p = queue.pop(at), self.program.edges[e].target
        if self.program.edges[e].ahead:
            known = process.taken[e, u]
            if (message.event, message.time, message.number) in known:
                return
            known[message.event, message.time, message.number] = None
        assert message.time >= self.processes[v].acted[p], f"{message} inside what {p} on {v} has acted on"
        assert not self.monitor.suppression.has(v, p, message.time), f"{message} comes twice to {p} on {v}"
        assert message.time not in process.fired[p], f"{message} after the notification of {p} on {v}"
        process.delivered[p][e] = max(process.delivered[p].get(e, ()), message.time)
        self.handled += len(message.rows)
        if self.program.operators[p].work is None:
            self.send(v, p, message.time, list(message.rows))
        else:
            process.state[p].setdefault(message.time, []).extend(message.rows)

    def notify(self, u: int, p: int, t: Time) -> None:
        process, operator = self.processes[u], self.program.operators[p]
        process.fired[p].add(t)
        process.acted[p] = max(process.acted[p], after(t))
        upto = [row for time, rows in process.state[p].items() if all(a <= b for a, b in zip(time, t)) for row in rows]
        assert operator.work is not None
        self.send(u, p, t, operator.work(process.state[p][t], upto, self.random))

    def upto(self, u: int, p: int) -> Bound:
        return max(self.complete[u, p], self.processes[u].before[p])

    def save(self, u: int, epoch: int) -> None:
        """One worker's share of a cut."""
        process = self.processes[u]
        for p, operator in enumerate(self.program.operators):
            flat, bound = p * self.workers + u, at_epoch(epoch, operator.depth)
            if not self.is_chain(p):
                self.monitor.completed[flat] = max(bound, self.monitor.completed[flat])
                continue
            chain = self.monitor.chains[flat]
            if chain and chain[-1].bound >= bound:
                continue
            process.acted[p] = max(process.acted[p], bound)
            ahead = {
                (e, v): [m for m in process.ahead[e, v] if m.event < bound <= m.time]
                for e in self.out[p]
                for v in range(self.workers)
            }
            edges = [self.edges[next(i for i, each in enumerate(self.physical) if each[0] == e)] for e in self.out[p]]
            discards = tuple(image(edge.backwards, bound) for edge in edges)
            state = {t: list(rows) for t, rows in process.state[p].items() if t < bound}
            chain.append(Checkpoint(bound, state, discards, ahead, process.ends[:epoch] if p == 0 else []))

    def raise_watermarks(self) -> None:
        """W, over what is durable: nothing that is only in memory, and no second life, counts."""
        monitor = self.monitor
        edges = [PhysicalEdge(e.source, e.target, e.summary, e.port, e.discarding) for e in self.edges]
        low = [bound for bound in solve(edges, [self.failed(flat) for flat in range(len(monitor.low))]) if bound]
        assert all(old <= new for old, new in zip(monitor.low, low)), "W fell"
        monitor.low = low
        sink = len(self.program.operators) - 1
        for u, process in enumerate(self.processes):
            for t in range(low[sink * self.workers + u][0]):
                if ((t,), u) not in self.published and t < self.epochs:
                    self.published[(t,), u] = sorted(process.state[sink].get((t,), []))
            for e, edge in enumerate(self.program.edges):
                for v in range(self.workers):
                    process.kept.forget((e, v), low[edge.target * self.workers + v])
            for v in range(self.workers):
                process.known.collect((v, 0), low[v][0])

    def options(self, flat: int) -> list[Checkpoint]:
        return [each for each in self.monitor.chains[flat] if each.bound >= self.monitor.low[flat]]

    def failed(self, flat: int) -> Restorable:
        if flat not in self.monitor.chains:
            return AnyFrontier(self.monitor.completed[flat])
        depth = self.program.operators[flat // self.workers].depth
        return CheckpointChain([(each.bound, each.discards) for each in self.options(flat)], depth)

    # ------------------------------------------------------------------------------------------ failures

    def live(self, flat: int) -> Live:
        p, u = divmod(flat, self.workers)
        process = self.processes[u]
        delivered, kept = {}, {}
        for index, (e, sender, receiver) in enumerate(self.physical):
            edge = self.program.edges[e]
            if edge.target == p and receiver == u and e in process.delivered[p]:
                delivered[index] = after(process.delivered[p][e])
            if edge.source == p and sender == u and self.keeps(e, sender, receiver):
                kept[index] = process.kept.coverage((e, receiver))
        discards = []
        for e in self.out[p]:
            greatest = process.sent[p].get(e)
            depth = self.program.edges[e].summary.result_depth
            discards.append(nothing(depth) if greatest is None else after(greatest))
        upto = self.upto(u, p)
        if self.random.random() < 0.3:  # it has not heard yet how far others are
            known = min(max(process.acted[p], self.monitor.low[flat]), self.complete[u, p])
            upto = max(known, process.before[p])
        notified = process.acted[p]
        floor = self.monitor.low[flat]
        return Live(upto, delivered, notified, tuple(discards), (False,) * len(discards), floor, kept)

    def own_ends(self, u: int, upto: int) -> EpochEnds:
        """Ends of epochs that the source of a worker has to tell."""
        process = self.processes[u]
        ends = tuple(enumerate(process.ends[:upto]))[process.begin :]
        return EpochEnds(u, 0, min(process.begin, upto), upto, (("rows", ends),))

    def repeats(self, dead: set[int]) -> list[Bound]:
        """The bounds up to which each processor does the same again."""
        found = []
        for p, operator in enumerate(self.program.operators):
            for u in range(self.workers):
                bound = everything(operator.depth) if operator.repeats else nothing(operator.depth)
                if p == 0 and self.program.clock:
                    bound = (self.known.repeats((u, 0), self.monitor.low[u][0], u in dead),)
                found.append(bound)
        return found

    def fail(self, dead: set[int]) -> None:
        """A round."""
        self.generation += 1
        self.frontiers()
        for (e, u, v), messages in self.flight.items():
            if v not in dead:
                arrived = len(messages) if u not in dead else self.random.randrange(len(messages) + 1)
                self.processes[v].queues[e, u] += [messages.popleft() for _ in range(arrived)]
        self.flight.clear()
        if self.random.random() < 0.3:  # the monitor too: what it only remembers is lost
            self.monitor.completed = dict(enumerate(self.monitor.low))
        processors = [
            self.live(flat) if flat % self.workers not in dead else self.failed(flat)
            for flat in range(len(self.monitor.low))
        ]
        alive = [u for u in range(self.workers) if u not in dead]
        for u in alive:
            self.processes[u].known.hear(self.own_ends(u, len(self.processes[u].ends)))
        self.known = KnownEnds(each for u in alive for each in self.processes[u].known.all())
        found = self.decide(processors, dead)
        if not self.program.clock and self.budget == UNLIMITED and all(o.repeats for o in self.program.operators):
            self.keep_what_they_have(processors, found)
        decision = [found[u :: self.workers] for u in range(self.workers)]
        for p in range(len(self.program.operators)):
            worst = min(decision[u][p] or nothing(1) for u in dead)
            alive = [decision[u][p] for u in range(self.workers) if u not in dead]
            self.spared += sum(bound is None or bound > worst for bound in alive)
        self.monitor.suppression.decided(decision)
        for flat, chain in self.monitor.chains.items():
            bound = found[flat]
            if bound is not None:
                self.monitor.chains[flat] = [each for each in chain if each.bound <= bound]
        for flat, low in enumerate(self.monitor.low):
            bound = found[flat]
            self.monitor.completed[flat] = low if bound is None else max(low, bound)
        for u in dead:
            self.processes[u] = Process(self.program, self.budget)
        for u in range(self.workers):
            for p in range(len(self.program.operators)):
                self.restore(u, p, decision[u][p], u in dead)
        self.known.decided(decision)
        for u, process in enumerate(self.processes):
            process.known = KnownEnds(self.known.all())
            mine = self.known.of((u, 0))
            if decision[u][0] is not None:
                process.again = {} if mine is None else dict(mine.partitions[0][1])
        for u in range(self.workers):
            self.refill(u, decision, dead)

    def keep_what_they_have(self, processors: list[Restorable], found: list[Bound | None]) -> None:
        """A survivor drops no epoch that all of it has completed, whoever fails, and how often.

        Unless it came back from the store, and another one goes back further: what it sent before it does not keep.
        """
        gone = [bound[0] for p, bound in zip(processors, found) if bound is not None and not isinstance(p, Live)]
        for u in range(self.workers):
            if any(bound[0] > min(gone) for bound in self.processes[u].since):
                continue
            mine = [each for each in processors[u :: self.workers] if isinstance(each, Live)]
            complete = min((each.upto[0] for each in mine), default=0)
            came_back = min(bound[0] for bound in self.monitor.suppression.bounds[u])
            kept = min(everything(1)[0] if bound is None else bound[0] for bound in found[u :: self.workers])
            assert not mine or kept >= max(complete, came_back), f"worker {u} lost what it has"

    def decide(self, processors: list[Restorable], dead: set[int]) -> list[Bound | None]:
        while True:
            found = solve(self.edges, processors, self.monitor.low, self.repeats(dead))
            stuck = [
                flat
                for flat, bound in enumerate(found)
                if bound is not None and isinstance(processors[flat], Live) and self.is_between(flat, bound)
            ]
            if not stuck:
                return found
            for flat in stuck:
                processors[flat] = self.failed(flat)

    def is_between(self, flat: int, bound: Bound) -> bool:
        """True if a processor came back from the store, and has no checkpoint where it is to go below that."""
        p, u = divmod(flat, self.workers)
        below = self.is_chain(p) and any(bound) and bound < self.processes[u].since[p]
        return below and all(each.bound != bound for each in self.options(flat))

    def restore(self, u: int, p: int, bound: Bound | None, dead: bool) -> None:
        process = self.processes[u]
        if bound is None:
            return
        flat = p * self.workers + u
        if dead:
            process.since[p] = bound
        if bound < process.since[p] or dead:
            saved = next((each for each in self.monitor.chains.get(flat, ()) if each.bound == bound), None)
            if saved is not None:
                process.state[p] = {t: list(rows) for t, rows in saved.state.items()}
                if p == 0:
                    process.ends, process.begin = list(saved.ends), bound[0]
                for channel, messages in saved.ahead.items():
                    process.ahead[channel] = list(messages)
            else:
                assert not self.is_chain(p) or not any(bound), "no such checkpoint"
        process.state[p] = {t: rows for t, rows in process.state[p].items() if t < bound}
        process.fired[p] = set(process.state[p])
        process.acted[p] = process.before[p] = bound
        into = [e for e, edge in enumerate(self.program.edges) if edge.target == p]
        greatest = {e: self.last(bound) for e in into} if dead else process.delivered[p]
        process.delivered[p] = {e: min(t, self.last(bound)) for e, t in greatest.items() if any(bound)}
        if p == 0:
            process.ends = process.ends[: bound[0]]
            process.over = len(process.ends) >= self.epochs
        for e in self.out[p]:
            index = next(i for i, each in enumerate(self.physical) if each[0] == e)
            lost = image(self.edges[index].backwards, bound)
            process.sent[p] = {at: t for at, t in process.sent[p].items() if at != e}
            if any(lost):
                process.sent[p][e] = self.last(lost)
            process.kept.undo(e, bound)
            for v in range(self.workers):
                process.ahead[e, v] = [m for m in process.ahead[e, v] if m.event < bound]
                if dead:
                    process.kept.forget((e, v), lost)
        for (e, _), known in process.taken.items():
            if self.program.edges[e].target == p:
                for each in [each for each in known if each[1] >= bound]:
                    del known[each]

    def last(self, bound: Bound) -> Time:
        """A time that none before `bound` is greater than."""
        return (*bound[:-1], bound[-1] - 1) if bound[-1] > 0 else (bound[0] - 1, *(10**6,) * (len(bound) - 1))

    def refill(self, u: int, decision: list[list[Bound | None]], dead: set[int]) -> None:
        """Queues of worker u as receiver are pruned, and as a sender it sends again what it holds."""
        process = self.processes[u]
        for (e, sender), queue in process.queues.items():
            edge = self.program.edges[e]
            info = edge.info(kept=self.keeps(e, sender, u) and sender not in dead)
            ends = decision[sender][edge.source], decision[u][edge.target]
            lives = sender not in dead
            queue[:] = [m for m in queue if u not in dead and stays(info, *ends, lives, m.event, m.time)]
        for e, edge in enumerate(self.program.edges):
            for v in range(self.workers):
                ends = decision[u][edge.source], decision[v][edge.target]
                lives = u not in dead
                if edge.ahead:
                    messages: Iterable[Message] = list(process.ahead[e, v])
                elif ends[1] is None:
                    messages = ()
                else:
                    messages = [each[2] for each in process.kept.wanted((e, v), ends[1])]
                info = edge.info(kept=self.keeps(e, u, v))
                again = [m for m in messages if goes_again(info, *ends, lives, m.event, m.time)]
                self.flight[e, u, v].extend(again)

    # ------------------------------------------------------------------------------------------ the run

    def run(self) -> None:
        for _ in range(60_000):
            if self.faults and self.random.random() < 0.012:
                self.faults -= 1
                many = self.random.choice([1, 1, 1, 2]) if self.workers > 2 else 1
                self.fail(set(self.random.sample(range(self.workers), many)))
            if self.step():
                return
        raise AssertionError("no progress")

    def step(self) -> bool:
        """Take a random step. True if all is published."""
        random, operators = self.random, self.program.operators
        moving = [key for key, messages in self.flight.items() if messages]
        queued = [(u, key) for u, each in enumerate(self.processes) for key, queue in each.queues.items() if queue]
        w = min(self.monitor.low[: self.workers])[0]
        reading = [u for u, each in enumerate(self.processes) if not each.over and len(each.ends) < w + 6]
        kind = random.random()
        if moving and kind < 0.35:
            e, u, v = random.choice(moving)
            self.processes[v].queues[e, u].append(self.flight[e, u, v].popleft())
        elif queued and kind < 0.7:
            self.take(*random.choice(queued))
        elif reading and kind < 0.8:
            self.read(random.choice(reading))
        else:
            least = self.frontiers()
            ready = [
                (u, p, t)
                for u, each in enumerate(self.processes)
                for p, operator in enumerate(operators)
                if operator.work is not None
                for t in each.state[p]
                if t not in each.fired[p] and t < least[u, p]
            ]
            if ready:
                for each in random.sample(ready, random.randrange(1, len(ready) + 1)):
                    self.notify(*each)
            elif not (moving or queued or reading) or random.random() < 0.3:
                return self.housekeeping()
        return False

    def housekeeping(self) -> bool:
        random = self.random
        u = random.randrange(self.workers)
        if self.program.clock:
            v, some = random.randrange(self.workers), random.random() < 0.7
            told = random.randrange(len(self.processes[u].ends) + 1) if some else 0
            self.processes[v].known.hear(self.own_ends(u, told))
        self.frontiers()
        for e, edge in enumerate(self.program.edges):
            if (
                edge.spread and self.forgetful.random() < 0.5
            ):  # what stays on its worker is kept until it is complete there
                self.processes[u].kept.forget((e, u), self.upto(u, edge.target))
        count = len(self.program.operators)
        done = min(min(self.upto(v, p)[0] for p in range(count)) for v in range(self.workers))
        self.save(u, min(done, self.epochs))
        if random.random() < 0.5:
            self.raise_watermarks()
        return len(self.published) == self.epochs * self.workers

    def output(self) -> Mapping[Any, Any]:
        """The output that is to be the same as without failures."""
        if self.program.clock:  # each row once on each of two ways, in any epoch, but in the same
            found = Counter((t, row[2:]) for (t, _), rows in self.published.items() for row in rows)
            return Counter((row, count) for (_, row), count in found.items())
        if any(not operator.repeats for operator in self.program.operators):
            told: dict[Any, set[Any]] = defaultdict(set)
            for (t, _), rows in self.published.items():
                for u in range(self.workers):
                    told[t, u].add(tuple(row for row in rows if row[2] == u))
            return {at: len(each) for at, each in told.items()}
        total: dict[Time, list[Row]] = defaultdict(list)
        for (t, _), rows in self.published.items():
            total[t] = sorted(total[t] + rows)
        return total


def check(name: str, seed: int, budget: int = UNLIMITED) -> Job:
    """One history under failures. Raises AssertionError if anything is lost, comes twice, or differs."""
    workers, epochs = 2 + seed % 3, 3 + seed % 6
    calm = Job(PROGRAMS[name], workers, epochs, seed, 0)
    calm.run()
    job = Job(PROGRAMS[name], workers, epochs, seed, 1 + seed % 5, budget)
    job.run()
    assert job.output() == calm.output(), "the output differs"
    return job
