"""The figures of *Falkirk Wheel* that show a rollback. Where the text has no picture, the caption is rebuilt."""

from __future__ import annotations

import pytest

from tests.recovery.fixed_point.history import Event, Sent, option_of
from tests.recovery.fixed_point.literal import (
    ALL,
    NOTIFIED,
    Choice,
    Edge,
    Met,
    Option,
    Processor,
    System,
    greatest,
    violations,
)
from tests.recovery.fixed_point.times import MaximalTimes, SequenceFrontier
from timely.time import Frontier, Summary

SAME = Summary.identity(1)
NONE = Frontier.empty(1)
TOP = Frontier.top(1)
A, B = (0,), (1,)


def upto(*time: int) -> Frontier:
    return Frontier.lexicographic(time)


def counts(**numbers: int) -> SequenceFrontier:
    return SequenceFrontier.of(numbers)


def chosen(system: System) -> list[object]:
    """The answer, which must be consistent."""
    choice = greatest(system)
    assert violations(system, choice) == []
    return list(choice.frontiers)


def test_figure_3_selective_rollback_keeps_time_a_of_interleaved_histories() -> None:
    """Select -> Sum -> Buffer; Sum has seen messages of A, B, A in turn and a notification of A."""
    select = [Event(t, 0, (Sent(1, t),)) for t in (A, B, A)]
    sums = [Event(A, 1), Event(B, 1), Event(A, 1), Event(A, None, (Sent(2, A),))]
    buffer = [Event(A, 2)]
    histories = [select, sums, buffer]
    edges = [Edge(0, 1, SAME), Edge(1, 2, SAME)]
    numbering = {1: 0, 2: 1}  # edge 0 comes from outside and is nobody's

    def processor(history: list[Event], live: bool) -> Processor:
        found = [option_of(history, f) for f in (NONE, upto(0), *((None,) if live else ()))]
        renumbered = [
            Option(
                each.frontier,
                each.notified,
                {numbering[e]: x for e, x in each.delivered.items() if e in numbering},
                {numbering[e]: x for e, x in each.discarded.items() if e in numbering},
            )
            for each in found
        ]
        # M̄(d, ⊤) is what a live receiver has; it surely holds what is complete, A.
        return Processor(renumbered, TOP, not live, {0: upto(0), 1: upto(0)})

    assert chosen(System([processor(h, False) for h in histories], edges)) == [upto(0)] * 3
    # Select alone fails. Sum drops time B from memory, which was never a state it had been in; Buffer has met A only.
    alive = System([processor(select, False), processor(sums, True), processor(buffer, True)], edges)
    assert chosen(alive) == [upto(0), upto(0), None]


def test_figure_4_metadata_of_a_filtered_history() -> None:
    """Three messages, a notification, a message; e4 is logged, e3 is not; f = {1, 2, 3}."""
    e1, e2, e3, e4 = range(1, 5)
    history = [
        Event((1,), e1, (Sent(e4, (1,), logged=True),)),
        Event((4,), e2, (Sent(e3, (4,)),)),
        Event((3,), e1, (Sent(e3, (4,)), Sent(e4, (3,), logged=True))),
        Event((2,)),
        Event((2,), e2),
    ]
    f = Frontier.lexicographic((3,))
    option = option_of(history, f)
    assert option.frontier == f
    assert option.delivered == {e1: MaximalTimes.of([(3,)]), e2: MaximalTimes.of([(2,)])}
    assert option.notified == MaximalTimes.of([(2,)])
    # The message at 4 that was sent at 3 is part of the filtered history, and gone; the one sent at 4 is not.
    assert option.discarded == {e3: MaximalTimes.of([(4,)])}
    assert option_of(history, Frontier.lexicographic((2,))).discarded == {}


def figure_5() -> System:
    """p and q send to r, which sends to x; all were notified of time 1 but r; q did nothing then, and lost it."""
    one = Frontier.lexicographic((1,))
    nothing = Option(NONE, NONE)
    p = Processor([nothing, Option(one, one)], TOP)
    q = Processor([nothing], TOP)
    r = Processor([nothing, Option(one, NONE, {0: one})], TOP)
    x = Processor([nothing, Option(one, one)], TOP)
    return System([p, q, r, x], [Edge(0, 2, SAME), Edge(1, 2, SAME), Edge(2, 3, SAME)])


def test_figure_5_without_notification_frontiers_an_inconsistent_state_is_chosen() -> None:
    one = Frontier.lexicographic((1,))
    system = figure_5()
    without = greatest(system, ALL - {NOTIFIED})
    assert without.frontiers == [one, NONE, one, one]
    broken = violations(system, without)
    assert [each.split(":")[0] for each in broken] == [NOTIFIED]
    # No notification frontier makes those rollback frontiers consistent.
    for f_n in (NONE, one):
        assert violations(system, Choice(without.frontiers, [one, NONE, f_n, one]))


def test_figure_5_with_notification_frontiers_x_forgets_its_notification() -> None:
    one = Frontier.lexicographic((1,))
    assert chosen(figure_5()) == [one, NONE, one, NONE]


