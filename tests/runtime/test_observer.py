"""Observations of workers, in jobs with all kinds of logged edges."""

from __future__ import annotations

import pytest

from recovery.protocol import ROWS
from tests.recovery.jobs import quiet


@pytest.mark.parametrize("program", ["ahead", "long_loop", "logs"])
def test_logged_messages_are_counted_also_where_only_those_into_later_times_are(program: str) -> None:
    world = quiet(program, 2)
    seen = 0
    for _ in range(3_000):
        world.step()
        if world.steps % 50 == 0:
            for process in world._processes:
                if process is not None and process.recovery is not None:
                    observer, recorder = process.recovery._observer, process.recovery.agent.recorder
                    observer._measure()
                    logged = sum(map(len, recorder.logs.values()))
                    assert observer._sizes[ROWS.index("logged") - ROWS.index("rows")].sum() == logged
                    seen += bool(logged)
        if world.finished:
            break
    assert seen
