"""Real worker processes: same results as one worker; whatever dies or fails ends the job, with a reason, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from runtime.program import Program
from runtime.run import run
from runtime.session.session import Session
from runtime.supervisor.supervisor import Job
from timely.errors import CodecError, FalkirkError, OperatorError, SinkError, WorkerLost
from timely.io import Iterable, Rate
from timely.io.scripted import Pause, Scripted

HERE = Path(__file__).name
SOON = 8.0
"""Seconds within which a failed job must be over, beside its start: below the waits for goodbyes."""


def started() -> float:
    """Seconds that a small job takes just now, on a machine that may have much else to do."""
    began = time.monotonic()
    flow = Dataflow()
    flow.source("in", Iterable([1])).capture()
    run(flow, workers=2)
    return time.monotonic() - began


def within(seconds: float, action: Callable[[], Any]) -> Any:
    began = time.monotonic()
    try:
        return action()
    finally:
        took = time.monotonic() - began
        if took >= seconds:
            allowed = seconds + 2 * started()
            assert took < allowed, f"it took {took:.1f} s, and {allowed:.1f} s were allowed"


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def many_things() -> Dataflow:
    flow = Dataflow("many things")
    numbers = flow.source("numbers", Iterable(partitioned=[range(0, 300), range(300, 500)], epoch_every=50, batch=7))
    numbers.key_by(lambda x: x % 7).sum().capture("sums")
    numbers.iterate(lambda i: i.map(lambda x: x // 2).filter(lambda x: x > 0).exchange(lambda x: x)).capture("halves")
    numbers.map(lambda x: {"k": x % 5, "v": x}).to_columns().group_by("k").agg(
        n=agg.count(), t=agg.sum("v"), over="time"
    ).capture("t")
    return flow


def contents(result: Any, name: str) -> Counter[Any]:
    rows: Counter[Any] = Counter()
    for at, batch in result.captured(name):
        records = batch.to_dicts() if isinstance(batch, pl.DataFrame) else batch
        records = records if isinstance(records, list) else records.to_pylist()
        rows.update((at, repr(record)) for record in records)
    return rows


def test_processes_give_what_one_worker_gives() -> None:
    alone, several = run(many_things), run(many_things, workers=2)
    for name in ("sums", "halves", "t"):
        assert contents(several, name) == contents(alone, name)
        assert contents(alone, name)
    assert alone.records == several.records == 500
    assert [several.stats[index].records for index in (0, 1)] == [300, 200]
    assert [at for at, _ in several.captured("halves")] == sorted(at for at, _ in several.captured("halves"))


def test_a_job_without_a_store_loads_of_recovery_what_messages_name_and_nothing_of_the_page() -> None:
    code = (
        "import sys, runtime.supervisor.supervisor, runtime.processes.worker; "
        "print(*(name for name in sys.modules if name.startswith(('recovery', 'monitor.', 'runtime.page'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    addresses = ["recovery.store", "recovery.store.address", "recovery.store.interface"]
    assert sorted(done.stdout.split()) == [
        *("monitor.coordination", "monitor.coordination.supervision"),
        *("recovery", "recovery.errors", "recovery.place", *addresses),
    ]


def test_a_command_loads_no_library_that_its_workers_alone_need(tmp_path: Path) -> None:
    """It reads the columns of a file, and lays recovery out; each process would take half a second for these."""
    pl.DataFrame({"k": ["a", "b"], "v": [1, 2]}).write_parquet(tmp_path / "in.parquet")
    code = (
        "import sys, falkirk\n"
        "flow = falkirk.Dataflow()\n"
        f"rows = flow.columns('in', falkirk.Parquet({str(tmp_path / 'in.parquet')!r}))\n"
        "rows.to_records().map(lambda row: row['v']).capture('out')\n"
        f"print(falkirk.run(flow, store={str(tmp_path / 'store')!r}).captured('out'))\n"
        "print(*sorted({'pandas', 'networkx', 'numba', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[((0,), [1, 2])]\n\n"


def test_workers_and_monitors_load_no_library_for_graphs() -> None:
    code = (
        "import sys; from importlib import import_module; from runtime.processes.fork_server import PRELOADED\n"
        "for module in PRELOADED: import_module(module)\n"
        "print(*sorted({'pandas', 'networkx', 'numba', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_drive_feeds_inputs_in_every_process_and_returns_values() -> None:
    flow = Dataflow()
    totals = flow.input("in").key_by(lambda x: "all").sum(over="time")
    totals.capture("out")
    probe = totals.probe()

    def drive(session: Session) -> tuple[int, int, int]:
        handle, seen = session.input("in"), session.probe(probe)
        for epoch in range(5):
            handle.send([epoch + session.index])
            handle.advance_to(epoch + 1)
            session.step_until(lambda e=epoch: seen.done(e), timeout=120)  # type: ignore[misc]
        return session.index, session.workers, os.getpid()

    result = run(flow, workers=2, drive=drive)
    assert sorted(result.captured("out")) == [((e,), [("all", 2 * e + 1)]) for e in range(5)]
    assert [result.returned[n][:2] for n in (0, 1)] == [(0, 2), (1, 2)]
    assert len({os.getpid(), *(pid for _, _, pid in result.returned.values())}) == 3


def endless(folder: Path | None = None) -> Dataflow:
    flow = Dataflow("endless")
    numbers = flow.source("numbers", Rate(lambda n: n, 2000, epoch_every=100)).exchange(lambda x: x)
    if folder is not None:
        numbers.to(FileSink(folder))
    return flow


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_dies_stops_the_job_with_a_reason(tmp_path: Path, kill: signal.Signals) -> None:
    job = Job(Program(flow=endless(tmp_path)), 2)
    pids = job.pids

    def strike() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(list(tmp_path.glob("epoch-*"))) < 3:
            time.sleep(0.02)
        strike.at = time.monotonic()  # type: ignore[attr-defined]
        os.kill(pids[1], kill)

    killer = threading.Thread(target=strike)
    killer.start()
    with pytest.raises(WorkerLost) as caught:
        job.run()
    killer.join()
    assert time.monotonic() - strike.at < SOON  # type: ignore[attr-defined]
    assert f"worker 1 (process {pids[1]})" in str(caught.value)
    assert ("SIGKILL" if kill == signal.SIGKILL else "143") in str(caught.value)
    assert all(map(gone, pids))
    for path in tmp_path.glob("epoch-*"):
        for line in path.read_text().splitlines():
            json.loads(line)


def test_a_function_that_raises_in_a_worker_raises_here_soon(tmp_path: Path) -> None:
    flow = Dataflow()
    numbers = flow.source("numbers", Iterable(range(10_000), epoch_every=100, batch=10))
    numbers.exchange(lambda x: x).map(lambda x: 1 // (5000 - x), name="divide").to(FileSink(tmp_path))
    with pytest.raises(OperatorError, match=rf"map 'divide' \(.*{HERE}:\d+\) failed at time") as caught:
        within(SOON, lambda: run(flow, workers=2))
    assert "the record: 5000" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("epoch-")] == [".falkirk-job"]


def test_workers_that_fail_at_the_same_moment_are_told_of_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first one that says so ends the others, which may be about to say the same."""
    here = os.getpid()

    def build() -> Dataflow:
        if os.getpid() != here:
            folder = max(tmp_path.iterdir())
            (folder / str(os.getpid())).touch()
            while len(os.listdir(folder)) < 3:
                time.sleep(0.0001)
            raise KeyError("settings")
        flow = Dataflow()
        flow.source("in", Iterable([1])).capture()
        return flow

    for number in range(4):
        (tmp_path / f"{number}").mkdir()
        with pytest.raises(FalkirkError, match="settings"):
            run(build, workers=3)
    assert "Stopped" not in capfd.readouterr().err


