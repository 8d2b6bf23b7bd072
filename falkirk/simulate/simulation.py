"""Simulation of a program under many seeds, with shrinking of failing runs.

A failing seed gives the same run again, byte for byte. It is made shorter by leaving faults out, as long as the run still
fails (delta debugging: Zeller and Hildebrandt, TSE 2002).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from falkirk.simulate.faults import KINDS, Fault, Moment
from falkirk.simulate.outside import Result, Violation
from falkirk.simulate.reference import MORE_SCHEDULES, SCHEDULES, Elsewhere, Reference, compare, portable, reference
from falkirk.simulate.world import World
from recovery.guarantees.promises import Alike
from runtime.program import Program
from timely.dataflow.dataflow import Dataflow
from timely.errors import FalkirkError

TRIES = 150
"""Maximum number of runs for shrinking a failing one."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Failed run: error, faults up to it, and log."""

    seed: int
    workers: int
    error: FalkirkError
    faults: tuple[Fault, ...]
    log: tuple[str, ...]
    keep: tuple[int, ...] | None = None
    """Numbers of the seed's own faults kept in the run; None: all."""


Progress: TypeAlias = Callable[[Counterexample, int], None]


@dataclass(slots=True)
class Tally:
    """Counts of events met in all runs so far.

    Simulations that meet nothing prove nothing.
    """

    runs: int = 0
    steps: int = 0
    rounds: int = 0
    survivors: int = 0
    """Number of processors left running while others rolled back."""
    spared: int = 0
    """Number of workers keeping epochs lost by others."""
    repeated: int = 0
    """Number of outputs published again, unchanged."""
    moves: int = 0
    """Number of changes of the number of workers."""
    savepoints: int = 0
    """Number of stops at savepoints."""
    gaps: int = 0
    """Number of declarations of incomplete times."""
    takeovers: int = 0
    """Number of take-overs by mates."""
    ahead: int = 0
    """Number of operators restored from a mate's memory."""
    held: int = 0
    """Number of segments of checkpoints in memory of mates only."""
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, world: World) -> None:
        """Add the counts of one run."""
        self.runs += 1
        self.steps += world.steps
        self.rounds += sum(kind == "decided" for _, kind, _ in world.log)
        self.survivors += world.checks.survivors
        self.spared += world.checks.spared
        self.repeated += world.outside.repeated
        self.moves += world.moves
        self.savepoints += world.savepoints
        if world.mates is not None:
            self.takeovers += world.mates.took_over
            self.ahead += world.mates.ahead
            self.held += world.mates_held
        self.gaps += sum(map(len, world.outside.gaps.values()))
        self.faults.update(fault.what for fault in world.injector.happened)

    def __str__(self) -> str:
        met = ", ".join(f"{count:,} x {what}" for what, count in sorted(self.faults.items()))
        took = f"; {self.takeovers:,} take-overs by mates" if self.takeovers else ""
        return f"{self.runs:,} runs, {self.steps:,} steps, {self.rounds:,} decisions; {met or 'no faults'}{took}"


