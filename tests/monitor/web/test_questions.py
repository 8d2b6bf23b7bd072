"""Each question is answered once, whatever is wrong with it: with JSON, or with a status that says whose fault it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from monitor.coordination.effects import Answer
from monitor.coordination.options import Options
from monitor.web.questions import (
    Done,
    OfJob,
    OfOperator,
    OfProcessor,
    Question,
    WhatIf,
    Why,
    WrongQuestion,
    answer,
    answer_as_json,
)
from monitor.web.view import Observation
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import Observed
from tests.monitor.web.standing import StandingJob
from tests.recovery.layouts import LINE, layout
from timely.errors import FalkirkError


class Asked:
    """The outcome of a question."""

    def __init__(self, job: Any, question: Question) -> None:
        self.replies: list[bytes | WrongQuestion] = []
        self.published: list[Observation] = []
        answer(job, question, self.replies.append, self.published.append)

    @property
    def status(self) -> int:
        (reply,) = self.replies
        return reply.status if isinstance(reply, WrongQuestion) else 200

    @property
    def value(self) -> Any:
        (reply,) = self.replies
        return str(reply) if isinstance(reply, WrongQuestion) else json.loads(reply)


class Unjoined(StandingJob):
    """A job that no worker has joined yet."""

    options: Any = None

    def __init__(self, plan: Layout) -> None:
        super().__init__(plan)
        self.options = None

    def observe(self) -> Any:
        return None


class Failing(StandingJob):
    """A job that answers no question about failures."""

    why: object = ""

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        if isinstance(self.why, Exception):
            raise self.why
        done(self.why)  # type: ignore[arg-type]


def job(kind: type[StandingJob] = StandingJob, workers: int = 1) -> Any:
    return kind(layout(*LINE, workers=workers))


def test_who_asks_for_the_job_gets_it_published() -> None:
    standing = job()
    asked = Asked(standing, OfJob())
    assert (asked.status, asked.value) == (200, None)
    assert [seen.at for seen in asked.published] == [standing.at]


def test_there_is_nothing_to_publish_before_a_worker_has_joined() -> None:
    asked = Asked(job(Unjoined), OfJob())
    assert (asked.status, asked.value, asked.published) == (200, None, [])


@pytest.mark.parametrize("question", [OfOperator(0), OfProcessor(0, 0), Why(0, 0)])
def test_of_a_job_that_no_worker_has_joined_nothing_can_be_said(question: Question) -> None:
    asked = Asked(job(Unjoined), question)
    assert (asked.status, asked.value) == (503, "no worker has joined yet")


@pytest.mark.parametrize("question", [OfOperator(3), OfProcessor(3, 0), Why(3, 0)])
def test_the_last_operator_of_the_only_worker_is_known_and_none_beyond(question: Any) -> None:
    assert Asked(job(), question).status == 200
    beyond = type(question)(*(value + 1 if name == "operator" else value for name, value in _fields(question)))
    asked = Asked(job(), beyond)
    assert asked.status == 404
    assert "there is no operator 4" in asked.value
    assert "4 operators, from 0 on, on 1 worker(s)" in asked.value


def _fields(question: Any) -> list[tuple[str, int]]:
    return [(name, getattr(question, name)) for name in question.__struct_fields__]


@pytest.mark.parametrize("question", [OfProcessor(0, 1), Why(0, 1)])
def test_there_is_no_worker_beyond_the_last(question: Question) -> None:
    assert Asked(job(), question).status == 404
    assert Asked(job(workers=2), question).status == 200


def test_the_answer_to_a_supposed_failure_may_come_later() -> None:
    later: list[Done] = []

    class Slow(StandingJob):
        def what_if(self, failed: Sequence[str], done: Done) -> None:
            assert failed == ("worker:0",)
            later.append(done)

    asked = Asked(job(Slow), WhatIf(("worker:0",)))
    assert not asked.replies
    found = Answer(((0, 0),), (((2,), None, (1,), None),))
    later[0](found)
    assert (asked.status, asked.value) == (200, answer_as_json(found))


def test_a_supposed_failure_that_cannot_be_looked_into_now_says_why() -> None:
    standing = job(Failing)
    standing.why = "the job recovers"
    asked = Asked(standing, WhatIf(()))
    assert (asked.status, asked.value) == (503, "the job recovers")


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (WrongQuestion("gone"), 404, "gone"),
        (WrongQuestion("later", 503), 503, "later"),
        (FalkirkError("there is no 'nobody'"), 400, "there is no 'nobody'"),
        (KeyError("x"), 500, "this cannot be answered: KeyError: 'x'"),
        (RecursionError("deep"), 500, "this cannot be answered: RecursionError: deep"),
    ],
)
def test_a_question_that_fails_is_answered_too(error: Exception, status: int, text: str) -> None:
    standing = job(Failing)
    standing.why = error
    asked = Asked(standing, WhatIf(("nobody",)))
    assert (asked.status, asked.value) == (status, text)


def test_an_error_in_a_view_of_the_job_reaches_whoever_asked_and_nobody_else() -> None:
    standing = job()
    standing.samples = {0: (1.0, Observed(Place(0), 1, b"torn", 0, 0, None, ()))}
    standing.options = Options(standing.layout)
    asked = Asked(standing, OfOperator(0))
    assert asked.status == 500
