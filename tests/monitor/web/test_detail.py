"""One operator and one processor in full: what it can be restored to, Ξ there, and what its worker says of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from monitor.coordination.effects import Answer
from monitor.web.detail import MOST_CHECKPOINTS
from monitor.web.questions import answer_as_json
from recovery.metadata import everything
from recovery.protocol import END, ROWS, Closely, Redone, Resent, Working
from tests.monitor.web.asked import ask
from tests.monitor.web.standing import StandingJob
from tests.recovery.layouts import LINE, LOOP, layout
from timely.time import INF

READ, MAP, COUNT, OUT = range(4)


def job_of(text: tuple[str, str] = LINE) -> StandingJob:
    """A made-up job of two workers, each number of which is another one."""
    job = StandingJob(layout(*text))
    count = len(job.layout.processors)
    for worker in range(2):
        for at in range(len(ROWS)):
            job._tables[worker, at] = [1000 * worker + 100 * p + at for p in range(count)]
    job._tell()
    return job


def numbers(operator: int, worker: int) -> dict[str, int]:
    return {name: 1000 * worker + 100 * operator + at for at, name in enumerate(ROWS) if name not in ("epoch", "inner")}


def test_a_chain_shows_its_checkpoints_from_its_low_watermark_on_the_newest_first() -> None:
    job = job_of()
    flat = job.options.topology.flat(COUNT, 1)
    job.options.chains[flat] = [((2,), ((1,),)), ((4,), ((3,),)), ((6,), ((5,),))]
    job.options._low[flat] = (4,)
    job.options.upto[1] = ((7,),) * len(job.layout.groups)

    def checkpoint(epoch: int) -> dict[str, Any]:
        return {
            "f": [epoch],
            "notified": [epoch],
            "delivered": [{"from": MAP, "bound": [epoch]}],
            "discarded": [{"to": OUT, "bound": [epoch - 1], "logged": False}],
            "projected": [{"to": OUT, "bound": [epoch]}],
        }

    assert ask(job, f"/api/processor/{COUNT}/1").value == {
        "operator": COUNT,
        "worker": 1,
        "name": "count",
        "kind": "chain",
        "low": [4],
        "completed": [7],
        "checkpoints": [checkpoint(6), checkpoint(4)],
        "taken_checkpoints": 3,
        "kept": 2,
        "collected": 1,
        "progress": [1200, 1201],
        "frontier": None,
        "working": [],
        "members": [],
        "at": 1000.0,
        **numbers(COUNT, 1),
    }
    workers = ask(job, f"/api/operator/{COUNT}").value
    assert workers["operator"] == COUNT
    assert [(each["worker"], each["low"], each["checkpoints"]) for each in workers["workers"]] == [
        (0, [0], 0),
        (1, [4], 2),
    ]
    assert [each["progress"] for each in workers["workers"]] == [[200, 201], [1200, 1201]]
    assert numbers(COUNT, 0).items() <= workers["workers"][0].items()


def test_only_the_newest_of_many_checkpoints_are_shown() -> None:
    job = job_of()
    flat = job.options.topology.flat(COUNT, 0)
    job.options.chains[flat] = [((epoch,), ((epoch,),)) for epoch in range(1, 51)]
    found = ask(job, f"/api/processor/{COUNT}/0").value
    assert [each["f"] for each in found["checkpoints"]] == [[epoch] for epoch in range(50, 50 - MOST_CHECKPOINTS, -1)]
    assert (found["kept"], found["collected"]) == (50, 0)


def test_what_keeps_nothing_can_be_restored_to_what_it_has_completed() -> None:
    job = job_of()
    job.options.complete(0, ((5,),) * len(job.layout.groups))
    found = ask(job, f"/api/processor/{MAP}/0").value
    assert (found["kind"], found["completed"]) == ("any", [5])
    (checkpoint,) = found["checkpoints"]
    assert checkpoint["discarded"] == [{"to": COUNT, "bound": [5], "logged": False}]
    assert ask(job, f"/api/processor/{MAP}/1").value["completed"] is None, "that worker has said nothing of it"


def test_frontiers_are_told_of_what_is_looked_at_closely_and_the_end_is_minus_one() -> None:
    job = job_of(LOOP)
    state = next(p for p, info in enumerate(job.layout.processors) if info.name == "state")
    job._tables[0, ROWS.index("epoch")] = END
    job._tables[1, ROWS.index("inner")] = INF
    job._tell()
    at, reported = job.samples[1]
    job.samples[1] = (
        at,
        replace(reported, closely=(Closely(state - 1, ((9, 9),), ()), Closely(state, ((3, 1), (4, INF)), ()))),
    )
    assert ask(job, f"/api/processor/{state}/0").value["progress"] == [-1]
    found = ask(job, f"/api/processor/{state}/1").value
    assert found["progress"] == [1000 + 100 * state, -1]
    assert found["frontier"] == [[3, 1], [4, -1]]
    del job.samples[1]
    assert ask(job, f"/api/processor/{state}/1").value["progress"] is None


@pytest.mark.parametrize(
    ("path", "says"),
    [("/api/processor/4/0", "operator 4 on worker 0"), ("/api/processor/0/2", "operator 0 on worker 2")],
)
def test_what_is_not_there_is_named_with_what_is(path: str, says: str) -> None:
    reported = ask(job_of(), path)
    assert reported.status == 404
    assert reported.value == {"error": f"there is no {says}: there are 4 operators, from 0 on, on 2 worker(s)"}
    assert ask(job_of(), path.replace("4", "3").replace("/2", "/1")).status == 200


def test_an_answer_to_a_supposed_failure_tells_where_all_goes_back_to_and_what_that_costs() -> None:
    made = Answer(
        failed=((1, 1),),
        bounds=(((3,), None), (everything(1), (2, 1))),
        resent=((Resent(4, 1, 7, 70),), ()),
        redone=((Redone(0, 10, 2, 0.5),), (Redone(0, 5, 1, 0.25), Redone(1, 1, 3, 0.25))),
    )
    assert answer_as_json(made) == {
        "workers": [
            {"worker": 0, "keeps": False, "to": [3], "failed": False},
            {"worker": 1, "keeps": False, "to": [2, 1], "failed": False},
        ],
        "processors": [
            {"operator": 0, "worker": 0, "to": [3], "keeps": False},
            {"operator": 1, "worker": 0, "to": None, "keeps": True},
            {"operator": 0, "worker": 1, "to": [-1], "keeps": False},
            {"operator": 1, "worker": 1, "to": [2, 1], "keeps": False},
        ],
        "resent": [{"edge": 4, "from": 0, "to": 1, "messages": 7, "bytes": 70}],
        "redone": {"records": 16, "seconds": 1.0, "epochs": 3},
        "mates": [],
    }
    nothing = answer_as_json(Answer((), (), (), ()))
    assert nothing["redone"] == {"records": 0, "seconds": 0, "epochs": 0}
    assert answer_as_json(Answer((), ()))["redone"] is None


def test_what_is_done_for_an_operator_is_told_with_it_and_with_its_processor() -> None:
    job = job_of()
    at, reported = job.samples[1]
    working = Working(READ, 3, "waits", 1, 4, 2.5), Working(COUNT, 7, "counts", 0, 0, 0.1)
    job.samples[1] = at, replace(reported, working=working)
    samples = {"epoch": 3, "what": "waits", "done": 1, "total": 4, "seconds": 2.5}
    assert [each["working"] for each in ask(job, f"/api/operator/{READ}").value["workers"]] == [[], [samples]]
    assert ask(job, f"/api/processor/{READ}/1").value["working"] == [samples]
    assert ask(job, f"/api/processor/{OUT}/1").value["working"] == []
