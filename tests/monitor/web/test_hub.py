"""Pages that share a hub: they hear at once, see the same, and what is made for one is there for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.coordination.supervision import TimelineEvent
from monitor.web.hub import _MOST_ROWS, CHART_SECONDS, Hub
from monitor.web.view import BARS
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.standing import StandingJob

NOTHING: frozenset[str] = frozenset()
LONG = 30.0


def hub_of(job: StandingJob) -> Hub:
    hub = Hub()
    hub.know(job.layout)
    hub.publish(job.observe())
    return hub


def run(what: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(what(), LONG))


@pytest.fixture
def no_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said only because a second has passed."""
    monkeypatch.setattr("monitor.web.hub.BEAT_SECONDS", 10 * LONG)


async def at_once(messages: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    """The next message, which may not take as long as a beat."""
    return await asyncio.wait_for(anext(messages), LONG / 2)


@pytest.mark.usefixtures("no_beat")
def test_every_page_hears_at_once_what_is_published_what_happens_and_that_the_job_is_another() -> None:
    async def go() -> None:
        job = StandingJob(example_layout("wordcount"))
        hub = hub_of(job)
        drawn = await hub.drawn(NOTHING, NOTHING)
        async with (
            aclosing(hub.stream(drawn, "busy", (), 0)) as one,
            aclosing(hub.stream(drawn, "lag", (0,), 0)) as other,
        ):
            pages = one, other
            for page in pages:
                assert {"fields", "at", "rows", "workers", "totals"} <= (await at_once(page)).keys()
            heard = [asyncio.ensure_future(at_once(page)) for page in pages]
            await asyncio.sleep(0)
            hub.publish(job.step())
            for message in await asyncio.gather(*heard):
                assert message["at"] == job.at
                assert message["rows"]
            heard = [asyncio.ensure_future(at_once(page)) for page in pages]
            await asyncio.sleep(0)
            hub.happened([TimelineEvent("cut", 1.23456, {"group": 0})])
            for message in await asyncio.gather(*heard):
                assert message == {
                    "events": [{"n": 1, "kind": "cut", "at": 1.235, "routine": True, "group": 0}],
                }
            heard = [asyncio.ensure_future(at_once(page)) for page in pages]
            await asyncio.sleep(0)
            hub.know(example_layout("wordcount"))
            assert not any(each.done() for each in heard), "the same is no other"
            hub.know(example_layout("flights"))
            for end in await asyncio.gather(*heard, return_exceptions=True):
                assert isinstance(end, StopAsyncIteration), "its pictures are void"

    run(go)


@pytest.mark.usefixtures("no_beat")
def test_what_is_published_while_a_page_is_told_something_is_not_waited_for() -> None:
    async def go() -> None:
        job = StandingJob(example_layout("wordcount"))
        hub = hub_of(job)
        async with aclosing(hub.stream(await hub.drawn(NOTHING, NOTHING), "busy", (), 0)) as page:
            first = await at_once(page)
            hub.publish(job.step())
            hub.publish(job.step())
            second = await at_once(page)
            assert second["at"] - first["at"] == 0.5, "steps in between may be missed"

    run(go)


def test_who_hears_nothing_new_hears_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.web.hub.BEAT_SECONDS", 0.01)

    async def go() -> None:
        hub = hub_of(StandingJob(example_layout("wordcount")))
        async with aclosing(hub.stream(await hub.drawn(NOTHING, NOTHING), "busy", (), 0)) as page:
            await at_once(page)
            begun = time.monotonic()
            assert [await at_once(page) for _ in range(3)] == [{}, {}, {}]
            assert time.monotonic() - begun >= 0.02

    run(go)


def test_nothing_is_shown_of_a_job_that_is_not_known() -> None:
    hub, job = Hub(), StandingJob(wide_layout(10))
    hub.publish(job.step())
    assert (hub.view, list(hub.points)) == (None, [])
    hub.know(job.layout)
    assert hub.view is not None
    assert hub.view.observation is None


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_charts_have_a_point_a_second_at_most(quarters: list[int]) -> None:
    """The first that comes a second after the last point, or later."""
    job = StandingJob(wide_layout(10))
    hub = Hub()
    hub.know(job.layout)
    expected: list[dict[str, Any]] = []
    with hub.streaming():
        for each in quarters:
            hub.publish(job.step(each / 4 * CHART_SECONDS))
            assert hub.view is not None
            if not expected or job.at - expected[-1]["at"] >= CHART_SECONDS:
                expected.append({"at": job.at, **hub.view.totals()})
    assert list(hub.points) == expected
    hub.publish(job.step(10 * CHART_SECONDS))
    assert list(hub.points) == expected, "what is published for others than an open page adds nothing to its charts"


def test_the_time_of_a_point_has_two_digits_behind_the_dot() -> None:
    job = StandingJob(wide_layout(10))
    hub = Hub()
    hub.know(job.layout)
    with hub.streaming():
        hub.publish(job.step(0.123456))
    assert [point["at"] for point in hub.points] == [1000.12]


def test_a_picture_is_drawn_once_for_all_who_have_folded_the_same() -> None:
    async def go() -> None:
        job = StandingJob(example_layout("flights"))
        hub = hub_of(job)
        whole, again, folded, other = await asyncio.gather(
            hub.drawn(NOTHING, NOTHING),
            hub.drawn(frozenset({"nobody"}), frozenset({"nowhere"})),
            hub.drawn(NOTHING, frozenset({"hand-on"})),
            hub.drawn(frozenset({"hand-on"}), frozenset({"hand-on"})),
        )
        assert again is whole, "groups that are not there are no difference"
        assert len(folded.page["nodes"]) < len(whole.page["nodes"]) == len(other.page["nodes"])
        assert other is not whole
        assert "hand-on" not in folded.folding.open

    run(go)


def test_another_program_has_other_pictures() -> None:
    async def go() -> None:
        hub = hub_of(StandingJob(example_layout("flights")))
        await hub.drawn(NOTHING, NOTHING)
        other = example_layout("wordcount")
        hub.know(other)
        assert len((await hub.drawn(NOTHING, NOTHING)).folding.of) == len(other.processors)

    run(go)


def test_the_rows_of_a_view_are_computed_once_for_all_who_show_the_same() -> None:
    async def go() -> None:
        job = StandingJob(wide_layout(200))
        hub = hub_of(job)
        closed = [NOTHING, *(frozenset({group.key}) for group in (hub.tree.groups() if hub.tree else ()))]
        pictures = [(await hub.drawn(NOTHING, each)).folding for each in closed]
        wanted = [(folding, bars) for folding in {each.nodes: each for each in pictures}.values() for bars in BARS]
        assert len(wanted) > _MOST_ROWS
        first = [hub.rows(*each) for each in wanted[:_MOST_ROWS]]
        assert all(hub.rows(*each) is rows for each, rows in zip(wanted, first))
        newest = hub.rows(*wanted[_MOST_ROWS])
        assert hub.rows(*wanted[_MOST_ROWS]) is newest
        assert len(hub._rows) == _MOST_ROWS
        assert hub.rows(*wanted[0]) is not first[0], "the oldest went first"
        hub.publish(job.step())
        assert hub.rows(*wanted[_MOST_ROWS]) is not newest

    run(go)
