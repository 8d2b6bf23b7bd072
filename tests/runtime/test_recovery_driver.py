"""The driver of an agent: the order in which it says and does things."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from recovery.agent.effects import Rewind
from recovery.epoch_ends import EpochEnds
from recovery.place import Place
from recovery.protocol import Join, decode_to_monitor
from runtime.recovery.driver import RecoveryDriver
from tests.recovery.jobs import quiet


def test_a_process_joins_once_also_if_the_monitor_is_new_in_its_first_turn() -> None:
    """A second `Join` would be taken for that of another process, and this one be given up."""
    world = quiet("tight", 1)
    while (process := world._processes[Place(0)]) is None or process.session is None:
        world.step()
    assert not process.to_monitor
    process.anew = True
    process.session.step()
    assert [isinstance(decode_to_monitor(data), Join) for data in process.to_monitor] == [True]
    process.anew = True
    process.session.step()
    assert sum(isinstance(decode_to_monitor(data), Join) for data in process.to_monitor) == 2


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (None, (7, None)),
        (EpochEnds(0, 0, 2, 5, (("a", ((2, 20), (4, 40))), ("b", ()))), (5, {"a": ((2, 20), (4, 40)), "b": ()})),
    ],
)
def test_a_source_that_goes_back_hears_where_its_epochs_ended(
    ends: EpochEnds | None, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where nobody knows, what it reads is of the least epoch that the others have not completed."""
    world = quiet("tight", 1)
    while (process := world._processes[Place(0)]) is None or process.session is None:
        world.step()
    session = process.session
    (source,) = session.sources
    heard: list[Any] = []
    monkeypatch.setattr(source, "rewind", lambda *args: heard.append(args))
    session._recovery._carry_out([Rewind({source.node.index: (3, None, ends, 7)})])  # type: ignore[union-attr]
    assert heard == [(3, None, *told)]


def test_the_driver_asks_its_agent_nothing() -> None:
    """Beyond its beginning it uses `step` only: what it must know comes as effects (decision 185)."""
    tree = ast.parse(inspect.getsource(RecoveryDriver))
    (driver,) = (each for each in tree.body if isinstance(each, ast.ClassDef))
    used = {
        (method.name, where.attr)
        for method in driver.body
        if isinstance(method, ast.FunctionDef)
        for where in ast.walk(method)
        if isinstance(where, ast.Attribute) and ast.unparse(where.value) in ("self.agent", "agent")
    }
    assert {attr for method, attr in used if method != "__init__"} == {"step"}
    assert {attr for method, attr in used if method == "__init__"} == {"layout"}
