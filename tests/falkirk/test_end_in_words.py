"""The end of all input, as users see it: a word, or -1 for programs, in all that a job says while something is done there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falkirk import run
from falkirk.progress_view import ProgressReading, WorkerReading, plain_line
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Ephemeral
from recovery.protocol import END as PLAIN_END
from runtime.control import JobStats
from tests.monitor.web.serving import ask, get, streaming
from tests.support.processes import wait_for
from tests.support.stores import beside
from timely.errors import OperatorError
from timely.io import Iterable
from timely.operators.base import Context, JobContext, Operator
from timely.time import END, FINITE, INF, Time

ROOT = Path(__file__).resolve().parents[2]
RAW = re.compile(rf"{INF}|{FINITE}|{PLAIN_END}")
"""The numbers for it within."""


class AtEnd(Operator):
    """Starts a job when all input is over, which takes until there is a file."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.notify_at((END,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.start(self._work, context=True)

    def _work(self, job: JobContext) -> str:
        job.report("counts", 1, 2)
        (self._folder / "begun").touch()
        wait_for((self._folder / "go").exists)
        return "done"

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        ctx.send([f"{result} at {time[0]}"])


def build(folder: str) -> Dataflow:
    flow = Dataflow("ends")
    numbers = flow.source("numbers", Iterable(range(6), epoch_every=2))
    numbers.unary("at the end", lambda: AtEnd(folder), holds=True).capture("out")
    return flow


APP = "from tests.falkirk.test_end_in_words import build\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["plain", "json"])
def test_what_is_done_at_the_end_is_told_without_a_number(how: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "falkirk", "run", str(tmp_path / "app.py"), "--arg", f"folder={tmp_path}"]
    command += ["--store", str(tmp_path / "store"), "--events", str(tmp_path / "events"), "--ui", "--ui-port", "0"]
    command += ["--every", "0.1", *(["--json"] if how == "json" else [])]
    said: list[str] = []
    with (
        (tmp_path / "out").open("w") as out,
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err) as job,
    ):
        try:
            wait_for((tmp_path / "begun").exists)
            url = beside(tmp_path / "store").ui.read_text()
            wait_for(lambda: get(url, "/api/job", None)[0] == 200)
            names = [each["name"] for each in ask(url, "/api/job")["operators"]]
            number = names.index("at the end")
            with streaming(url, "/api/events"):  # somebody looks
                wait_for(lambda: ask(url, f"/api/operator/{number}")["workers"][0].get("working"))
                for question in (
                    f"operator/{number}",
                    f"processor/{number}/0",
                    f"why/{number}/0",
                    "timeline",
                    "charts",
                ):
                    said.append(json.dumps(ask(url, f"/api/{question}")))
            [told] = ask(url, f"/api/operator/{number}")["workers"][0]["working"]
            assert (told["epoch"], told["what"], told["done"], told["total"]) == (-1, "counts", 1, 2)
            shown = tmp_path / ("out" if how == "json" else "err")
            wait_for(lambda: "counts" in shown.read_text())
        finally:
            (tmp_path / "go").touch()
            assert job.wait(60) == 0, (tmp_path / "err").read_text()
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert {each["epoch"] for each in events if each["kind"] == "working"} == {-1}
    if how == "json":
        lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
        assert {each["epoch"] for line in lines for each in line["jobs"]} == {-1}
    else:
        assert "at the end, the end: counts 1 of 2" in (tmp_path / "err").read_text()
    said += [(tmp_path / name).read_text() for name in ("out", "err", "events")]
    for text in said:
        assert RAW.search(text) is None, text


def test_lines_of_progress_have_a_word_for_it() -> None:
    jobs = (JobStats("region", -1, "Spark: task", 1, 2, 0.5), JobStats("region", 7, "loads", 0, 0, 1.0))
    line = plain_line(ProgressReading(1.0, [WorkerReading(0, 0, 0.0, 0, None, None, 0)], list(jobs)))
    assert "region, the end: Spark: task 1 of 2" in line
    assert "region, epoch 7: loads" in line


class Late(Operator):
    """Asks for what cannot be, at the end of all input."""

    def __init__(self, what: str) -> None:
        self._what = what

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        if self._what == "start":
            ctx.start(lambda: None, (END,))
        elif self._what == "retain":
            self.kept = ctx.retain((END,))
        elif self._what == "send":
            ctx.send_at((END,), batch)
        else:
            ctx.notify_at((END,))


@pytest.mark.parametrize("what", ["start", "retain", "send", "notify"])
def test_errors_name_the_end_by_its_word(what: str, tmp_path: Path) -> None:
    flow = Dataflow("late")
    late = (
        flow.source("in", Iterable([1])).policy(Batch()).unary("late", lambda: Late(what), holds=True, stateful=False)
    )
    late.policy(Ephemeral()).capture("out")
    with pytest.raises(OperatorError, match=r"\(END,\)") as error:
        run(flow, store=tmp_path / "store")
    assert RAW.search(str(error.value)) is None
