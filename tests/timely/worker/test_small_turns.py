"""Workers that are interrupted after every single batch or notification still say nothing of progress too early."""

from __future__ import annotations

from typing import Any

import pytest

from runtime import session
from tests.timely.worker.test_worker import PROGRAMS, diamond, outputs

TURNED = [program for program in PROGRAMS if program is not diamond]


@pytest.mark.parametrize("turn", [1, 3])
@pytest.mark.parametrize("program", TURNED, ids=lambda p: p.__name__)
def test_short_turns_give_the_same_output(program: Any, turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TURN", turn)
    for seed in range(4):
        assert outputs(program, 3, seed) == outputs(program, 1, seed)
