"""A stage waits for the executors of a cluster that starts slowly, and says so. The cluster is none: only its slots count."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from libraries.spark.cluster import attempt
from libraries.spark.cluster.attempt import StageAttempt
from libraries.spark.cluster.session import SparkCluster
from libraries.spark.setup.options import SparkOptions


class Cluster:
    """Has one more slot each time when it is asked so often; `ran` is the number of workers that were launched."""

    master = "spark://host:7077"

    def __init__(self, slots: list[int]) -> None:
        self._slots = slots
        self.ran = 0
        self.context = SimpleNamespace(setJobGroup=lambda *_, **__: None, parallelize=self._parallelize)

    def slots(self) -> int:
        return self._slots.pop(0) if len(self._slots) > 1 else self._slots[0]

    def _parallelize(self, numbers: range, parts: int) -> Any:
        self.ran = parts
        stage = SimpleNamespace(mapPartitions=lambda work: SimpleNamespace(collect=lambda: None))
        return SimpleNamespace(barrier=lambda: stage)


def attempted(cluster: Any, patience: float, monkeypatch: pytest.MonkeyPatch) -> tuple[StageAttempt, list[str]]:
    clock = iter(range(10_000))  # a second for each look
    monkeypatch.setattr(attempt, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda _: None))
    notes: list[str] = []
    made = StageAttempt(cluster, lambda numbers: numbers, 4, "group", patience, notes.append)
    made.over.wait()
    return made, notes


def test_executors_that_come_late_are_waited_for_and_how_many_there_are_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster([0] * 90 + [1] * 90 + [3] * 90 + [4])
    made, notes = attempted(cluster, 100.0, monkeypatch)
    assert (cluster.ran, made.refused, made.ending) == (4, None, None)
    assert made.began is not None
    said = [int(found[1]) for note in notes if (found := re.search(r"runs (\d) tasks .* so far, and 4 workers", note))]
    assert said == sorted(said)
    assert len(said) == len(notes)
    assert set(said) == {0, 1, 3}
    assert len(notes) < 15


def test_executors_that_do_not_come_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([0] * 50 + [2])
    made, _ = attempted(cluster, 100.0, monkeypatch)
    assert cluster.ran == 0
    assert "spark://host:7077 runs at most 2 tasks at a time, and 4 workers" in str(made.refused)


def test_executors_are_waited_for_as_long_as_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Any = SimpleNamespace()
    monkeypatch.setattr("libraries.spark.cluster.session._open", lambda *_: opened)
    monkeypatch.setattr("libraries.spark.cluster.session._context_of", lambda session: session)
    monkeypatch.setattr("libraries.spark.cluster.session._ship", lambda context: None)
    clusters = [SparkCluster(on) for on in ("local[1]", SparkOptions(master="local[1]", start_limit=7.0), opened)]
    assert [cluster.patience for cluster in clusters] == [300.0, 7.0, 300.0]
