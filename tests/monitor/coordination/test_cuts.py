"""The moments at which groups are checkpointed; group commit; what the journal gives back; what makes two layouts two jobs."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from monitor.coordination.commit import GroupCommit
from monitor.coordination.cuts import Cuts, cut_event
from monitor.coordination.effects import Persist
from monitor.coordination.handshake import layout_changes, refusal
from monitor.coordination.records import (
    KeptDecision,
    KeptEvent,
    KeptFinished,
    KeptLayout,
    KeptRounds,
    KeptWatermarks,
    Record,
    SavedJob,
    decode_record,
    encode_record,
    slot,
)
from recovery.layout import GroupInfo
from recovery.metadata import NEVER, Bound, at_epoch, nothing
from recovery.protocol import Join
from tests.recovery.layouts import FIREWALL, LINE, layout
from timely.errors import ProtocolError
from timely.time import FINITE


def test_a_cut_is_due_after_its_seconds_and_only_past_the_last() -> None:
    cuts = Cuts([GroupInfo(None, 1.0)], [[(0,), (0,)]], 10.0)
    assert cuts.due([(3,)], 10.5) == []
    assert cuts.due([(0,)], 11.0) == []
    assert cuts.due([(3,)], 11.0) == [(0, (3,), [0, 1])]


def test_a_slow_worker_holds_the_next_cut_back() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(0,), (0,)]], 0.0)
    assert cuts.due([(3,)], 1.0) == [(0, (3,), [0, 1])]
    assert cuts.durable(0, 1, (3,)) is None
    assert cuts.due([(7,)], 2.0) == []
    assert cuts.durable(0, 0, (3,)) == 1.0
    assert cuts.due([(7,)], 3.0) == [(0, (7,), [0, 1])]


def test_what_a_worker_says_of_an_earlier_cut_does_not_count_for_the_outstanding_one() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(0,), (0,)]], 0.0)
    assert cuts.due([(5,)], 0.0) == [(0, (5,), [0, 1])]
    assert cuts.durable(0, 0, (5,)) is None
    assert cuts.durable(0, 1, (3,)) is None  # it was on its way to the store when there was another monitor
    assert cuts.due([(6,)], 1.0) == []
    assert cuts.durable(0, 1, (5,)) == 0.0
    assert cuts.due([(6,)], 1.0) == [(0, (6,), [0, 1])]


def test_by_epochs_and_by_seconds_whichever_is_first() -> None:
    cuts = Cuts([GroupInfo(5, 60.0)], [[(2,)]], 0.0)
    assert cuts.due([(6,)], 1.0) == []
    assert cuts.due([(7,)], 1.0) == [(0, (7,), [0])]
    cuts.durable(0, 0, (7,))
    assert cuts.due([(8,)], 61.0) == [(0, (8,), [0])]


def test_the_end_is_cut_at_once_and_once() -> None:
    cuts = Cuts([GroupInfo(None, 3600.0)], [[(0,)]], 0.0)
    assert cuts.due([(NEVER,)], 0.0) == [(0, (NEVER,), [0])]
    cuts.durable(0, 0, (NEVER,))
    assert cuts.due([(NEVER,)], 9999.0) == []


def test_who_is_further_already_is_left_out() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(2,), (9,)]], 0.0)
    assert cuts.due([(4,)], 0.0) == [(0, (4,), [0])]
    assert cuts.durable(0, 0, (4,)) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_the_last_one_that_is_complete_and_the_next_waits_for_all_that_were_asked(seed: int) -> None:
    """Of two workers, in a loop too: asked is who does not have the cut, once, and never less."""
    random = Random(seed)
    depth = 1 + seed % 2
    last: list[Bound] = [nothing(depth), (*at_epoch(random.randrange(3), depth)[:-1], random.randrange(2))]
    upto = nothing(depth)
    cuts = Cuts([GroupInfo(1, 0.5, depth=depth)], [list(last)], 0.0)
    asked: set[int] = set()
    cut, announced, made = upto, 0.0, 0
    for now in map(float, range(1, 60)):
        more = random.choice([0, 0, 0, 1])
        upto = at_epoch(upto[0] + 1, depth) if more else (*upto[:-1], upto[-1] + (random.randrange(2) or depth == 1))
        found = cuts.due([upto], now)
        if asked or upto <= min(last):
            assert found == []
        else:
            within = upto[0] == min(last)[0]
            cut, announced = upto if within else at_epoch(upto[0], depth), now
            asked = {worker for worker, there in enumerate(last) if there < cut}
            assert found == [(0, cut, sorted(asked))]
            made += 1
        assert cuts.outstanding == ([(0, cut)] if asked else [])
        worker, late = random.randrange(2), random.choice([cut, cut, nothing(depth)])
        if late == cut or random.random() < 0.3:  # it says it again, or was not asked, or means an earlier cut
            counts = late == cut and worker in asked
            last[worker] = max(last[worker], late)
            asked -= {worker} if counts else set()
            assert cuts.durable(0, worker, late) == (announced if counts and not asked else None)
    assert made > 5


@pytest.mark.parametrize(
    ("cut", "data"),
    [
        ((4,), {"epoch": 4}),
        ((4, 0), {"epoch": 4}),
        ((4, 2), {"epoch": 4, "iteration": 2}),
        ((4, 2, 0), {"epoch": 4, "iteration": 2}),
        ((4, 0, 3), {"epoch": 4, "iteration": 0}),
        ((FINITE - 1,), {"epoch": FINITE - 1}),
        ((FINITE,), {"epoch": -1}),
        ((NEVER, 0), {"epoch": -1}),
    ],
)
def test_the_timeline_has_a_cut_within_an_epoch_with_its_iteration_and_the_end_as_an_epoch_before_all(
    cut: Bound, data: dict[str, int]
) -> None:
    assert cut_event(7, cut) == {"group": 7, **data}


def test_what_comes_during_a_write_goes_into_the_next_together() -> None:
    commit = GroupCommit()
    assert commit.take() is None
    commit.add_some_time(KeptEvent("failure", 1.0))
    assert commit.take() is None
    commit.add(KeptWatermarks((((1,),),)))
    assert commit.take() == Persist(1, (KeptEvent("failure", 1.0), KeptWatermarks((((1,),),))))
    commit.add(KeptWatermarks((((2,),),)))
    commit.add(KeptWatermarks((((3,),),)))
    commit.add(KeptFinished())
    assert commit.take() is None
    assert commit.stored(7) == ()
    assert commit.unwritten[2:] == (KeptWatermarks((((3,),),)), KeptFinished())
    assert commit.stored(1) == (KeptEvent("failure", 1.0), KeptWatermarks((((1,),),)))
    assert commit.take() == Persist(2, (KeptWatermarks((((3,),),)), KeptFinished()))
    assert commit.stored(2) == (KeptWatermarks((((3,),),)), KeptFinished())
    assert commit.stored(2) == commit.unwritten == ()


RECORDS: list[Record] = [
    KeptLayout(layout(*LINE)),
    KeptWatermarks((((0,), (NEVER,)), ((3,), (2, 0)))),
    KeptDecision(4, 2, (((0,), None), ((NEVER,), (2, 0))), (1,)),
    KeptEvent("failure", 1.5, {"worker": 1, "reason": "killed", "more": [1, None, {"a": 2.5}]}),
    KeptRounds(1000),
    KeptFinished(),
]


@pytest.mark.parametrize("record", RECORDS)
def test_records_come_back(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_anything_else_is_no_record() -> None:
    with pytest.raises(ProtocolError):
        decode_record(msgspec.msgpack.encode({"type": "decision", "generation": "x"}))


def test_the_newest_of_each_slot_counts() -> None:
    newer = KeptDecision(6, 4, (((1,),),), ())
    saved = SavedJob.of([*RECORDS[:4], newer, KeptEvent("decided", 2.0)])
    assert saved.decision == newer
    assert saved.layout == layout(*LINE)
    assert [event.kind for event in saved.events] == ["failure", "decided"]
    assert not saved.finished
    assert SavedJob.of(RECORDS).finished
    assert slot(newer) == slot(RECORDS[2])
    assert len({slot(record) for record in RECORDS}) == len(RECORDS)


def test_where_an_operator_stands_and_how_often_it_is_saved_may_change() -> None:
    before = layout(*LINE)
    moved = msgspec.structs.replace(before.processors[0], site="app.py:99")
    after = msgspec.structs.replace(
        before, processors=(moved, *before.processors[1:]), groups=(GroupInfo(None, 5.0),) * len(before.groups)
    )
    assert layout_changes(before, after) == []


def test_another_number_of_workers_is_named() -> None:
    (line,) = layout_changes(layout(*LINE, 2), layout(*LINE, 3))
    assert "another -w without a savepoint" in line


def test_another_policy_operator_or_log_is_named() -> None:
    before = layout(*FIREWALL)
    changed = layout(*FIREWALL, policies=["Lazy", "Lazy", "LogHistory", "Lazy"])
    assert any("'count'" in line and "policy" in line for line in layout_changes(before, changed))
    gone = layout(*LINE)
    assert any("'clean' is gone" in line for line in layout_changes(before, gone))
    assert any("'map' is new" in line for line in layout_changes(before, gone))
    edge = msgspec.structs.replace(before.edges[1], logged=False)
    unlogged = msgspec.structs.replace(before, edges=(before.edges[0], edge, before.edges[2]))
    assert layout_changes(before, unlogged) == ["the edge from 'clean' to 'count' is no longer logged"]


def test_what_the_outline_does_not_tell_is_named_too() -> None:
    """Two layouts of one program, as its outline has it, may be fused, ordered or numbered in another way."""
    before = layout("read source, a chain, b chain", "read>a, read>b")
    other = layout("read source, b chain, a chain", "read>a, read>b")
    fewer = layout("read source, a chain", "read>a")
    assert layout_changes(before, msgspec.structs.replace(other, outline=before.outline)) == [
        "its operators are in another order"
    ]
    gone = "operator 'b' is gone, or is fused with others in another way"
    new = "operator 'b' is new, or is fused with others in another way"
    assert layout_changes(before, msgspec.structs.replace(fewer, outline=before.outline)) == [gone]
    assert layout_changes(fewer, msgspec.structs.replace(before, outline=fewer.outline)) == [new]
    (line,) = layout_changes(before, msgspec.structs.replace(before, fingerprint="7"))
    assert "fingerprint" in line
    changed = msgspec.structs.replace(before, outline=before.outline.replace('"Lazy"', '"LogHistory"'))
    assert any("LogHistory" in line for line in layout_changes(before, changed))


def test_edges_and_operators_that_differ_are_named_where_the_outline_is_the_same() -> None:
    before = layout("read source, a chain", "read>a")
    (edge,) = before.edges
    nowhere = ["an edge leads to an operator that it does not have"]
    for new, lines in (
        ([msgspec.structs.replace(edge, spread=True)], ["the edge from 'read' to 'a' is of another kind"]),
        ([msgspec.structs.replace(edge, target=2)], nowhere),
        ([msgspec.structs.replace(edge, source=-1)], nowhere),
        ([], ["it had 1 edges and has 0"]),
    ):
        assert layout_changes(before, msgspec.structs.replace(before, edges=tuple(new))) == lines
    logs = (before.processors[0], msgspec.structs.replace(before.processors[1], policy="LogHistory"))
    assert layout_changes(before, msgspec.structs.replace(before, processors=logs)) == [
        "operator 'a': its policy was 'Lazy' and is 'LogHistory'"
    ]


def test_stores_that_do_not_belong_together_are_refused() -> None:
    plan = layout(*LINE)
    decision = KeptDecision(4, 2, ((),), ())
    join = Join(1, 1, 4, False, plan, ())

    def why(join: Join) -> str:
        return refusal(join, plan, decision) or ""

    assert why(join) == ""
    assert why(msgspec.structs.replace(join, generation=2)) == ""
    assert "older copy" in why(msgspec.structs.replace(join, generation=1))
    assert "monitor's folder of the store is older" in why(msgspec.structs.replace(join, generation=5))
    first = msgspec.structs.replace(join, generation=1)
    assert "monitor's folder of the store is older" in (refusal(first, plan, None) or "")
    assert refusal(msgspec.structs.replace(join, generation=0), plan, None) is None
    assert "start all with the same number" in (refusal(join, layout(*LINE, 3), decision) or "")
    assert "another program" in why(msgspec.structs.replace(join, layout=layout(*FIREWALL)))