def test_other_failures_keep_their_kind() -> None:
    class Odd:
        pass

    def unsendable() -> Dataflow:
        flow = Dataflow()
        flow.source("in", Iterable(range(50))).map(lambda x: (x, Odd())).keyed().exchange(name="far").map_values(
            id
        ).capture()
        return flow

    def unwritable() -> Dataflow:
        flow = Dataflow()
        flow.source("in", Iterable([1])).to(FileSink("/proc/nowhere"), name="out")
        return flow

    with pytest.raises(CodecError, match="the exchange in front of exchange 'far'"):
        within(SOON, lambda: run(unsendable, workers=2))
    with pytest.raises(SinkError, match=rf"sink 'out' \(.*{HERE}:\d+\)"):
        within(SOON, lambda: run(unwritable, workers=2))


def test_a_crash_before_every_worker_registered_skips_no_data(tmp_path: Path) -> None:
    """The first run dies while one worker is still building: nothing may have been read. The second reads everything."""
    log, parent = tmp_path / "reads", os.getpid()

    def build(crash: bool) -> Dataflow:
        if crash and os.getpid() != parent and build_is_second(tmp_path):
            deadline = time.monotonic() + 1.0
            while not log.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            os._exit(3)

        def records(begin: int) -> Any:
            log.write_text("read")
            return iter(range(begin, begin + 10))

        flow = Dataflow()
        parts = [lambda: records(0), lambda: records(10)]
        flow.source("in", Iterable(partitioned=parts, epoch_every=5)).to(FileSink(tmp_path / "out"))
        return flow

    with pytest.raises(WorkerLost, match="ended with exit code 3 before the job was over"):
        within(SOON, lambda: run(Program(flow=build, args={"crash": True}), workers=2))
    assert not log.exists(), "a source was read before all workers had met"
    run(Program(flow=build, args={"crash": False}), workers=2)
    lines = [line for path in sorted((tmp_path / "out").glob("epoch-*")) for line in path.read_text().split()]
    assert sorted(map(int, lines)) == list(range(20))


