"""Jobs on several hosts, played by processes that know each other by host file and TCP alone; and the host file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.place import Place
from runtime.control import Built
from runtime.hosts.host import HostFile, create_host_files, run_host
from runtime.program import built, check_alike
from tests.support.processes import free_addresses
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError
from timely.io import Iterable

ROOT = Path(__file__).resolve().parents[2]

RUNNER = """
import json, sys
from runtime.hosts.host import HostFile, Timing, run_host
from runtime.program import parse_program
from timely.errors import FalkirkError

hosts, app, index, out = sys.argv[1:]
try:
    result = run_host(parse_program(app), HostFile.load(hosts), int(index), timing=Timing(meet=30.0, silence=3.0))
except FalkirkError as error:
    sys.exit(f"{type(error).__name__}: {error}")
counts = [record for _, batch in result.captured("counts") for record in batch]
with open(out, "w") as file:
    json.dump({"counts": counts, "records": result.records, "workers": list(result.stats)}, file)
"""

WORDCOUNT = """
import os
from random import Random
from libraries.columns.verbs.dataflow import Dataflow
from timely.io import Iterable

def words(part):
    random = Random(part)
    return [f"word-{random.randrange(500)}" for _ in range(6000)]

def build():
    flow = Dataflow("wordcount")
    lines = flow.source("words", Iterable(partitioned=[words(part) for part in range(4)], batch=500, epoch_every=1000))
    lines.key_by(lambda word: word).count(over="time").records().capture("counts")
    return flow
"""

ENDLESS = """
import os, sys
from libraries.columns.verbs.dataflow import Dataflow
from timely.io import Rate

def check(n):
    if n == 40:
        print("running", file=sys.stderr, flush=True)
    if n == 60 and os.environ.get("FAILS"):
        raise ValueError(f"record {n} is bad")
    return n

def build():
    flow = Dataflow("endless")
    numbers = flow.source("numbers", Rate(lambda n: n, 400, epoch_every=20))
    numbers = numbers.map(check, name="check")
    numbers.exchange(lambda n: n).key_by(lambda n: n % 7).count(name=os.environ.get("NAME", "count")).records()
    return flow
