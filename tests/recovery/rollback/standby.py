"""A model of policies that save nothing of a processor: one that goes on empty, and one that is done again from senders.

On each worker a source S, behind an exchange an operator A under the policy, and behind A an operator T whose totals are saved,
with an output that is published once. A random schedule reads, delivers, completes, reports, saves and kills: one worker or
several, also while work is done again. Decisions are the greatest solution of the rules, written out here, by descent.

- `amnesia`: A comes back empty. An output at a time that was not declared incomplete must be that of a run without failures.
- `upstream`: S keeps what it sent since `needs(f)`, and A's state at f is done again from that. Every output must be right.

What is not part of the model: times of more than one coordinate, budgets of memory, and sources that do not repeat.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

Rows: TypeAlias = list[tuple[int, int]]
KEYS, NEVER = 5, 1 << 30


class Wrong(Exception):
    """Raised for an output, or a decision, that a rule forbids."""


@dataclass(frozen=True)
class Shape:
    """Program and policy of a model.

    `lasts`: epochs for which a record counts in A's state: 0 for none, NEVER for totals. `spread`: A sends to all workers.
    """

    policy: str
    lasts: int
    spread: bool
    totals: bool = True
    """True if T adds up what it is given; otherwise it passes that on."""


@dataclass
class Process:
    """What a worker holds in memory. `since`: where A came back without its state."""

    read: int = 0
    a: dict[int, Rows] = field(default_factory=lambda: defaultdict(list))
    t: dict[int, Rows] = field(default_factory=lambda: defaultdict(list))
    a_done: int = 0
    t_done: int = 0
    since: int = 0
    kept: dict[tuple[str, int], list[tuple[int, Rows]]] = field(default_factory=lambda: defaultdict(list))
    """Messages kept for a receiver: (time, rows), by edge and worker."""
    covers: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))


class Model:
    """Job of several workers. `without`: the rule that is left out."""

    def __init__(self, shape: Shape, seed: int, faults: int, without: str = "") -> None:
        random = Random(seed)
        self.shape, self.without, self.faults = shape, without, faults
        self.count, self.epochs = random.randint(1, 3), random.randint(4, 9)
        self.data = [
            [[random.randrange(KEYS) for _ in range(random.randrange(4))] for _ in range(self.epochs)]
            for _ in range(self.count)
        ]
        self.random, self.often = Random(seed * 31 + 7), (0.02, 0.2)[seed % 2]
        self.all = range(self.count)
        self.of = [Process() for _ in self.all]
        self.flight: list[tuple[str, int, int, int, Rows]] = []
        """Messages under way: edge, sender, receiver, time, rows."""
        self.reported, self.reported_a = [0] * self.count, [0] * self.count
        """What a worker is known to have completed, and what A is, which also follows from a decision."""
        self.saved_s = [[0] for _ in self.all]
        self.saved_t: list[dict[int, dict[int, Rows]]] = [{0: {}} for _ in self.all]
        self.low_s, self.low_a, self.low_t = ([0] * self.count for _ in range(3))
        self.has_a, self.has_t = [0] * self.count, [0] * self.count
        """Bounds at which receivers came back last: what they have is not sent to them again."""
        self.wants_a = [0] * self.count
        """Bounds from which on A is sent what is done again: before the one that it came back at, if it has no state there."""
        self.published: dict[tuple[int, int], Rows] = {}
        self.gaps: list[tuple[int, int]] = []
        """Declared incomplete times of the output: from, and before."""
        self.rounds = 0

    # ------------------------------------------------------------------------------------------ work

    def needs(self, bound: int) -> int:
        """Bound before which no input counts in A's state at `bound`, or later."""
        if self.without == "needs":
            return bound
        return max(0, bound - self.shape.lasts + 1) if self.shape.lasts else bound

    def rows_of_a(self, u: int, time: int) -> Rows:
        state, counts = self.of[u].a, Counter[int]()
        first = time - self.shape.lasts + 1 if self.shape.lasts else time
        for at, rows in state.items():
            if max(first, 0) <= at <= time:
                counts.update(key for key, _ in rows)
        return sorted((key, counts[key]) for key in {key for key, _ in state.get(time, [])})

    def rows_of_t(self, u: int, time: int) -> Rows:
        state = self.of[u].t
        if not self.shape.totals:
            return sorted(state.get(time, []))
        sums = Counter[int]()
        for at, rows in state.items():
            for key, value in rows if at <= time else ():
                sums[key] += value
        return sorted((key, sums[key]) for key in {key for key, _ in state.get(time, [])})

    def targets(self, edge: str, u: int) -> range:
        return self.all if edge == "sa" or self.shape.spread else range(u, u + 1)

    def send(self, edge: str, u: int, time: int, rows: Rows) -> None:
        parts: dict[int, Rows] = defaultdict(list)
        for key, value in rows:
            parts[(key * 7 + 3) % self.count if len(self.targets(edge, u)) > 1 else u].append((key, value))
        for v, part in sorted(parts.items()):
            if edge == "sa" or v != u:
                self.of[u].kept[edge, v].append((time, part))
            if time >= (self.wants_a[v] if edge == "sa" else self.has_t[v]) or (edge == "at" and v == u):
                self.flight.append((edge, u, v, time, part))

    def steps(self) -> list[tuple[str, int]]:
        found = [("deliver", at) for at in range(len(self.flight))]
        for u, own in enumerate(self.of):
            if own.read < self.epochs and own.read < min(self.low_t) + 5:
                found.append(("read", u))
            time = own.a_done
            if time < min(each.read for each in self.of) and not self.waits("sa", u, time):
                found.append(("a", u))
            time = own.t_done
            senders = self.all if self.shape.spread else (u,)
            if time < min(self.of[v].a_done for v in senders) and not self.waits("at", u, time):
                found.append(("t", u))
            if self.reported[u] < min(own.a_done, own.t_done) or self.reported_a[u] < own.a_done:
                found.append(("report", u))
            if self.saved_s[u][-1] < (at := min(self.reported)) and (own.read >= at or self.without == "positions"):
                found.append(("save s", u))
            if max(self.saved_t[u]) < at:
                found.append(("save t", u))
        return found

    def waits(self, edge: str, u: int, time: int) -> bool:
        return any(each[0] == edge and each[2] == u and each[3] <= time for each in self.flight)

    def do(self, what: str, u: int) -> None:
        if what == "deliver":
            edge, _, v, time, rows = self.flight.pop(u)
            state = self.of[v].a if edge == "sa" else self.of[v].t
            state[time] = state[time] + rows
            return
        own = self.of[u]
        if what == "read":
            time, own.read = own.read, own.read + 1
            self.send("sa", u, time, [(key, 1) for key in self.data[u][time]])
        elif what == "a":
            own.a_done += 1
            if own.a_done > self.has_a[u] or self.without == "silence":
                self.send("at", u, own.a_done - 1, self.rows_of_a(u, own.a_done - 1))
        elif what == "t":
            own.t_done += 1
        elif what == "report":
            self.reported[u] = min(own.a_done, own.t_done)
            self.reported_a[u] = max(self.reported_a[u], own.a_done)
        elif what == "save s":
            self.saved_s[u].append(min(self.reported))
        elif what == "save t":
            at = min(self.reported)
            self.saved_t[u][at] = {time: list(rows) for time, rows in own.t.items() if time < at}
        self.raise_low()

    # ------------------------------------------------------------------------------------------ decisions

    def raise_low(self) -> None:
        """W: the greatest solution of what is durable or reported, and what follows from its rise."""
        s = [chain[-1] for chain in self.saved_s]
        t = [max(chain) for chain in self.saved_t]
        a = list(self.reported_a)
        while True:
            before = (*s, *a, *t)
            for u in self.all:
                senders = self.all if self.shape.spread else (u,)
                t[u] = max(at for at in self.saved_t[u] if at <= min(t[u], *(a[v] for v in senders)))
                if self.shape.policy == "amnesia":
                    a[u] = min(a[u], *s)  # and of T nothing: what A has sent is nobody's concern
                    most = min(a)
                else:
                    a[u] = min(a[u], *(t[v] for v in self.targets("at", u)))
                    most = min(map(self.needs, a))
                s[u] = max(at for at in self.saved_s[u] if at <= most)
            if (*s, *a, *t) == before:
                break
        for u in self.all:
            for time in range(self.low_t[u], t[u]):
                self.publish(u, time, self.saved_t[u][max(self.saved_t[u])])
        self.low_s, self.low_a, self.low_t = s, a, t
        for own in self.of:
            for (edge, v), messages in own.kept.items():
                upto = t[v] if edge == "at" else self.needs(a[v]) if self.shape.policy == "upstream" else a[v]
                own.covers[edge, v] = max(own.covers[edge, v], upto)
                messages[:] = [each for each in messages if each[0] >= upto]

    def publish(self, u: int, time: int, saved: dict[int, Rows]) -> None:
        own = Process(t=defaultdict(list, saved))
        now, self.of[u] = self.of[u], own
        self.published[u, time] = self.rows_of_t(u, time)
        self.of[u] = now

    def fail(self, dead: set[int]) -> None:
        """One round: the solution, its gaps, and what it takes back."""
        self.rounds += 1
        empty = set(dead)
        if self.without != "unfinished":
            empty |= {
                u for u, own in enumerate(self.of) if own.a_done < self.has_a[u]
            }  # it has not got all of its state yet
        for edge, u, v, time, rows in self.flight:
            if v not in dead and u not in dead:  # links are drained
                state = self.of[v].a if edge == "sa" else self.of[v].t
                state[time] = state[time] + rows
        s, a, t = self.solve(dead, empty)
        for u in self.all:
            if s[u] < self.low_s[u] or a[u] < self.low_a[u] or t[u] < self.low_t[u]:
                raise Wrong(f"worker {u} comes back at {s[u]}, {a[u]}, {t[u]}, below what it was never to go below")
        if self.shape.policy == "amnesia":
            self.declare(dead, a, t)
        self.restore(dead, empty, s, a, t)

    def solve(self, dead: set[int], empty: set[int]) -> tuple[list[int], list[int], list[int]]:
        s = [self.saved_s[u][-1] if u in dead else own.read for u, own in enumerate(self.of)]
        a = [self.reported_a[u] if u in empty else own.a_done for u, own in enumerate(self.of)]
        t = [max(self.saved_t[u]) if u in dead else own.t_done for u, own in enumerate(self.of)]
        while True:
            before = (*s, *a, *t)
            for u in self.all:
                self.lower(u, dead, empty, s, a, t)
            if (*s, *a, *t) == before:
                return s, a, t

    def lower(self, u: int, dead: set[int], empty: set[int], s: list[int], a: list[int], t: list[int]) -> None:
        amnesia = self.shape.policy == "amnesia"
        senders = self.all if self.shape.spread else (u,)
        # φ: between workers a receiver of what repeats may be ahead; of S on its own worker only what is done again silently.
        if amnesia:
            a[u] = min(a[u], s[u])
            t[u] = min(t[u], *(a[v] for v in senders))
        else:
            t[u] = min(t[u], a[u])
        # D̄: what is kept nowhere must be had by its receiver, or, of S, counts in its state no more.
        for v in self.all:
            wants = self.needs(a[v]) if not amnesia and v in empty else a[v]
            forgot = s[u] if u in dead or self.of[u].covers["sa", v] > wants else 0
            if forgot > wants:
                s[u] = wants
        for v in self.targets("at", u):
            keeps = u not in dead and v != u and self.of[u].covers["at", v] <= t[v]
            if keeps or (amnesia and u in dead and self.without != "no concern"):
                continue
            if amnesia and self.without == "survivors":
                continue
            a[u] = min(a[u], max(t[v], self.low_a[u]) if amnesia and u not in dead else t[v])
        if u in dead:
            s[u] = max(at for at in self.saved_s[u] if at <= s[u])
            t[u] = max(at for at in self.saved_t[u] if at <= t[u])

    def declare(self, dead: set[int], a: list[int], t: list[int]) -> None:
        """Times of the output that may lack something from now on."""
        ends = NEVER if self.shape.totals and self.without != "ends" else None
        for u in self.all:
            lost = (u in dead and self.without != "state") or a[u] < self.of[u].since
            if self.shape.lasts > 1 and a[u] > 0 and lost:
                self.gaps.append((a[u], ends or (NEVER if self.shape.lasts == NEVER else a[u] + self.shape.lasts - 1)))
            for v in self.targets("at", u):
                keeps = u not in dead and v != u and self.of[u].covers["at", v] <= t[v]
                if t[v] < a[u] and not keeps and (u in dead or t[v] < self.low_a[u]) and self.without != "messages":
                    self.gaps.append((t[v], ends or a[u]))

    def restore(self, dead: set[int], empty: set[int], s: list[int], a: list[int], t: list[int]) -> None:
        amnesia = self.shape.policy == "amnesia"
        self.wants_a = [self.needs(a[u]) if u in empty and not amnesia else a[u] for u in self.all]
        if self.without == "replay":
            self.wants_a = list(a)
        for u in self.all:
            if u in dead:
                self.of[u] = own = Process(since=a[u])
                own.t.update(self.saved_t[u][t[u]])
                for v in self.all:
                    own.covers["sa", v], own.covers["at", v] = s[u], a[u]
            own = self.of[u]
            own.since = min(own.since, a[u])
            own.read, own.a_done, own.t_done = s[u], self.wants_a[u], t[u]
            kept_a = {} if u in empty else {time: rows for time, rows in own.a.items() if time < a[u]}
            own.a = defaultdict(list, kept_a)
            own.t = defaultdict(list, {time: rows for time, rows in own.t.items() if time < t[u]})
            for (edge, _), messages in own.kept.items():
                sender = s[u] if edge == "sa" else a[u]
                messages[:] = [each for each in messages if each[0] < sender]
            self.saved_s[u] = [at for at in self.saved_s[u] if at <= s[u]]
            self.saved_t[u] = {at: rows for at, rows in self.saved_t[u].items() if at <= t[u]}
            self.reported[u], self.reported_a[u] = min(self.reported[u], a[u], t[u]), a[u]
        self.has_a, self.has_t = list(a), list(t)
        self.flight = []
        for u, own in enumerate(self.of):
            for (edge, v), messages in own.kept.items():
                wants = t[v] if edge == "at" else self.wants_a[v]
                for time, rows in messages:
                    if time >= wants:
                        self.flight.append((edge, u, v, time, rows))

    # ------------------------------------------------------------------------------------------ the whole

    def run(self) -> dict[int, Rows]:
        """Published rows of each time, from all workers."""
        for _ in range(20_000):
            found = self.steps()
            if not found:
                break
            if self.faults and self.random.random() < self.often:
                self.faults -= 1
                self.fail(set(self.random.sample(self.all, self.random.randint(1, self.count))))
                continue
            self.do(*self.random.choice(found))
        if min(self.low_t) < self.epochs:
            raise Wrong(f"it stands still at {self.low_t} of {self.epochs}")
        return {time: sorted(row for u in self.all for row in self.published[u, time]) for time in range(self.epochs)}


def check(shape: Shape, seed: int, without: str = "") -> int:
    """Run one history; return how many times are other than in a run without failures.

    Raises:
        Wrong: if one of them was not declared.
    """
    right = Model(shape, seed, 0).run()
    model = Model(shape, seed, 1 + seed % 5, without)
    found = model.run()
    other = [time for time in right if found[time] != right[time]]
    for time in other:
        if not any(begin <= time < end for begin, end in model.gaps):
            raise Wrong(f"seed {seed}: at time {time} {found[time]}, and without failures {right[time]}: {model.gaps}")
    return len(other)
