"""`falkirk simulate`: a user's program under many seeds, and the verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from falkirk.simulate.chance import find_chance
from falkirk.simulate.faults import KINDS
from falkirk.simulate.reference import SCHEDULES, SimulationFailed
from falkirk.simulate.simulation import Counterexample, Simulation, report
from runtime.program import Program

_LINE_SECONDS = 5.0


def simulate_command(
    program: Program,
    seeds: int,
    first_seed: int,
    kinds: Sequence[str],
    workers: int,
    keep: Sequence[int] | None,
    quiet: bool,
    mates: int = 0,
) -> int:
    """Run the seeds and report the result; the exit code.

    Args:
        keep: only these faults of the (one) seed.
        mates: of each worker, 0 or 1.
    """
    simulation = Simulation(program.build, workers, kinds, elsewhere=program, mates=mates)
    try:
        expected = simulation.expected
    except SimulationFailed:
        _tell_chance(program, workers)
        raise
    _tell_chance(program, workers)
    if not expected:
        print(
            "note: the program has no output; give it a sink or a capture, or there is nothing to compare",
            file=sys.stderr,
        )
    began = time.monotonic()
    failure = None
    with _progress(seeds, quiet) as advance:
        for seed in range(first_seed, first_seed + seeds):
            failure = simulation.run(seed, keep)
            if failure is not None:
                break
            advance(1)
    if failure is None:
        if not quiet:
            print(f"all well in {time.monotonic() - began:.1f} s: {simulation.tally}")
        return 0
    if keep is None:
        print(f"seed {failure.seed} on {workers} workers fails: {failure.error}", file=sys.stderr)
        print(f"replay: {_replay(program, workers, failure.seed, kinds, None, mates)}", file=sys.stderr)
        failure = _shortened(simulation, failure)
    print(report(failure, _replay(program, failure.workers, failure.seed, kinds, failure.keep, mates)))
    return 1


def _tell_chance(program: Program, workers: int) -> None:
    for line in find_chance(program.build, workers, SCHEDULES[0]):
        print(
            f"note: {line}. Done again after a failure, that gives something else: take times from the records, and chance "
            "from their content; or say so, by .nondeterministic(reason)",
            file=sys.stderr,
        )


def _shortened(simulation: Simulation, failure: Counterexample) -> Counterexample:
    """Same failure with as few faults as found; Ctrl-C ends the search early."""
    print(
        "leaving out faults that are not needed for it (Ctrl-C: show what is found so far)", file=sys.stderr, flush=True
    )
    best, shown = failure, time.monotonic()

    def progress(shortest: Counterexample, tries: int) -> None:
        nonlocal best, shown
        best = shortest
        if time.monotonic() - shown >= _LINE_SECONDS:
            shown = time.monotonic()
            print(
                f"{len(best.faults)} of {len(failure.faults)} faults, at most {tries} runs to go",
                file=sys.stderr,
                flush=True,
            )

    try:
        return simulation.shrink(failure, progress=progress)
    except KeyboardInterrupt:
        return best


def _replay(
    program: Program, workers: int, seed: int, kinds: Sequence[str], keep: Sequence[int] | None, mates: int
) -> str:
    import json
    import shlex

    name = f"{program.path}:{program.name}" if program.name else str(program.path)
    words = ["falkirk", "simulate", name, "-w", str(workers), "--first-seed", str(seed), "--seeds", "1"]
    for key, value in program.args.items():
        words += ["--arg", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    if tuple(kinds) != tuple(KINDS):
        words += ["--faults", ",".join(kinds)]
    if mates:
        words += ["--mates", str(mates)]
    if keep is not None:
        words += ["--keep", ",".join(map(str, keep)) or "none"]
    return shlex.join(words)


@contextmanager
def _progress(seeds: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """The function to call for each seed that is done."""
    if quiet:
        yield lambda some: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("seeds", total=seeds)
            yield lambda some: bar.advance(task, some)
    else:
        done, shown = 0, time.monotonic()

        def advance(some: int) -> None:
            nonlocal done, shown
            done += some
            if time.monotonic() - shown >= _LINE_SECONDS:
                shown = time.monotonic()
                print(f"{done:,} of {seeds:,} seeds", file=sys.stderr, flush=True)

        yield advance
