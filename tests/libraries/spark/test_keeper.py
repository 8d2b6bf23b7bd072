"""The keeper of Spark: what it loads, and how a Java comes in the place of one that has died."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.daemon.owned import Start
from libraries.spark.host.host import SparkHost, host_of
from libraries.spark.protocol import FOLDER
from libraries.spark.setup.java import find_java
from libraries.spark.setup.options import SparkOptions
from runtime.run import run
from tests.support.beside import run_beside
from tests.support.processes import children, gone, parent, wait_for
from timely.io import Batches
from timely.io.memory import rows_of

_SAYS = "import os, sys; print(sys.argv[1:], os.environ.get('WHERE'), flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("module", "unused"),
    [
        ("libraries.spark.daemon.daemon", ("numpy", "pyarrow", "polars", "pyspark", "timely.dataflow")),
        ("libraries.spark.client.client", ("polars", "pandas", "networkx", "timely.dataflow", "timely.operators")),
    ],
)
def test_processes_of_spark_load_only_what_they_need(module: str, unused: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print([name for name in {unused!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_is_started_again_as_another_one_was_in_a_folder_of_its_own(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    first = subprocess.Popen(
        [sys.executable, "-c", _SAYS, f"--at={one}/x", "", "two words"],
        env={**os.environ, "WHERE": f"{one}:a=b"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    assert first.stdout.readline() == f"['--at={one}/x', '', 'two words'] {one}:a=b\n"
    start = Start.of(first.pid, one)
    first.communicate("")
    assert start is not None
    assert f"--at={FOLDER}/x" in start.arguments
    command, environment = start.in_folder(sys.executable, other)
    said = subprocess.run(command, env=environment, input="", capture_output=True, text=True, check=True).stdout
    assert said == f"['--at={other}/x', '', 'two words'] {other}:a=b\n"


def test_a_script_with_java_as_its_child_is_no_start_to_be_repeated(tmp_path: Path) -> None:
    script = tmp_path / "java"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    with subprocess.Popen([script, "-cp", "x"], stdin=subprocess.PIPE) as process:
        wait_for(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"/bin/sh\0"))
        assert Start.of(process.pid, str(tmp_path)) is None
        process.communicate(b"\n")
    assert Start.of(process.pid, str(tmp_path)) is None


@pytest.fixture
def counted_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has a Java that leaves a file in this folder for each of its starts: of the launcher, or of Spark."""
    program, starts = tmp_path / "counted" / "bin" / "java", tmp_path / "starts"
    program.parent.mkdir(parents=True)
    starts.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "for each do\n"
        f'  [ "$each" = org.apache.spark.launcher.Main ] && touch {shlex.quote(str(starts))}/launcher-$$ && break\n'
        f'  [ "$each" = org.apache.spark.deploy.SparkSubmit ] && touch {shlex.quote(str(starts))}/spark-$$\n'
        "done\n"
        f'exec {shlex.quote(str(find_java().home / "bin" / "java"))} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("FALKIRK_JAVA", str(tmp_path / "counted"))
    return starts


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[SparkHost]:
    """Spark with a Java of its own; with a spare one if that is asked for."""
    host = host_of(SparkOptions(memory="702m", nice=0, retries=0, spare=getattr(request, "param", False)))
    yield host
    host.stop()


@pytest.mark.check
@pytest.mark.spark
def test_java_that_is_killed_while_it_starts_costs_a_start_and_no_try(counted_java: Path, host: SparkHost) -> None:
    flow = Dataflow("started")
    rows = flow.columns("in", Batches([pl.DataFrame({"k": [1, 2]})]))
    spark.batch(rows, "select sum(k) as s from input", options=host.options, name="sum").capture("out")
    killed = 3

    def kill() -> None:
        known: set[Path] = set()
        for _ in range(killed):
            wait_for(lambda: set(counted_java.glob("spark-*")) - known)
            (started,) = set(counted_java.glob("spark-*")) - known
            known.add(started)
            os.kill(int(started.name.removeprefix("spark-")), signal.SIGKILL)

    ((_, batch),) = run_beside(lambda: run(flow), kill).captured("out")
    assert rows_of(batch) == [{"s": 3}]
    assert len(list(counted_java.glob("spark-*"))) == killed + 1, "none was ended by ourselves"


def javas(keeper: int) -> set[int]:
    return {pid for pid in children(keeper) if Path(f"/proc/{pid}/comm").read_text() == "java\n"}


def has_a_session(java: int) -> bool:
    """True if a Java has a running Spark, by its threads: an empty gateway has none that dispatch."""
    names = [name.read_text() for name in Path(f"/proc/{java}/task").glob("*/comm")]
    return any(name.startswith("dispatcher") for name in names) and any(
        name.startswith("driver-heart") for name in names
    )


@pytest.mark.check
@pytest.mark.spark
def test_a_java_that_dies_is_replaced_before_anybody_asks_and_without_what_had_started_it(
    counted_java: Path, host: SparkHost
) -> None:
    def starts(what: str) -> int:
        return len(list(counted_java.glob(f"{what}-*")))

    host.warm()
    wait_for(lambda: host.pid is not None)
    java = host.pid
    assert java is not None
    keeper = parent(java)
    assert (starts("launcher"), starts("spark")) == (1, 1)
    os.kill(java, signal.SIGKILL)
    wait_for(lambda: starts("spark") == 2)
    (other,) = javas(keeper)
    assert not has_a_session(other), "nobody has asked for one"
    wait_for(lambda: host.pid is None)  # it has heard of the end, by way of the child
    host.warm()
    wait_for(lambda: host.pid is not None)
    assert host.pid == other
    assert (starts("launcher"), starts("spark")) == (1, 2)
    host.stop()
    wait_for(lambda: gone(keeper) and gone(other))


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("host", [True], indirect=True)
def test_a_spare_java_has_opened_a_session_before_it_is_needed(host: SparkHost) -> None:
    """That takes as long as to start Java. Whoever opened it is gone, and the job goes on with the first one."""
    host.warm()
    wait_for(lambda: host.pid is not None)
    java = host.pid
    assert java is not None
    keeper = parent(java)
    wait_for(lambda: has_a_session(java))
    child = set(children(keeper)) - {java}
    wait_for(lambda: len(javas(keeper)) == 2)
    (spare,) = javas(keeper) - {java}
    wait_for(lambda: has_a_session(spare))
    wait_for(lambda: set(children(keeper)) == {java, spare, *child})
    assert host.pid == java