def build_is_second(folder: Path) -> bool:
    """True in the second of the processes that ask."""
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


@pytest.mark.parametrize("slow", [0, 1], ids=["worker 0 is late", "worker 1 is late"])
def test_workers_that_built_different_dataflows_are_told_apart(tmp_path: Path, slow: int) -> None:
    parent = os.getpid()

    def build() -> Dataflow:
        flow = Dataflow()
        stream = flow.source("in", Iterable([1]))
        if os.getpid() != parent and build_is_second(tmp_path):
            time.sleep(0.2 * slow)
            stream = stream.map(abs, name="by chance")
        else:
            time.sleep(0.2 * (1 - slow))
        stream.capture()
        return flow

    with pytest.raises(FalkirkError, match=r"(?s)built another dataflow.*'by chance' is (new|gone)"):
        within(SOON, lambda: run(build, workers=2))


def test_an_input_that_nobody_feeds_is_refused_and_does_not_hang() -> None:
    flow = Dataflow()
    flow.source("lines", Iterable([1])).concat(flow.input("by hand")).capture()
    with pytest.raises(FalkirkError, match="nothing feeds the input 'by hand'"):
        within(SOON, lambda: run(flow, workers=2))


def test_a_program_that_cannot_travel_is_explained() -> None:
    lock = threading.Lock()
    flow = Dataflow()
    flow.source("in", Iterable([1])).map(lambda x: lock.locked()).capture()
    with pytest.raises(FalkirkError, match=r"cannot be sent to worker processes.*build it in a function"):
        within(SOON, lambda: run(flow, workers=2))


def test_closing_a_job_leaves_no_process() -> None:
    job = Job(Program(flow=endless()), 2)
    assert not any(map(gone, job.pids))
    within(SOON, job.close)
    assert all(map(gone, job.pids))


def test_workers_that_lose_their_parent_end() -> None:
    flow = Dataflow()
    flow.source("in", Scripted([Pause(60)])).capture()
    job = Job(Program(flow=flow), 2)
    workers = list(job.place.workers.values())
    deadline = time.monotonic() + 120
    while not all(child.ready for child in workers) and time.monotonic() < deadline:
        job.turn(0.1)
    for child in workers:
        child.control.close()
    for child in workers:
        assert child.process is not None
        assert child.process.wait(SOON) != 0


@pytest.mark.skipif(not hasattr(signal, "SIGQUIT"), reason="needs SIGQUIT")
def test_ctrl_backslash_has_every_worker_say_what_it_waits_for(capfd: pytest.CaptureFixture[str]) -> None:
    flow = Dataflow()
    flow.source("slow", Scripted([1, 2, Pause(1.5), 3], epoch_every=None)).distinct(name="waiting").capture("out")
    pid = os.getpid()
    timer = threading.Timer(1.2, os.kill, (pid, signal.SIGQUIT))
    seen: list[int] = []

    def on_stats(stats: Any) -> None:
        if len(stats) == 2 and not seen:
            seen.append(1)
            timer.start()

    result = run(flow, workers=2, on_stats=on_stats)
    timer.join()
    assert sorted(x for _, batch in result.captured("out") for x in batch) == [1, 2, 3]
    text = capfd.readouterr().err
    assert "worker 0 of 2" in text
    assert "worker 1 of 2" in text
    assert "distinct 'waiting'" in text