"""


def hosts_on_loopback(folder: Path, workers: int) -> HostFile:
    return create_host_files(folder / "hosts.toml", workers, free_addresses(workers))


class Job:
    """One process for each worker, started by hand as on different hosts."""

    def __init__(self, folder: Path, workers: int, app: str, env: dict[int, dict[str, str]] | None = None) -> None:
        self.hosts = hosts_on_loopback(folder, workers)
        self.folder = folder
        (folder / "app.py").write_text(app)
        self.processes = [self._start(index, (env or {}).get(index, {})) for index in range(workers)]

    def _start(self, index: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
        arguments = [str(self.hosts.path), str(self.folder / "app.py"), str(index), str(self.folder / f"out-{index}")]
        with open(self.folder / f"err-{index}", "wb") as err:
            return subprocess.Popen(
                [sys.executable, "-c", RUNNER, *arguments],
                stderr=err,
                env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            )

    def said(self, index: int) -> str:
        return (self.folder / f"err-{index}").read_text()

    def wait_until_running(self) -> None:
        end = time.monotonic() + 120
        while "running" not in self.said(0):
            assert self.processes[0].poll() is None, self.said(0)
            assert time.monotonic() < end
            time.sleep(0.02)

    def codes(self, seconds: float) -> list[int]:
        end = time.monotonic() + seconds
        try:
            return [process.wait(max(0.0, end - time.monotonic())) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def outputs(self) -> list[dict[str, object]]:
        return [json.loads((self.folder / f"out-{index}").read_text()) for index in range(len(self.processes))]


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_wordcount_on_several_hosts_gives_what_one_gives(tmp_path: Path, workers: int) -> None:
    job = Job(tmp_path, workers, WORDCOUNT)
    assert job.codes(90) == [0] * workers, [job.said(index) for index in range(workers)]
    outputs = job.outputs()
    total: Counter[str] = Counter()
    for output in outputs:
        assert output["counts"], "every worker has some of the keys"
        for word, count in output["counts"]:  # type: ignore[attr-defined]
            total[word] += count
    expected: Counter[str] = Counter()
    for part in range(4):
        random = Random(part)
        expected.update(f"word-{random.randrange(500)}" for _ in range(6000))
    assert total == expected
    assert sum(output["records"] for output in outputs) == 24_000  # type: ignore[misc]
    assert [output["workers"] for output in outputs] == [[index] for index in range(workers)]


def test_killing_one_worker_stops_the_others_in_seconds(tmp_path: Path) -> None:
    job = Job(tmp_path, 3, ENDLESS)
    job.wait_until_running()
    job.processes[2].kill()
    assert job.codes(60) == [1, 1, -signal.SIGKILL]
    for index in (0, 1):
        assert f"has lost worker 2 at {job.hosts.addresses[Place(2)]}" in job.said(index)


def test_the_error_of_one_worker_reaches_the_others(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, ENDLESS, env={0: {"FAILS": "yes"}})
    assert job.codes(90) == [1, 1]
    assert "OperatorError: map 'check'" in job.said(0)
    assert f"WorkerLost: worker 0 at {job.hosts.addresses[Place(0)]} failed: map 'check'" in job.said(1)
    assert "record 60 is bad" in job.said(1)


def test_ctrl_c_at_one_worker_stops_the_others(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, ENDLESS)
    job.wait_until_running()
    job.processes[0].send_signal(signal.SIGINT)
    codes = job.codes(90)
    assert codes[0] != 0
    assert codes[1] == 1
    assert f"worker 0 at {job.hosts.addresses[Place(0)]} failed: it was stopped by Ctrl-C" in job.said(1)


def test_workers_with_different_programs_do_not_begin(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, ENDLESS, env={1: {"NAME": "tally"}})
    assert job.codes(90) == [1, 1]
    for index in (0, 1):
        assert "worker 1 built another dataflow than worker 0" in job.said(index)
        assert "operator 'tally' is new" in job.said(index)
        assert "running" not in job.said(index)


def test_one_worker_alone_needs_nobody(tmp_path: Path) -> None:
    hosts = hosts_on_loopback(tmp_path, 1)
    (tmp_path / "app.py").write_text(WORDCOUNT)
    from runtime.program import Program

    result = run_host(Program(path=str(tmp_path / "app.py")), hosts, 0)
    assert result.records == 24_000
    with pytest.raises(FalkirkError, match="no capture 'other'"):
        result.captured("other")


# The host file


def test_a_new_host_file_reads_back_and_hides_its_secrets(tmp_path: Path) -> None:
    made = create_host_files(tmp_path / "hosts.toml", 2, ["tcp://10.0.0.5:7700", "tcp://[fd00::1]:7701"])
    hosts = HostFile.load(tmp_path / "hosts.toml")
    assert hosts == made
    assert list(hosts.addresses.values()) == ["tcp://10.0.0.5:7700", "tcp://[fd00::1]:7701"]
    text = hosts.path.read_text()
    for index in range(2):
        path = tmp_path / f"hosts-{index}.key"
        assert path.stat().st_mode & 0o777 == 0o600
        keys = hosts.keys(index)
        assert keys is not None
        assert keys.secret in path.read_text()
        assert keys.secret not in text
    assert list(create_host_files(tmp_path / "local.toml", 2).addresses.values()) == [
        "tcp://127.0.0.1:7700",
        "tcp://127.0.0.1:7701",
    ]


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    create_host_files(tmp_path / "hosts.toml", 1)
    before = (tmp_path / "hosts-0.key").read_text()
    (tmp_path / "hosts.toml").unlink()
    with pytest.raises(FalkirkError, match="is there already"):
        create_host_files(tmp_path / "hosts.toml", 1)
    assert (tmp_path / "hosts-0.key").read_text() == before
    assert not (tmp_path / "hosts.toml").exists()


def test_a_key_that_others_can_read_or_that_is_not_the_right_one_is_refused(tmp_path: Path) -> None:
    hosts = create_host_files(tmp_path / "hosts.toml", 2)
    hosts.key_path(0).chmod(0o640)
    with pytest.raises(FalkirkError, match="chmod 600"):
        hosts.keys(0)
    hosts.key_path(0).chmod(0o600)
    hosts.key_path(0).write_text(hosts.key_path(1).read_text())
    with pytest.raises(FalkirkError, match="is not the one that"):
        hosts.keys(0)
    hosts.key_path(0).unlink()
    with pytest.raises(FalkirkError, match="secret key of worker 0"):
        hosts.keys(0)
    with pytest.raises(FalkirkError, match="workers 0 to 1, not 2"):
        hosts.keys(2)


KEY = "x" * 40


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workers = ", "is not TOML"),
        ("", r"must hold \[\[workers\]\]"),
        ("[[workers]]\nadress = 'tcp://a:1'\n", "has adress"),
        ("[[workers]]\naddress = 'a:1'\n", "give one such as"),
        ("[[workers]]\naddress = 'tcp://a:99999'\n", "give one such as"),
        ("[[workers]]\naddress = 'tcp://a:1'\n", "no public_key"),
        ("[[workers]]\naddress = 'tcp://a:1'\npublic_key = 'short'\n", "40 characters"),
        (f"[[workers]]\naddress = 'tcp://a:1'\npublic_key = '{KEY}'\n" * 2, "same address"),
        (
            f"[[workers]]\naddress = 'ipc:///a'\npublic_key = '{KEY}'\n[[workers]]\naddress = 'ipc:///b'\n",
            "some have none",
        ),
    ],
)
def test_a_host_file_that_makes_no_sense_is_explained(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "hosts.toml").write_text(text)
    with pytest.raises(FalkirkError, match=says):
        HostFile.load(tmp_path / "hosts.toml")


def test_a_missing_host_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FalkirkError, match=r"none\.toml cannot be read"):
        HostFile.load(tmp_path / "none.toml")


def test_workers_compare_the_code_of_functions_and_not_their_values() -> None:
    def of(build: Callable[[int], Callable[[int], Any]], value: int) -> Built:
        flow = Dataflow("job")
        flow.source("numbers", Iterable(range(3))).map(build(value), name="clean").capture("out")
        return built(compile_plan(flow.graph, 2))

    def adding(value: int) -> Callable[[int], Any]:
        return lambda n: n + value

    def taking(value: int) -> Callable[[int], Any]:
        return lambda n: n - value

    check_alike({Place(0): of(adding, 1), Place(1): of(adding, 2)}, "advice")
    with pytest.raises(
        FalkirkError, match=r"worker 1 .* worker 0, .*; advice:\n  operator 'clean': the code of the function is"
    ):
        check_alike({Place(0): of(adding, 1), Place(1): of(taking, 1)}, "advice")
    older = msgspec.structs.replace(of(taking, 1), functions=None)
    check_alike({Place(0): of(adding, 1), Place(1): older}, "advice")
