"""`falkirk whatif` where a job answers late: on a machine with too much to do, or from a monitor that is busy."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from falkirk import what_if_view
from timely.errors import FalkirkError

JOB = {"operators": [{"name": "sums"}]}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A page that does with each request what comes next in `does`: it answers, says that it is busy, or says nothing."""
    over = threading.Event()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            does = self.server.does.pop(0) if self.server.does else "answer"  # type: ignore[attr-defined]
            if does == "nothing":
                over.wait()
                return
            self.send_response(200 if does == "answer" else 503)
            self.end_headers()
            self.wfile.write(json.dumps(JOB if does == "answer" else {"error": "the monitor is busy"}).encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    monkeypatch.setattr(what_if_view, "_SECONDS", 0.2)
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize("late", ["nothing", "busy"])
def test_a_job_that_answers_late_is_asked_again_and_the_user_hears_of_it(
    late: str, page: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page.does = [late] if late == "nothing" else [late] * 2
    found = what_if_view.predict(f"http://127.0.0.1:{page.server_port}/?token=secret", ["worker:0"])
    assert found.operators == JOB["operators"]
    said = capsys.readouterr().err
    assert said.startswith(
        f"note: the job at http://127.0.0.1:{page.server_port}/ is busy, or its machine, and has not"
    )
    assert "secret" not in said


@pytest.mark.parametrize(
    ("late", "says"), [("nothing", "gave no answer in 0 s.*ask again"), ("busy", "monitor is busy")]
)
def test_in_the_end_it_is_an_error(late: str, says: str, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if_view, "_PATIENCE_SECONDS", 0.4)
    page.does = [late] * 4
    with pytest.raises(FalkirkError, match=says):
        what_if_view.predict(f"http://127.0.0.1:{page.server_port}/", [])


def test_who_answers_in_time_says_nothing(
    page: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page.does = []
    monkeypatch.setattr(what_if_view, "_SECONDS", 60.0)
    what_if_view.predict(f"http://127.0.0.1:{page.server_port}/", [])
    assert capsys.readouterr().err == ""
