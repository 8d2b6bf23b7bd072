"""A model of passive standby: checkpoints in the memory of mates, with two watermarks.

On each worker a source, and behind an exchange totals that are saved by increments and published. A random schedule reads,
delivers, completes, cuts, sends increments to mates, takes their acknowledgements, makes durable, begins mates anew, and kills
workers, mates and both, also while work is done again. Decisions are the greatest solution of the rules, by descent.

W is the last cut that is durable on all workers: sources are acknowledged by it. W₁ counts what mates have acknowledged as
well: senders trim what they keep by it, and output is published by it. Every output must be that of a run without failures,
published again only if a worker has died without a mate that had all, and no source may be asked for what it was acknowledged.

What is not part of the model: times of more than one coordinate, other policies, and messages into later times.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

Rows: TypeAlias = list[tuple[int, int]]
Increment: TypeAlias = dict[int, Rows]
"""Rows of the times of a cut that the one before lacked."""
KEYS = 5


class Wrong(Exception):
    """Raised for an output, a decision or a read that a rule forbids."""


@dataclass
class Mate:
    """Memory of a mate, and what is on its way there."""

    has: dict[int, Increment] = field(default_factory=dict)
    coming: list[tuple[int, Increment]] = field(default_factory=list)
    complete: bool = False
    """True once it has all that had been made before it began."""


@dataclass
class Process:
    """What a worker holds in memory; `since`: the cut that it was restored at."""

    read: int = 0
    done: int = 0
    since: int = 0
    state: dict[int, Rows] = field(default_factory=lambda: defaultdict(list))
    waiting: dict[int, Increment] = field(default_factory=dict)
    """Increments that are not durable."""
    kept: dict[int, list[tuple[int, Rows]]] = field(default_factory=lambda: defaultdict(list))
    covers: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    last: int = 0
    """Last cut."""


class Model:
    """Job of several workers. `without`: the rule that is left out."""

    def __init__(self, workers: int, epochs: int, seed: int, faults: int, without: str = "") -> None:
        data = Random(seed)
        self.workers, self.epochs, self.without = range(workers), epochs, without
        self.data = [
            [[(data.randrange(KEYS), data.randrange(9)) for _ in range(data.randrange(4))] for _ in range(epochs)]
            for _ in self.workers
        ]
        self.random, self.faults = Random(f"{seed} {faults}"), faults
        self.of = [Process() for _ in self.workers]
        self.mates: list[Mate | None] = [None for _ in self.workers]
        self.durable: list[dict[int, Increment]] = [{} for _ in self.workers]
        self.held = [0 for _ in self.workers]
        """Bounds at which the workers came back: they have all before."""
        self.flight: list[tuple[int, int, int, Rows]] = []
        """Messages on their way: sender, receiver, time, rows."""
        self.inbox: list[list[tuple[int, int, Rows]]] = [[] for _ in self.workers]
        self.low = self.memory = 0
        """W and W₁."""
        self.published: dict[tuple[int, int], Rows] = {}
        self.again = self.brought = self.pairs = 0
        """Outputs published twice; take-overs with what no disk had; deaths without a complete mate."""

    # Rules

    def _options(self, worker: int, mate: bool) -> list[int]:
        """Cuts that a worker can be restored to, from its disk and perhaps its mate."""
        there = self.mates[worker]
        more = there.has if mate and there is not None else {}
        return sorted({0, *self.durable[worker], *more})

    def _raise(self) -> None:
        counted = [set(self._options(w, mate=self.without == "W counts memory")) for w in self.workers]
        self.low = max(self.low, *(cut for cut in set.intersection(*counted)))
        both = []
        for w in self.workers:
            mate = self.mates[w]
            counts = mate is not None and mate.complete
            found = set(self._options(w, mate=counts))
            if self.without == "acknowledged by mates" and mate is not None:
                found |= {cut for cut, _ in mate.coming} | set(mate.has)
            both.append(found)
        self.memory = max(self.low, *set.intersection(*both))
        for process in self.of:
            for receiver in self.workers:
                process.covers[receiver] = max(process.covers[receiver], self.memory)
                process.kept[receiver] = [m for m in process.kept[receiver] if m[0] >= process.covers[receiver]]
        for w, process in enumerate(self.of):
            for time in range(self.memory):
                self._publish(w, time, process)

    def _publish(self, worker: int, time: int, process: Process) -> None:
        rows = self._totals(process, time)
        if (worker, time) not in self.published:
            self.published[worker, time] = rows
        elif self.published[worker, time] != rows:
            raise Wrong(f"worker {worker} published {self.published[worker, time]} at {time}, and now {rows}")

    def _totals(self, process: Process, time: int) -> Rows:
        keys = sorted({key for key, _ in process.state.get(time, [])})
        return [(k, sum(v for t in range(time + 1) for x, v in process.state.get(t, []) if x == k)) for k in keys]

    # Steps

    def _steps(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = [("deliver", i) for i in range(len(self.flight))]
        for w, process in enumerate(self.of):
            if process.read < self.epochs and process.read < self.low + 8:
                found.append(("read", w))
            found += [("take", w)] * bool(self.inbox[w])
            if process.done < self.epochs and all(other.read > process.done for other in self.of):
                waits = any(m[1] == w and m[2] <= process.done for m in self.flight)
                if not waits and not any(m[1] <= process.done for m in self.inbox[w]):
                    found.append(("complete", w))
            mate = self.mates[w]
            if mate is not None and mate.coming:
                found.append(("hold", w))
            if mate is None and self.random.random() < 0.2:
                found.append(("mate", w))
        if min(p.done for p in self.of) > min(p.last for p in self.of):
            found.append(("cut", 0))
        seldom = not found or self.random.random() < 0.1
        return found + [("flush", w) for w, process in enumerate(self.of) if process.waiting and seldom]

    def _do(self, step: str, at: int) -> None:
        if step == "deliver":
            sender, receiver, time, rows = self.flight.pop(at)
            self.inbox[receiver].append((sender, time, rows))
            return
        process, mate = self.of[at], self.mates[at]
        if step == "read":
            if process.read < self.low:
                raise Wrong(f"worker {at} reads epoch {process.read} again, which was acknowledged")
            time, process.read = process.read, process.read + 1
            for receiver in self.workers:
                rows = [row for row in self.data[at][time] if row[0] % len(self.of) == receiver]
                if rows:
                    process.kept[receiver].append((time, rows))
                    if time >= self.held[receiver] or self.without == "suppression":
                        self.flight.append((at, receiver, time, rows))
        elif step == "take":
            _, time, rows = self.inbox[at].pop(self.random.randrange(len(self.inbox[at])))
            if time < process.done:
                raise Wrong(f"worker {at} is given rows at {time}, which is complete")
            process.state[time] += rows
        elif step == "complete":
            process.done += 1
        elif step == "cut":
            cut = min(p.done for p in self.of)
            for w, each in enumerate(self.of):
                if cut > each.last:
                    increment = {t: sorted(each.state[t]) for t in range(each.last, cut) if t in each.state}
                    each.waiting[cut], each.last = increment, cut
                    if (there := self.mates[w]) is not None:
                        there.coming.append((cut, increment))
                    else:
                        self._flush(w)  # without a mate all is durable
        elif step == "flush":
            self._flush(at)
        elif step == "mate":
            self.mates[at] = new = Mate()
            new.coming = [] if self.without == "all for a new mate" else sorted(process.waiting.items())
            new.complete = not new.coming
        elif step == "hold" and mate is not None:
            cut, increment = mate.coming.pop(0)
            mate.has[cut] = increment
            mate.complete = mate.complete or not mate.coming
        self._raise()

    def _flush(self, worker: int) -> None:
        waiting = self.of[worker].waiting
        cuts = sorted(waiting)[-1:] if self.without == "all since the last durable" else sorted(waiting)
        self.durable[worker].update({cut: waiting[cut] for cut in cuts})
        waiting.clear()

    # Failures

    def _fail(self, dead: set[int], mates: set[int]) -> None:
        for sender, receiver, time, rows in self.flight:  # links are drained
            if sender not in dead and receiver not in dead:
                self.inbox[receiver].append((sender, time, rows))
        self.flight = []
        for w in mates:
            self.mates[w] = None
            if w not in dead:
                self._flush(w)
        options: dict[int, list[int]] = {}
        for w in self.workers:
            mate = self.mates[w]
            if w in dead:
                lost = mate is None or not mate.complete
                self.pairs += lost
                options[w] = self._options(w, mate=True)
                self.brought += mate is not None and bool(set(mate.has) - set(self.durable[w]))
            else:
                options[w] = sorted({0, *self.durable[w], *self.of[w].waiting})
        bounds, gone = self._descend(dead, options)
        if not self.pairs and any(bounds[w] < self.memory for w in self.workers):
            raise Wrong(f"{bounds} is below W₁, {self.memory}, and mates had all")
        if min(bounds) < self.low:
            raise Wrong(f"{bounds} is below W, {self.low}")
        self.memory = self.low
        for w in self.workers:
            self._restore(w, bounds[w], from_cuts=w in gone, died=w in dead)
        for process in self.of:  # what receivers lack, once more
            process.kept = defaultdict(
                list, {r: [m for m in ms if m[0] < process.read] for r, ms in process.kept.items()}
            )
        for s, process in enumerate(self.of):
            for r, messages in process.kept.items():
                self.flight += [(s, r, time, rows) for time, rows in messages if time >= bounds[r]]
        self._raise()

    def _descend(self, dead: set[int], options: dict[int, list[int]]) -> tuple[list[int], set[int]]:
        """Greatest bounds, and the workers that are restored from cuts."""
        bounds = [options[w][-1] if w in dead else self.of[w].done for w in self.workers]
        gone = set(dead)
        while True:
            short = [
                (s, bounds[r])
                for s in self.workers
                for r in self.workers
                if (bounds[s] if s in gone else min(bounds[s], self._covered(s, r))) > bounds[r]
            ]
            if not short:
                return bounds, gone
            for sender, bound in short:
                if sender in gone or bound < self.of[sender].since:
                    gone.add(sender)
                    bounds[sender] = max(cut for cut in options[sender] if cut <= bound)
                else:
                    bounds[sender] = min(bounds[sender], bound)

    def _covered(self, sender: int, receiver: int) -> int:
        return 0 if self.without == "coverage" else self.of[sender].covers[receiver]

    def _restore(self, worker: int, bound: int, from_cuts: bool, died: bool) -> None:
        self.inbox[worker], self.held[worker] = [], bound
        old, mate = self.of[worker], self.mates[worker]
        if died:
            held = dict(mate.has) if mate is not None else {}
            self.mates[worker] = None  # it is the worker now
            old = Process(waiting={cut: each for cut, each in held.items() if cut not in self.durable[worker]})
        found = {cut: each for cut, each in (self.durable[worker] | old.waiting).items() if cut <= bound}
        if from_cuts:
            new = Process(read=bound, done=bound, since=bound)
            for increment in found.values():
                for time, rows in increment.items():
                    new.state[time] = list(rows)
            for receiver in self.workers:
                new.covers[receiver] = bound
        else:
            new = old
            new.state = defaultdict(list, {t: rows for t, rows in old.state.items() if t < bound})
            new.read, new.done = min(old.read, bound), bound
        new.waiting = {cut: each for cut, each in old.waiting.items() if cut <= bound}
        new.last = max(found, default=0)
        self.durable[worker] = {cut: each for cut, each in self.durable[worker].items() if cut <= bound}
        if (there := self.mates[worker]) is not None:
            there.coming = [(cut, each) for cut, each in there.coming if cut <= bound]
            there.has = {cut: each for cut, each in there.has.items() if cut <= bound}
        self.of[worker] = new

    def run(self) -> dict[int, Rows]:
        """Run to the end; output by time."""
        count = 0
        while steps := self._steps():
            count += 1
            if count > 20_000:
                raise Wrong("no progress")
            if self.faults and self.random.random() < 0.03:
                self.faults -= 1
                dead = set(self.random.sample(self.workers, self.random.choice((0, 1, 1, 2))))
                mates = {w for w in self.workers if self.random.random() < 0.2}
                self._fail(dead, mates)
                continue
            self._do(*self.random.choice(steps))
        if self.low < self.epochs:
            raise Wrong(f"W stands still at {self.low} of {self.epochs}")
        return {t: sorted(row for w in self.workers for row in self.published[w, t]) for t in range(self.epochs)}


def check(seed: int, without: str = "") -> Model:
    """Compare a history with failures to one without; raises Wrong."""
    workers, epochs = 2 + seed % 3, 4 + seed % 6
    model = Model(workers, epochs, seed, 1 + seed % 6, without)
    if (found := model.run()) != (right := Model(workers, epochs, seed, 0).run()):
        raise Wrong(f"{found}, where it is {right}")
    return model
