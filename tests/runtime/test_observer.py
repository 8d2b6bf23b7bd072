"""Observations of workers, in jobs with all kinds of logged edges."""

from __future__ import annotations

import numpy as np
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


def test_what_is_kept_for_survivors_is_counted_at_its_sender() -> None:
    world = quiet("rounds", 2, seed=3)  # whose budget is plenty
    seen = 0
    for _ in range(3_000):
        world.step()
        if world.steps % 50 == 0:
            for process in world._processes:
                if process is not None and process.recovery is not None:
                    observer, agent = process.recovery._observer, process.recovery.agent
                    observer._measure()
                    first = ROWS.index("rows")
                    assert observer._sizes[ROWS.index("kept_bytes") - first].sum() == agent.recorder.shipments.size
                    senders = set(np.flatnonzero(observer._sizes[ROWS.index("kept_messages") - first]).tolist())
                    assert senders <= {edge.source for edge in agent.layout.edges if edge.kept}
                    seen += bool(senders)
        if world.finished:
            break
    assert seen
