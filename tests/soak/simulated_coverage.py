"""The share of recovery that simulated runs execute: lines and branches, by file. `python -m tests.soak.simulated_coverage`.

Other tests do not count, only whole simulated jobs with faults. What is missed must be explained in
`never_simulated.toml`, item by item; an entry whose text is gone is an error too.

What was executed is kept in a file, with the runs that are still to be made: what was cut short by `--seconds` goes on when it
is started again. After a change of a file that is measured it begins anew.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import pickle
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage

if TYPE_CHECKING:  # at run time nothing of the product may be imported before the tracing begins
    from falkirk.simulate.outside import Result
    from falkirk.simulate.world import World
    from libraries.columns.verbs.dataflow import Dataflow

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = Path(__file__).with_name("never_simulated.toml")
LEAST = 95.0
FILES = (
    "recovery/rollback/orders.py",
    "recovery/rollback/queues.py",
    "timely/worker/restoring.py",
    "recovery/memory/recorder.py",
    "recovery/memory/channels.py",
    "recovery/memory/records.py",
    "recovery/memory/kept_messages.py",
    "recovery/epoch_ends.py",
    "recovery/checkpoint/checkpoints.py",
    "recovery/checkpoint/processor_checkpoints.py",
    "recovery/checkpoint/saved_events.py",
    "recovery/checkpoint/applied.py",
    "recovery/checkpoint/attributes.py",
    "recovery/checkpoint/operator_memory.py",
    "recovery/checkpoint/published.py",
    "recovery/agent/agent.py",
    "recovery/agent/state.py",
    "recovery/agent/reports.py",
    "recovery/agent/cuts.py",
    "recovery/agent/collection.py",
    "recovery/agent/rounds.py",
    "recovery/agent/completion.py",
    "monitor/coordination/coordinator.py",
    "monitor/coordination/state.py",
    "recovery/agent/backpressure.py",
    "recovery/loops.py",
    "recovery/rollback/carry_out.py",
    "monitor/coordination/options.py",
    "monitor/coordination/commit.py",
    "monitor/coordination/cuts.py",
    "monitor/coordination/handshake.py",
    "monitor/coordination/intervals.py",
    "monitor/coordination/topology.py",
    "monitor/coordination/workers.py",
)


def programs() -> dict[str, Callable[[], Dataflow]]:
    """All programs that are simulated somewhere."""
    from tests.falkirk.simulate.memories import memories
    from tests.falkirk.simulate.programs import PROGRAMS
    from tests.falkirk.simulate.troubled import histories
    from tests.recovery.jobs import RULE_PROGRAMS

    found: dict[str, Callable[[], Dataflow]] = {}
    for name, build in {**RULE_PROGRAMS, **PROGRAMS, "histories": histories, "memories": memories}.items():
        if build not in found.values():
            found[name] = build
    return found


# What is missed


@dataclass(frozen=True)
class Source:
    """A file's lines, and in which function each is."""

    name: str
    lines: tuple[str, ...]
    functions: tuple[str, ...]

    @classmethod
    def read(cls, name: str) -> Source:
        """The file `name` of the repository."""
        text = (ROOT / name).read_text()
        lines = text.splitlines()
        functions = [""] * (len(lines) + 1)

        def name_all(node: ast.AST, outer: str) -> None:
            for child in ast.iter_child_nodes(node):
                inner = outer
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    inner = f"{outer}.{child.name}" if outer else child.name
                    for line in range(child.lineno, (child.end_lineno or child.lineno) + 1):
                        functions[line] = inner
                name_all(child, inner)

        name_all(ast.parse(text), "")
        return cls(name, tuple(lines), tuple(functions))

    def text(self, line: int) -> str:
        """The text of a line; a line below 0 is the end of a function."""
        return self.lines[line - 1].strip() if line > 0 else "end"

    def line_item(self, line: int) -> str:
        """The name of a missed line."""
        return f"{self.functions[line]}: {self.text(line)}"

    def branch_item(self, begin: int, end: int) -> str:
        """The name of a missed branch."""
        return f"{self.line_item(begin)} -> {self.text(end)}"

    def items(self) -> set[str]:
        """The beginning of the name of all that may be missed here."""
        return {self.line_item(line) for line in range(1, len(self.lines) + 1)}


