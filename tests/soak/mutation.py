"""Does any test notice? Each mutant of recovery/ and monitor/ against the tests that execute the changed line. See `--help`.

For each mutant first the fast tests that reach its line, the quickest ones first, then simulated jobs that do. It is
*killed* by the first that fails, or does not end; one that lives through all of them, or for as long as `--patience`
says, is a *survivor*, and must be explained in `survivors.toml`. Each mutant is a forked process: nothing is imported
or collected twice. Results are appended to a file, so that a run that was cut short goes on where it was.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol

from tests.soak.mutants import ROOT, Mutant, applied, applies, mutants
from tests.soak.simulated_coverage import FILES, programs

EXPLAINED = Path(__file__).with_name("survivors.toml")
TESTS = (
    "tests/recovery",
    "tests/falkirk/simulate",
    "tests/monitor/coordination/test_options.py",
    "tests/monitor/coordination/test_coordinator.py",
    "tests/monitor/coordination/test_cuts.py",
    "tests/monitor/coordination/test_faults.py",
    "tests/monitor/coordination/test_firewalls.py",
    "tests/runtime/supervisor/test_liveness.py",
    "tests/runtime/processes/test_monitor_parts.py",
    "tests/monitor/explain/test_what_if.py",
    "tests/runtime/test_inputs.py",
    "tests/runtime/test_observer.py",
    "tests/runtime/test_store_writer.py",
)
NOT = ("test_simulation.py", "test_rules_simulated.py", "test_command.py")
"""Simulated jobs are run here by themselves; the others start processes."""
MORE_FILES = tuple(
    sorted(
        str(path.relative_to(ROOT))
        for folder in ("recovery", "monitor")
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in FILES and path.name != "__init__.py" and "web" not in path.parts
    )
)
_SLOW = 6.0
"""A test that takes longer, in seconds, is left out."""


@dataclass
class Probe:
    """A test, or a simulated job: raises, or returns false, if something is wrong."""

    name: str
    run: Callable[[], bool]
    seconds: float = 0.0
    lines: dict[str, set[int]] = field(default_factory=dict)
    """What it executes, by file."""


def test_probe(item: pytest.Item) -> Probe:
    """A collected test."""

    def run() -> bool:
        item._initrequest() if hasattr(item, "_initrequest") else None  # type: ignore[attr-defined]
        return all(report.passed or report.skipped for report in runtestprotocol(item, log=False, nextitem=None))

    return Probe(item.nodeid, run)


def simulated_probe(name: str, seed: int, expected: dict[str, Any]) -> Probe:
    """A simulated job. `expected`: what each program gives, known to all that are forked later."""
    from falkirk.simulate.world import World

    steps = [0]

    def run() -> bool:
        world = World(programs()[name], 1 + seed % 3, seed)
        world.run(5 * steps[0] + 3000 if steps[0] else 300_000)
        steps[0] = steps[0] or world.steps
        world.outside.compare(expected[name])
        return True

    probe = Probe(f"simulated {name} {seed}", run)
    probe.steps, probe.expected = steps, expected  # type: ignore[attr-defined]
    return probe


def forked(do: Callable[[], Any], seconds: float) -> Any:
    """What `do` gives in a forked process; None if that does not end, or dies."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
            os.setpgid(0, 0)
            found = pickle.dumps(do())
            with os.fdopen(write, "wb") as file:
                file.write(found)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    ends = time.monotonic() + seconds
    import select

    data = b""
    with os.fdopen(read, "rb", buffering=0) as file:
        while True:
            ready, _, _ = select.select([file], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                break
            more = file.read(1 << 16)
            if not more:
                break
            data += more
    try:
        os.kill(child, 0)
        if not data or time.monotonic() >= ends:
            os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if os.waitstatus_to_exitcode(status) == 0 and data else None


class Search:
    """Finds the mutants that nobody notices. A plugin of pytest: takes the place of its loop over tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failed = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the collected tests once."""
        if session.testsfailed:
            raise session.Interrupted("tests could not be collected")
        gc.freeze()
        expected: dict[str, Any] = {}
        probes = [test_probe(item) for item in session.items]
        probes += [simulated_probe(name, seed, expected) for seed in range(self.options.seeds) for name in programs()]
        by_name = {probe.name: probe for probe in probes}
        cache = Path(self.options.baseline) if self.options.baseline else None
        known = pickle.loads(cache.read_bytes()) if cache is not None and cache.exists() else ({}, {})
        found = forked(lambda: self.baseline(probes, *known), 24 * 3600.0)
        if found is None:
            raise session.Interrupted("the tests cannot be run as they are")
        if cache is not None:
            cache.write_bytes(pickle.dumps(found))
        print(
            f"{len(found[1])} of {len(probes)} tests and jobs are known; they take {sum(e[1] for e in found[1].values()):.0f} s"
        )
        if len(found[1]) < len(probes):
            return True
        expected.update(found[0])
        usable = []
        for name, (passed, seconds, steps, lines) in found[1].items():
            probe = by_name[name]
            probe.seconds, probe.lines = seconds, lines
            if steps:
                probe.steps[0] = steps  # type: ignore[attr-defined]
            if not passed:
                print(f"left out, for it fails as it is: {name}")
            elif seconds <= _SLOW:
                usable.append(probe)
        self.search(sorted(usable, key=lambda probe: probe.seconds))
        return True

    def baseline(self, probes: list[Probe], expected: dict[str, Any], found: dict[str, Any]) -> Any:
        """What each program gives; of each probe: whether it passes, seconds, steps, and the lines that it executes.

        Args:
            expected: what is known already, and likewise `found`. A run that is too short for all adds to it.
        """
        from falkirk.simulate.simulation import Simulation

        files = [str(ROOT / name) for name in FILES + MORE_FILES]
        for name, build in programs().items() if self.options.seeds else ():
            if name not in expected:
                expected[name] = Simulation(build, 1).expected
        for probe in probes:
            if probe.name.startswith("simulated"):
                probe.expected.update(expected)  # type: ignore[attr-defined]
        ends = time.monotonic() + self.options.seconds
        traced = coverage.Coverage(data_file=None, config_file=False, include=files)
        traced.start()
        new: list[str] = []
        for probe in probes:
            if probe.name in found:
                continue
            if time.monotonic() >= ends:
                break
            new.append(probe.name)
            traced.switch_context(probe.name)
            began = time.process_time()
            try:
                passed = probe.run()
            except BaseException:
                passed = False
            found[probe.name] = [passed, time.process_time() - began, getattr(probe, "steps", [0])[0], {}]
        traced.stop()
        data = traced.get_data()
        for path in data.measured_files():
            name = str(Path(path).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    if context:
                        found[context][3].setdefault(name, set()).add(line)
        return expected, found

    def search(self, probes: list[Probe]) -> None:
        """Try all mutants that were asked for."""
        options = self.options
        results = Path(options.results)
        done = {
            (each["file"], each["name"])
            for each in map(json.loads, results.read_text().splitlines() if results.exists() else ())
        }
        explained = survivors()
        chosen = [mutant for name in options.file for mutant in mutants(name)]
        part, parts = map(int, options.part.split("/"))
        random = Random(0)
        random.shuffle(chosen)
        chosen = chosen[part::parts]
        if options.function:
            chosen = [mutant for mutant in chosen if options.function in mutant.name]
        if options.sample:
            chosen = chosen[: options.sample]
        ends = time.monotonic() + options.seconds
        tally = {"killed": 0, "survived": 0}
        for mutant in chosen:
            if (mutant.file, mutant.name) in done:
                continue
            if mutant.name in explained.get(mutant.file, {}) and not options.explained:
                continue
            if time.monotonic() >= ends:
                break
            verdict = self.try_one(mutant, probes)
            if verdict is None:
                continue
            killed, by, tries, seconds = verdict
            tally["killed" if killed else "survived"] += 1
            with results.open("a") as file:
                line = {"file": mutant.file, "name": mutant.name, "line": mutant.line, "killed": killed, "by": by}
                file.write(json.dumps({**line, "tries": tries, "seconds": round(seconds, 1)}) + "\n")
            if not killed:
                self.failed = True
                print(f"{mutant.file}:{mutant.line}: {mutant.name}: survived {tries} runs", flush=True)
        print(tally)

    def try_one(self, mutant: Mutant, probes: list[Probe]) -> tuple[bool, str, int, float] | None:
        """Whether it is killed, by what, after how many tries; None if there is no such mutant."""
        try:
            if not applies(mutant):
                return None
        except Exception as error:
            print(f"{mutant.file}: {mutant.name}: cannot be made: {error!r}")
            return None
        reaching = [probe for probe in probes if mutant.line in probe.lines.get(mutant.file, ())]
        tests = [probe for probe in reaching if not probe.name.startswith("simulated")]
        jobs = [probe for probe in reaching if probe.name.startswith("simulated")]
        patience = self.options.patience
        began = time.monotonic()

        def attempt() -> tuple[bool, str, int]:
            tries = 0
            with applied(mutant):
                for among, budget in ((tests, patience / 2), (jobs, patience)):
                    for probe in among:
                        if time.process_time() - start > budget:
                            break
                        tries += 1
                        # One that takes much longer than it did hangs.
                        signal.setitimer(signal.ITIMER_PROF, 3.0 + 10 * probe.seconds)
                        try:
                            passed = probe.run()
                        except BaseException:
                            passed = False
                        signal.setitimer(signal.ITIMER_PROF, 0.0)
                        if not passed:
                            return True, probe.name, tries
            return False, "", tries

        start = time.process_time()

        def child() -> tuple[bool, str, int]:
            nonlocal start
            start = time.process_time()
            return attempt()

        found = forked(child, 20 * patience + 60)
        if found is None:
            return True, "does not end, or dies", 0, time.monotonic() - began
        return (*found, time.monotonic() - began)


def survivors() -> dict[str, dict[str, str]]:
    """Why nobody needs to notice: by file and mutant."""
    return tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}


def stale(explained: dict[str, dict[str, str]], files: Collection[str]) -> list[str]:
    """Explanations of mutants that are not there any more."""
    found = []
    for name, entries in explained.items():
        there = {mutant.name for mutant in mutants(name)} if name in files and (ROOT / name).exists() else set()
        found += [f"{name}: {entry}" for entry in entries if entry not in there]
    return found


def main() -> int:
    """Search; 1 if a mutant has survived that is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", action="append", default=[], help="of the product; the core of recovery if not given")
    parser.add_argument("--all", action="store_true", help="all files of recovery/ and monitor/")
    parser.add_argument("--function", default="", help="only mutants whose name contains this")
    parser.add_argument("--tests", action="append", default=[], help="only these files of tests, beside simulated jobs")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants only")
    parser.add_argument("--part", default="0/1", help="every n-th mutant: 0/2 and 1/2 are all")
    parser.add_argument("--seeds", type=int, default=4, help="simulated jobs of each program")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds of processor time for a mutant")
    parser.add_argument("--seconds", type=float, default=8 * 3600.0, help="begin none after that")
    parser.add_argument("--results", default=str(Path(tempfile.gettempdir()) / "mutation.jsonl"))
    parser.add_argument("--baseline", default="", help="a file to keep between runs: which test executes which line")
    parser.add_argument("--explained", action="store_true", help="try those again that are explained")
    options = parser.parse_args()
    options.file = [*options.file, *(FILES + MORE_FILES if options.all else ())] or list(FILES)
    os.environ["FALKIRK_TEST_PROFILE"] = "mutation"
    search = Search(options)
    ignored = [f"--deselect={path.relative_to(ROOT)}" for name in NOT for path in (ROOT / "tests").rglob(name)]
    os.chdir(ROOT)
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not soak", *ignored, *(options.tests or TESTS)],
        plugins=[search],
    )
    wrong = [f"explained, but not there: {entry}" for entry in stale(survivors(), FILES + MORE_FILES)]
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if search.failed or wrong or code not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main())
