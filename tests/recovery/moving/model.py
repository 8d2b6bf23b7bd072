"""A model of jobs at rest that go on with other numbers of workers, in one thread, held to runs without any failure.

Partitions of a source belong to workers by the layout, keys too. Two groups are cut at epochs of their own; between them
messages are logged, and one exchange sends an epoch ahead. All workers die; then the journals of the old layout become those
of a new one, or of the same. Each rule can be left out: see `RULES`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

RULES = {
    "one bound": "all processors of an operator come back at one bound",
    "every W": "that bound holds the W of every worker, or nothing moves",
    "divided anew": "messages that were sent ahead go to the owners of their keys now",
    "logs move": "messages that were logged for times that their receivers have not kept are sent again",
    "by key": "state goes to the owner of its key, whatever worker's journal it is in",
    "old names": "what was staged is published by the names of the workers that staged it",
    "before the commit": "what was staged is published before the old journals are given up",
    "requests": "what was asked for at a later time is asked for again",
}

PARTITIONS, KEYS = 4, 5
Row: TypeAlias = tuple[int, int]
Message: TypeAlias = tuple[int, int, tuple[Row, ...]]
"""Time of its event, its own time, rows."""


def owner(key: int, workers: int) -> int:
    return (key * 7 + 3) % workers


@dataclass
class Worker:
    """One worker: a source and a total by key (first group), and behind a log a total with timers, and a sink (second)."""

    read: int = 0
    totals: dict[int, dict[int, int]] = field(default_factory=dict)
    """What came to the first total, by time and key."""
    first: int = 0
    second: int = 0
    """Epochs that the groups have completed."""
    kept: dict[int, dict[int, int]] = field(default_factory=dict)
    timers: dict[int, set[int]] = field(default_factory=dict)
    """Keys to be told once more, by epoch."""
    asked: set[int] = field(default_factory=set)
    """Epochs at which a notification was asked for."""
    staged: dict[int, list[Row]] = field(default_factory=dict)
    log: list[tuple[int, Message]] = field(default_factory=list)
    """Messages between the groups, each with its receiver."""
    shuffled: dict[int, list[Row]] = field(default_factory=dict)
    inbox: list[Message] = field(default_factory=list)
    ahead: list[tuple[int, Message]] = field(default_factory=list)
    """Messages within the first group for times beyond their events', each with its receiver."""


def add(into: dict[int, dict[int, int]], time: int, rows: Iterable[Row]) -> None:
    held = into.setdefault(time, {})
    for key, n in rows:
        held[key] = held.get(key, 0) + n


def total(of: dict[int, dict[int, int]], upto: int, key: int) -> int:
    return sum(held.get(key, 0) for time, held in of.items() if time <= upto)