@dataclass(frozen=True)
class Share:
    """The executed part of a file, lines and branches; `missed`: the rest, as (line, name).

    Lines that are missed together are one item, named by the first; a branch is one of its own where it leads to a line
    that was executed all the same.
    """

    name: str
    executed: int
    all: int
    missed: tuple[tuple[int, str], ...]

    @property
    def percent(self) -> float:
        return 100.0 * self.executed / self.all if self.all else 100.0


def share(name: str, simulated: dict[str, Any], imported: dict[str, Any]) -> Share:
    """The executed part of a file, from two reports of coverage; lines that importing executes are left out."""
    source = Source.read(name)
    skipped = set(imported["executed_lines"])
    missing = [line for line in simulated["missing_lines"] if line not in skipped]
    executed = [line for line in simulated["executed_lines"] if line not in skipped]
    branches = [branch for branch in simulated["missing_branches"] if branch not in imported["executed_branches"]]
    taken = [branch for branch in simulated["executed_branches"] if branch not in imported["executed_branches"]]
    statements = sorted([*missing, *executed, *skipped])
    found = []
    for line in missing:
        before = statements[statements.index(line) - 1]
        if before not in missing or source.functions[before] != source.functions[line]:
            found.append((line, source.line_item(line)))
    for begin, end in branches:
        if begin not in missing and end not in missing:
            found.append((begin, source.branch_item(begin, end)))
    done, left = len(executed) + len(taken), len(missing) + len(branches)
    return Share(name, done, done + left, tuple(sorted(set(found))))


def explained() -> dict[str, dict[str, str]]:
    """The reasons, by file and item."""
    return tomllib.loads(EXPLAINED.read_text()) if EXPLAINED.exists() else {}


def stale(entries: dict[str, dict[str, str]]) -> list[str]:
    """Entries whose text stands nowhere any more."""
    found = []
    for name, items in entries.items():
        there = Source.read(name).items() if (ROOT / name).exists() and name in FILES else set()
        found += [f"{name}: {item}" for item in items if item not in there and item.rpartition(" -> ")[0] not in there]
    return found


# Running


KINDS = ("troubled", "often", "usual", "mates")
"""Kinds of worlds: more trouble than users' programs are given, frequent deaths, the faults of `falkirk simulate`, mates."""


def world(kind: str, build: Callable[[], Dataflow], seed: int) -> World:
    """A simulated job."""
    from falkirk.simulate.world import World
    from tests.falkirk.simulate.often import often
    from tests.falkirk.simulate.troubled import TroubledWorld

    workers = 3 - seed % 3
    if kind == "often":
        return often(build, workers, seed)
    if kind == "troubled":
        found: World = TroubledWorld(build, workers, seed)
    else:
        found = World(build, workers, seed, mates=int(kind == "mates"))
    found.curious = 0.01 if seed % 2 else 0.0
    return found


def failure_of(name: str, kind: str, build: Callable[[], Dataflow], seed: int, expected: Result) -> str:
    """Failure of one simulated job in words; empty if all is well."""
    from tests.falkirk.simulate.troubled import large_states, small_histories

    job = world(kind, build, seed)
    try:
        with {"troubled": small_histories, "often": large_states}.get(kind, nullcontext)():
            job.run(100_000)
        job.outside.compare(expected)
    except Exception as error:
        return f"{name}, {job.workers} workers, seed {seed}, {kind}: {type(error).__name__}: {error}"
    return ""


@dataclass
class Progress:
    """The work that one process has done so far, kept from run to run.

    Attributes:
        left: each program in a kind of world, with its next seed, and the number of seeds after which it is given up if they
            add nothing.
        traced: what was executed, as coverage dumps it.
        failures: the jobs that went wrong.
        done: the number of jobs.
    """

    left: dict[tuple[str, str], tuple[int, int]]
    traced: bytes = b""
    failures: list[str] = field(default_factory=list)
    done: int = 0

    @classmethod
    def read(cls, path: Path, begin: Progress) -> Progress:
        """As it was left; `begin` if there is nothing, or of other sources."""
        if path.exists():
            texts, progress = pickle.loads(path.read_bytes())
            if texts == _texts():
                assert isinstance(progress, Progress)
                return progress
        return begin

    def write(self, path: Path) -> None:
        """Keep it."""
        path.write_bytes(pickle.dumps((_texts(), self)))


def _texts() -> str:
    return sha256(b"".join((ROOT / name).read_bytes() for name in FILES)).hexdigest()


