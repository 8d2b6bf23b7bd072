"""Notes about programs that are correct, and do not do what their author may expect."""

from __future__ import annotations

from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.notes import notes_of
from recovery.policy import AtLeastOnce, Eager, Lazy, PassiveStandby, Snapshot
from timely.io import Iterable, Rate


def noted(policy: object, source: Any) -> list[str]:
    flow = Dataflow()
    with flow.region("region", policy=policy):
        flow.source("in", source).map(str).capture("out")
    return notes_of(flow.graph)


def test_eager_region_that_is_fed_one_epoch_is_noted_with_its_source() -> None:
    (note,) = noted(Eager(), Iterable([1, 2, 3]))
    assert note.startswith(f"the source 'in' ({__file__}:")
    assert "one epoch" in note
    assert "epoch_every=" in note


@pytest.mark.parametrize(
    ("policy", "source"),
    [
        (Eager(), Iterable([1, 2, 3], epoch_every=2)),
        (Eager(), Iterable([1, 2, 3], epoch_every="batch")),
        (Eager(), Rate(str, per_second=10)),
        (Lazy(), Iterable([1, 2, 3])),
        (Snapshot(every=1), Iterable([1, 2, 3])),
        (AtLeastOnce(), Iterable([1, 2, 3])),
    ],
)
def test_whatever_has_epochs_or_needs_none_is_not_noted(policy: object, source: Any) -> None:
    assert noted(policy, source) == []


def test_passive_standby_without_mates_is_noted_once() -> None:
    flow = Dataflow()
    with flow.region("counts", policy=PassiveStandby(every="50ms")):
        flow.source("in", Iterable("ab")).key_by(str).count().capture("out")
    assert notes_of(flow.graph) == []
    (note,) = notes_of(flow.graph, mates=False)
    assert "as under Lazy(every='50ms')" in note
    assert "--mates 1" in note
