"""The command, as users meet it: real processes, their output and their exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import gone

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = '''
import os

from falkirk import Dataflow, FileSink, Iterable, Rate


def build(records=1000, folder=None):
    flow = Dataflow("squares")
    squares = flow.source("numbers", Iterable(range(records), epoch_every=100)).map(lambda n: n * n, name="square")
    squares.inspect(lambda n: print("printed by the program") if n == 0 else None)
    if folder is not None:
        squares.to(FileSink(folder, format="jsonl"))
    return flow


def endless(folder=None):
    """Says in which processes it runs."""
    flow = Dataflow("endless")
    numbers = flow.source("numbers", Rate(lambda i: i, 500, epoch_every=50)).exchange(by=lambda n: n)
    said = set()

    def say(number):
        if os.getpid() not in said:
            said.add(os.getpid())
            print(f"pid {os.getpid()}", flush=True)

    seen = numbers.inspect(say)
    if folder is not None:
        seen.to(FileSink(folder, format="jsonl"))
    return flow


def broken():
    flow = Dataflow("broken")
    numbers = flow.source("numbers", Iterable(range(1000)))
    numbers.map(lambda n: 1 // (500 - n), name="divide [bold]").capture()
    return flow


def unbuildable():
    return Dataflow("unbuildable").no_such_verb()
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(PROGRAM)
    return path


def line_of(text: str) -> int:
    return PROGRAM.splitlines().index(text) + 1


def environment() -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT), before] if before else [str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "TERM": "xterm"}


def falkirk(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "falkirk", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())


class Running:
    """A job in a process group of its own, as under a terminal."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "falkirk", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )

    def pids(self, count: int) -> list[int]:
        """The processes in which the program runs, once it has run in `count` of them."""
        assert self.process.stdout is not None
        found: list[int] = []
        while len(found) < count:
            line = self.process.stdout.readline()
            assert line, f"the job ended early: {self.process.communicate()[1]}"
            found += map(int, re.findall(r"pid (\d+)", line))
        return found

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@pytest.fixture
def running() -> Iterator[list[Running]]:
    jobs: list[Running] = []
    yield jobs
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()


# Jobs that end by themselves


def test_json_prints_one_object_a_line_and_nothing_of_the_program(program: Path) -> None:
    done = falkirk("run", program, "-w", "2", "--json", "--every", "0.1", "--arg", "records=2500")
    assert done.returncode == 0, done.stderr
    *progress, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(entry["event"] == "progress" for entry in progress)
    assert last["event"] == "finished"
    assert last["records"] == 2500 == sum(worker["records"] for worker in last["workers"])
    assert len(last["workers"]) == 2
    assert last["open_epoch"] is None
    assert "printed by the program" in done.stderr


