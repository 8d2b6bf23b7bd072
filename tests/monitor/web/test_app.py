"""The page's server: who may look, what it answers, and that a running job tells how it is doing only while somebody looks."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from recovery.store.local import LocalStore
from runtime.page.address import open_page
from runtime.page.recorded import RecordedJob
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.serving import ask, get, running, serving, streaming, when_ready
from tests.monitor.web.standing import StandingJob
from tests.runtime.job_under_test import build
from timely.errors import FalkirkError
from timely.io import Rate


def test_the_job_and_its_picture_are_there_as_json() -> None:
    layout = example_layout("mixed_policies")
    with serving(StandingJob(layout)) as url:
        job = ask(url, "/api/job")
        assert [operator["name"] for operator in job["operators"]] == [info.name for info in layout.processors]
        assert {region["policy"] for region in job["regions"]} == {"Ephemeral", "Batch", "Lazy"}
        assert {each["output"]: each["any"] for each in job["promises"]} == {"tally": "precise", "news": "repeating"}
        assert [cause["name"] for each in job["promises"] for cause in each["causes"]] == ["news"]
        graph = ask(url, "/api/graph")
        assert len(graph["nodes"]) == len(layout.processors)
        assert [box["key"] for box in graph["boxes"] if box["kind"] != "frame"] == ["circle"]
        tall, flat = (ask(url, f"/api/graph?room={room}") for room in ("300x3000", "3000x300"))
        assert (tall["across"], flat["across"]) == (False, True)
        assert tall["nodes"] == graph["nodes"] != flat["nodes"]
        assert flat["width"] > flat["height"]
        for wrong in ("3000", "3000x", "axb", "1x2x3"):
            assert get(url, f"/api/graph?room={wrong}")[0] == 400
        folded = ask(url, "/api/graph?close=circle")
        assert len(folded["nodes"]) < len(graph["nodes"])
        assert {folded["of"][p] for p, info in enumerate(layout.processors) if info.scope} == {
            next(at for at, node in enumerate(folded["nodes"]) if node["key"] == "circle")
        }


def test_a_stream_tells_everything_first_and_then_what_has_changed() -> None:
    with serving(StandingJob(wide_layout(100))) as url, streaming(url, "/api/events") as messages:
        first = next(message for message in messages if "rows" in message)
        assert len(first["rows"]) == 100
        second = next(message for message in messages if message.get("rows"))
        third = next(message for message in messages if message.get("rows"))
        assert third["at"] > second["at"] > first["at"]
        assert third["totals"]["newest"] > second["totals"]["newest"]


def test_an_address_for_others_has_a_token() -> None:
    page = open_page("x", "0.0.0.0", 0)
    page.close()
    assert len(page.token) > 20
    assert page.url.endswith(f"?token={page.token}")


def test_the_page_asks_nobody_else_for_anything() -> None:
    with serving(StandingJob(wide_layout(10))) as url:
        _, headers, index = get(url, "/")
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        names = re.findall(r'(?:src|href)="([^"]+)"', index.decode())
        names.remove("../../")  # the list of jobs, where there are several
        assert names
        for name in names:
            status, _, content = get(url, urlsplit(urljoin(url, name)).path)
            assert status == 200, name
            for there in re.findall(r"https?://[^\s\"'`)]+", content.decode()):
                assert there.startswith("http://www.w3.org/"), there
        assert get(url, "/page/..%2fapp.py")[0] == 404


def test_wrong_questions_are_answered_in_words() -> None:
    with serving(StandingJob(wide_layout(10))) as url:
        for path, status in (("/api/operator/99", 404), ("/api/why/0/99", 404), ("/api/events?bars=x", 400)):
            found, _, body = get(url, path)
            assert found == status
            assert json.loads(body)["error"]
        assert get(url, "/api/whatif", {"broken": 1})[0] == 400
        assert get(url, "/api/whatif", {"failed": []}, {"content-type": "text/plain"})[0] == 415


def test_metrics_are_in_the_format_of_prometheus() -> None:
    layout = wide_layout(12)
    with serving(StandingJob(layout)) as url:
        status, headers, body = get(url, "/metrics")
        assert status == 200
        assert headers["content-type"].startswith("text/plain")
        text = body.decode()
        assert 'falkirk_worker_alive{worker="1"} 1.0' in text
        for info in layout.processors:
            assert f'falkirk_low_watermark_epoch{{operator="{info.name}"}}' in text


@pytest.fixture(scope="module")
def page_of_a_job(tmp_path_factory: pytest.TempPathFactory) -> object:
    with running(tmp_path_factory.mktemp("job")) as (url, job):
        when_ready(url, "/api/processor/0/0")
        yield url, job


def test_a_running_job_tells_how_it_is_doing(page_of_a_job: tuple[str, object]) -> None:
    url, _ = page_of_a_job
    names = [operator["name"] for operator in ask(url, "/api/job")["operators"]]
    with streaming(url, f"/api/events?closely={names.index('count')}") as messages:
        totals = (message["totals"] for message in messages if "totals" in message)
        first = next(each for each in totals if each["read"])
        assert next(
            each
            for each in totals
            if each["p50"] is not None
            and each["state"]
            and each["newest"] > first["newest"]
            and each["read"] > first["read"]
        )
        for _ in messages:  # until the other worker has said something, too
            processor = ask(url, f"/api/processor/{names.index('count')}/1")
            if processor.get("bytes") and processor["frontier"]:
                break
        assert processor["kind"] == "chain"
        why = ask(url, f"/api/why/{names.index('count')}/1")
        assert why["rollback"]["text"]
        assert why["progress"]["text"]


def test_what_if_is_answered_for_a_running_job(page_of_a_job: tuple[str, object]) -> None:
    url, _ = page_of_a_job
    layout = ask(url, "/api/job")
    answer = ask(url, "/api/whatif", {"failed": ["worker:1"]})
    assert len(answer["processors"]) == len(layout["operators"]) * layout["workers"]
    lost = [each for each in answer["processors"] if each["worker"] == 1]
    assert not any(each["keeps"] for each in lost if layout["operators"][each["operator"]]["chain"])
    nobody = ask(url, "/api/whatif", {"failed": []})
    assert all(each["keeps"] for each in nobody["processors"])
    assert nobody["redone"]["records"] == 0
    assert get(url, "/api/whatif", {"failed": ["nobody"]})[0] == 400


def test_the_store_of_a_killed_job_shows_the_same_job(tmp_path: Path) -> None:
    with running(tmp_path) as (url, _):
        names = [operator["name"] for operator in when_ready(url, "/api/job")["operators"]]
        with streaming(url, "/api/events") as messages:
            next(message for message in messages if (message.get("totals") or {}).get("low", 0) > 3)
    with LocalStore(tmp_path / "store") as store:
        job = RecordedJob(store)
    assert [info.name for info in job.layout.processors] == names
    assert not job.saved.finished
    assert all(job.options.low(flat)[0] > 3 for flat in range(job.options.topology.count))
    answers: list[object] = []
    job.what_if(["worker:0"], answers.append)
    assert answers


def failing(folder: str) -> Dataflow:
    """Fails at the 500th record."""
    flow = Dataflow("fails")
    numbers = flow.source("numbers", Rate(lambda i: i, 2000, 10_000, epoch_every=50))
    numbers.map(lambda i: 1 // (i - 500), name="divide").capture("out")
    return flow


def test_the_error_that_ended_a_job_is_in_its_store_with_operator_and_line(tmp_path: Path) -> None:
    program = Program(flow=failing, args={"folder": str(tmp_path)})
    with pytest.raises(FalkirkError, match="divide"):
        Job(program, 1, tmp_path / "store").run()
    with LocalStore(tmp_path / "store") as store:
        job = RecordedJob(store)
    (error,) = [event for event in job.saved.events if event.kind == "error"]
    assert "'divide'" in error.data["text"]
    assert "test_app.py:" in error.data["text"]
    assert error.data["worker"] == 0


def test_what_happens_is_added_to_a_file_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    flow = Program(flow=build, args={"folder": str(tmp_path), "records": 500})
    falkirk.run(flow, store=tmp_path / "store", events=file)
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event["kind"] for event in events if event["kind"] in ("decided", "finished")] == ["decided", "finished"]
    assert all(datetime.fromisoformat(event["at"]).tzinfo for event in events)
