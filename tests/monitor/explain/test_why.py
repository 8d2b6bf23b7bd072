"""Named reasons are the reasons: help all culprits and the frontier rises, leave one out and it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor.explain.why
from monitor.coordination.options import Options
from monitor.coordination.topology import Topology
from monitor.explain.why import Need, epoch_text, plain_bound, why_progress, why_rollback
from recovery.layout import EdgeInfo, GroupInfo, Layout, ProcessorInfo
from recovery.metadata import NEVER, at_epoch
from recovery.protocol import Closely, Observed, ObservedHold
from recovery.recorder import image
from timely.time import INF


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Layout, dict[int, list[int]], dict[int, int]]:
    """A layout on one or two workers, perhaps with a loop; checkpoints of chains, and what others have completed."""
    workers = draw(st.integers(1, 2))
    count = draw(st.integers(2, 6))
    processors, edges = [], []
    for p in range(count):
        processors.append(ProcessorInfo(f"p{p}", "map", "a.py:1", None, "Lazy", 1, draw(st.booleans()), 0, "operator"))
    for target in range(1, count):
        for source in draw(st.sets(st.integers(0, target - 1), min_size=1, max_size=2)):
            spread, logged = draw(st.booleans()), processors[source].chain and draw(st.booleans())
            edges.append(EdgeInfo(source, 0, target, len(edges), len(edges), spread, logged, 1, (0,), ()))
    if draw(st.booleans()):  # the last one leads into a loop
        body = len(processors)
        for kind, depth, chain in (("enter", 1, False), ("join", 2, draw(st.booleans())), ("feedback", 2, False)):
            processors.append(ProcessorInfo(f"{kind}", kind, "a.py:2", None, "Lazy", depth, chain, 0, "operator"))
        edges.append(EdgeInfo(count - 1, 0, body, 0, len(edges), False, False, 1, (0,), ()))
        edges.append(EdgeInfo(body, 0, body + 1, 0, len(edges), True, False, 1, (0,), (0,)))
        edges.append(EdgeInfo(body + 1, 0, body + 2, 0, len(edges), False, False, 2, (0, 0), ()))
        edges.append(EdgeInfo(body + 2, 0, body + 1, 1, len(edges), True, False, 2, (0, 1), ()))
    layout = Layout("drawn", "f", "[]", workers, tuple(processors), tuple(edges), (GroupInfo(None, 1.0),))
    flats = range(len(processors) * workers)
    checkpoints = {flat: sorted(draw(st.sets(st.integers(1, 6), max_size=4))) for flat in flats}
    completed = {flat: draw(st.integers(0, 7)) for flat in flats}
    return layout, checkpoints, completed


def built(
    layout: Layout, checkpoints: dict[int, list[int]], completed: dict[int, int], helped: tuple[Need, ...] = ()
) -> Options:
    """The knowledge of the monitor of such a job, when `helped` can do what they were asked for."""
    options = Options(layout)
    wishes = {need.flat: need.bound for need in helped}
    for flat in range(options.topology.count):
        info = options.topology.info(flat)
        wish = wishes.get(flat)
        if info.chain:
            bounds = sorted({*(at_epoch(epoch, info.depth) for epoch in checkpoints[flat]), *([wish] if wish else [])})
            ports = [layout.edges[index] for index in options.topology.outgoing[flat // layout.workers]]
            options.chains[flat] = [
                (bound, tuple((0,) * len(bound) if e.logged else image(e.summary, bound) for e in ports))
                for bound in bounds
            ]
        else:
            options._completed[flat] = max(at_epoch(completed[flat], info.depth), wish or info.nothing)
    options.raise_watermarks()
    return options


@given(jobs())
def test_helping_all_culprits_raises_the_frontier_and_leaving_one_out_does_not(
    job: tuple[Layout, dict[int, list[int]], dict[int, int]],
) -> None:
    options = built(*job)
    for flat in range(options.topology.count):
        why = why_rollback(options, flat)
        assert why.low == options.low(flat)
        assert why.next is not None
        assert why.whole
        assert why.culprits, "a frontier that nothing holds back would have risen"
        assert built(*job, why.culprits).low(flat) >= why.next
        for left_out in range(len(why.culprits)):
            rest = why.culprits[:left_out] + why.culprits[left_out + 1 :]
            assert built(*job, rest).low(flat) == why.low


def test_the_words_name_the_constraint_and_the_culprit() -> None:
    first = ProcessorInfo("first", "map", "a.py:1", None, "Lazy", 1, True, 0, "operator")
    second = ProcessorInfo("second", "map", "a.py:2", None, "Lazy", 1, True, 0, "operator")
    edge = EdgeInfo(0, 0, 1, 0, 0, False, False, 1, (0,), ())
    layout = Layout("two", "f", "[]", 1, (first, second), (edge,), (GroupInfo(None, 1.0),))
    options = built(layout, {0: [2], 1: [2, 4]}, {})
    answer = why_rollback(options, 1).as_json(options.topology)
    assert answer["low"] == [2]
    assert answer["next"] == [4]
    assert answer["culprit"] == {"operator": 0, "worker": 0, "name": "first"}
    assert answer["constraint"] == "M̄(d, f) ⊆ φ(d)(f(src))"
    assert "'first' on worker 0 to keep all before epoch 4" in answer["text"]


def test_a_search_that_is_given_up_says_that_there_may_be_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two senders hold a third operator back, and the search may look at too few edges to find both, or any."""
    names = ("first", "second", "sum", "end")
    infos = tuple(ProcessorInfo(name, "map", "a.py:1", None, "Lazy", 1, True, 0, "operator") for name in names)
    pairs = ((0, 2), (1, 2), (2, 3))
    edges = tuple(EdgeInfo(i, a, b, 0, 0, False, False, 1, (0,), ()) for i, (a, b) in enumerate(pairs))
    layout = Layout("many", "f", "[]", 1, infos, edges, (GroupInfo(None, 1.0),))
    options = built(layout, {0: [2], 1: [2], 2: [2, 4], 3: [2, 4]}, {})
    found = {}
    for most in (20_000, 5, 1):
        monkeypatch.setattr(monitor.explain.why, "_MOST_EDGES", most)
        found[most] = why_rollback(options, 3).as_json(options.topology)
    assert [len(answer["culprits"]) for answer in found.values()] == [2, 1, 0]
    assert [answer["whole"] for answer in found.values()] == [True, False, False]
    assert "given up" in found[1]["text"]
    assert "rises as soon as" not in found[1]["text"]


