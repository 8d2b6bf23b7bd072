"""Does any test notice? Each mutant of recovery/ and monitor/ against what executes the changed line. See `--help`.

A *probe* is a fast test, an example in a docstring, or a simulated job. A mutant meets those that reach its line, first those
that have killed its neighbours soonest. It is *killed* by the first that fails or does not end; one that lives through all of
them, or as long as `--patience` says, is a *survivor*, and so is one that none reaches; it must be explained in
`survivors.toml`, where an entry that begins with `~ ` is a regular expression for many. `--explained --again` tries those, and
tells which of them something notices. Each mutant is a forked process: nothing is imported, collected or compiled twice.
Quickest is a little patience, without simulated jobs (`--seeds 0`) and with the tests of the file alone (`--tests`) first,
and then `--again` with more of each.

Results are appended to a file and belong to the text of the function: a run goes on where another was cut short, and after
changes tries the mutants of changed functions only. What became of functions whose mutants were all tried is kept in
`tried.jsonl` (`--record`), so that no other machine need try them again.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import math
import mmap
import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any

import coverage
import pytest
from _pytest.tmpdir import tmppath_result_key

from tests.soak.mutants import ROOT, Mutant, as_it_is, broken, code_of, function_of, functions, module_of, mutants
from tests.soak.simulated_coverage import FILES, KINDS, programs, world

EXPLAINED = Path(__file__).with_name("survivors.toml")
TRIED = Path(__file__).with_name("tried.jsonl")
"""A line for each function whose mutants were all tried: which of them have lived."""
TESTS = (
    "tests/recovery",
    "tests/timely/worker",
    "tests/falkirk/simulate",
    "tests/monitor/coordination",
    "tests/monitor/explain",
    "tests/monitor/web/test_answers.py",
    "tests/monitor/web/test_app.py",
    "tests/monitor/web/test_bounded.py",
    "tests/monitor/web/test_fold.py",
    "tests/monitor/web/test_hostile.py",
    "tests/monitor/web/test_layout.py",
    "tests/monitor/web/test_metrics.py",
    "tests/monitor/web/test_recent_events.py",
    "tests/monitor/web/test_view.py",
    "tests/runtime/supervisor/test_liveness.py",
    "tests/runtime/processes/test_monitor_parts.py",
    "tests/runtime/test_inputs.py",
    "tests/runtime/test_observer.py",
    "tests/runtime/test_store_client.py",
)
NOT = tuple(f"test_{name}.py" for name in ("simulation", "coverage", "troubled", "command", "rules", "rules_searched"))
"""Simulated jobs are run here by themselves; the others start processes, or take long."""
MORE_FILES = tuple(
    sorted(
        str(path.relative_to(ROOT))
        for folder in ("recovery", "monitor")
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in FILES and path.name != "__init__.py"
    )
)
_SLOW = 2.0
"""A probe that takes longer, in seconds, is left out."""
_WAITS = 8
"""One that waits, for servers, say, counts as if it had worked for the n-th part of that."""
_MEMORY = 2 << 30
"""Bytes that a mutant may take beside what is there."""
Place = tuple[str, str]
"""A function: its qualified name, and a digest of its text."""


@dataclass
class Probe:
    """A test, or a simulated job: raises, or returns false, if something is wrong."""

    name: str
    run: Callable[[], bool]
    seconds: float = 0.0
    steps: int = 0
    """Of a simulated job as it is."""
    reached: dict[Place, set[int]] = field(default_factory=dict)
    """The lines that it executes, counted from the head of their function."""


def test_probe(item: pytest.Item) -> Probe:
    """A collected test, with its fixtures and without reports: to tell of a failure takes longer than to find it."""

    def run() -> bool:
        item._initrequest()  # type: ignore[attr-defined]
        item.stash[tmppath_result_key] = {}  # a report would have made it
        stack = item.session._setupstate
        try:
            stack.setup(item)
            item.runtest()
        except pytest.skip.Exception:
            pass
        finally:
            stack.teardown_exact(None)
        return True

    return Probe(item.nodeid, run)


def simulated_probe(name: str, kind: str, seed: int, expected: dict[str, Any]) -> Probe:
    """A simulated job. `expected`: what each program gives, known to all that are forked later."""

    def run() -> bool:
        job = world(kind, programs()[name], seed)
        job.run(3 * probe.steps + 1000 if probe.steps else 300_000)
        probe.steps = probe.steps or job.steps
        job.outside.compare(expected[name])
        return True

    probe = Probe(f"simulated {name} {kind} {seed}", run)
    return probe


def forked(do: Callable[[], Any], seconds: float) -> Any:
    """The result of `do` in a forked process; None if that does not end, or dies."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, resource.RLIM_INFINITY))
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: whoever ends the search ends this
            found = pickle.dumps(do())
            with os.fdopen(write, "wb") as file:
                file.write(found)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    ends = time.monotonic() + seconds
    data = b""
    with os.fdopen(read, "rb", buffering=0) as file:
        while select.select([file], [], [], None if math.isinf(ends) else max(0.0, ends - time.monotonic()))[0]:
            more = file.read(1 << 20)
            if not more:
                break
            data += more
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if os.waitstatus_to_exitcode(status) == 0 and data else None


