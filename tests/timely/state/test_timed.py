"""States that stand alone at each time, and several states as one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timely.state import KeyedState, Parts, TimedBatches, TimedValues
from timely.time import Frontier

times = st.tuples(st.integers(0, 3), st.integers(0, 3))
frontiers = st.lists(times, max_size=3).map(lambda ts: Frontier.before(ts, 2))
EMPTY, TOP = Frontier.empty(2), Frontier.top(2)


@given(st.dictionaries(times, st.dictionaries(st.text("ab", max_size=2), st.integers()), max_size=5), frontiers)
def test_values_outside_a_frontier_are_dropped_and_those_inside_saved(contents: dict, f: Frontier) -> None:  # type: ignore[type-arg]
    state, copy = TimedValues(), TimedValues()
    for time, values in contents.items():
        state.at(time).update(values)
    copy.restore(state.snapshot(f, EMPTY) + state.snapshot(TOP, f))
    assert all(copy.pop(time) == values for time, values in contents.items())
    state.keep(f)
    assert all(state.pop(time) == (values if time in f else {}) for time, values in contents.items())
    assert state.size().rows == 0


@given(st.lists(st.tuples(times, st.lists(st.integers(), max_size=3)), max_size=6), frontiers)
def test_batches_keep_their_order_within_a_time(arrivals: list, f: Frontier) -> None:  # type: ignore[type-arg]
    state, copy = TimedBatches(), TimedBatches()
    for time, batch in arrivals:
        state.add(time, batch)
    copy.restore(state.snapshot(f, EMPTY))
    state.keep(f)
    for time in {time for time, _ in arrivals}:
        expected = [batch for t, batch in arrivals if t == time and time in f]
        assert state.pop(time) == copy.pop(time) == expected


def test_parts_are_saved_and_restored_each_to_its_own() -> None:
    def make() -> tuple[TimedValues, KeyedState, Parts]:
        pending, running = TimedValues(), KeyedState()
        return pending, running, Parts(pending, running)

    pending, running, both = make()
    pending.at((5,))["a"] = 1
    running.write((4,), {"a": 7})
    f = Frontier.before([(6,)])
    other_pending, other_running, other = make()
    other.restore(both.snapshot(f, Frontier.empty(1)))
    assert other_pending.at((5,)) == {"a": 1}
    assert dict(other_running.read((5,))) == {"a": 7}
    both.keep(Frontier.before([(5,)]))
    assert (both.size().rows, len(pending.at((5,))), dict(running.read((5,)))) == (2, 0, {"a": 7})
