"""Faults of a simulated job: drawn from a seed, or replayed from a list.

Most seeds have some kinds of faults only, and at rates of their own, so that each kind is met alone and with others (swarm
testing: Groce and others, ISSTA 2012). What went wrong in a run is a list of `Fault`s, each tied to a count of steps or of
moments of I/O. Given that list, or a part of it, a run draws none: that is how a failing run is made shorter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from falkirk.simulate.disk import DiskFaults
from timely.errors import FalkirkError

KINDS = {
    "kill": "kill -9 of workers, at any step and at every I/O, in rounds of rollback rather than elsewhere",
    "monitor": "kill -9 of the monitor, at any step and between its effects",
    "job": "the death of all processes at once, and a new start from the store",
    "network": "links, connections to the monitor, and workers that stand still for a while",
    "zombie": "workers that were given up and go on: stepping, sending, writing and publishing",
    "disk": "slow writes, full disks, errors that leave open what was written, and torn writes of the dead",
}
"""Fault kinds with descriptions."""

CHANGES = {
    "workers": "the death of all processes at once, and a new start with another number of workers",
    "savepoint": "a stop at a savepoint, and a new start",
}
"""Fault kinds drawn on request only, with descriptions."""

MOST_WORKERS = 4
"""Most workers after a change of their number."""


Moment: TypeAlias = tuple[str, int, tuple[int, ...]]
"""Moment of a run: its kind, its number within the kind, and processes to kill.

Workers, and -1 for the monitor. A process is left out if all that has happened since it was last listed is in its
own memory, which it would lose, or would happen in the same way after its death: see docs/decisions/085.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, at the `at`-th moment of a kind.

    Kinds are "start", "step", "io", "monitor io", and "fence".
    """

    when: str
    at: int
    what: str
    worker: int = 0
    other: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        where = {
            "kill": f" worker {self.worker}",
            "stall worker": f" {self.worker}",
            "cut off": f" worker {self.worker}",
            "workers": f": {self.other}",
        }
        where["give up"] = where["zombie"] = where["cut off"]
        where["stall link"] = f" {self.worker} -> {self.other}"
        time = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.when} {self.at}: {self.what}{where.get(self.what, '')}{time}"


@dataclass(frozen=True, slots=True)
class Rates:
    """Fault probabilities per moment; none are drawn after `until` simulated seconds."""

    until: float
    kill: float = 0.0
    kill_io: float = 0.0
    monitor: float = 0.0
    monitor_io: float = 0.0
    job: float = 0.0
    stall: float = 0.0
    zombie: float = 0.0
    """Probability of a silent, given-up worker running on for a while."""
    give_up: float = 0.0
    """Probability of giving up a healthy worker; it runs on for a while."""
    in_rounds: float = 1.0
    """Factor for kill probabilities during a round of rollback."""
    disk: bool = False
    workers: float = 0.0
    """Probability of a stop of the job, which goes on with another number of workers."""
    savepoint: float = 0.0
    """Probability of a request for a savepoint."""


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds named in a text such as "kill,disk". Raises FalkirkError for others."""
    kinds = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    known = KINDS | CHANGES
    wrong = [each for each in kinds if each not in known]
    if wrong or not kinds:
        lines = "".join(f"\n  {name}: {what}" for name, what in known.items())
        raise FalkirkError(f"there is no kind of fault {', '.join(wrong) or text!r}; there are:{lines}")
    return kinds


def drawn(random: Random, kinds: Collection[str] = tuple(KINDS)) -> Rates:
    """The rates for one seed."""

    def rate(kind: str, most: float) -> float:
        drawn = random.choice((0.0, 0.15, 1.0)) * most
        return drawn if kind in kinds else 0.0

    return Rates(
        until=random.choice((0.5, 1.5, 4.0)),
        kill=rate("kill", 0.006),
        kill_io=rate("kill", 0.01),
        monitor=rate("monitor", 0.004),
        monitor_io=rate("monitor", 0.005),
        job=rate("job", 0.0015),
        stall=rate("network", 0.015),
        zombie=random.choice((0.0, 0.5, 1.0)) if "zombie" in kinds else 0.0,
        give_up=rate("zombie", 0.004),
        in_rounds=random.choice((1.0, 3.0, 10.0)),
        disk=rate("disk", 1.0) > 0.0,
        workers=random.choice((0.001, 0.004)) if "workers" in kinds else 0.0,
        savepoint=random.choice((0.001, 0.004)) if "savepoint" in kinds else 0.0,
    )


