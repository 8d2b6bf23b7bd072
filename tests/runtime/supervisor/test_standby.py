"""Passive standby as real processes: mates have in memory what no disk has, and go on from there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from runtime.supervisor.placement import LocalWorkers
from tests.runtime.job_under_test import GATE, check
from tests.runtime.supervisor.test_mates import until
from tests.runtime.watched import RECORDS, Watched

SELDOM = 3600.0
"""Seconds between durable checkpoints: none falls into the test but the last."""


class Standing(Watched):
    """A job of two workers with mates under passive standby, which goes on to its end when it is let."""

    def __init__(self, folder: Path, durable: float = SELDOM) -> None:
        super().__init__(folder, 2, mates=1, gated=True, durable=durable, every=0.05)

    def mate(self, worker: int) -> int:
        """Process of the mate of a worker, when it has all that the worker has saved."""
        place = self.job.place
        assert isinstance(place, LocalWorkers)
        until(lambda: worker in place.mates and place.mates[worker].caught_up)
        until(lambda: [each["there"] for each in self.of("standby") if each["worker"] == worker][-1:] == [True])
        return place.mates[worker].pid

    def kill(self, worker: int, with_mate: bool = False) -> None:
        """Kill a worker whose mate has all, and wait until the job runs again."""
        before, mate = len(self.of("restored")), self.mate(worker)
        for pid in (self.job.pids[worker], *([mate] if with_mate else [])):
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(self.of("restored")) > before)
        assert (self.job.pids[worker] == mate) != with_mate

    def end(self) -> None:
        """Let the job go on to its end."""
        (self.folder / GATE).touch()


def test_a_mate_goes_on_from_what_is_in_its_memory_only(tmp_path: Path) -> None:
    watched = Standing(tmp_path)
    durable: list[int] = []

    def strike() -> None:
        watched.until(10)  # output is out, and nothing of it is durable in the store
        for worker in (1, 0, 1):
            watched.kill(worker)
        durable.append(len(watched.of("safe")))
        watched.end()

    check(tmp_path, RECORDS, watched.run(strike).captured("counts"))
    assert len(watched.of("takeover")) == 3
    assert [each["failed"] for each in watched.of("decided")] == [[0, 1], [1], [0], [1]]


@pytest.mark.check
def test_a_worker_that_dies_with_its_mate_goes_back_to_what_is_durable(tmp_path: Path) -> None:
    watched = Standing(tmp_path, durable=0.5)

    def strike() -> None:
        watched.until(10)
        watched.kill(0, with_mate=True)
        watched.kill(1)
        watched.end()

    watched.run(strike)
    check(tmp_path, RECORDS)