# What the probes reach


class Lines:
    """The functions of the files that are mutated, by line."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, tuple[Place, int]]] = {}
        for name in FILES + MORE_FILES:
            of = self._of[name] = {}
            for function, node, _, text in functions(name):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    of[line] = (function, text), node.lineno

    def add(self, path: str, line: int, reached: dict[Place, set[int]]) -> None:
        """Note that a line was executed."""
        if (found := self._of[str(Path(path).relative_to(ROOT))].get(line)) is not None:
            place, head = found
            reached.setdefault(place, set()).add(line - head)


Known = dict[str, tuple[bool, float, int, dict[Place, set[int]]]]
"""Of each probe whether it passes as it is, seconds, steps, and what it reaches."""


def baseline(
    probes: list[Probe], expected: dict[str, Any], known: Known, seconds: float, cache: Path
) -> tuple[Any, Known, list[str]]:
    """The results of each program; each probe's record, as far as there was time; the modules that all of it imports.

    What is known is kept in `cache` now and then, so that a run that is cut short has not been for nothing. What failed soon is
    tried anew: what was wrong may be mended.
    """
    from falkirk.simulate.simulation import Simulation

    settled = {name for name, (passed, took, *_) in known.items() if passed or took > _SLOW}
    new = [probe for probe in probes if probe.name not in settled]
    for name, build in programs().items():
        if name not in expected and any(probe.name.startswith(f"simulated {name} ") for probe in probes):
            expected[name] = Simulation(build, 1).expected
    kept = time.monotonic()
    ends = kept + seconds
    lines, imported = Lines(), set[str]()
    for probe in new:
        if time.monotonic() >= ends:
            break
        found = forked(lambda probe=probe: _traced(probe, lines), 60.0 * _SLOW)  # apart: one that is ended leaves ruins
        known[probe.name], more = found if found is not None else ((False, 2 * _SLOW, 0, {}), ())
        imported.update(more)
        if time.monotonic() > kept + 20.0:
            _keep(cache, expected, known)
            kept = time.monotonic()
    return expected, known, [*sys.modules, *imported]


def _traced(probe: Probe, lines: Lines) -> tuple[tuple[bool, float, int, dict[Place, set[int]]], list[str]]:
    """A probe's record, and the modules that are there then. Ends the process if that takes long."""
    resource.setrlimit(resource.RLIMIT_CPU, (round(2 * _SLOW), round(2 * _SLOW)))
    files = [str(ROOT / name) for name in FILES + MORE_FILES]
    traced = coverage.Coverage(data_file=None, config_file=False, include=files)
    traced._warn_no_data = False
    began, waits_since = time.process_time(), time.monotonic()
    traced.start()
    try:
        passed = probe.run()
    except BaseException:
        passed = False
    traced.stop()
    seconds = max(time.process_time() - began, (time.monotonic() - waits_since) / _WAITS)
    data, reached = traced.get_data(), dict[Place, set[int]]()
    for path in data.measured_files():
        for line in data.lines(path) or ():
            lines.add(path, line, reached)
    return (passed, seconds, probe.steps, reached), list(sys.modules)