def test_quiet_says_nothing_and_arguments_reach_the_program(program: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = falkirk("run", program, "--quiet", "--arg", "records=300", "--arg", f"folder={out}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "printed by the program\n"
    written = [json.loads(line) for file in out.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(written) == [n * n for n in range(300)]


def test_without_a_terminal_a_summary_follows_on_standard_error(program: Path) -> None:
    done = falkirk("run", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "printed by the program\n"
    assert "app.py finished: 1,000 records read" in done.stderr
    assert "\x1b" not in done.stderr


# Jobs that fail


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [1, 2])
def test_error_in_user_function_names_operator_and_line(program: Path, workers: int) -> None:
    done = falkirk("run", f"{program}:broken", "-w", str(workers))
    assert done.returncode == 1
    line = line_of('    numbers.map(lambda n: 1 // (500 - n), name="divide [bold]").capture()')
    assert f"error: map 'divide [bold]' ({program}:{line}) failed at time (0,): ZeroDivisionError" in done.stderr
    assert "the record: 500" in done.stderr
    assert "Traceback" not in done.stderr


def test_traceback_is_shown_when_asked_for(program: Path) -> None:
    done = falkirk("run", f"{program}:broken", "--traceback")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "error: map 'divide [bold]'" in done.stderr


def test_program_that_cannot_be_built_fails_with_the_users_line(program: Path) -> None:
    done = falkirk("run", f"{program}:unbuildable", "--json")
    line = line_of('    return Dataflow("unbuildable").no_such_verb()')
    assert done.returncode == 1
    assert f"{program}:{line} in unbuildable: AttributeError" in done.stderr
    assert 'return Dataflow("unbuildable").no_such_verb()' in done.stderr
    assert "Traceback" not in done.stderr
    (last,) = [json.loads(text) for text in done.stdout.splitlines()]
    assert (last["event"], last["kind"], last["exit_code"]) == ("failed", "AttributeError", 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "there is no program missing.py"),
        (["{program}:nothing"], "app.py has no 'nothing'"),
        (["{program}", "--arg", "records"], "not of the form key=value"),
    ],
)
def test_wrong_command_line_exits_with_2(program: Path, arguments: list[str], message: str) -> None:
    done = falkirk("run", *(argument.format(program=program) for argument in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# Jobs that are stopped


def test_ctrl_c_stops_two_workers_and_leaves_no_process(program: Path, running: list[Running]) -> None:
    job = Running("run", f"{program}:endless", "-w", "2")
    running.append(job)
    pids = job.pids(2)
    os.killpg(job.process.pid, signal.SIGINT)  # a terminal tells the whole group
    code, errors = job.end()
    assert code == 130
    assert "stopped: by Ctrl-C after" in errors
    assert "Traceback" not in errors
    assert all(gone(pid) for pid in pids)


def test_terminated_job_leaves_no_unfinished_file(program: Path, tmp_path: Path, running: list[Running]) -> None:
    out = tmp_path / "out"
    job = Running("run", f"{program}:endless", "--arg", f"folder={out}")
    running.append(job)
    job.pids(1)
    deadline = time.monotonic() + 120
    while not list(out.rglob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.02)
    job.process.terminate()
    code, errors = job.end()
    assert code == 143
    assert "stopped: by SIGTERM" in errors
    files = [path for path in out.rglob("*") if path.is_file() and path.name != ".falkirk-job"]
    assert files
    assert {path.suffix for path in files} == {".jsonl"}
    numbers = [int(line) for path in files for line in path.read_text().splitlines()]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) % 50 == 0, "only whole epochs"


def test_killed_worker_is_reported_and_ends_the_job(program: Path, running: list[Running]) -> None:
    job = Running("run", f"{program}:endless", "-w", "2")
    running.append(job)
    pids = job.pids(2)
    os.kill(pids[1], signal.SIGKILL)
    code, errors = job.end()
    assert code == 3
    assert re.search(rf"error: worker \d \(process {pids[1]}\) was killed by SIGKILL", errors)
    assert all(gone(pid) for pid in pids)


# The other commands


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom falkirk.cli import app\napp(['--help'], standalone_mode=False)\n"
        "print(sorted({'polars', 'pyarrow', 'numba', 'numpy', 'networkx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    for command in ("run", "graph", "demo", "bench", "doctor"):
        assert f" {command} " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_names_of_options_are_whole_in_a_narrow_terminal() -> None:
    narrow = {**environment(), "COLUMNS": "40"}
    done = subprocess.run(
        [sys.executable, "-m", "falkirk", "run", "--help"], capture_output=True, text=True, env=narrow, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for option in ("--max-epochs", "--heartbeat-timeout", "--workers"):
        assert option in done.stdout


def test_sources_are_as_far_ahead_as_when_a_script_runs_the_job() -> None:
    from inspect import signature

    from falkirk.cli import run
    from runtime.sources.limits import Limits

    assert signature(run).parameters["max_epochs"].default == Limits().epochs


def test_the_event_log_says_which_process_a_worker_is(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import os\nfrom falkirk import Dataflow, FileSink, Iterable\nflow = Dataflow('pids')\n"
        "flow.source('in', Iterable(range(9))).key_by(abs).values().map(lambda n: os.getpid()).to(FileSink('out'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "falkirk", "run", "app.py", "-w", "2", "--store", "store", "--events", "events"],
        **{"cwd": tmp_path, "capture_output": True, "text": True, "env": environment(), "timeout": 120},
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    pids = {event["worker"]: event["pid"] for event in events if event["kind"] == "process"}
    assert pids.keys() == {0, 1}
    worked = {int(line) for file in (tmp_path / "out").glob("epoch*") for line in file.read_text().splitlines()}
    assert worked <= {*pids.values()}


def test_version_is_that_of_the_project() -> None:
    import tomllib

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert falkirk("--version").stdout.startswith(f"falkirk {version} ")


def test_graph_as_json_names_every_operator_and_where_it_was_made(program: Path) -> None:
    done = falkirk("graph", program, "--json")
    assert done.returncode == 0, done.stderr
    graph = json.loads(done.stdout)
    nodes = {node["name"]: node for node in graph["nodes"]}
    assert nodes["square"]["kind"] == "map"
    assert nodes["square"]["file"] == str(program)
    assert (
        nodes["square"]["line"]
        == nodes["numbers"]["line"]
        == line_of(
            '    squares = flow.source("numbers", Iterable(range(records), epoch_every=100))'
            '.map(lambda n: n * n, name="square")'
        )
    )
    assert {"source": nodes["numbers"]["index"], "target": nodes["square"]["index"]}.items() <= graph["edges"][
        0
    ].items()


@pytest.mark.parametrize("how", ["graph", "doctor"])  # one prints itself, the other with rich
def test_reader_that_goes_away_ends_the_output_quietly(program: Path, how: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "falkirk", how, *([str(program)] if how == "graph" else [])]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300, env=environment())
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_doctor_finds_this_machine_fit() -> None:
    done = falkirk("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "polars" in done.stdout
    assert "a small job ran in" in done.stdout
    assert "All that Falkirk needs is here." in done.stdout
