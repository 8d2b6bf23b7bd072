"""`falkirk.run(..., store=...)`: the same results as without, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import falkirk


def sums(name: str = "sum") -> falkirk.Dataflow:
    flow = falkirk.Dataflow("sums")
    numbers = flow.source("numbers", falkirk.Iterable(range(1000), epoch_every=100))
    numbers.key_by(lambda n: n % 7).sum(name=name).records().capture("sums")
    return flow


def contents(result: falkirk.Result) -> list[tuple[Any, Any]]:
    return sorted((at, record) for at, batch in result.captured("sums") for record in batch)


def test_a_job_with_a_store_gives_what_one_without_gives_and_is_finished_then(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    notes: list[str] = []
    store = tmp_path / "store"
    result = falkirk.run(sums, workers=2, store=store, on_stats=lambda stats: seen.append(len(stats)))
    assert contents(result) == contents(falkirk.run(sums))
    assert len(contents(result)) == 70
    assert result.records == 1000
    assert all(stats.done for stats in result.stats.values())
    assert seen[-1] == 2
    for _ in range(3):  # workers that are not needed are ended while they begin, in silence
        notes.clear()
        again = falkirk.run(sums, workers=2, store=store, on_note=notes.append)
        assert contents(again) == []
        assert capfd.readouterr().err == ""
    assert notes == [f"the job of the store {store} was finished by an earlier run: there is nothing left to do"]
    with pytest.raises(falkirk.FalkirkError, match=r"an earlier run has finished it(.|\n)*-w 2"):
        falkirk.run(sums, workers=1, store=store)
    with pytest.raises(falkirk.FalkirkError, match=r"operator 'sum' is gone"):
        falkirk.run(lambda: sums(name="total"), workers=2, store=store)


def test_what_a_store_cannot_do_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(falkirk.FalkirkError, match="fed by hand"):
        falkirk.run(sums, store=tmp_path / "store", drive=lambda session: None)
    with pytest.raises(falkirk.FalkirkError, match="at least one worker"):
        falkirk.run(sums, workers=0, store=tmp_path / "store")
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(falkirk.FalkirkError, match=r"not a store of falkirk: it has 'photo.jpg'"):
        falkirk.run(sums, store=tmp_path)