def _keep(cache: Path, expected: dict[str, Any], known: Known) -> None:
    written = cache.with_suffix(".written")
    written.write_bytes(pickle.dumps((expected, known)))
    written.replace(cache)


class Search:
    """Finds the mutants that nobody notices. A plugin of pytest: takes the place of its loop over tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._kills: Counter[tuple[str, str]] = Counter()
        """The number of kills of a probe in a function or a file; "" for all."""
        self._meetings: Counter[tuple[str, str]] = Counter()
        """Likewise the number of mutants that it has met."""
        self._place = mmap.mmap(-1, 8)
        """The probe that a mutant has come to, shared with its process."""
        self._by_function: dict[str, list[tuple[Probe, dict[str, set[int]]]]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the collected tests once."""
        if session.testsfailed:
            raise session.Interrupted("tests could not be collected")
        expected: dict[str, Any] = {}
        probes = [
            simulated_probe(name, kind, seed + 1, expected)
            for seed in range(self.options.seeds)
            for kind in KINDS
            for name in programs()
        ]
        probes += [test_probe(item) for item in session.items]
        cache = Path(self.options.baseline)
        before = pickle.loads(cache.read_bytes()) if cache.exists() else ({}, {})
        expected.update(before[0])
        importlib.import_module("timely.data.kernels.compiled")  # takes a second, which each fork would take anew
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all that are forked
        gc.freeze()
        found = forked(lambda: baseline(probes, expected, before[1], self.options.seconds, cache), 24 * 3600.0)
        if found is None:
            raise session.Interrupted("the tests cannot be run as they are")
        expected.update(found[0])
        _keep(cache, *found[:2])
        known = {probe.name: found[1][probe.name] for probe in probes if probe.name in found[1]}
        print(
            f"{len(known)} of {len(probes)} tests and jobs are known, {sum(each[1] for each in known.values()):.0f} s"
        )
        if len(known) < len(probes):
            print("survivors mean something only once all are known: run it again")
            return True
        for name in found[2]:
            if name not in sys.modules and name.partition(".")[0] in (
                "timely",
                "recovery",
                "monitor",
                "runtime",
                "falkirk",
            ):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()
        for probe in probes:
            passed, probe.seconds, probe.steps, probe.reached = known[probe.name]
            if not passed:
                why = "takes too long" if probe.seconds > _SLOW else "fails as it is"
                print(f"left out, for it {why}: {probe.name}")
            elif probe.seconds <= _SLOW:
                by_name: dict[str, dict[str, set[int]]] = {}
                for (function, text), lines in probe.reached.items():
                    by_name.setdefault(function, {})[text] = lines
                for function, reached in by_name.items():
                    self._by_function.setdefault(function, []).append((probe, reached))
        self.search()
        return True

    def search(self) -> None:
        """Try all mutants that were asked for, as long as there is time."""
        options = self.options
        fates = Fates(Path(options.results))
        for mutant in chosen(options):
            if fate := fates.of(mutant):
                self._learn(mutant, [fate["by"]] if fate["by"] else [], bool(fate["by"]))
        ends = time.monotonic() + options.seconds
        explained = survivors()
        sane = set[str]()
        for mutant in chosen(options):
            fate = fates.of(mutant)
            if bool(why(mutant, explained)) is not options.explained:
                continue
            if fate is not None and (fate["killed"] or not options.again):
                continue
            if time.monotonic() >= ends:
                break
            code = code_of(mutant)
            if code is None:
                continue
            if mutant.file not in sane and self._reaching(mutant):
                self._check(mutant)
                sane.add(mutant.file)
            fate = self.try_one(mutant, code, options.patience)
            fates.add(mutant, fate)
            if options.explained and fate["killed"]:
                print(f"{mutant.file}:{mutant.line}: {mutant.name}: {fate['by']} noticed", flush=True)
            elif not options.explained and not fate["killed"]:
                tried = f"survived {fate['tries']} of {fate['reached']} probes"
                print(f"{mutant.file}:{mutant.line}: {mutant.name}: {tried}", flush=True)

    def _check(self, mutant: Mutant) -> None:
        """Function as it is, and one that only raises: the first must live and the other not, or no result means anything."""
        if self.try_one(mutant, as_it_is(mutant), 1.0)["killed"]:
            raise pytest.exit(f"a test fails though nothing was changed: {mutant.function}, {mutant.file}")
        if not self.try_one(mutant, broken(mutant), self.options.patience)["killed"]:
            print(f"no test that is quick notices that it raises: {mutant.function}, {mutant.file}")

    def _learn(self, mutant: Mutant, met: list[str], killed: bool) -> None:
        for where in (mutant.function, mutant.file, ""):
            for probe in met:
                self._meetings[where, probe] += 1
            if killed:
                self._kills[where, met[-1]] += 1

    def _reaching(self, mutant: Mutant) -> list[Probe]:
        """The probes that execute the changed line, best first; of a function that was changed since, all that enter it."""
        found = [
            (probe, len(reached) / len(probe.reached))
            for probe, reached in self._by_function.get(mutant.function, ())
            if mutant.text not in reached or mutant.line - mutant.head in reached[mutant.text]
        ]
        kills, meetings = self._kills, self._meetings

        def worth(probe: Probe, special: float) -> float:
            """Its chance to kill in this function, guessed from the file and from all, for its time."""
            chance = special
            for where in ("", mutant.file, mutant.function):
                chance = (kills[where, probe.name] + chance) / (meetings[where, probe.name] + 1)
            return chance / (probe.seconds + 0.01)

        return [probe for probe, _ in sorted(found, key=lambda each: worth(*each), reverse=True)]

    def try_one(self, mutant: Mutant, code: CodeType, patience: float) -> dict[str, Any]:
        """Tell if it is killed, by what, after how many tries and seconds of processor time."""
        probes = self._reaching(mutant)
        if not probes:
            return {"killed": False, "by": "", "tries": 0, "reached": 0, "seconds": 0.0}
        function = function_of(mutant)
        place, before = self._place, _seconds_of_children()

        def child() -> tuple[bool, int]:
            function.__code__ = code
            start = time.process_time()
            for tries, probe in enumerate(probes):
                if time.process_time() - start > patience:
                    return False, tries
                place[:] = tries.to_bytes(8, "little")
                # One that takes much longer hangs, or waits for what does not come: the signal ends it.
                signal.setitimer(signal.ITIMER_PROF, 0.5 + 5 * probe.seconds)
                signal.setitimer(signal.ITIMER_REAL, 30 + 60 * probe.seconds)
                try:
                    passed = probe.run()
                except BaseException:
                    passed = False
                signal.setitimer(signal.ITIMER_PROF, 0.0)
                if not passed:
                    return True, tries + 1
            return False, len(probes)

        found = forked(child, math.inf)
        killed, tries = found if found is not None else (True, int.from_bytes(place, "little") + 1)
        met = [probe.name for probe in probes[:tries]]
        self._learn(mutant, met, killed)
        fate = {"killed": killed, "by": met[-1] if killed else "", "tries": tries, "reached": len(probes)}
        if found is None:
            fate["how"] = "does not end, or dies"
        return {**fate, "seconds": round(_seconds_of_children() - before, 2)}


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Results


