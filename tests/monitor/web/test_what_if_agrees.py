"""Fates of workers in a supposed failure, and the table of their operators: of one answer, in drawn jobs and on the page."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from monitor.coordination.effects import Answer
from monitor.explain.what_if import targets
from monitor.web.questions import Done, answer_as_json
from recovery.layout import Layout
from recovery.metadata import MORE, NEVER, Bound
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.serving import serving
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_page import go, text_of
from timely.time import INF

_COORDINATE = st.integers(0, 4) | st.just(INF)
_BOUND: st.SearchStrategy[Bound] = st.one_of(
    st.just((NEVER,)),
    st.tuples(st.integers(0, 4)),
    st.tuples(st.integers(0, 4), _COORDINATE),
    st.tuples(st.integers(0, 4), _COORDINATE, st.just(MORE), _COORDINATE),
)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """An answer about a job of some workers and operators, of which some or all of a worker are supposed to fail."""
    workers, operators = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    of_one = st.lists(st.none() | _BOUND, min_size=operators, max_size=operators).map(tuple)
    bounds = draw(st.lists(of_one, min_size=workers, max_size=workers).map(tuple))
    places = [(p, w) for p in range(operators) for w in range(workers)]
    return Answer(tuple(draw(st.lists(st.sampled_from(places), unique=True))), bounds)


@given(answers())
def test_a_worker_is_said_to_go_back_as_far_as_the_furthest_of_its_operators(answer: Answer) -> None:
    samples = answer_as_json(answer)
    for worker, bounds in enumerate(answer.bounds):
        reported = samples["workers"][worker]
        mine = [each for each in samples["processors"] if each["worker"] == worker]
        assert reported["keeps"] == all(each["keeps"] for each in mine) == (reported["to"] is None)
        assert reported["failed"] == all((p, worker) in answer.failed for p in range(len(bounds)))
        back = [(bound, each["to"]) for bound, each in zip(bounds, mine) if bound is not None]
        if back:
            assert reported["to"] == min(back, key=lambda pair: pair[0])[1]


def _lists() -> st.SearchStrategy[list[str]]:
    names = [f"worker:{w}" for w in range(2)] + [f"operator:{info.name}" for info in wide_layout(12).processors[:4]]
    return st.lists(st.sampled_from(names), min_size=1, unique=True)


@given(_lists())
def test_a_worker_has_failed_if_all_of_it_was_named(names: list[str]) -> None:
    layout = wide_layout(12)
    failed = targets(layout, names)
    samples = answer_as_json(Answer(failed, tuple(tuple((0,) for _ in layout.processors) for _ in range(2))))
    assert [one["failed"] for one in samples["workers"]] == [f"worker:{w}" in names for w in range(2)]


class Silent(StandingJob):
    """A job that answers for the failure of one worker only, and others when the test is `over`."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.over = threading.Event()

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        if list(failed) == ["worker:1"]:  # as often as a page that is loaded again asks
            back: tuple[tuple[Bound | None, ...], ...] = tuple(
                tuple((2,) if worker == 1 else None for _ in self.layout.processors) for worker in range(2)
            )
            done(Answer(targets(self.layout, failed), back))
        else:
            self.over.wait(120)
            super().what_if(failed, done)


def test_the_sentences_stay_those_of_the_table_when_more_is_marked(tab: Tab) -> None:
    fates = "[...document.querySelectorAll('#panel .fate')].map((one) => one.textContent).join(' ')"
    job = Silent(example_layout("flights"))
    with serving(job, moves=False) as url, ExitStack() as stack:
        stack.callback(job.over.set)
        go(tab, url, "#ask=worker%3A1")
        tab.wait("document.querySelectorAll('#panel .fate').length === 2")
        assert tab.run(fates) == "Worker 0 keeps everything. Worker 1 comes back before 2."
        tab.run("document.querySelectorAll('#panel .chip')[0].click()")
        tab.run("document.querySelectorAll('#panel .chip')[1].click()")
        tab.wait("document.querySelectorAll('#panel .chip')[0].classList.contains('failed')")
        assert not tab.run("document.querySelectorAll('#panel .chip')[1].classList.contains('failed')")
        assert tab.run(fates) == "Worker 0 keeps everything. Worker 1 comes back before 2."
        assert tab.run(text_of("#panel")).count("worker 1before 2") == len(example_layout("flights").processors)
