"""States that stand alone at each time, and several states as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.state import KeyedState, Parts, TimedBatches, TimedValues
from timely.state.interface import absorbs
from timely.time import Frontier, Time

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


def test_a_state_absorbs_only_with_an_absorb_that_belongs_to_its_restore() -> None:
    class Indexed(KeyedState):
        def restore(self, runs: Any) -> None:
            super().restore(runs)
            self.index = dict(self.read((0,)))

    class Named(KeyedState):
        pass

    assert [absorbs(each) for each in (KeyedState(), Named(), Indexed(), TimedBatches())] == [True, True, False, True]
    assert absorbs(Parts(KeyedState(), TimedValues()))
    assert not absorbs(Parts(KeyedState(), Indexed()))


class Handled:
    """The event that is handled: its time can be set."""

    time: Time = ()

    def keeps_for(self, time: Time) -> Time:
        return time


class Held:
    """A state that is written in events, and what it holds."""

    def __init__(self, kind: type[TimedBatches | TimedValues]) -> None:
        self.state, self.event = kind(), Handled()
        self.state.written_in(self.event)

    def handle(self, event: Time, slot: Time, what: str, number: int) -> bool:
        """One step of an event. False if it is refused."""
        self.event.time = event
        try:
            if what == "take":
                self.state.pop(slot)
            elif isinstance(self.state, TimedBatches):
                self.state.add(slot, [number])
            else:
                held = self.state.at(slot)
                if what == "write":
                    held[number % 3] = number
                else:
                    held.pop(number % 3, None)
        except ValueError:
            return False
        return True

    def holds(self) -> dict[Time, Any]:
        """What is there, by slot; it is taken out."""
        self.event.time = (9,)
        if isinstance(self.state, TimedBatches):
            return {slot: batches for slot in self.state.times() if (batches := self.state.pop(slot))}
        return {slot: values for slot in [(n,) for n in range(4)] if (values := self.state.pop(slot))}


epochs = st.tuples(st.integers(0, 3))
prefixes = st.integers(0, 4).map(lambda n: Frontier.before([(n,)]))
steps = st.lists(
    st.tuples(epochs, epochs, st.sampled_from(["write", "write", "take", "remove"]), st.integers(0, 99)), max_size=10
)


@pytest.mark.parametrize("kind", [TimedBatches, TimedValues])
@given(steps, prefixes, prefixes, prefixes)
def test_what_events_wrote_and_took_out_is_saved_and_taken_back_with_them(
    kind: Any, history: list[Any], one: Frontier, two: Frontier, three: Frontier
) -> None:
    def only(frontier: Frontier) -> dict[Time, Any]:
        """What would be there had events outside of `frontier` never come."""
        held = Held(kind)
        for step in done:
            if step[0] in frontier:
                assert held.handle(*step), "an event was allowed that depends on one that it does not come after"
        return held.holds()

    held, restored, absorbed = Held(kind), Held(kind), Held(kind)
    done = [step for step in history if held.handle(*step)]
    low, middle, high = sorted([one, two, three], key=lambda frontier: frontier.antichain)
    none, everything = Frontier.empty(1), Frontier.top(1)
    runs = [*held.state.snapshot(low, none), *held.state.snapshot(middle, low)]
    held.state.compact(low)
    runs += held.state.snapshot(high, middle)
    restored.state.restore(runs)
    for run in runs:
        Parts(absorbed.state).absorb([run])
    assert absorbed.holds() == only(high)
    assert restored.state.snapshot(everything, high) == []
    assert restored.holds() == only(high)
    held.state.keep(high)
    assert held.state.snapshot(everything, high) == []
    held.state.keep(middle)
    assert held.holds() == only(middle)
