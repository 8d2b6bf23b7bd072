"""Jobs go on with a changed program, among other faults: outputs are those of a run without any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from falkirk.simulate.faults import KINDS
from falkirk.simulate.simulation import Simulation
from recovery.metadata import at_epoch
from recovery.moving.carried import Carried
from runtime.supervisor import upgrading
from tests.falkirk.simulate.changing import ChangingWorld, Variant, drawn
from tests.support.profile import effort
from timely.errors import FalkirkError

EACH = effort(1, 5, 5)


def run(variants: Sequence[Variant], workers: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> ChangingWorld:
    """One job; raises FalkirkError if it does not end as without faults."""
    world = ChangingWorld(variants, workers, seed, kinds)
    world.run()
    world.outside.compare(Simulation(variants[0].build, workers).expected)
    return world


@pytest.mark.parametrize("first", range(0, effort(4 * EACH, 60, 1_000), EACH))
def test_changed_programs_go_on_with_their_state(first: int) -> None:
    changes = 0
    for number in range(first, first + EACH):
        variants = drawn(number)
        for seed in range(3 * number, 3 * number + 3):
            try:
                changes += run(variants, 1 + number % 3, seed).changes
            except FalkirkError as error:
                pytest.fail(f"program {number}, seed {seed}: {error}")
    assert changes > 0


def found() -> bool:
    """True if some program ends otherwise than it should."""
    for number in range(12):
        variants = drawn(number)
        for seed in range(3 * number, 3 * number + 3):
            try:
                run(variants, 1 + number % 3, seed, ("kill", "job"))
            except FalkirkError:
                return True
    return False


def test_logged_messages_that_are_forgotten_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carried, "_messages", lambda *_: iter(()))
    assert found()


@pytest.mark.check
def test_messages_on_ways_that_are_gone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carried, "lost", lambda *_: [])
    monkeypatch.setattr(upgrading, "_inconsistent", lambda *_: [])
    assert found()


def test_state_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = Carried._cuts
    monkeypatch.setattr(Carried, "_cuts", lambda *of: ((checkpoint, ()) for checkpoint, _ in cuts(*of)))
    assert found()


def test_operators_that_begin_before_those_behind_them_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the solver's word they would send what is complete already."""
    at_nothing = upgrading.begin

    def early(edges: Any, depths: Any, sources: Any, known: Any, names: Any) -> Any:
        begun = at_nothing(edges, depths, sources, known, names)
        bounds = [known.get(flat, at_epoch(0, depth)) for flat, depth in enumerate(depths)]
        return replace(begun, bounds=bounds, reasons=[])

    monkeypatch.setattr(upgrading, "begin", early)
    monkeypatch.setattr(upgrading, "_inconsistent", lambda *_: [])
    assert found()