class Job:
    """A job of `workers` workers over `epochs` epochs, without the rules in `without`."""

    def __init__(self, seed: int, workers: int, epochs: int, without: Collection[str] = ()) -> None:
        random = Random(seed)
        self.data = [
            [[random.randrange(KEYS) for _ in range(random.randrange(4))] for _ in range(epochs)]
            for _ in range(PARTITIONS)
        ]
        self.epochs, self.without = epochs, without
        self.workers = [Worker() for _ in range(workers)]
        self.cuts: list[list[int]] = [[0] * workers, [0] * workers]
        """Epochs before the last cut, by group and worker."""
        self.published: dict[tuple[int, int], list[Row]] = {}
        """Rows by epoch and name of a worker."""
        self.moves = 0

    # One epoch after the other, group by group and worker by worker

    def step(self, random: Random) -> bool:
        """Do something that can be done; False if all is done."""
        choices: list[tuple[str, int]] = []
        count = len(self.workers)
        for w, worker in enumerate(self.workers):
            if worker.read < self.epochs:
                choices.append(("read", w))
            if worker.first < min(each.read for each in self.workers):
                choices.append(("first", w))
            if worker.second < min(each.first for each in self.workers):
                choices.append(("second", w))
        done = [min(each.first for each in self.workers), min(each.second for each in self.workers)]
        choices += [("cut", group) for group in range(2) if done[group] > min(self.cuts[group])]
        choices += [("publish", w) for w in range(count) if self._unpublished(w)]
        if not choices:
            return False
        what, which = random.choice(choices)
        if what == "cut":  # what is announced to all is written by each for itself
            for w in range(count):
                if random.random() < 0.7 or len(choices) == 1:
                    self.cuts[which][w] = max(self.cuts[which][w], done[which])
        else:
            getattr(self, f"_{what}")(which)
        return True

    def _read(self, w: int) -> None:
        worker, count = self.workers[w], len(self.workers)
        time, worker.read = worker.read, worker.read + 1
        for p in range(w, PARTITIONS, count):
            for key in self.data[p][time]:
                add(self.workers[owner(key, count)].totals, time, [(key, 1)])
                if time + 2 < self.epochs and key % 2:  # sent ahead
                    receiver = owner(key + 1, count)
                    worker.ahead.append((receiver, (time, time + 2, ((key + 1, 1),))))
                    add(self.workers[receiver].totals, time + 2, [(key + 1, 1)])

    def _first(self, w: int) -> None:
        worker, count = self.workers[w], len(self.workers)
        time, worker.first = worker.first, worker.first + 1
        by: dict[int, list[Row]] = defaultdict(list)
        for key in sorted(worker.totals.get(time, {})):
            by[owner(key * 2 % KEYS, count)].append((key * 2 % KEYS, total(worker.totals, time, key)))
        for receiver, rows in by.items():
            message = (time, time, tuple(rows))
            worker.log.append((receiver, message))
            self.workers[receiver].inbox.append(message)

    def _second(self, w: int) -> None:
        worker = self.workers[w]
        time, worker.second = worker.second, worker.second + 1
        rows = [row for _, at, several in worker.inbox if at == time for row in several]
        add(worker.kept, time, rows)
        told = {key for key, _ in rows}
        if time in worker.asked:
            told |= worker.timers.get(time, set())
        for key in {key for key, _ in rows if key % 2}:
            if time + 3 < self.epochs:
                worker.timers.setdefault(time + 3, set()).add(key)
                worker.asked.add(time + 3)
        worker.staged[time] = sorted((key, total(worker.kept, time, key)) for key in told)

    def _unpublished(self, w: int) -> list[int]:
        """Staged epochs within W of this worker's sink, which waits for no other worker."""
        upto = min(self.cuts[1][w], self.workers[w].second)
        return [time for time in self.workers[w].staged if time < upto and (time, w) not in self.published]

    def _publish(self, w: int) -> None:
        for time in self._unpublished(w)[:1]:
            self._out(time, w, self.workers[w].staged[time])

    def _out(self, time: int, name: int, rows: list[Row]) -> None:
        known = self.published.setdefault((time, name), rows)
        assert known == rows, f"{name} published epoch {time} twice, and not the same"

    # All die, and go on with another number of workers

    def restart(self, workers: int) -> None:
        """Journals are read at the common bounds, and become those of so many workers.

        Where one worker has written a cut and another has not, all stay, each at its own.
        """
        old, count = self.workers, len(self.workers)
        apart = len(set(self.cuts[1])) > 1
        if apart and not {"every W", "one bound"} & {*self.without}:
            workers = count
        self.moves += workers != count
        own = workers == count or "one bound" in self.without
        bounds = [[min(self.cuts[0])] * count, self.cuts[1] if own else [min(self.cuts[1])] * count]
        new = [Worker() for _ in range(workers)]
        if "before the commit" not in self.without:
            for v, worker in enumerate(old):
                for time in [time for time in worker.staged if time < bounds[1][v]]:
                    named = v if "old names" not in self.without else (v + 1) % max(workers, count)
                    self._out(time, named, worker.staged[time])

        def place(key: int, v: int) -> Worker:
            return new[owner(key, workers) if "by key" not in self.without else v % workers]

        for v, worker in enumerate(old):
            first, second = bounds[0][v], bounds[1][v]
            for sent, target, upto in ((worker.totals, "totals", first), (worker.kept, "kept", second)):
                for time, held in sent.items():
                    for key, n in held.items() if time < upto else ():
                        add(getattr(place(key, v), target), time, [(key, n)])
            for time, keys in worker.timers.items():
                for key in keys:
                    if time - 3 < second <= time:
                        place(key, v).timers.setdefault(time, set()).add(key)
                        if "requests" not in self.without:
                            place(key, v).asked.add(time)
            for receiver, (event, time, rows) in worker.ahead:
                if event < first <= time:
                    for key, n in rows:
                        to = owner(key, workers) if "divided anew" not in self.without else receiver % workers
                        new[v % workers].ahead.append((to, (event, time, ((key, n),))))
                        add(new[to].totals, time, [(key, n)])
            for receiver, (event, time, rows) in worker.log:
                if (
                    event < first
                    and time >= (bounds[1][receiver] if own else second)
                    and "logs move" not in self.without
                ):
                    for key, n in rows:
                        to = owner(key, workers) if "divided anew" not in self.without else receiver % workers
                        new[v % workers].log.append((to, (event, time, ((key, n),))))
                        new[to].inbox.append((event, time, ((key, n),)))
        for w, worker in enumerate(new):
            worker.read = worker.first = bounds[0][w % count]
            worker.second = bounds[1][w % count]
        self.workers = new
        self.cuts = [[bounds[group][w % count] for w in range(workers)] for group in range(2)]

    def run(self, random: Random, restarts: int = 0) -> dict[int, list[Row]]:
        """Outputs by epoch, of all workers."""
        for _ in range(100_000):
            if restarts and random.random() < 0.02:
                restarts -= 1
                self.restart(random.choice((1, 2, 3, 4)))
            if not self.step(random):
                break
        else:
            raise AssertionError("it does not end")
        found: dict[int, list[Row]] = {}
        for (time, _), rows in self.published.items():
            found.setdefault(time, []).extend(rows)
        return {time: sorted(rows) for time, rows in found.items() if rows}


def wrong(seeds: range, without: Collection[str] = ()) -> tuple[int, int]:
    """How many of these seeds end otherwise than a run without failures, and how often the workers changed."""
    found = moves = 0
    for seed in seeds:
        workers, epochs = 1 + seed % 3, 4 + seed % 7
        right = Job(seed, workers, epochs).run(Random(seed))
        job = Job(seed, workers, epochs, without)
        try:
            found += job.run(Random(31 * seed + 7), 1 + seed % 5) != right
        except (AssertionError, KeyError, IndexError):
            found += 1
        moves += job.moves
    return found, moves
