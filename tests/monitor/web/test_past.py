"""Moments of the past: the last of the frames up to each, whatever their files; what is unknown is said; two are compared."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.coordination.records import KeptEvent
from monitor.history.archive import FACTS, NEAR, NOW, Archive, Gone, spanned
from monitor.history.facts import Happening, Plan, encode
from monitor.history.files import FACT, FRAMES, OPTIONS, framed
from monitor.history.frames import NUMBERS, Frame, pack
from monitor.history.options_at import pack_options
from monitor.history.scales import COUNT, ENDED, RATE, UNKNOWN
from monitor.web.fold import fold, group_tree
from monitor.web.past import RESTART_ONLY, PastJob, comparison, course_of, furthest_behind, halts, overview, points_of
from monitor.web.questions import OfOperator, OfProcessor, WhatIf, Why, WrongQuestion
from monitor.web.recording import frame_of
from monitor.web.view import FIELDS, View
from recovery.protocol import END
from tests.monitor.history.drawn import START, frames, layout_of, options_at
from tests.monitor.web.programs import example_layout
from tests.monitor.web.standing import StandingJob

OPERATORS, WORKERS = 12, 2
LAYOUT = layout_of(OPERATORS, WORKERS)
FOLDING = fold(LAYOUT, group_tree(LAYOUT))


@cache
def made(seed: int, seconds: int = 150) -> tuple[Frame, ...]:
    return tuple(frames(len(LAYOUT.processors), WORKERS, seconds, seed))


def archive_of(
    all_frames: list[Frame], cuts: list[int], options: bool = True, events: tuple[KeptEvent, ...] = ()
) -> Archive:
    """An archive of these frames, packed in files that are cut there; the rest are seconds of the present minute."""
    found = Archive()
    facts = [Plan(0, START / 1000, LAYOUT), Happening(KeptEvent("began", START / 1000)), *map(Happening, events)]
    found.take(FACTS, b"".join(framed(FACT, encode(each)) for each in facts))
    record = [(all_frames[0].at, options_at(LAYOUT, 3))]
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(all_frames)})]
    for number, (first, last) in enumerate(pairwise(edges)):
        for at in range(first, last, 120):
            part = all_frames[at : min(at + 120, last)]
            data = framed(FRAMES, spanned(0, part[0].at, part[-1].at, pack(part)))
            if options and not number and at == first:
                data += framed(OPTIONS, spanned(0, part[0].at, part[0].at, pack_options(record)))
            found.take(f"past-{100 * number + at:08d}", data)
    rest = [framed(FRAMES, spanned(0, f.at, f.at, pack([f]))) for f in all_frames[edges[-1] :]]
    if options and len(edges) == 1:
        rest.append(framed(OPTIONS, spanned(0, record[0][0], record[0][0], pack_options(record))))
    found.take(NOW, b"".join(rest))
    return found


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 150), max_size=4),
    at=st.integers(-2000, 160_000),
    options=st.booleans(),
)
def test_a_moment_is_the_last_of_the_frames_up_to_it(seed: int, cuts: list[int], at: int, options: bool) -> None:
    all_frames = list(made(seed))
    archive = archive_of(all_frames, cuts, options)
    before = [frame for frame in all_frames if frame.at <= START + at]
    if not before:
        with pytest.raises(Gone, match="begins later"):
            archive.at(START + at)
        return
    frame = before[-1]  # each frame replaces the one before
    past = PastJob(archive.at(START + at))
    assert past.frame == frame
    assert past.moment.age == START + at - frame.at
    assert (past.moment.options is None) == (not options)
    totals = past.totals()
    assert (totals["newest"], totals["read"]) == (frame.numbers[NUMBERS.index("newest")], frame.number("read"))
    rows = {name: [row[FIELDS.index(name)] for row in past.rows(FOLDING, "busy")] for name in FIELDS}
    top = frame.number("top") or 0
    running = past.moment.running
    for node, members in enumerate(FOLDING.nodes):
        assert rows["progress"][node] == min(max(0, top - int(COUNT.values[frame.operators[0, p]])) for p in members)
        lows = [3 if options else max(0, top - int(COUNT.values[frame.operators[1, p]])) for p in members]
        assert rows["low"][node] == min(lows)
        rate = sum(RATE.values[frame.operators[2, p]] for p in members)
        assert rows["taken"][node] == (pytest.approx(rate) if running else None)
    for name in ("sent", "pending", "held", "queued", "rows", "logged"):
        assert set(rows[name]) == {None}, "a frame does not have it, so it is unknown"
    assert [row[0] for row in past.workers()] == ["alive" if running else "gone"] * WORKERS
    reported = past.as_json(FOLDING, "busy")
    assert json.loads(json.dumps(reported))["age"] == past.moment.age / 1000
    assert any("not running" in words for words in reported["unknown"]) == (past.moment.age >= NEAR)


def recorded(job: StandingJob, seconds: int) -> tuple[View, list[Any], Frame]:
    view, seen = View(job.layout), []
    for _ in range(seconds):
        seen.append(job.step(1.0))
        view.update(seen[-1])
    return view, seen, frame_of(view, 77, 5)


def moment_of(job: StandingJob, frame: Frame, **more: Any) -> Any:
    archive = Archive()
    events = [KeptEvent(each.kind, each.at, each.data) for each in job.events]
    facts = [Plan(0, 0.0, job.layout), *map(Happening, events)]
    archive.take(FACTS, b"".join(framed(FACT, encode(each)) for each in facts))
    data = framed(FRAMES, spanned(0, frame.at, frame.at, pack([frame])))
    data += framed(OPTIONS, spanned(0, frame.at, frame.at, pack_options([(frame.at, job.options.record())])))
    archive.take(NOW, data)
    return archive.at(frame.at + 10)


def test_a_moment_in_full_is_what_the_page_showed() -> None:
    job = StandingJob(example_layout("flights"))
    view, seen, frame = recorded(job, 12)
    past = PastJob(moment_of(job, frame), seen)
    folding = fold(job.layout, group_tree(job.layout))
    assert past.rows(folding, "queued") == view.rows(folding, "queued")
    assert past.workers() == view.workers()
    assert past.totals() == view.totals() | {"read": 77, "written": 5}
    assert past.as_json(folding, "busy")["unknown"] == []
    detail = json.loads(past.answer(OfOperator(0)))
    assert detail["workers"][0]["progress"] == [int(view.columns.progress[0, 0]), 0]
    assert PastJob(moment_of(job, frame), [job.step(60.0)]).observe() is None, "of another second"


def test_questions_about_the_past_are_answered_from_its_options() -> None:
    job = StandingJob(example_layout("flights"))
    _, _, frame = recorded(job, 3)
    past = PastJob(moment_of(job, frame))
    why = json.loads(past.answer(Why(1, 0)))
    assert why["rollback"]["text"]
    assert "was not recorded" in why["progress"]["text"]
    assert why["progress"]["frontier"] is None
    supposed = json.loads(past.answer(WhatIf(("worker:1",))))
    assert supposed["note"] == RESTART_ONLY
    assert all(each["failed"] for each in supposed["workers"])
    assert json.loads(past.answer(OfProcessor(1, 1)))["progress"] is None
    with pytest.raises(WrongQuestion, match="there is no operator 99"):
        past.answer(OfOperator(99))
    with pytest.raises(WrongQuestion, match="neither a worker"):
        past.answer(WhatIf(("nobody",)))
    unknown = PastJob(archive_of(list(made(1)), [], options=False).at(START + 5000))
    for question in (Why(0, 0), OfOperator(0), WhatIf(("worker:1",))):
        with pytest.raises(WrongQuestion, match="not recorded"):
            unknown.answer(question)


def frame_at(second: int, lags: list[int], newest: int, **numbers: int) -> Frame:
    base = made(0)[0]
    operators = base.operators.copy()
    operators[0] = [ENDED if lag == -1 else UNKNOWN if lag == -2 else COUNT.encode(np.array(lag)) for lag in lags]
    of = dict(zip(NUMBERS, base.numbers)) | {
        "at": START + 1000 * second,
        "top": newest,
        "newest": newest,
        "open": newest - max(lags),
        **numbers,
    }
    return Frame(tuple(of[name] for name in NUMBERS), operators, base.workers)


def test_the_holder_is_the_first_of_those_furthest_behind() -> None:
    progress = np.full(len(LAYOUT.processors), 44, np.int64)
    assert furthest_behind(LAYOUT, progress) == []
    edge = next(edge for edge in LAYOUT.edges if not edge.feedback)
    progress[[edge.source, edge.target]] = 12
    assert furthest_behind(LAYOUT, progress) == [edge.source]
    progress[:] = [END] * len(progress)
    progress[edge.target] = 3
    assert furthest_behind(LAYOUT, progress) == [edge.target]
    progress[:] = -2
    assert furthest_behind(LAYOUT, progress) == []


def test_what_held_an_epoch_is_found_from_frames() -> None:
    """Epoch 12 is read at second 3 and complete at second 9: from second 4 on it is operator 7 that has not done it."""
    count = len(LAYOUT.processors)

    def at(second: int) -> Frame:
        newest = 4 * second
        behind = newest - 12 if 4 <= second < 9 else 0
        return frame_at(second, [behind if p == 7 else 0 for p in range(count)], newest, low=max(0, newest - 30))

    archive = archive_of([at(second) for second in range(30)], [4, 11])
    course = course_of(archive, 12)
    assert (course["read"], course["at"], course["complete"]) == (START / 1000 + 3, START / 1000 + 8, START / 1000 + 9)
    assert course["safe"] == START / 1000 + 11
    assert course["held"] == [{"operator": 7, "name": LAYOUT.processors[7].name, "seconds": 5}]
    assert PastJob(archive.at(round(course["at"] * 1000))).holds == [7]
    with pytest.raises(Gone, match="not read yet"):
        course_of(archive, 1000)


def test_a_standstill_holds_from_its_beginning_until_it_moves() -> None:
    reported: list[Any] = [(1.0, "began", {}), (13.0, "stuck", {"seconds": 3.0, "processor": 5}), (14.0, "note", {})]
    reported += [(20.0, "moves", {"seconds": 10.0}), (31.0, "stuck", {"seconds": 1.0, "processor": -1})]
    reported += [(33.0, "stuck", {"seconds": 2.0, "processor": 2})]
    assert halts([KeptEvent(kind, at, data) for at, kind, data in reported]) == [(10.0, 20.0, 5), (31.0, inf, 2)]
    events = (KeptEvent("stuck", START / 1000 + 13, {"seconds": 3.0, "processor": 5}),)
    archive = archive_of(
        [frame_at(second, [0] * len(LAYOUT.processors), 8) for second in range(8, 16)], [], events=events
    )
    assert [PastJob(archive.at(START + 1000 * second)).holds for second in (9, 12, 13, 15)] == [[], [], [5], [5]]
    assert course_of(archive, 8)["held"][0]["seconds"] == 6


def test_two_moments_are_compared_by_operator() -> None:
    count = len(LAYOUT.processors)
    one, other = frame_at(1, [2] * count, 10), frame_at(5, [0] * (count - 1) + [5], 30)
    archive = archive_of([one, other], [])
    first, second = PastJob(archive.at(one.at)), PastJob(archive.at(other.at))
    found = comparison(first, second)
    fields = found["fields"]
    before, after = ({name: row[fields.index(name)] for name in fields} for row in found["operators"][-1])
    assert (before["progress"], before["lag"], after["progress"], after["lag"]) == (8, 2, 25, 5)
    assert before["unsafe"] == 10 - 3
    assert [each["totals"]["newest"] for each in found["moments"]] == [10, 30]
    elsewhere = StandingJob(example_layout("flights"))
    _, _, frame = recorded(elsewhere, 2)
    with pytest.raises(WrongQuestion, match="cannot be compared"):
        comparison(first, PastJob(moment_of(elsewhere, frame)))


def test_marks_and_charts_of_the_history() -> None:
    events = (
        KeptEvent("failure", START / 1000 + 20, {"worker": 1, "reason": "was killed"}),
        KeptEvent("restored", START / 1000 + 21, {"generation": 2, "rollback": {"generation": 2}}),
        KeptEvent("note", START / 1000 + 22, {"text": "nothing"}),
    )
    all_frames = list(made(2))
    archive = archive_of(all_frames, [60, 120], events=events)
    found = overview(archive, None, None)
    assert (found["first"], found["last"]) == (all_frames[0].at, all_frames[-1].at)
    assert [mark["kind"] for mark in found["marks"]] == ["began", "failure", "restored"]
    assert "rollback" not in found["marks"][-1]
    lows = [frame.number("low") or 0 for frame in all_frames]
    rises = [frame.at for frame, low, before in zip(all_frames[1:], lows[1:], lows) if low > before]
    assert found["safe"] == rises
    assert overview(archive, all_frames[0].at - 10**8, all_frames[-1].at)["safe"] == rises
    points = points_of(archive, all_frames[10].at, all_frames[40].at, 180)
    assert [point["at"] for point in points] == [frame.at / 1000 for frame in all_frames[10:41]]
    empty = overview(Archive(), None, None)
    assert (empty["first"], empty["safe"], empty["marks"]) == (None, None, [])
    with pytest.raises(Gone, match="nothing of this job is recorded yet"):
        Archive().at(START)