CALM_DISK = DiskFaults(delay=(0.0002, 0.004), slow=0.0, made=0.5, late=0.0, torn=0.0)


def disk_faults(random: Random) -> DiskFaults:
    """The faults of a disk under one seed."""
    return DiskFaults(
        delay=random.choice(((0.0001, 0.001), (0.0005, 0.01), (0.01, 0.1))),
        slow=random.choice((0.0, 0.05, 0.3)),
        slow_delay=random.choice((0.1, 1.0)),
        fills=random.choice((0.0, 0.0, 0.005)),
        full_for=0.5,
        unclear=random.choice((0.0, 0.0, 0.01)),
        made=random.choice((0.1, 0.4)),
        late=random.choice((0.0, 0.2)),
        torn=random.choice((0.0, 0.3)),
        late_for=0.5,
    )


class Injector:
    """Source of faults at each moment, with a record of those injected.

    Args:
        seed: of the faults.
        workers: how many there are.
        kinds: of faults that may be drawn.
        script: in place of drawing: exactly these.
    """

    def __init__(
        self, seed: int, workers: int, kinds: Collection[str] = tuple(KINDS), script: Sequence[Fault] | None = None
    ) -> None:
        self.happened: list[Fault] = []
        self._random = Random(f"faults {seed}")
        self._workers = workers
        self.rates = drawn(self._random, kinds)
        self._scripted: dict[tuple[str, int], list[Fault]] | None = None if script is None else {}
        for fault in script or ():
            assert self._scripted is not None
            self._scripted.setdefault((fault.when, fault.at), []).append(fault)
        self._counts = {"start": 0, "step": 0, "io": 0, "monitor io": 0, "fence": 0}
        self.moments: list[Moment] = []
        """Moments so far, of a scripted run."""

    def resize(self, workers: int) -> None:
        """Go on with another number of workers."""
        self._workers = workers

    def at(
        self,
        when: str,
        now: float,
        troubled: bool = False,
        worker: int = 0,
        there: Sequence[int] = (),
        mortal: Sequence[int] = (),
    ) -> list[Fault]:
        """Faults to inject at this moment.

        Args:
            troubled: a round of rollback is under way.
            worker: whose moment it is.
            there: the workers that have a process.
            mortal: who may as well die: see `Moment`.
        """
        self._counts[when] += 1
        at = self._counts[when]
        if self._scripted is not None:
            self.moments.append((when, at, tuple(mortal)))
            found = self._scripted.get((when, at), [])
        elif now >= self.rates.until:
            return []
        else:
            found = self._draw(when, at, self.rates.in_rounds if troubled else 1.0, worker, there)
        self.happened += found
        return found

    def _draw(self, when: str, at: int, more: float, worker: int, there: Sequence[int]) -> list[Fault]:
        draw, rates = self._random.random, self.rates
        if when == "io":
            return [Fault(when, at, "kill", worker)] if draw() < rates.kill_io else []
        if when == "monitor io":
            return [Fault(when, at, "kill monitor")] if draw() < rates.monitor_io * more else []
        if when == "fence":
            seconds = self._random.uniform(0.1, 2.0)
            return [Fault(when, at, "zombie", worker, seconds=seconds)] if draw() < rates.zombie else []
        if when == "start":
            return [Fault(when, at, "bad disk")] if rates.disk else []
        found = []
        if draw() < rates.kill * more and there:
            several = 1 if draw() < 0.8 else self._random.randint(1, len(there))
            found += [Fault(when, at, "kill", victim) for victim in self._random.sample(there, several)]
        if draw() < rates.give_up and there:
            seconds = self._random.uniform(0.02, 1.0)
            found.append(Fault(when, at, "give up", self._random.choice(there), seconds=seconds))
        if draw() < rates.monitor * more:
            found.append(Fault(when, at, "kill monitor"))
        if draw() < rates.job:
            found.append(Fault(when, at, "kill job"))
        if rates.workers and draw() < rates.workers:
            found.append(Fault(when, at, "workers", other=self._random.randint(1, MOST_WORKERS)))
        if rates.savepoint and draw() < rates.savepoint:
            found.append(Fault(when, at, "savepoint"))
        if draw() < rates.stall:
            what = self._random.choice(("stall link", "stall link", "stall worker", "cut off"))
            worker, other = self._random.randrange(self._workers), self._random.randrange(self._workers)
            seconds = min(self._random.expovariate(1.0) * self._random.choice((0.05, 0.5, 2.0)), 4.0)
            found.append(Fault(when, at, what, worker, other, seconds))
        return found
