"""Odd surroundings of the command: names of programs that Python has itself, closed streams, long paths, full disks, Ctrl-C."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from runtime.imports import RESERVED, environment_for_children
from timely.errors import PACKAGES

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
from falkirk import Console, Dataflow, Iterable  # first, in a script: it keeps the files beside it out of the way

from dataclasses import dataclass

import helpers

@dataclass
class Sum:
    value: int

def build():
    flow = Dataflow("sums")
    numbers = flow.source("numbers", Iterable(range(4), epoch_every=2)).map(helpers.twice).map(Sum)
    numbers.exchange(lambda sum: sum.value).to(Console())
    return flow

if __name__ == "__main__":
    import falkirk
    falkirk.run(build, workers=2)
"""

LIKE_PYTHONS = [
    "queue",
    "threading",
    "json",
    "types",
    "typing",
    "random",
    "socket",
    "numpy",
    "msgspec",
    "monitor",
    "zmq",
]


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    before = {name: value for name, value in os.environ.items() if name != "FALKIRK_SYS_PATH"}
    return subprocess.run(
        command, cwd=cwd, env={**before, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which every program is called as something that Python or Falkirk needs."""
    for name in (*LIKE_PYTHONS, "app"):
        (tmp_path / f"{name}.py").write_text(PROGRAM)
    (tmp_path / "helpers.py").write_text(
        "import random, json\njson.dumps(random.random())\ndef twice(n): return 2 * n\n"
    )
    return tmp_path


FALKIRK = [
    sys.executable,
    "-c",
    "from falkirk.cli import main; main()",
]  # as the installed command: not from this folder
SHOWN = [f"{epoch}: Sum(value={value})" for epoch, value in ((0, 0), (0, 2), (1, 4), (1, 6))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["queue", "types"])
def test_program_may_have_the_name_of_a_module_of_python(folder: Path, name: str) -> None:
    done = run([*FALKIRK, "run", f"{name}.py", "-w", "2"], folder, PYTHONPATH=str(ROOT))
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, SHOWN), done.stderr


def test_script_may_have_the_name_of_a_module_of_python(folder: Path) -> None:
    done = run([sys.executable, "threading.py"], folder, PYTHONPATH=str(ROOT))
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, SHOWN), done.stderr


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", sorted(LIKE_PYTHONS))
def test_program_of_any_such_name_is_drawn(folder: Path, name: str) -> None:
    code = f"from runtime.program import parse_program; print(parse_program({name + '.py'!r}).build())"
    done = run([sys.executable, "-P", "-c", code], folder, PYTHONPATH=str(ROOT))
    assert done.stdout == "Dataflow('sums', 5 operators)\n", done.stderr


def test_all_that_falkirk_needs_is_reserved() -> None:
    needed: set[str] = set()
    waiting = ["falkirk"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            wants = importlib.metadata.distribution(name).requires or []
        except importlib.metadata.PackageNotFoundError:
            continue
        if name not in needed:
            needed.add(name)
            waiting += [
                each.name for each in map(Requirement, wants) if not each.marker or each.marker.evaluate({"extra": ""})
            ]
    tops = {
        top
        for top, homes in importlib.metadata.packages_distributions().items()
        if any(re.sub(r"[-_.]+", "-", home).lower() in needed for home in homes)
    }
    assert {top for top in tops if not top.startswith("_")} <= RESERVED


@pytest.mark.check
def test_closed_output_is_no_failure(folder: Path) -> None:
    for redirection in (">&-", ">&- 2>&-", "<&- >&- 2>&-"):
        command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *FALKIRK, "graph", "app.py"]
        assert run(command, folder, PYTHONPATH=str(ROOT)).returncode == 0
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *FALKIRK, "run", "app.py"]
    done = run(command, folder, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert "finished: 4 records" in done.stderr


def test_long_temporary_folder_and_full_event_log(folder: Path) -> None:
    long = folder / ("t" * 120)
    long.mkdir()
    command = [*FALKIRK, "run", "app.py", "--store", "store", "--events", "/dev/full"]
    done = run(command, folder, PYTHONPATH=str(ROOT), TMPDIR=str(long))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == SHOWN
    assert "events are no longer written to /dev/full: No space left on device" in done.stderr


INTERRUPTED = """
import os, signal, sys
done, module = [], sys.argv[1]
def hook(event, arguments):
    if event == "import" and arguments[0] == module and not done:
        done.append(1)
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
from falkirk.command import main
sys.argv[1:2] = []
main()
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("what", "module"),
    [("run", "typer"), ("run", "polars"), ("graph", "numpy"), ("run", "helpers"), ("simulate", "helpers")],
)
def test_interruption_in_the_middle_of_imports_is_told_in_a_line(folder: Path, what: str, module: str) -> None:
    more = ["--seeds", "1"] if what == "simulate" else []
    done = run([sys.executable, "-P", "-c", INTERRUPTED, module, what, "app.py", *more], folder, PYTHONPATH=str(ROOT))
    assert done.returncode == 130, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("stopped: by Ctrl-C")


def test_every_package_of_falkirk_is_found_by_processes_and_hidden_by_no_program() -> None:
    assert set(PACKAGES) <= RESERVED
    path = environment_for_children().get("PYTHONPATH", "").split(os.pathsep)
    installed = importlib.util.find_spec("falkirk") is not None and "site-packages" in str(ROOT)
    assert installed or str(ROOT) in path


OWN_CLASSES = """
from collections import namedtuple
import falkirk

class Wrapped:
    def __init__(self, value):
        self.value = value

Pair = namedtuple("Pair", "x y")
falkirk.register(Wrapped, encode=lambda wrapped: wrapped.value, decode=Wrapped, name="wrapped")

def build():
    flow = falkirk.Dataflow("own classes")
    values = [(number, Pair(number, Wrapped(number))) for number in range(6)]
    sent = flow.source("values", falkirk.Iterable(values, batch=1)).exchange(lambda value: value[0])
    sent.map(lambda value: (type(value[1]).__name__, value[1].x + value[1].y.value)).capture("seen")
    return flow

if __name__ == "__main__":
    for workers in (1, 2):
        found = falkirk.run(build, workers=workers).captured("seen")
        print(sorted(row for _, batch in found for row in batch))
"""


def test_classes_of_a_script_cross_between_workers_as_within_one(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_CLASSES)
    done = run([sys.executable, "own.py"], tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    one, two = done.stdout.splitlines()
    assert one == two == str([("Pair", 2 * number) for number in range(6)])