class Simulation:
    """Simulation of one program with a number of workers.

    Args:
        build: makes the dataflow; called for every simulated process.
        workers: how many.
        kinds: of faults.
        elsewhere: the same program, if it is to be run in another process too: what it gives without failures must not depend
            on that.
        mates: of each worker, 0 or 1.
    """

    def __init__(
        self,
        build: Callable[[], Dataflow],
        workers: int = 2,
        kinds: Collection[str] = tuple(KINDS),
        elsewhere: Program | None = None,
        mates: int = 0,
    ) -> None:
        self.workers = workers
        self._mates = mates
        self._elsewhere = elsewhere
        self.tally = Tally()
        self._build = build
        self._kinds = tuple(kinds)
        self._expected: Reference | None = None
        self._doubted = False
        self.alike: dict[str, Alike] = {}
        """Likeness of each output in all failure-free runs, known with `expected`."""

    @property
    def expected(self) -> Result:
        """The program's result without failures.

        Raises:
            SimulationFailed: if that depends on the schedule, or on the process, although the program does not say so.
            FalkirkError: of the program itself.
        """
        if self._expected is None:
            self._expected = self._without_failures()
        return self._expected.result

    def _here(self, schedule: int, listen: bool = False) -> Reference:
        return reference(self._build, self.workers, schedule, listen)

    def _another(self, one: Reference, schedule: int) -> Reference:
        """Failure-free run under another schedule, compared with `one`."""
        other = self._here(schedule)
        found = compare(
            *(one, other, lambda: (self._here(SCHEDULES[0], True), self._here(schedule, True))),
            "the order in which messages arrive, or on something else that is not the same in each run",
        )
        self.alike = {name: min(level, self.alike.get(name, level)) for name, level in found.items()}
        return other

    def _without_failures(self) -> Reference:
        elsewhere = None if self._elsewhere is None else Elsewhere(self._elsewhere, self.workers)
        try:
            one = self._here(SCHEDULES[0])
            self._another(one, SCHEDULES[1])
            if elsewhere is not None:
                there = elsewhere.wait()
                found = compare(
                    *(
                        replace(one, result=portable(one.result)),
                        there,
                        lambda: (self._here(SCHEDULES[0], True), there),
                    ),
                    f"the process: in another one, with PYTHONHASHSEED={elsewhere.hash_seed}, sets of texts have another "
                    "order, objects another id(), and os.getpid() is another",
                )
                self.alike = {name: min(level, self.alike.get(name, level)) for name, level in found.items()}
        finally:
            if elsewhere is not None:
                elsewhere.stop()
        return one

    def _is_by_luck(self) -> bool:
        """True if more failure-free runs are less alike than those before.

        Two of them may be alike by luck, further than the program promises.
        """
        one, before = self._expected, dict(self.alike)
        assert one is not None
        further = [p.output for p in one.promises.values() if self.alike.get(p.output, Alike.EPOCHS) > p.alike]
        if further and not self._doubted:
            self._doubted = True
            for schedule in MORE_SCHEDULES:
                self._another(one, schedule)
        return self.alike != before

    def run(self, seed: int, keep: Sequence[int] | None = None) -> Counterexample | None:
        """Run one seed; the failure, or None.

        Args:
            keep: only these of the seed's own faults, by number from 0.
        """
        if keep is None:
            return self._run(seed, None)
        faults = self._faults(seed)
        beyond = [number for number in keep if number >= len(faults)]
        if beyond:
            raise FalkirkError(f"seed {seed} has faults 0 to {len(faults) - 1}, and no {beyond[0]}")
        return self._run(seed, tuple(keep), [faults[number] for number in keep])

    def scripted(self, seed: int, script: Sequence[Fault]) -> tuple[Counterexample | None, list[Moment]]:
        """One run with exactly these faults, and its moments: see `Injector.moments`."""
        world, error = self._once(seed, script)
        self.tally.add(world)
        return self._counterexample(world, seed, error, None), world.injector.moments

    def _faults(self, seed: int) -> tuple[Fault, ...]:
        world, _ = self._once(seed, None)
        return tuple(world.injector.happened)

    def _once(self, seed: int, script: Sequence[Fault] | None) -> tuple[World, FalkirkError | None]:
        expected = self.expected
        world = World(self._build, self.workers, seed, self._kinds, script, self._mates)
        try:
            world.run()
            try:
                world.outside.compare(expected, self.alike)
            except Violation:
                if not self._is_by_luck():
                    raise
                world.outside.compare(expected, self.alike)
        except FalkirkError as error:
            return world, error
        except Exception as error:
            wrapped = Violation(f"{type(error).__name__}: {error}")
            wrapped.__cause__ = error
            return world, wrapped
        return world, None

    def _run(
        self, seed: int, keep: tuple[int, ...] | None, script: Sequence[Fault] | None = None
    ) -> Counterexample | None:
        world, error = self._once(seed, script)
        self.tally.add(world)
        return self._counterexample(world, seed, error, keep)

    def _counterexample(
        self, world: World, seed: int, error: FalkirkError | None, keep: tuple[int, ...] | None
    ) -> Counterexample | None:
        if error is None:
            return None
        log = tuple(f"{at:8.3f} s  {kind}{_in_words(data)}" for at, kind, data in world.log)
        return Counterexample(seed, self.workers, error, tuple(world.injector.happened), log, keep)

    def shrink(
        self, failure: Counterexample, tries: int = TRIES, progress: Progress = lambda failure, tries: None
    ) -> Counterexample:
        """Same seed's failure with fewer faults, and fewer workers if possible.

        Args:
            tries: how many runs this may take.
            progress: is told after each run the shortest failure so far, and how many runs are left.
        """
        for fewer in range(1, self.workers):
            smaller = Simulation(self._build, fewer, self._kinds, mates=self._mates)
            try:
                found = smaller.run(failure.seed)
            except FalkirkError:
                continue
            if found is not None:
                return smaller.shrink(found, tries, progress)
        faults = failure.faults
        kept, best = list(range(len(faults))), failure
        size = max(1, len(kept) // 2)
        while kept and tries > 0:
            at, shorter = 0, False
            while at < len(kept) and tries > 0:
                tries -= 1
                left = kept[:at] + kept[at + size :]
                found = self._run(failure.seed, tuple(left), [faults[number] for number in left])
                if found is None:
                    at += size
                else:
                    kept, best, shorter = left, found, True
                progress(best, tries)
            if size == 1 and not shorter:
                break
            size = max(1, size // 2)
        return best


def _in_words(data: dict[str, object]) -> str:
    return "".join(f", {name} {value}" for name, value in data.items())


def report(failure: Counterexample, replay: str, most: int = 40) -> str:
    """Report of a failure, as text.

    Args:
        replay: the command that shows it again.
        most: how many lines of what happened, the last ones.
    """
    workers = f"{failure.workers} worker{'s' if failure.workers > 1 else ''}"
    lines = [f"seed {failure.seed} on {workers}: {failure.error}", f"replay: {replay}"]
    if failure.keep is not None:
        lines.append(f"after leaving out all faults that are not needed for it, {len(failure.keep)} are left:")
    lines += [f"  {fault}" for fault in failure.faults]
    if len(failure.log) > most:
        lines.append(f"the last {most} of {len(failure.log)} events:")
    lines += [f"  {line}" for line in failure.log[-most:]]
    return "\n".join(lines)