class Fates:
    """The fates of mutants, in a file; the last one counts. `tried`: of whole functions, from earlier runs."""

    def __init__(self, path: Path, tried: Path = TRIED) -> None:
        self._path = path
        self._tried = tried
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._lived: dict[tuple[str, str], frozenset[str]] = {}
        for line in tried.read_text().splitlines() if tried.exists() else ():
            function = json.loads(line)
            self._lived[function["text"], function["function"]] = frozenset(function["lived"])
        for line in path.read_text().splitlines() if path.exists() else ():
            fate = json.loads(line)
            self._known[fate["text"], fate["name"]] = fate

    def of(self, mutant: Mutant) -> dict[str, Any] | None:
        """The fate of a mutant; None if it was not tried."""
        if (fate := self._known.get((mutant.text, mutant.name))) is not None:
            return fate
        lived = self._lived.get((mutant.text, mutant.function))
        return None if lived is None else {"killed": mutant.change not in lived, "by": "", "seconds": 0.0}

    def add(self, mutant: Mutant, fate: dict[str, Any]) -> None:
        """Note it."""
        fate = {"file": mutant.file, "name": mutant.name, "line": mutant.line, "text": mutant.text, **fate}
        self._known[mutant.text, mutant.name] = fate
        with self._path.open("a") as file:
            file.write(json.dumps(fate) + "\n")

    def record(self, files: Iterable[str]) -> None:
        """Write down the functions of all `files` whose mutants were all tried, or are explained."""
        explained = survivors()
        new = self._tried.with_suffix(".written")
        with new.open("w") as written:
            for name in files:
                by_function: dict[tuple[str, str], list[Mutant]] = {}
                for mutant in mutants(name):
                    by_function.setdefault((mutant.function, mutant.text), []).append(mutant)
                for (function, text), all_of in by_function.items():
                    fates = [(mutant, self.of(mutant)) for mutant in all_of if code_of(mutant) is not None]
                    if all(fate or why(mutant, explained) for mutant, fate in fates):
                        lived = [mutant.change for mutant, fate in fates if fate is None or not fate["killed"]]
                        line = {"file": name, "function": function, "text": text, "lived": lived}
                        written.write(json.dumps(line, ensure_ascii=False) + "\n")
        new.replace(self._tried)  # whoever is ended meanwhile leaves the old record whole