def measure(part: int, options: argparse.Namespace) -> Progress:
    """The runs of one process, as far as there is time.

    It has every n-th program. A program in a kind of world has the next seed until `dull` seeds in a row have added nothing to
    what all have executed: most of them are over soon.
    """
    ends = time.monotonic() + options.seconds
    traced = coverage.Coverage(
        data_file=None, config_file=False, branch=True, include=[str(ROOT / name) for name in FILES]
    )
    traced.start()
    traced.switch_context("import")
    from falkirk.simulate.simulation import Simulation

    build = {name: make for name, make in programs().items() if not options.only or name in options.only}
    expected: dict[str, Result] = {}
    traced.switch_context("simulated")
    mine = list(build)[part :: options.processes]
    path = Path(f"{options.results}.{part}")
    progress = Progress.read(path, Progress({(name, kind): (0, options.dull) for kind in KINDS for name in mine}))
    if progress.traced:
        earlier = coverage.CoverageData(no_disk=True)
        earlier.loads(progress.traced)
        traced.get_data().update(earlier)
    left, known = progress.left, _arcs(traced)
    while left and time.monotonic() < ends:
        for (name, kind), (seed, dull) in list(left.items()):
            if time.monotonic() >= ends:
                break
            if name not in expected:
                expected[name] = Simulation(build[name], 1).expected
            progress.done += 1
            if failure := failure_of(name, kind, build[name], seed, expected[name]):
                progress.failures.append(failure)
            before, known = known, _arcs(traced)
            dull = options.dull if known > before else dull - 1
            if dull and seed + 1 < options.seeds:
                left[name, kind] = seed + 1, dull
            else:
                del left[name, kind]
    traced.stop()
    progress.traced = traced.get_data().dumps()
    progress.write(path)
    return progress


def _arcs(traced: coverage.Coverage) -> int:
    data = traced.get_data()
    return sum(len(data.arcs(name) or ()) for name in data.measured_files())


def shares(traced: Sequence[bytes]) -> Iterator[Share]:
    """The share of each file, from what each process has traced."""
    both = coverage.Coverage(
        data_file=None, config_file=False, branch=True, include=[str(ROOT / name) for name in FILES]
    )
    for data in traced:
        one = coverage.CoverageData(no_disk=True)
        one.loads(data)
        both.get_data().update(one)
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for context in ("simulated", "import"):
            path = Path(folder) / context
            both.json_report(outfile=str(path), contexts=[context])
            reports.append(
                {str(Path(name).resolve()): of for name, of in json.loads(path.read_text())["files"].items()}
            )
    for name in FILES:
        simulated, imported = (report[str(ROOT / name)] for report in reports)
        yield share(name, simulated, imported)


def main() -> int:
    """Run, report; 1 if too little is executed, or not all that is missed is explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60, help="at most so many of each program in each kind of world")
    parser.add_argument("--dull", type=int, default=4, help="give up a program after so many seeds that add nothing")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no run after that")
    parser.add_argument("--processes", type=int, default=2)
    kept = str(Path(tempfile.gettempdir()) / "simulated_coverage")
    parser.add_argument("--results", default=kept, help="begin of the names of the files that keep what was done")
    parser.add_argument("--only", action="append", default=[], help="this program")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(measure, range(options.processes), [options] * options.processes))
    reasons, wrong = explained(), [failure for progress in found for failure in progress.failures]
    if left := sum(len(progress.left) for progress in found):
        wrong.append(f"{left} programs are not through: run it again")
    executed = everything = 0
    for each in shares([progress.traced for progress in found]):
        executed, everything = executed + each.executed, everything + each.all
        why = reasons.get(each.name, {})
        print(f"{each.percent:6.1f} %  {each.name}")
        for line, item in each.missed:
            print(f"          {line}: {item}{'' if item not in why else f'  [{why[item]}]'}")
        names = {item for _, item in each.missed}
        wrong += [f"{each.name}: not explained: {item}" for item in sorted(names - why.keys())]
        for item in sorted(why.keys() - names):
            print(f"          explained, but executed: {item}")
    percent = 100 * executed / everything
    if percent < LEAST:
        wrong.append(f"only {percent:.1f} %, where it must be {LEAST:.0f} %")
    runs = sum(progress.done for progress in found)
    print(f"{percent:6.1f} %  of {everything:,} lines and branches, in {runs:,} runs")
    wrong += [f"explained, but not there: {entry}" for entry in stale(reasons)]
    for each_wrong in wrong:
        print(each_wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
