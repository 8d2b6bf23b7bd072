"""State that events of one epoch write for a later one is part of what these events leave, whatever fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

import falkirk
from falkirk.simulate.simulation import Simulation
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Eager, Ephemeral, Lazy, LogHistory, Policy, Snapshot
from tests.falkirk.simulate.later_times import Gathers, Repeats, Waits, waiting
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.state import KeyedState, TimedBatches, TimedValues
from timely.time import Time

POLICIES: dict[str, Policy] = {
    "lazy": Lazy(every=1),
    "batch": Batch(),
    "history": LogHistory(every=2),
    "snapshot": Snapshot(2),
    "eager": Eager(),
}

KINDS: dict[str, Callable[[str, str, bool], Operator]] = {"waits": Waits, "repeats": Repeats, "gathers": Gathers}

FOUND = (2, 6, 10)
"""Seeds that found what was lost when nothing of this was saved."""


def _survives(kind: str, state: str, under: str, capability: bool, policy: str, seeds: Iterable[int]) -> None:
    if policy == "eager" and capability:
        pytest.skip("capabilities are refused in eager regions")
    make = partial(KINDS[kind], state, under, capability)
    simulation = Simulation(lambda: waiting(make, POLICIES[policy], capability), 2)
    assert all(simulation.expected.values())
    failed = [failure for seed in seeds if (failure := simulation.run(seed)) is not None]
    assert not failed, f"{len(failed)} seeds: {failed[0].error}"
    assert simulation.tally.rounds > 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("under", ["event", "due"])
@pytest.mark.parametrize("kind", ["repeats", "gathers"])
def test_what_waits_for_a_later_epoch_comes_out_once(kind: str, under: str) -> None:
    _survives(kind, "parts", under, True, "lazy", FOUND)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("policy", list(POLICIES)[1:])
def test_under_other_policies_it_does_too(policy: str) -> None:
    _survives("waits", "parts", "due", policy == "batch", policy, FOUND[:2])


@pytest.mark.soak
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("state", ["batches", "values", "parts"])
@pytest.mark.parametrize("under", ["event", "due"])
@pytest.mark.parametrize("capability", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_in_every_way_in_which_it_can_be_kept(kind: str, capability: bool, under: str, state: str, policy: str) -> None:
    if kind == "gathers" and state != "parts":
        pytest.skip("it takes both states")
    _survives(kind, state, under, capability, policy, range(24))


class _Writes(Operator):
    """Writes state for a later epoch, by what it is given."""

    def __init__(self, state: Any, write: Callable[[Any, Time], Any]) -> None:
        self.state = state()
        self._write = write

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self._write(self.state, (time[0] + 1,))


def _refused(make: Callable[[], Operator], **given: Any) -> str:
    policy = given.pop("policy", POLICIES["lazy"])

    def build() -> Dataflow:
        flow = Dataflow("refused")
        flow.source("in", falkirk.Iterable([1, 2])).unary("writes", make, **given).policy(policy).capture("out")
        return flow

    with pytest.raises(OperatorError, match=r"unary 'writes' \(.*test_later_times.py:[0-9]+\)") as caught:
        assert Simulation(build, 1).expected
    return str(caught.value)


def test_state_by_key_is_written_at_the_time_of_the_event() -> None:
    text = _refused(lambda: _Writes(KeyedState, lambda state, time: state.write(time, {"a": 1})))
    assert "state by key was written at (1,) in an event at (0,)" in text
    assert "TimedBatches or TimedValues" in text
    assert "in an event at (0,)" in _refused(lambda: _Writes(KeyedState, lambda state, time: state.remove(time, ["a"])))


@pytest.mark.parametrize(
    ("state", "write"),
    [
        (TimedBatches, lambda state, time: state.add(time, [1])),
        (TimedValues, lambda state, time: state.at(time)),
        (TimedBatches, lambda state, time: state.pop(time)),
        (TimedValues, lambda state, time: state.pop(time)),
    ],
)
def test_what_nobody_would_save_is_refused(state: Any, write: Callable[[Any, Time], Any]) -> None:
    make = partial(_Writes, state, write)
    assert "keeps state for (1,), which nobody would remember" in _refused(make, stateful=False)
    assert "give it Lazy() or Batch()" in _refused(make, stateful=False, policy=Ephemeral())
