"""Each part of an agent by itself, on the state that they share: whatever comes, in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from recovery.agent.collection import Collection
from recovery.agent.cuts import WorkerCuts
from recovery.agent.effects import Acknowledge, Halt, Put, Report, Save, Saved, SendFrame
from recovery.agent.reports import Reports
from recovery.agent.rounds import Rounds
from recovery.agent.state import WorkerPhase
from recovery.checkpoint.records import SourcePosition
from recovery.metadata import Bound
from recovery.place import Place
from recovery.protocol import Cut, Drain, Drained, Durable
from tests.recovery.agent.alone import NoCuts, NoReports, running, taken
from tests.recovery.agent.driven import counts, logged
from timely.data.messages import Frame

# Reports: each once, in order, when the segment after it is durable


@given(st.lists(st.sampled_from(("gather", "write", "stored")), max_size=30))
def test_a_report_is_sent_once_its_segment_is_durable_and_in_order(steps: Sequence[str]) -> None:
    own = running(counts)
    reports = Reports(own)
    number = 0
    waiting: list[int] = []
    writing: list[int] = []
    for step in [*steps, "write", "stored", "write", "stored"]:
        if step == "gather":
            number += 1
            own.checkpoints.open()  # something to be written
            reports.gather(Durable(Place(0), 0, 0, (number,), ()))
            waiting.append(number)
            assert reports.waits_for_store()
        elif step == "write":
            reports.write()
            written = taken(own, Put)
            assert len(written) <= 1
            if written:
                assert not writing, "one write at a time"
                writing, waiting = waiting, []
        elif own.journal.in_flight is not None:
            due = reports.stored(own.journal.in_flight)
            assert [report.at for report in due] == [(each,) for each in writing]
            assert not taken(own, Report), "before that gates are opened"
            reports.send_sealed()
            assert [cast(Durable, sent.message).at for sent in taken(own, Report)] == [(each,) for each in writing]
            writing = []
    assert not waiting
    assert not writing


# Cuts: one report a cut, in the order in which they were asked for


@given(
    st.lists(st.integers(0, 12), max_size=12),
    st.lists(st.one_of(st.just("ask"), st.integers(1, 6)), max_size=25),
)
def test_cuts_are_made_in_order_and_the_driver_knows_all_it_needs(keys: list[int], steps: Sequence[Any]) -> None:
    own, reports = running(counts), NoReports()
    cuts = WorkerCuts(own, cast(Reports, reports))
    (node,) = (each.index for each in own.plan.graph.of_kind("source"))
    save: Save | None = None
    rows, asked = 0, 0
    for step in [*steps, *[6] * 60]:
        if step == "ask":
            if keys:
                own.worker.feed(node, (asked,), list(keys))
            own.worker.advance(node, (asked + 1,))
            own.worker.run()
            asked += 1
            cuts.ask(Cut(0, 0, (asked,)))
        elif save is not None:
            own.checkpoints.piece_rows = step
            before = own.checkpoints.saved_rows
            cuts.make_piece({(p, epoch): (SourcePosition("all", epoch, False, epoch, 0),) for p, epoch in save.sources})
            rows += own.checkpoints.saved_rows - before
        for effect in taken(own, object):
            if isinstance(effect, Save):
                assert not effect.at_once
                save = effect
            elif isinstance(effect, Saved):
                rows -= effect.rows
                save = None if effect.over else save
        assert (save is not None) == cuts.pending
        assert rows == 0, "the driver knows of all rows"
    assert [cast(Durable, each).at for each in reports.gathered] == [(epoch + 1,) for epoch in range(asked)]


def test_cuts_of_another_generation_or_in_a_round_are_void() -> None:
    own = running(counts)
    cuts = WorkerCuts(own, cast(Reports, NoReports()))
    cuts.ask(Cut(1, 0, (1,)))
    own.phase = WorkerPhase.DRAINING
    cuts.ask(Cut(0, 0, (1,)))
    assert not cuts.pending
    assert own.effects == []


# Collection: what W says, and never less


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 9)), max_size=4), max_size=8))
def test_low_watermarks_only_rise_and_sources_hear_of_each_rise_once(words: list[list[tuple[int, int, int]]]) -> None:
    own = running(counts, workers=2)
    collection = Collection(own)
    count = len(own.layout.processors)
    (source,) = (p for p, info in enumerate(own.layout.processors) if info.role == "source")
    low: dict[tuple[int, int], Bound] = {}
    acknowledged: list[int] = [0]
    for word in words:
        changed = tuple((p % count, worker, (epoch,)) for p, worker, epoch in word)
        collection.raise_low(changed)
        collection.acknowledge()
        for p, worker, bound in changed:
            low[p, worker] = max(low.get((p, worker), (0,)), bound)
        assert all(own.low[worker][p] == bound for (p, worker), bound in low.items())
        told = [effect.epoch for effect in taken(own, Acknowledge)]
        assert len(told) <= 1
        acknowledged += told
        assert acknowledged[-1] == low.get((source, 0), (0,))[0], "of this worker's own source alone"
    assert acknowledged == sorted(set(acknowledged))


def test_logs_for_a_receiver_go_with_its_own_low_watermark() -> None:
    own = running(logged, workers=2)
    (edge,) = (each for each in own.layout.edges if each.resends)
    own.recorder.logs = {(edge.edge, worker): [] for worker in (0, 1)}
    seen: list[tuple[int, int, Bound]] = []
    own.checkpoints.collect_log = lambda *log: seen.append(log)  # type: ignore[method-assign]
    Collection(own).raise_low(((edge.target, 1, (3,)), (edge.source, 0, (2,))))
    assert seen == [(edge.edge, 1, (3,))]


# Rounds: drained when all have said so, of this round


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("marker"), st.integers(1, 2), st.integers(1, 4)),
            st.tuples(st.just("pause"), st.integers(1, 4), st.just(0)),
            st.tuples(st.just("store"), st.integers(0, 1), st.just(0)),
        ),
        max_size=25,
    )
)
def test_a_worker_is_drained_when_all_have_sent_the_markers_of_its_round(steps: list[tuple[str, int, int]]) -> None:
    own, reports, cuts = running(counts, workers=3), NoReports(), NoCuts()
    rounds = Rounds(own, cast(Reports, reports), cast(WorkerCuts, cuts), cast(Collection, None))
    newest, marked, said, pauses = 0, {1: 0, 2: 0}, 0, 0
    for what, first, second in steps:
        if what == "marker":
            rounds.on_frame(Frame(first, 0, ends=second))
            marked[first] = max(marked[first], second)
        elif what == "pause":
            rounds.pause(Drain(first, (Place(0), Place(1), Place(2))))
            markers = {f.place.worker: f.frame.ends for f in own.effects if isinstance(f, SendFrame) and f.frame.ends}
            assert markers == (dict.fromkeys((1, 2), first) if first > newest else {})
            assert (Halt() in own.effects) == (first > newest)
            pauses += first > newest
            newest = max(newest, first)
        else:
            reports.writing = bool(first)
            rounds.report_drained()
        drained = [effect.message for effect in taken(own, Report) if isinstance(effect.message, Drained)]
        if newest > said and not reports.writing and min(marked.values()) >= newest:
            said = newest
            assert [each.round for each in drained] == [newest]
        else:
            assert not drained
        assert own.phase is (
            WorkerPhase.RUNNING if not newest else WorkerPhase.DRAINED if said == newest else WorkerPhase.DRAINING
        )
    assert cuts.finished == pauses