def chosen(options: argparse.Namespace) -> Iterable[Mutant]:
    """The mutants that are asked for, file by file, those of a file in a random order."""
    part, parts = map(int, options.part.split("/"))
    for name in options.file:
        found = [mutant for mutant in mutants(name) if options.function in mutant.name]
        Random(0).shuffle(found)
        yield from found[part::parts][: options.sample or None]


def survivors() -> dict[str, dict[str, str]]:
    """The reasons why nobody needs to notice: by file and mutant, or pattern."""
    return tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}


def matches(entry: str, name: str) -> bool:
    """True if an entry of the explanations speaks of a mutant."""
    return bool(re.fullmatch(entry[2:], name)) if entry.startswith("~ ") else entry == name


def why(mutant: Mutant, explained: dict[str, dict[str, str]]) -> str:
    """The reason why nobody needs to notice it; empty if none is given."""
    return next((reason for entry, reason in explained.get(mutant.file, {}).items() if matches(entry, mutant.name)), "")


def stale(explained: dict[str, dict[str, str]], files: Collection[str]) -> list[str]:
    """Explanations of mutants that are not there any more."""
    found = []
    for name, entries in explained.items():
        there = [mutant.name for mutant in mutants(name)] if name in files and (ROOT / name).exists() else []
        found += [f"{name}: {entry}" for entry in entries if not any(matches(entry, each) for each in there)]
    return found


