"""The data of the space-time picture: order of rows, lanes, and what is the least of several; against brute force."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from monitor.coordination.cuts import cut_event
from monitor.coordination.supervision import TimelineEvent
from monitor.explain.why import plain_bound
from monitor.web.fold import fold, group_tree
from monitor.web.questions import Question
from monitor.web.spacetime import (
    MOST_LANES,
    OpenCuts,
    kept_times,
    lanes_of,
    restart_now,
    row_places,
    sorted_units,
    space_time,
)
from monitor.web.view import View
from recovery.layout import Layout
from recovery.metadata import Bound, at_cut, at_epoch, holds, meet, of_steps, within
from tests.monitor.web.asked import Page
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.standing import StandingJob


def with_checkpoints(layout: Layout, epochs: tuple[int, ...] = (2, 4, 7)) -> StandingJob:
    """A job of which every chain has checkpoints at these epochs, and everybody has completed the last."""
    job = StandingJob(layout)
    options, topology = job.options, job.options.topology
    for flat in range(topology.count):
        info = topology.info(flat)
        ports = [layout.edges[index] for index in topology.outgoing[flat // layout.workers]]
        if info.chain:
            options.chains[flat] = [
                (
                    at_epoch(epoch, info.depth),
                    tuple(at_epoch(0 if port.logged else epoch, port.summary.result_depth) for port in ports),
                )
                for epoch in epochs
            ]
    for worker in range(layout.workers):
        options.complete(worker, tuple(at_epoch(epochs[-1], group.depth) for group in layout.groups))
    return job


def picture(job: StandingJob, closed: tuple[str, ...] = (), cuts: OpenCuts | None = None) -> Any:
    layout = job.layout
    view = View(layout)
    view.update(job.observe())
    folding = fold(layout, group_tree(layout), (), closed)
    places = row_places(layout, folding)
    made = space_time(view, folding, places, kept_times(job.options), restart_now(job.options), cuts or OpenCuts())
    return msgspec.json.decode(msgspec.json.encode(made))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.data())
def test_units_come_behind_all_that_leads_to_them_unless_they_go_in_circles(
    ranks: list[int], data: st.DataObject
) -> None:
    numbers = st.integers(0, len(ranks) - 1)
    edges = data.draw(st.lists(st.tuples(numbers, numbers), max_size=12))
    found = sorted_units(ranks, edges)
    assert sorted(found) == list(range(len(ranks)))
    after = {a: {b for x, b in edges if x == a and a != b} for a in range(len(ranks))}
    reach = {a: set(after[a]) for a in after}
    for _ in ranks:
        reach = {a: here | {c for b in here for c in reach[b]} for a, here in reach.items()}
    circular = {a for a in reach if a in reach[a]}
    behind = {b for a in circular for b in reach[a]}
    for a, b in edges:
        if a != b and not {a, b} & (circular | behind):
            assert found.index(a) < found.index(b)


@given(st.integers(1, 200), st.integers(1, 20))
def test_lanes_divide_the_workers(workers: int, most: int) -> None:
    lanes = lanes_of(workers, most)
    assert [w for first, last in lanes for w in range(first, last + 1)] == list(range(workers))
    assert len(lanes) == min(workers, most)
    sizes = [last - first + 1 for first, last in lanes]
    assert max(sizes) - min(sizes) <= 1


def test_rows_are_all_nodes_once_in_order_and_groups_stay_together() -> None:
    for layout in (example_layout("flights"), wide_layout(221), wide_layout(1000)):
        folding = fold(layout, group_tree(layout))
        places = row_places(layout, folding)
        nodes = [place.node for place in places if place.node >= 0]
        assert sorted(nodes) == list(range(len(folding.nodes)))
        at = {node: index for index, node in enumerate(nodes)}
        scopes = [info.scope for info in layout.processors]
        for edge in layout.edges:
            source, target = folding.of[edge.source], folding.of[edge.target]
            if not edge.feedback and scopes[edge.source] == scopes[edge.target] == () and len(layout.processors) < 100:
                assert at[source] < at[target] or source == target
        depth = 0
        for place in places:
            assert place.depth <= depth
            depth = place.depth + (place.node < 0)


def test_each_lane_has_what_its_processor_has() -> None:
    layout = example_layout("flights", workers=3)
    job = with_checkpoints(layout)
    job.tell(epoch=9)
    job.options.raise_watermarks()
    made = picture(job)
    decided = job.options.decide({})
    names = [info.name for info in layout.processors]
    seen = 0
    for node, key, _, _, _, lanes in made["rows"]:
        if node < 0:
            continue
        p = names.index(key)
        for worker, index in enumerate(lanes):
            case, flat = made["cases"][index], job.options.topology.flat(p, worker)
            low = job.options.low(flat)
            saved = [bound for bound, _ in job.options.chains[flat]]
            bound = decided[worker][p]
            assert bound is not None
            assert case["low"] == plain_bound(low)
            assert case["restored"] == plain_bound(bound)
            assert case["progress"][0] == 9
            assert case.get("kept", []) == [plain_bound(each) for each in saved if within(low, each)]
            assert case.get("gone", []) == [plain_bound(each) for each in saved if not within(low, each)]
            seen += 1
    assert seen == len(layout.processors) * 3
    assert made["lanes"] == [[0, 0], [1, 1], [2, 2]]


def test_what_is_folded_has_the_least_of_it_and_many_workers_share_lanes() -> None:
    layout = wide_layout(300, workers=20)
    job = with_checkpoints(layout)
    job.step()
    made = picture(job)
    assert len(made["lanes"]) == MOST_LANES
    view = View(layout)
    view.update(job.observe())
    reported = view.reported()
    folding = fold(layout, group_tree(layout))
    for node, _, _, _, _, lanes in made["rows"]:
        for (first, last), index in zip(made["lanes"], lanes):
            progress = min(reported[p][w][0] for p in folding.nodes[node] for w in range(first, last + 1))
            assert made["cases"][index]["progress"][0] == max(progress, 7)


small = st.integers(0, 3)


@st.composite
def bounds(draw: st.DrawFn) -> Bound:
    steps = sorted(draw(st.lists(small, min_size=1, max_size=3)), reverse=True)
    first = draw(small)
    return of_steps([(first + at, step) for at, step in enumerate(steps)])


@given(bounds(), bounds())
def test_the_least_of_two_lanes_holds_what_both_hold(one: Bound, other: Bound) -> None:
    both = meet(one, other)
    for time in ((epoch, inner) for epoch in range(8) for inner in range(6)):
        assert holds(both, time) == (holds(one, time) and holds(other, time))


@given(bounds(), st.integers(0, 2), st.lists(st.integers(0, 2), max_size=3))
def test_a_cut_is_under_way_until_its_worker_has_it(cut: Bound, worker: int, durable: list[int]) -> None:
    cuts = OpenCuts()
    cuts.happened(TimelineEvent("cut", 0.0, cut_event(3, cut)))
    for done in durable:
        cuts.happened(TimelineEvent("durable", 0.0, {"worker": done, **cut_event(3, cut)}))
    found = cuts.of(3, worker)
    assert (found is None) == (worker in durable)
    if found is not None:
        assert at_cut(found, 2) == at_cut(cut, 2)
    assert cuts.of(2, worker) is None
    cuts.happened(TimelineEvent("failure", 0.0, {}))
    assert cuts.of(3, worker) is None


def test_a_cut_under_way_is_in_the_rows_of_its_group() -> None:
    layout = example_layout("mixed_policies")
    job = with_checkpoints(layout)
    cuts = OpenCuts()
    cuts.happened(TimelineEvent("cut", 0.0, {"group": layout.processors[0].group, "epoch": 9}))
    made = picture(job, cuts=cuts)
    names = [info.name for info in layout.processors]
    for node, key, _, _, _, lanes in made["rows"]:
        if node >= 0:
            info = layout.processors[names.index(key)]
            expected = info.chain and info.group == layout.processors[0].group
            assert all(("cut" in made["cases"][index]) == expected for index in lanes)


def test_pages_share_what_the_monitor_is_asked() -> None:
    job = with_checkpoints(wide_layout(60))
    asked: list[str] = []

    class Counting(Page):
        async def _ask(self, question: Question) -> bytes:
            asked.append(type(question).__name__)
            return await super()._ask(question)

    async def run() -> None:
        page = Counting(job)
        found = [await page.get("/api/spacetime") for _ in range(4)]
        assert {reported.status for reported in found} == {200}
        assert found[0].value["rows"] == found[3].value["rows"] != []

    asyncio.run(run())
    assert sorted(asked) == ["OfRestart", "OfTimes"]
