"""The tracker against brute force, on random graphs and histories of updates."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely.progress.line import LineTracker, tracker_for
from timely.progress.tracker import Arc, MutableAntichain, ProgressGraph, Tracker, culprits, frontier_at, order_key
from timely.time import INF, Summary, Time, leq, minimal, minimal_summaries

times_2d = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(st.lists(st.tuples(times_2d, st.integers(-1, 2)), max_size=40))
def test_mutable_antichain_is_the_minimal_elements_of_what_it_counts(updates: list[tuple[Time, int]]) -> None:
    times = MutableAntichain()
    counts: dict[Time, int] = {}
    for time, diff in updates:
        before = set(times.frontier)
        changed = times.update(time, diff)
        counts[time] = counts.get(time, 0) + diff
        expected = set(minimal([t for t, count in counts.items() if count > 0]))
        assert set(times.frontier) == expected
        assert changed or before == expected


def two_level_graphs() -> st.SearchStrategy[ProgressGraph]:
    """An outer line of places, with a loop in the middle: outer -> enter -> body (with feedback) -> leave -> outer."""

    @st.composite
    def build(draw: st.DrawFn) -> ProgressGraph:
        outer, inner = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        depths = [1] * outer + [2] * inner + [1]
        ranks: list[tuple[int, ...]] = [(i,) for i in range(outer)]
        ranks += [(outer, i) for i in range(inner)]
        ranks.append((outer + 1,))
        last = len(depths) - 1
        arcs: list[Arc] = []
        for a, b in product(range(outer), range(outer)):
            if a < b and draw(st.booleans()):
                arcs.append(Arc(a, b, Summary.identity(1)))
        for a, b in product(range(outer), range(outer, last)):
            if draw(st.booleans()):
                arcs.append(Arc(a, b, Summary.ingress(1)))
        for a, b in product(range(outer, last), range(outer, last)):
            if a < b and draw(st.booleans()):
                arcs.append(Arc(a, b, Summary.identity(2)))
            if a >= b and draw(st.booleans()):
                arcs.append(Arc(a, b, Summary.feedback(2, draw(st.integers(1, 2)))))
        arcs += [Arc(a, last, Summary.egress(2)) for a in range(outer, last) if draw(st.booleans())]
        arcs += [Arc(a, last, Summary.identity(1)) for a in range(outer) if draw(st.booleans())]
        watches = [[(place, Summary.identity(depths[place]))] for place in range(len(depths))]
        return ProgressGraph(depths, ranks, arcs, watches)

    return build()


def closure(topology: ProgressGraph) -> dict[tuple[int, int], tuple[Summary, ...]]:
    """All minimal path summaries between places, by plain relaxation."""
    paths = {(p, p): (Summary.identity(depth),) for p, depth in enumerate(topology.depths)}
    changed = True
    while changed:
        changed = False
        for (begin, middle), summaries in list(paths.items()):
            for arc in topology.arcs:
                if arc.source != middle:
                    continue
                known = paths.get((begin, arc.target), ())
                better = minimal_summaries([*known, *(s.then(arc.summary) for s in summaries)])
                if set(better) != set(known):
                    paths[begin, arc.target] = better
                    changed = True
    return paths


def carried(topology: ProgressGraph, place: int, time: Time) -> set[tuple[int, Time]]:
    """The least pointstamps to which one may lead, arc by arc: what is at the end of a loop goes along no feedback."""
    found = {(place, time)}
    todo = [(place, time)]
    while todo:
        begin, at = todo.pop()
        for arc in topology.arcs:
            if arc.source == begin and (len(at) < 2 or at[1] < INF or not any(arc.summary.add)):
                reached = arc.target, arc.summary(at)
                if not any(where == reached[0] and leq(before, reached[1]) for where, before in found):
                    found.add(reached)
                    todo.append(reached)
    return found


@given(st.data())
@settings(max_examples=150)
def test_implied_frontiers_equal_all_pointstamps_carried_along_all_paths(data: st.DataObject) -> None:
    topology = data.draw(two_level_graphs())
    coordinates = st.sampled_from([0, 1, 2, 3, INF])
    tracker = Tracker(topology)
    counts: dict[tuple[int, Time], int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(topology.depths) - 1))
            time = tuple(
                data.draw(st.lists(coordinates, min_size=topology.depths[place], max_size=topology.depths[place]))
            )
            diff = data.draw(st.sampled_from([-1, 1, 1, 2]))
            tracker.update(place, time, diff)
            counts[place, time] = counts.get((place, time), 0) + diff
        before = [tracker.frontier(watch) for watch in range(len(topology.watches))]
        changed = tracker.propagate()
        reached = {held: carried(topology, *held) for held, count in counts.items() if count > 0}
        for place in range(len(topology.depths)):
            expected = minimal(time for found in reached.values() for where, time in found if where == place)
            assert tracker.frontier(place) == expected
            assert frontier_at(tracker, topology.watches[place]) == expected
            assert (place in changed) == (before[place] != expected)
            for origin, time, count in culprits(tracker, topology, topology.watches[place]):
                assert counts[origin, time] == count > 0
                assert any(where == place and at in expected for where, at in reached[origin, time])
            if expected:
                assert list(culprits(tracker, topology, topology.watches[place]))
    assert tracker.active == sum(1 for count in counts.values() if count)


@given(st.data())
def test_order_key_agrees_with_could_result_in(data: st.DataObject) -> None:
    topology = data.draw(two_level_graphs())
    paths = closure(topology)
    for (begin, end), summaries in paths.items():
        time = tuple(data.draw(st.integers(0, 3)) for _ in range(topology.depths[begin]))
        for summary in summaries:
            if begin != end or summary(time) != time:
                assert order_key(time, topology.ranks[begin]) < order_key(summary(time), topology.ranks[end])


@given(st.data())
@settings(max_examples=150)
def test_the_tracker_for_lines_answers_as_the_general_one(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    places = st.integers(0, size - 1)
    epochs = st.one_of(st.integers(0, 5), st.just(INF))
    rank = data.draw(st.permutations(range(size)))
    pairs = data.draw(st.lists(st.tuples(places, places).filter(lambda p: rank[p[0]] < rank[p[1]]), max_size=14))
    same = Summary.identity(1)
    arcs = [Arc(a, b, same) for a, b in pairs]
    watches = [[(place, same)] for place in range(size)]
    watches += [
        [(place, same) for place in group] for group in data.draw(st.lists(st.lists(places, min_size=1), max_size=3))
    ]
    topology = ProgressGraph([1] * size, [(r,) for r in rank], arcs, watches)
    line, general = tracker_for(topology), Tracker(topology)
    assert isinstance(line, LineTracker)
    assert all(line.frontier(watch) == () for watch in range(len(watches)))
    for _ in range(data.draw(st.integers(1, 15))):
        for place, time, diff in data.draw(st.lists(st.tuples(places, epochs, st.integers(-2, 2)))):
            line.update(place, (time,), diff)
            general.update(place, (time,), diff)
        for place in data.draw(st.lists(places, max_size=4)):
            held = st.sampled_from([*general.outstanding(place), (0,)])
            moved = (place, data.draw(held), (data.draw(epochs),))
            line.move(*moved)
            general.move(*moved)
        assert set(general.propagate()) <= set(line.propagate())
        assert not line.dirty
        assert not general.dirty
        assert [line.frontier(w) for w in range(len(watches))] == [general.frontier(w) for w in range(len(watches))]
        time = (data.draw(epochs),)
        assert [line.reaches(w, time) for w in range(len(watches))] == [
            general.reaches(w, time) for w in range(len(watches))
        ]
        assert [tuple(line.leaving(p)) for p in range(size)] == [tuple(sorted(general.leaving(p))) for p in range(size)]
        assert line.active == general.active


def test_places_that_nobody_asks_about_cost_nothing() -> None:
    line = LineTracker(chain(1000))
    line.update(0, (0,), 1)
    assert line.frontier(999) == ((0,),)
    line.move(0, (0,), (1,))
    line.propagate()
    before = line.touched
    for epoch in range(1, 50):
        line.move(0, (epoch,), (epoch + 1,))
        line.propagate()
    assert line.touched == before
    assert line.frontier(999) == ((50,),)


def chain(length: int) -> ProgressGraph:
    identity = Summary.identity(1)
    arcs = [Arc(i, i + 1, identity) for i in range(length - 1)]
    return ProgressGraph([1] * length, [(i,) for i in range(length)], arcs, [[(i, identity)] for i in range(length)])


def test_an_update_that_moves_no_frontier_travels_nowhere() -> None:
    tracker = Tracker(chain(100))
    tracker.update(0, (0,), 1)
    tracker.propagate()
    before = tracker.touched
    tracker.update(0, (7,), 1)
    tracker.update(50, (3,), 1)
    assert tracker.propagate() == []
    assert tracker.touched - before == 2


def test_a_replaced_time_travels_once_down_a_chain() -> None:
    tracker = Tracker(chain(100))
    tracker.update(0, (0,), 1)
    tracker.propagate()
    before = tracker.touched
    tracker.update(0, (0,), -1)
    tracker.update(0, (1,), 1)
    assert len(tracker.propagate()) == 100
    assert tracker.touched - before == 200


def test_a_loop_forgets_a_retracted_time_without_counting_upwards() -> None:
    loop = ProgressGraph(
        [1, 2, 2],
        [(0,), (1, 0), (1, 1)],
        [
            Arc(0, 1, Summary.ingress(1)),
            Arc(1, 2, Summary.identity(2)),
            Arc(2, 1, Summary.feedback(2)),
        ],
        [[(2, Summary.identity(2))]],
    )
    tracker = Tracker(loop)
    tracker.update(0, (0,), 1)
    tracker.propagate()
    tracker.update(0, (0,), -1)
    tracker.propagate()
    assert tracker.frontier(0) == ()
    assert tracker.touched < 12


def test_a_transient_negative_count_hides_nothing() -> None:
    tracker = Tracker(chain(2))
    tracker.update(0, (0,), 1)
    tracker.propagate()
    tracker.update(1, (0,), -1)
    tracker.propagate()
    assert tracker.frontier(1) == ((0,),)
    tracker.update(1, (0,), 1)
    tracker.update(0, (0,), -1)
    tracker.propagate()
    assert tracker.frontier(1) == ()
    assert tracker.active == 0


@pytest.mark.parametrize(("a", "b"), [((0,), (0,)), ((1, 0), (0, 100))])
def test_leq_is_the_product_order_that_the_tracker_relies_on(a: Time, b: Time) -> None:
    assert leq(a, b) == all(x <= y for x, y in zip(a, b, strict=True))
