"""Other policies on the page: asked, answered and refused, by the interface and in a real browser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from recovery.policy import Lazy
from tests.monitor.explain.test_policy import observed
from tests.monitor.web.browser import Tab, find_browser
from tests.monitor.web.serving import ask, get, serving
from tests.monitor.web.standing import StandingJob
from timely.dataflow.plan import compile_plan
from timely.io import Iterable

NAMES = ("front", "sums", 'it\'s "odd" = <b>é</b>|%7C')


def build() -> Dataflow:
    flow = Dataflow("regions")
    with flow.region(NAMES[0], policy=Lazy(every=1.0)):
        pairs = flow.source("numbers", Iterable(range(100))).map(lambda n: (n % 7, n))
    with flow.region(NAMES[1], policy=Lazy(every=1.0)):
        sums = pairs.keyed().sum(name="sums").records()
    with flow.region(NAMES[2]):
        sums.map(str).capture("out")
    return flow


def standing(measured: bool = True) -> StandingJob:
    graph = build().graph
    job = StandingJob(lay_out(compile_plan(graph, 1)))
    job.graph = graph
    for at in (10.0, 20.0) if measured else ():
        job.samples[0] = at, observed(job.layout, at)
        job.window.take(job.samples)
    job.options.complete(0, tuple((195,) for _ in job.layout.groups))
    return job


def answer_of(url: str, question: Any) -> tuple[int, Any]:
    """Status and answer."""
    status, _, body = get(url, "/api/policies", body=question)
    return status, json.loads(body)


@pytest.mark.parametrize("region", NAMES)
def test_an_answer_has_layouts_and_costs(region: str) -> None:
    with serving(standing(), moves=False) as url:
        found = ask(url, "/api/policies", {"policies": {region: "Lazy(every=5, log_outputs=True)"}})
        assert found["policies"] == [{"region": region, "policy": "Lazy(every=5, log_outputs=True)"}]
        assert (len(found["after"]["logs"]) > len(found["before"]["logs"])) == (region != NAMES[2])
        assert found["bytes"]["measured"] == 6000
        assert found["workers"][0]["after"]["worst"]["records"] >= found["workers"][0]["after"]["typical"]["records"]


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    with serving(standing(), moves=False) as url:
        for policies, status, words in (
            ({"nowhere": "Batch()"}, 409, "there is no region 'nowhere'"),
            ({"sums": "Batch()"}, 409, "keeps state from one time to the next, which Batch would lose"),
            ({"sums": "Foo()"}, 409, "'Foo' is no policy"),
            ({"sums": "Lazy(every=-1)"}, 409, "give a positive number of epochs"),
            ({"sums": "__import__('os')"}, 409, "is not written as a policy is"),
            ({"sums": 3}, 400, 'ask {"policies"'),
            ({}, 400, "at least one region"),
            ([], 400, 'ask {"policies"'),
        ):
            found = answer_of(url, {"policies": policies})
            assert found[0] == status, (policies, found)
            assert words in found[1]["error"]
    with serving(standing(measured=False), moves=False) as url:
        found = ask(url, "/api/policies", {"policies": {"sums": "Eager()"}})
        assert found["workers"] is None
        assert "some seconds" in found["unknown"][0]
    lonely = standing()
    lonely.graph = None
    with serving(lonely, moves=False) as url:
        assert answer_of(url, {"policies": {"sums": "Eager()"}})[0] == 503


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="there is no Chromium: install the package chromium")
@pytest.mark.xdist_group("browser")
def test_the_form_asks_and_the_link_has_the_question(tab: Tab) -> None:
    panel = "document.querySelector('#panel').textContent"
    with serving(standing(), moves=False) as url:
        tab.go(url)
        tab.wait("document.documentElement.dataset.ready === 'yes'")
        tab.wait(f"{panel}.includes('Another policy…')")
        buttons = (
            "[...document.querySelectorAll('#panel button')].filter((each) => each.dataset.keep === 'policy of sums')"
        )
        tab.run(f"{buttons}[0].click()")
        tab.wait("document.querySelector('#policy-region')?.value === 'sums'")
        choose = (
            "((id, value) => {{ const one = document.querySelector(id); one.value = value; "
            "one.dispatchEvent(new Event('{}')); }})"
        )
        tab.run(f"{choose.format('change')}('#policy-name', 'Snapshot')")
        tab.wait("document.querySelector('#policy-every') && !document.querySelector('#policy-logs')")
        tab.run(f"{choose.format('input')}('#policy-every', '4s')")
        tab.run("document.querySelector('#policy button').click()")
        tab.wait("document.querySelector('#policy-answer')")
        tab.wait("decodeURIComponent(location.hash).includes('policy=sums=Snapshot(every=\"4s\")')")
        assert tab.run(f"{panel}.includes('If sums were Snapshot(every=\"4s\")')")
        assert tab.run(f"{panel}.includes('5.9 KiB/s')")
        address = tab.run("location.href")
        tab.go("about:blank")
        tab.go(address)
        tab.wait("document.querySelector('#policy-answer') && document.querySelector('#policy-every').value === '4s'")
        tab.run(f"{choose.format('change')}('#policy-name', 'Batch')")
        tab.wait("document.querySelector('#policy-logs') && !document.querySelector('#policy-every')")
        tab.run("document.querySelector('#policy button').click()")
        tab.wait(f"{panel}.includes('which Batch would lose')")
        tab.run(f"{choose.format('change')}('#policy-region', {json.dumps(NAMES[2])})")
        tab.run("document.querySelector('#policy button').click()")
        tab.wait(
            f"document.querySelector('#policy-answer') && {panel}.includes({json.dumps(NAMES[2] + ' were Batch()')})"
        )
        tab.key("Escape")
        tab.wait("!location.hash.includes('policy=') && !document.querySelector('#policy')")
        assert all("409 (Conflict)" in problem for problem in tab.problems), tab.problems
