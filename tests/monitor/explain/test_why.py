"""Named reasons are the reasons: help all culprits and the frontier rises, leave one out and it does not."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor.explain.why
from monitor.coordination.options import Options
from monitor.coordination.topology import Topology
from monitor.explain.why import (
    OWN,
    RECEIVER,
    SENDER,
    Need,
    bound_of,
    epoch_text,
    least_source,
    least_target,
    plain_bound,
    why_progress,
    why_rollback,
)
from recovery.layout import EdgeInfo, GroupInfo, Layout, ProcessorInfo
from recovery.metadata import MORE, NEVER, Bound, at_epoch, image, inverse, of_steps, project, within
from recovery.place import Place
from recovery.protocol import Closely, Observed, ObservedHold
from timely.time import INF, Summary

SECONDS = GroupInfo(None, 1.0)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Layout, dict[int, list[int]], dict[int, int]]:
    """A layout on one or two workers, perhaps with a loop; checkpoints of chains, and what others have completed."""
    workers = draw(st.integers(1, 2))
    count = draw(st.integers(2, 6))
    processors: list[ProcessorInfo] = []
    edges: list[EdgeInfo] = []
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


def line_of(
    names: str, pairs: str, *checkpoints: list[int] | int, logged: str = "", group: GroupInfo = SECONDS
) -> Options:
    """Operators of one letter, and edges like "ab", some of which are logged; checkpoints, or, without, what is complete."""
    infos = tuple(
        ProcessorInfo(name, "map", "a.py:1", None, "Lazy", 1, isinstance(has, list), 0, "operator")
        for name, has in zip(names, checkpoints, strict=True)
    )
    edges = tuple(
        EdgeInfo(names.index(pair[0]), i, names.index(pair[1]), i, i, False, pair in logged.split(), 1, (0,), ())
        for i, pair in enumerate(pairs.split())
    )
    layout = Layout("drawn", "f", "[]", 1, infos, edges, (group,))
    return built(
        layout,
        {flat: has for flat, has in enumerate(checkpoints) if isinstance(has, list)},
        {flat: has for flat, has in enumerate(checkpoints) if isinstance(has, int)},
    )


def test_the_constraint_is_that_of_the_first_step_and_the_culprit_is_the_end_of_the_path() -> None:
    """c needs b, which has sent what d has no checkpoint for."""
    options = line_of("abcd", "ab bc bd", [2, 4], [2, 4], [2, 4], [2])
    answer = why_rollback(options, 2).as_json(options.topology)
    assert (answer["low"], answer["next"]) == ([2], [4])
    assert answer["constraint"] == SENDER
    assert answer["culprit"] == {"operator": 3, "worker": 0, "name": "d"}
    assert [(step["name"], step["bound"], step["by"]) for step in answer["path"]] == [
        ("c", [4], OWN),
        ("b", [4], SENDER),
        ("d", [4], RECEIVER),
    ]
    assert answer["culprits"] == [{"operator": 3, "worker": 0, "name": "d", "bound": [4]}]
    assert answer["more"] == 0
    assert answer["whole"]
    assert answer["text"] == (
        "To keep all before epoch 4, it needs 'd' on worker 0 to keep all before epoch 4, by way of 'b' on worker 0. "
        "'d' on worker 0 has not completed all before epoch 4 yet, and has no checkpoint that far "
        "(its newest is at all before epoch 2)."
    )


def test_one_that_holds_itself_back_is_called_it() -> None:
    options = line_of("a", "", [2])
    answer = why_rollback(options, 0).as_json(options.topology)
    assert answer["constraint"] == OWN
    assert answer["culprit"] == {"operator": 0, "worker": 0, "name": "a"}
    assert answer["next"] == [3]
    assert answer["text"] == (
        "It has not completed all before epoch 3 yet, and has no checkpoint that far (its newest is at all before epoch 2)."
    )
    assert why_rollback(line_of("a", "", []), 0).text.endswith("no checkpoint that far (it has none).")


def test_one_that_will_never_be_rolled_back_needs_nothing() -> None:
    options = line_of("ab", "ab", [NEVER], [NEVER])
    answer = why_rollback(options, 1).as_json(options.topology)
    assert (answer["low"], answer["next"], answer["constraint"], answer["culprit"]) == ([-1], None, None, None)
    assert (answer["path"], answer["culprits"], answer["more"]) == ([], [], 0)
    assert answer["text"].startswith("It is done for good")
    assert not why_rollback(line_of("a", "", [NEVER - 1]), 0).text.startswith("It is done for good")


@pytest.mark.parametrize(
    ("group", "when"),
    [
        (GroupInfo(None, 0.5), "every 0.5 s"),
        (GroupInfo(7, None), "every 7 epochs"),
        (GroupInfo(7, None, 1, True), "at once"),
    ],
)
def test_who_has_completed_it_has_only_to_save_it(group: GroupInfo, when: str) -> None:
    options = line_of("ab", "ab", [2], [2, 4], group=group)
    options.upto[0] = ((3,),)
    assert "'a' on worker 0 has not completed all before epoch 4 yet" in why_rollback(options, 1).text
    options.upto[0] = ((4,),)
    assert why_rollback(options, 1).text.endswith(
        f"'a' on worker 0 has completed all before epoch 4, and has no checkpoint there yet: one is made {when}."
    )


def test_who_keeps_nothing_is_told_by_what_it_has_completed() -> None:
    options = line_of("ab", "ab", 2, [2, 4])
    why = why_rollback(options, 1)
    assert why.text.endswith("'a' on worker 0 keeps nothing, and has completed only all before epoch 2.")
    assert [need.bound for need in why.culprits] == [(4,)]
    own = why_rollback(options, 0)
    assert own.next == (3,)
    assert own.text.startswith("It keeps nothing, and has completed only all before epoch 2")


def test_long_ways_and_many_culprits_are_cut_short_and_counted() -> None:
    options = line_of("abcde", "ab bc cd de", [2], [2, 4], [2, 4], [2, 4], [2, 4])
    assert "by way of 'd' on worker 0 and 'c' on worker 0 and others. " in why_rollback(options, 4).text
    assert (
        "by way of 'd' on worker 0 and 'c' on worker 0. "
        in why_rollback(line_of("bcde", "bc cd de", [2], [2, 4], [2, 4], [2, 4]), 3).text
    )
    names = "abcdefghijklmnopqrstuvwxy"
    options = line_of(names + "z", " ".join(name + "z" for name in names), *[[2]] * 25, [2, 4])
    answer = why_rollback(options, 25).as_json(options.topology)
    assert answer["text"].endswith("; so it is with 24 more.")
    assert (len(answer["culprits"]), answer["more"]) == (20, 5)
    two = why_rollback(line_of("abc", "ac bc", [2], [2], [2, 4]), 2)
    assert two.text.endswith("; so it is with 1 more.")


def test_nothing_is_asked_of_those_who_are_there_nor_of_receivers_of_a_log() -> None:
    pairs = "ac bc cd ce"
    assert _culprits(line_of("abcde", pairs, [2, 4], [2], [2, 4], [2], [2, 4, 6]), 2) == {"b": 4, "d": 4}
    for has in ([2], []):
        assert _culprits(line_of("abcde", pairs, [2, 4], [2], [2, 4], has, [2, 4, 6], logged="cd"), 2) == {"b": 4}


def test_of_who_has_no_checkpoint_receivers_are_asked_for_what_it_will_have_sent() -> None:
    assert _culprits(line_of("acd", "ac ad", [2], [2, 4], [2]), 1) == {"a": 4, "d": 4}
    assert _culprits(line_of("acd", "ac ad", [2], [2, 4], [2], logged="ad"), 1) == {"a": 4}


def test_a_neighbour_goes_to_its_next_checkpoint_which_may_be_later_and_ask_for_more() -> None:
    """c asks a for 4, which is there; and b for 4, which has only 6, and so asks a for 6."""
    for pairs in ("ab bc", "ac ab bc"):
        assert _culprits(line_of("abc", pairs, [2, 4], [2, 6], [2, 4], logged="ac bc"), 2) == {"a": 6}
        assert _culprits(line_of("abc", pairs, [2, 4], [2, 6], [2, 4]), 2) == {"a": 6, "c": 6}


def test_who_keeps_nothing_and_has_completed_it_is_no_culprit() -> None:
    assert _culprits(line_of("abc", "ab bc", [2], 4, [2, 4]), 2) == {"a": 4}


def test_where_nobody_is_asked_for_more_than_is_there_only_the_monitor_has_to_write() -> None:
    options = line_of("a", "", [2])
    options.chains[0].append(((3,), ()))
    why = why_rollback(options, 0)
    assert (why.culprits, why.next) == ((), (3,))
    assert why.text.startswith("Everything that it needs is there")


def test_a_step_round_a_loop_is_asked_of_the_step_before() -> None:
    """At (0, 1) a join needs (0, 0) of its feedback, which all are at, even who has no checkpoint."""
    body = ProcessorInfo("join", "join", "a.py:1", None, "Lazy", 2, True, 0, "operator")
    edge = EdgeInfo(1, 0, 0, 0, 0, False, False, 2, (0, 1), ())
    options = Options(Layout("loop", "f", "[]", 1, (body, body), (edge,), (GroupInfo(None, 1.0, 2),)))
    options.chains[0] = [((0, 1), ())]
    assert why_rollback(options, 0).culprits == ()
    options.chains[0] = [((0, 2), ())]
    assert [(need.flat, need.bound) for need in why_rollback(options, 0).culprits] == [(1, (0, 1))]
    # What the other has at (3, 8) is more than (3, 7), and nothing of epoch 4.
    options.chains = [[((3, 8, MORE, 6), ())], [((3, 8), ((0, 0),))]]
    assert [(need.flat, need.bound) for need in why_rollback(options, 0).culprits] == [(1, (3, 7, MORE, 5))]
    options.chains[1].append(((4, 6), ((0, 0),)))
    assert why_rollback(options, 0).culprits == ()


def _culprits(options: Options, flat: int) -> dict[str, int]:
    return {options.topology.info(need.flat).name: need.bound[0] for need in why_rollback(options, flat).culprits}


SUMMARIES = {
    Summary.identity(1): (1, 1),
    Summary.identity(2): (2, 2),
    Summary.ingress(1): (1, 2),
    Summary.egress(2): (2, 1),
    Summary.feedback(2): (2, 2),
    Summary.feedback(2, by=2): (2, 2),
    Summary.feedback(2, by=3): (2, 2),
    Summary(2, (1,), (0, 2)): (2, 3),
}


def _bounds(depth: int) -> list[Bound]:
    """Small prefixes, and in loops small sets of two and three steps."""
    found = list(product(range(4), repeat=depth))
    if depth == 2:
        tails = [tails for count in (2, 3) for tails in product(range(1, 4), repeat=count)]
        found += [
            of_steps([(epoch + later, tail) for later, tail in enumerate(each)])
            for epoch in range(3)
            for each in tails
            if list(each) == sorted(each, reverse=True)
        ]
    return found


@pytest.mark.parametrize("summary", SUMMARIES, ids=str)
def test_of_what_is_asked_of_a_sender_nothing_less_does(summary: Summary) -> None:
    """By trying all bounds: nothing within it projects to as much."""
    here, there = map(_bounds, SUMMARIES[summary])
    for bound in there:
        wanted = [each for each in here if within(bound, project(summary, each))]
        least = least_source(summary, bound)
        assert within(bound, project(summary, least)), bound
        assert not any(each != least and within(each, least) for each in wanted), (bound, least)


@pytest.mark.parametrize("summary", SUMMARIES, ids=str)
def test_what_is_asked_of_a_receiver_holds_all_that_was_sent(summary: Summary) -> None:
    for bound in _bounds(SUMMARIES[summary][0]):
        exact, whole = least_target(summary, bound, cuts=2), least_target(summary, bound)
        assert within(bound, inverse(summary, exact)), bound
        assert within(bound, inverse(summary, whole)), bound
        assert within(exact, whole), bound


def test_what_is_cut_as_a_whole_is_asked_for_as_a_whole() -> None:
    assert least_target(Summary.ingress(1), (3,)) == (3, 0)
    assert least_target(Summary.ingress(1), (3,), cuts=2) == (2, 1)
    assert least_target(Summary.ingress(1), (0,), cuts=2) == (0, 0)
    assert least_target(Summary.identity(1), (3,), cuts=2) == (3,)
    assert least_target(Summary.feedback(2), (3, 0)) == (3, 0)
    assert least_target(Summary.feedback(2), (3, 1)) == (3, 2)
    assert least_target(Summary.ingress(2), (3, 7), cuts=2) == (3, 7, 0)


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
    assert "it needs 'first' on worker 0 to keep" in found[5]["text"]


def _progress(samples: dict[int, list[ObservedHold]], *also: Closely) -> dict[str, Any]:
    """The reasons for the frontier of `count` on worker 0 of 3, by what workers hold; `also` is what they say of others."""
    source = ProcessorInfo("numbers", "source", "a.py:1", None, "Lazy", 1, True, 0, "source")
    count = ProcessorInfo("count", "count", "a.py:2", None, "Lazy", 1, True, 0, "operator")
    edge = EdgeInfo(0, 0, 1, 0, 0, True, False, 1, (0,), ())
    layout = Layout("three", "f", "[]", 3, (source, count), (edge,), (SECONDS,))
    observed = {
        worker: Observed(
            Place(worker),
            1,
            b"",
            0,
            0,
            5,
            (),
            (*also, Closely(1, tuple(hold.time for hold in holds[:1]), tuple(holds))),
        )
        for worker, holds in samples.items()
    }
    return why_progress(Topology(layout), observed, 3)


def _workers(answer: dict[str, Any]) -> list[tuple[str, int, list[int]]]:
    return [(hold["what"], hold["time"][0], hold["workers"]) for hold in answer["holds"]]


def test_what_holds_progress_is_told_by_its_own_worker_and_whose_it_is_by_the_others() -> None:
    position, message = ObservedHold("position", 0, (5,), 1, False), ObservedHold("message", 1, (6,), 2, True)
    answer = _progress({0: [message, position], 1: [ObservedHold("position", 0, (4,), 1, True)]})
    assert answer["frontier"] == [[6]]
    assert answer["text"] == "The source 'numbers' on worker 1 is at epoch 5."
    assert answer["culprit"] == {"operator": 0, "worker": 1}
    assert _workers(answer) == [("position", 5, [1]), ("message", 6, [0])]


def test_of_several_those_are_named_who_have_it_at_that_time() -> None:
    here, there = ObservedHold("position", 0, (5,), 1, True), ObservedHold("position", 0, (5,), 1, False)
    later = ObservedHold("position", 0, (7,), 1, True)
    answer = _progress({2: [here], 0: [there], 1: [later]})
    assert _workers(answer) == [("position", 5, [2])]
    assert _workers(_progress({2: [here], 0: [here], 1: [later]})) == [("position", 5, [0, 2])]
    assert _workers(_progress({0: [there], 2: [later], 1: [later]})) == [("position", 5, [1, 2])]
    two = _progress({0: [here], 1: [here]})
    assert two["text"] == "The source 'numbers' is at epoch 5."
    assert two["culprit"] == {"operator": 0, "worker": 0}


def test_whose_it_is_may_not_be_known() -> None:
    """Nobody says that it is theirs, and worker 1 says nothing of this operator."""
    answer = _progress({0: [ObservedHold("capability", 0, (5,), 1, False)]})
    assert _workers(answer) == [("capability", 5, [])]
    assert answer["text"] == "A capability that 'numbers' keeps is at epoch 5."
    assert answer["culprit"] == {"operator": 0, "worker": 0}
    silent = Observed(
        Place(1), 1, b"", 0, 0, 5, (), (Closely(0, ((9,),), (ObservedHold("capability", 0, (5,), 1, True),)),)
    )
    source = ProcessorInfo("numbers", "source", "a.py:1", None, "Lazy", 1, True, 0, "source")
    layout = Layout("two", "f", "[]", 2, (source, source), (), (SECONDS,))
    mine = Observed(
        Place(0), 1, b"", 0, 0, 5, (), (Closely(1, ((5,),), (ObservedHold("capability", 0, (5,), 1, False),)),)
    )
    assert _workers(why_progress(Topology(layout), {0: mine, 1: silent}, 2)) == [("capability", 5, [])]


def test_batches_and_own_notifications_are_of_the_worker_that_was_asked() -> None:
    """An operator's own batches wait on its own worker; others have batches and notifications of their own."""
    for what, processor, here, workers in (
        ("batch", 1, True, [0]),
        ("notification", 1, True, [0]),
        ("notification", 1, False, [2]),
        ("notification", 0, True, [0, 2]),
        ("message", 1, True, [0, 2]),
        ("position", 0, True, [0, 2]),
    ):
        theirs = ObservedHold(what, processor, (5,), 1, True)
        assert _workers(_progress({0: [ObservedHold(what, processor, (5,), 1, here)], 2: [theirs]})) == [
            (what, 5, workers)
        ], (what, processor, here)


