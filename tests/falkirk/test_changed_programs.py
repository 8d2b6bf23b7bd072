"""A store, and then another program than the one that wrote it: refused with what was changed, or right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import falkirk
from falkirk import KeyedState, Lazy, Parts, TimedBatches, agg
from tests.runtime.job_under_test import Gated

EPOCHS = 24
STOPS_AT = 20
"""The source gives no more before something was published (`Gated`), so saved."""


class Breaks(Exception):
    """Ends the job in the midst of it."""


@dataclass(frozen=True)
class Published:
    """Stands for a file that is there when a sink has published something."""

    folder: Path

    def exists(self) -> bool:
        return any(self.folder.glob("*epoch-*"))


class Gate(falkirk.Operator):
    """Passes on what comes, and ends the job at an epoch, unless there is a file."""

    def __init__(self, go_on: Path) -> None:
        self._go_on = go_on

    def on_batch(self, ctx: Any, port: int, time: Any, batch: Any) -> None:
        if time[0] >= STOPS_AT and not self._go_on.exists():
            raise Breaks
        ctx.send(batch)


class Blocks(falkirk.Operator):
    """The number of records, and their sum, so far; `order` is of the parts of its state."""

    def __init__(self, state: Callable[[Blocks], Parts]) -> None:
        self.now, self.counts, self.sums = TimedBatches(), KeyedState(), KeyedState()
        self.state = state(self)

    def on_batch(self, ctx: Any, port: int, time: Any, batch: Any) -> None:
        self.now.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Any, time: Any) -> None:
        records = [record for batch in self.now.pop(time) for record in batch]
        count = self.counts.read(time).get("n", 0) + len(records)
        total = self.sums.read(time).get("n", 0) + sum(records)
        self.counts.write(time, {"n": count})
        self.sums.write(time, {"n": total})
        ctx.send([(count, total)])


def positional(self: Blocks) -> Parts:
    return Parts(self.now, self.counts, self.sums)


def exchanged(self: Blocks) -> Parts:
    return Parts(self.now, self.sums, self.counts)


def fewer(self: Blocks) -> Parts:
    return Parts(self.now, self.counts)


def named(self: Blocks) -> Parts:
    return Parts(now=self.now, counts=self.counts, sums=self.sums)


def named_in_another_order(self: Blocks) -> Parts:
    return Parts(sums=self.sums, now=self.now, counts=self.counts)


def program(
    folder: Path,
    state: Callable[[Blocks], Parts] = positional,
    clean: Callable[[int], int] = lambda n: n + 1,
    aggregates: Callable[[], dict[str, Any]] = lambda: {"u": agg.n_unique("a"), "v": agg.n_unique("b")},
) -> falkirk.Dataflow:
    flow = falkirk.Dataflow("changed")
    numbers = flow.source("numbers", Gated(Published(folder / "blocks"), int, 5000, 10 * EPOCHS, epoch_every=10))  # type: ignore[arg-type]
    gated = numbers.unary("gate", lambda: Gate(folder / "go on"), stateful=False)
    clean_numbers = gated.map(clean, name="clean")
    blocks = clean_numbers.unary("blocks", lambda: Blocks(state)).policy(Lazy(every=1))
    blocks.to(falkirk.FileSink(folder / "blocks", name="blocks"), name="written")
    columns = clean_numbers.map(lambda n: {"k": 0, "a": n % 5, "b": n}, name="rows").to_columns()
    counted = columns.group_by("k").agg(**aggregates(), name="counted").policy(Lazy(every=1))
    counted.to_records().to(falkirk.FileSink(folder / "counted", name="counted"), name="counted_out")
    return flow


def written(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("*epoch-*")) for line in path.read_text().splitlines()]


def wrong(folder: Path) -> list[Any]:
    """What is not as it must be of all that the job has written."""
    blocks = [[10 * epoch, sum(range(1, 10 * epoch + 1))] for epoch in range(1, EPOCHS + 1)]
    counted = [{"k": 0, "u": 5, "v": 10 * epoch} for epoch in range(1, EPOCHS + 1)]
    found = [*written(folder / "blocks"), *written(folder / "counted")]
    return [each for each in (*blocks, *counted) if each not in found] + found[2 * EPOCHS :]


def begun(folder: Path, **of: Any) -> None:
    """A job that has come half way, and has saved that."""
    with pytest.raises(falkirk.FalkirkError, match="Breaks"):
        falkirk.run(lambda: program(folder, **of), store=folder / "store", on_note=lambda text: None)
    (folder / "go on").touch()


def go_on(folder: Path, accept: str = "", **of: Any) -> None:
    falkirk.run(lambda: program(folder, **of), store=folder / "store", accept=accept, on_note=lambda text: None)


def test_a_job_goes_on_with_the_functions_and_parts_that_it_had(tmp_path: Path) -> None:
    begun(tmp_path)
    go_on(tmp_path)
    assert wrong(tmp_path) == []


def test_parts_and_functions_that_were_changed_are_named_and_only_functions_can_be_accepted(tmp_path: Path) -> None:
    begun(tmp_path)
    for state, was in (
        (exchanged, "two parts were exchanged"),
        (fewer, "is Parts(now: TimedBatches; counts: KeyedState)"),
    ):
        with pytest.raises(falkirk.FalkirkError) as refused:
            go_on(tmp_path, state=state, accept="blocks")
        assert was in str(refused.value)
        assert "unary 'blocks' (" in str(refused.value)
        assert "test_changed_programs.py:" in str(refused.value)
    with pytest.raises(falkirk.FalkirkError) as refused:
        go_on(tmp_path, clean=lambda n: 1 + n)
    text = str(refused.value)
    assert "map 'clean' (" in text
    assert "the code of the function is another one" in text
    assert "--accept clean," in text
    with pytest.raises(falkirk.FalkirkError, match="there is no operator 'clear'"):
        go_on(tmp_path, clean=lambda n: 1 + n, accept="clear")
    go_on(tmp_path, clean=lambda n: 1 + n, accept="clean")
    assert wrong(tmp_path) == []


def test_what_was_accepted_once_need_not_be_said_again(tmp_path: Path) -> None:
    def other(n: int) -> int:
        return 1 + n

    begun(tmp_path)
    (tmp_path / "go on").unlink()
    with pytest.raises(falkirk.FalkirkError, match="Breaks"):
        go_on(tmp_path, clean=other, accept="clean")
    (tmp_path / "go on").touch()
    with pytest.raises(falkirk.FalkirkError, match="the code of the function is another one"):
        go_on(tmp_path)  # which was the right one before
    go_on(tmp_path, clean=other)
    assert wrong(tmp_path) == []


def test_parts_with_names_and_counted_columns_come_back_whatever_their_order(tmp_path: Path) -> None:
    begun(tmp_path, state=named)
    with pytest.raises(falkirk.FalkirkError, match="the code of state of the operator is another one"):
        go_on(tmp_path, state=named_in_another_order)
    go_on(
        tmp_path,
        state=named_in_another_order,
        aggregates=lambda: {"v": agg.n_unique("b"), "u": agg.n_unique("a")},
        accept="blocks",
    )
    assert wrong(tmp_path) == []


def test_accept_is_about_a_store(tmp_path: Path) -> None:
    with pytest.raises(falkirk.FalkirkError, match="accept= goes with store="):
        falkirk.run(lambda: program(tmp_path), accept="clean")