def report(options: argparse.Namespace) -> bool:
    """Print what became of the mutants that were asked for. True if all were tried, and each survivor is explained.

    That something notices a mutant that is explained is printed only: an entry may be a pattern for many.
    """
    fates, explained = Fates(Path(options.results)), survivors()
    total: Counter[str] = Counter()
    seconds = 0.0
    unexplained, noticed = [], []
    if options.record:
        fates.record(FILES + MORE_FILES)
    for name in options.file:
        tally: Counter[str] = Counter()
        for mutant in chosen(argparse.Namespace(**{**vars(options), "file": [name]})):
            fate = fates.of(mutant)
            reason = why(mutant, explained)
            killed = fate is not None and fate["killed"]
            if code_of(mutant) is None:
                continue
            if killed and reason:
                noticed.append(f"{mutant.file}:{mutant.line}: {mutant.name}")
            verdict = "killed" if killed else "explained" if reason else "not tried" if fate is None else "open"
            tally[verdict] += 1
            seconds += fate["seconds"] if fate is not None else 0.0
            if verdict == "open":
                unexplained.append(f"{mutant.file}:{mutant.line}: {mutant.name}")
        total += tally
        print(f"{name}: " + ", ".join(f"{tally[verdict]} {verdict}" for verdict in sorted(tally)))
    tried = sum(total.values()) - total["not tried"]
    print(f"{sum(total.values())} mutants: {dict(total)}, {seconds / max(tried, 1):.2f} s each")
    for each in unexplained:
        print(f"survived, and nobody says why: {each}")
    for each in noticed:
        print(f"explained, though something notices: {each}")
    return not unexplained and not total["not tried"]


def main() -> int:
    """Search; 1 if a mutant has survived that is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", action="append", default=[], help="or folder; the core of recovery if not given")
    parser.add_argument("--all", action="store_true", help="all files of recovery/ and monitor/")
    parser.add_argument("--function", default="", help="only mutants whose name contains this")
    parser.add_argument("--tests", action="append", default=[], help="only these files of tests, beside simulated jobs")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants of a file only")
    parser.add_argument("--part", default="0/1", help="every n-th mutant: 0/2 and 1/2 are all")
    parser.add_argument("--seeds", type=int, default=4, help="simulated jobs of each program")
    parser.add_argument("--patience", type=float, default=2.0, help="seconds of processor time for a mutant")
    parser.add_argument("--seconds", type=float, default=8 * 3600.0, help="begin none after that")
    folder = Path(tempfile.gettempdir())
    parser.add_argument("--results", default=str(folder / "mutation.jsonl"))
    parser.add_argument("--baseline", default=str(folder / "mutation.baseline"), help="what each test executes")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--explained", action="store_true", help="try those that are explained, and no others")
    parser.add_argument("--report", action="store_true", help="try nothing, say what is known")
    parser.add_argument("--record", action="store_true", help=f"write what is known into {TRIED.name}")
    options = parser.parse_args()
    named = tuple(options.file) or (("",) if options.all else FILES)
    options.file = [name for wanted in named for name in FILES + MORE_FILES if name.startswith(wanted)]
    code = 0
    if not options.report:
        module_of(
            "recovery/fixed_point/compiled.py"
        )  # before a test does: machine code has no lines, and cannot be changed
        os.environ["FALKIRK_TEST_PROFILE"] = "mutation"
        ignored = [f"--ignore={path}" for name in NOT for path in (ROOT / "tests").rglob(name)]
        os.chdir(ROOT)
        # Folders of tests are apart: other runs of pytest clear away those that they take for old.
        with tempfile.TemporaryDirectory(prefix="mutation-") as apart:
            code = pytest.main(
                [
                    "-q",
                    *("-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none", "-m", "not soak"),
                    f"--basetemp={apart}/tests",
                    *ignored,
                    *("--doctest-modules", "recovery", "monitor"),
                    *(options.tests or TESTS),
                ],
                plugins=[Search(options)],
            )
    good = report(options)
    wrong = [f"explained, but not there: {entry}" for entry in stale(survivors(), FILES + MORE_FILES)]
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if not good or wrong or code not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main())