def test_answers_of_other_operators_are_no_answer() -> None:
    other = Closely(0, ((1,),), (ObservedHold("position", 0, (1,), 1, True),))
    assert _workers(_progress({0: [ObservedHold("batch", 1, (5,), 1, True)]}, other)) == [("batch", 5, [0])]
    assert _progress({})["text"] == "Its worker has not said yet."
    assert _progress({1: [ObservedHold("batch", 1, (5,), 1, True)]})["frontier"] is None
    assert _progress({0: []})["text"] == "Nothing can reach it any more."


def test_bounds_in_words_and_for_the_page_have_no_number_that_stands_for_all() -> None:
    for bound, words, page in (
        ((0, 0), "nothing", [0, 0]),
        ((3, 0), "all before epoch 3", [3, 0]),
        ((3, 2), "all before (3, 2)", [3, 2]),
        ((INF, 0), "all before epoch ∞", [-1, 0]),
        ((INF - 2, 0), f"all before epoch {INF - 2}", [INF - 2, 0]),
        ((2, INF - 1), "all before (2, ∞)", [2, -1]),
        ((NEVER, 0), "everything", [-1]),
        ((3, 7, MORE, 5), "all before (3, 7), and of epochs after that all before (4, 5)", [3, 7, -2, 5]),
    ):
        assert plain_bound(bound) == page
        assert epoch_text(bound) == words
        if -1 not in page:
            assert bound_of(page) == bound
