"""The offers of the driver to jobs that operators start: a folder, news of how far they are, and of their being given up."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from runtime.control import JobStats
from runtime.folders.workspace import VARIABLE, RunningJob, Workspace
from runtime.run import run
from runtime.session.session import Session
from timely.errors import FalkirkError
from timely.io import Iterable
from timely.io.interface import End, Wait
from timely.operators.base import Context, JobContext, Operator
from timely.time import Time


class _Spill(Operator):
    """Writes each record into a file, and sends on its path."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for word in batch:
            ctx.start(lambda job, word=word: self._write(job, word), context=True)

    @staticmethod
    def _write(job: JobContext, word: str) -> tuple[str, bool]:
        path = job.folder("spill/words") / word
        path.write_text(word)
        return str(path), job.durable

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        ctx.send([result])


class _Read(Operator):
    """Reads the files, wherever they were written."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.send([(path, Path(path).read_text(), durable) for path, durable in batch])


def program() -> Dataflow:
    flow = Dataflow("files")
    words = flow.source("words", Iterable(["a", "b", "c", "d"])).exchange(by=lambda word: word)
    spilled = words.unary("spill", _Spill, holds=True).exchange(by=lambda found: found[0][::-1])
    spilled.unary("read", _Read).capture("out")
    return flow


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_of_all_workers_share_a_folder_that_goes_with_the_job(workers: int) -> None:
    found = [each for _, batch in run(program, workers=workers).captured("out") for each in batch]
    assert sorted(text for _, text, _ in found) == ["a", "b", "c", "d"]
    assert len({Path(path).parent for path, _, _ in found}) == 1
    assert not any(durable for _, _, durable in found)
    assert not any(Path(path).exists() for path, _, _ in found)


def test_job_says_how_far_it_is_while_it_runs_and_hears_that_it_is_given_up() -> None:
    seen: list[JobContext] = []
    release = threading.Event()

    class Long(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
            ctx.start(self._work, context=True)

        @staticmethod
        def _work(job: JobContext) -> None:
            job.report("halving", 1, 2)
            seen.append(job)
            release.wait(120)

    flow = Dataflow()
    flow.input("in").unary("long", Long, holds=True)
    session = Session(flow)
    session.input("in").send([1])
    deadline = time.monotonic() + 120
    while not seen and time.monotonic() < deadline:
        session.step(0.01)
    (job,) = session.running_jobs()
    assert (job.operator, job.epoch, job.what, job.done, job.total) == ("long", 0, "halving", 1, 2)
    assert not seen[0].stopped
    session.abort()
    assert seen[0].stopped
    assert session.running_jobs() == ()
    release.set()


def test_source_that_has_others_read_says_how_far_they_are_as_long_as_it_is_not_over() -> None:
    class Followed:
        name = "followed"

        def __init__(self) -> None:
            self.said: tuple[int, str, int, int, float] | None = None
            self.over = False

        def partitions(self, worker: int, workers: int) -> list[Any]:
            return [self]

        def read(self) -> Wait | End:
            return End() if self.over else Wait(0.001)

        def working(self) -> tuple[int, str, int, int, float] | None:
            return self.said

        def seek(self, position: object) -> None: ...

        def ack(self, position: object) -> None: ...

        def close(self) -> None: ...

    source = Followed()
    flow = Dataflow()
    flow.source("in", source).capture("out")
    session = Session(flow)
    session.step(0.001)
    assert session.running_jobs() == ()
    source.said = 3, "reads", 1, 2, 0.5
    assert session.running_jobs() == (JobStats("in", 3, "reads", 1, 2, 0.5),)
    source.over = True
    session.run()
    assert session.running_jobs() == ()


def test_folder_cannot_be_left_and_names_that_no_folder_may_have_are_quoted(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in ("../up", "a//b", "\0", "x/../../y", "."):
        assert tmp_path in workspace.folder(name).resolve().parents
    assert workspace.folder("a/b") == tmp_path / "a" / "b"
    assert RunningJob(workspace, "op", 3, 0.0).folder("c") == tmp_path / "c"


def test_what_counts_while_the_job_lives_goes_when_it_is_started_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, durable=True)
    for name in ("a", "%living", "%living/a"):
        (RunningJob(workspace, "op", 3, 0.0).folder(name) / "stays").touch()
        (RunningJob(workspace, "op", 3, 0.0).folder(name, living=True) / "goes").touch()
    workspace.begin()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["stays"] * 3
    assert list(workspace.folder("a", living=True).iterdir()) == []
    Workspace().begin()  # there is no folder yet


def test_folder_that_cannot_be_made_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(FalkirkError, match=f"missing.*{VARIABLE}"):
        _ = Workspace().path
    with pytest.raises(FalkirkError, match="only one host"):
        Workspace(refused="only one host").folder("a")