def test_figure_7a_sequence_numbers_roll_back_to_where_enough_was_sent() -> None:
    """p -> q -> x -> y, and x back to q; all log; x failed with a checkpoint after 3 messages, when it had sent 1 and 2."""
    pq, qx, xq, xy = range(4)
    edges = [Edge(0, 1), Edge(1, 2), Edge(2, 1), Edge(2, 3)]

    def fixed(edge: str, sent: int, into: list[str]) -> SequenceFrontier:
        """φ: what comes later on this edge is not fixed; other edges are not its matter."""
        return SequenceFrontier.before([(edge, sent + 1)], into)

    def q_at(p_count: int, x_count: int, sent: int) -> Option:
        f = counts(pq=p_count, xq=x_count)
        met: dict[int, Met] = {pq: counts(pq=p_count, xq=0), xq: counts(pq=0, xq=x_count)}
        return Option(f, SequenceFrontier.empty(["pq", "xq"]), met, {}, {qx: fixed("qx", sent, ["qx"])})

    def x_at(consumed: int, to_q: int, to_y: int) -> Option:
        sent = {xq: fixed("xq", to_q, ["pq", "xq"]), xy: fixed("xy", to_y, ["xy"])}
        return Option(counts(qx=consumed), counts(qx=0), {qx: counts(qx=consumed)}, {}, sent)

    start = Option(counts(i=0), counts(i=0), projected={pq: fixed("pq", 0, ["pq", "xq"])})
    p = Processor([start, Option(None, counts(i=0))], SequenceFrontier.top(["i"]), failed=False)
    # q is alive, and has consumed 5 messages of p and 2 of x.
    now = Option(None, counts(pq=0, xq=0), {pq: counts(pq=5, xq=0), xq: counts(pq=0, xq=2)})
    q = Processor([q_at(0, 0, 0), q_at(2, 1, 3), q_at(4, 2, 5), now], SequenceFrontier.top(["pq", "xq"]), failed=False)
    x = Processor([x_at(0, 0, 0), x_at(3, 1, 2)], SequenceFrontier.top(["qx"]))
    y_options = [Option(counts(xy=n), counts(xy=0), {xy: counts(xy=n)}) for n in range(3)]
    y_now = Option(None, counts(xy=0), {xy: counts(xy=3)})
    y = Processor([*y_options, y_now], SequenceFrontier.top(["xy"]), failed=False)
    # x has sent 1 to q and 2 to y: q can have consumed 1 of it, and y 2. q has sent the 3 that x consumed. p goes on.
    assert chosen(System([p, q, x, y], edges)) == [None, counts(pq=2, xq=1), counts(qx=3), counts(xy=2)]


def test_figure_7b_a_processor_that_logs_stops_the_rollback() -> None:
    """q -> p <- r, p -> x -> y, epochs as in Spark: p logs like an RDD, no other has saved anything, y failed."""
    edges = [Edge(0, 1, SAME), Edge(2, 1, SAME), Edge(1, 3, SAME), Edge(3, 4, SAME)]
    one = upto(0)

    def live(into: list[int], lost: list[int]) -> Processor:
        now = Option(None, one, dict.fromkeys(into, one), dict.fromkeys(lost, one))
        return Processor([Option(NONE, NONE), now], TOP, failed=False)

    system = System(
        [live([], [0]), live([0, 1], []), live([], [1]), live([2], [3]), Processor([Option(NONE, NONE)], TOP)], edges
    )
    assert chosen(system) == [None, None, None, NONE, NONE]


@pytest.mark.parametrize("q_logs", [True, False])
def test_figure_7c_a_loop_restarts_from_logged_messages(q_logs: bool) -> None:
    """p enters by e2, q leaves by e3; q -> y by e4 and y -> q by e5, where the loop counter rises; y failed."""
    e2, e3, e4, e5 = range(4)
    edges = [
        Edge(0, 1, Summary.ingress(1)),
        Edge(1, 3, Summary.egress(2)),
        Edge(1, 2, Summary.identity(2)),
        Edge(2, 1, Summary.feedback(2)),
    ]
    top, none = Frontier.top(2), Frontier.empty(2)
    entered = upto(1, 0)

    def q_at(i: int) -> Option:
        f = upto(1, i)
        lost: dict[int, Met] = {} if q_logs else {e4: f}
        return Option(f, f, {e2: entered, e5: f}, lost)

    p = Processor([Option(NONE, NONE), Option(None, upto(1), {}, {e2: entered})], TOP, failed=False)
    q_now = Option(None, upto(1, 6), {e2: entered, e5: upto(1, 6)}, {} if q_logs else {e4: upto(1, 6)})
    q = Processor(
        [Option(none, none), *(q_at(i) for i in range(1, 7)), q_now], top, failed=False, held={e5: upto(1, 5)}
    )
    # y can be restored to any iteration up to 3, and has thrown away what it sent.
    y_options = [Option(f, f, {e4: f}, {e5: upto(1, i + 1)}) for i in range(1, 4) for f in [upto(1, i)]]
    y = Processor([Option(none, none), *y_options], top)
    out = Processor([Option(NONE, NONE), Option(None, upto(0), {e3: upto(0)})], TOP, failed=False, held={e3: upto(0)})
    answer = chosen(System([p, q, y, out], edges))
    if q_logs:
        assert answer == [None, upto(1, 4), upto(1, 3), None]
    else:
        # Nothing could send (1, 4) to y again, so the loop starts from nothing; and so must p, which logged nothing.
        assert answer[1:3] == [none, none]