def test_what_holds_progress_is_told_by_its_own_worker_and_whose_it_is_by_the_others() -> None:
    source = ProcessorInfo("numbers", "source", "a.py:1", None, "Lazy", 1, True, 0, "source")
    count = ProcessorInfo("count", "count", "a.py:2", None, "Lazy", 1, True, 0, "operator")
    edge = EdgeInfo(0, 0, 1, 0, 0, True, False, 1, (0,), ())
    layout = Layout("two", "f", "[]", 2, (source, count), (edge,), (GroupInfo(None, 1.0),))

    def said(worker: int, *holds: ObservedHold) -> Observed:
        return Observed(worker, 1, b"", 0, 0, 5, (), (Closely(1, (holds[0].time,), holds),))

    told = {
        0: said(0, ObservedHold("position", 0, (5,), 1, False), ObservedHold("message", 1, (6,), 2, True)),
        1: said(1, ObservedHold("position", 0, (4,), 1, True)),
    }
    answer = why_progress(Topology(layout), told, 2)  # on worker 0
    assert answer["frontier"] == [[5]]
    assert answer["text"] == "The source 'numbers' on worker 1 is at epoch 5."
    assert answer["culprit"] == {"operator": 0, "worker": 1}
    assert [(hold["what"], hold["workers"]) for hold in answer["holds"]] == [("position", [1]), ("message", [0])]
    assert why_progress(Topology(layout), {}, 2)["culprit"] is None


def test_bounds_in_words_and_for_the_page_have_no_number_that_stands_for_all() -> None:
    for bound, words, page in (
        ((0, 0), "nothing", [0, 0]),
        ((3, 0), "all before epoch 3", [3, 0]),
        ((3, 2), "all before (3, 2)", [3, 2]),
        ((INF, 0), "all before epoch ∞", [-1, 0]),
        ((NEVER, 0), "everything", [-1]),
    ):
        assert plain_bound(bound) == page
        assert epoch_text(bound) == words
