"""A cut is made in pieces of about so many rows, whatever the number of runs; and what was saved comes back run by run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import Checkpoint, Piece, record_of
from recovery.memory.recorder import WorkerRecorder
from recovery.store.journal import Journal
from recovery.store.segments import decode_segment
from tests.recovery.layouts import layout
from tests.recovery.store.owners import OWNER, STORE
from timely.data.batch import Batch
from timely.operators.ends import Staged
from timely.state import KeyedState
from timely.state.interface import Run, State
from timely.state.timed import TimedBatches

PLAN = layout("read source, out sink", "read>out", 1)
SINK = 1


def _checkpoints() -> Checkpoints:
    journal = Journal(OWNER, STORE)
    name, _ = journal.fence()
    journal.stored(name)
    journal.resume()
    checkpoints = Checkpoints(PLAN, WorkerRecorder(PLAN, 0), journal)
    checkpoints.open()
    return checkpoints


def _cut(checkpoints: Checkpoints, at: int, state: State) -> int:
    """Make a cut; the number of steps that it took."""
    draft = checkpoints.cut(0, (at,), lambda p: state if p == SINK else None, defaultdict(tuple))
    steps = 1
    while not checkpoints.advance(draft):
        steps += 1
    return steps


def _written(checkpoints: Checkpoints) -> list[tuple[Any, Any]]:
    """The records of the next segment, with their payloads."""
    sealed = checkpoints._journal.seal()
    assert sealed is not None
    checkpoints._journal.stored(sealed[0])
    _, sections = decode_segment(b"".join(bytes(part) for part in sealed[1]))
    return [(record_of(section.head), section.payload) for section in sections]


def _read_back(records: Sequence[tuple[Any, Any]], at: int) -> list[Run]:
    journal = Journal(OWNER, STORE)
    again = Checkpoints(PLAN, WorkerRecorder(PLAN, 0), journal)
    again.load(records)
    return list(again.runs(SINK, (at,)))


def _staged(batches: Iterable[tuple[int, Batch]]) -> TimedBatches:
    state = Staged()
    for time, batch in batches:
        state.add((time,), batch)
    return state


def test_a_cut_over_thousands_of_tiny_epochs_has_few_pieces() -> None:
    checkpoints = _checkpoints()
    state = _staged((time, [(time, "x")]) for time in range(10_000))
    steps = _cut(checkpoints, 10_000, state)
    records = _written(checkpoints)
    pieces = [record for record, _ in records if isinstance(record, Piece)]
    assert len(pieces) == steps - 1 <= 12  # where it was one for each of ten thousand
    (checkpoint,) = [record for record, _ in records if isinstance(record, Checkpoint) and record.xi.processor == SINK]
    assert checkpoint.pieces == len(pieces)
    runs = _read_back(records, 10_000)
    assert [(run.time, run.batch) for run in runs] == [((time,), [(time, "x")]) for time in range(10_000)]


@pytest.mark.parametrize("rows", [1, 7, 64, 1 << 20])
def test_pieces_have_about_as_many_rows_as_they_should(rows: int) -> None:
    checkpoints = _checkpoints()
    checkpoints.piece_rows = rows
    state = KeyedState()
    state.write((0,), {key: key for key in range(1000)})
    _cut(checkpoints, 1, state)
    pieces = [record for record, _ in _written(checkpoints) if isinstance(record, Piece)]
    sizes = [sum(count for _, _, count in piece.runs) for piece in pieces]
    assert sum(sizes) == 1000
    assert max(sizes) <= max(rows, 1)
    assert len(pieces) == -(-1000 // rows)


def test_batches_of_all_kinds_come_back_as_they_were() -> None:
    numbers, text = pa.table({"n": [1, 2]}), pa.table({"n": ["a"]})
    coded = pa.table({"n": pa.array(["a", "b", "a"]).dictionary_encode()})
    batches: list[tuple[int, Batch]] = [
        (0, [1, "two", (3,)]),
        (1, []),
        (1, [None]),
        (2, numbers),
        (3, numbers.slice(1)),
        (3, numbers.slice(0, 0)),
        (4, text),
        (5, coded),
        (5, coded),
        (6, pl.DataFrame({"n": [1.5]})),
        (6, pl.DataFrame({"n": [2.5]})),
        (7, [(1,)]),
    ]
    checkpoints = _checkpoints()
    _cut(checkpoints, 9, _staged(batches))
    runs = _read_back(_written(checkpoints), 9)
    assert [run.time for run in runs] == [(time,) for time, _ in batches]
    for run, (_, batch) in zip(runs, batches):
        assert type(run.batch) is type(batch)
        assert run.batch.equals(batch) if not isinstance(batch, list) else run.batch == batch  # type: ignore[union-attr]


def test_of_a_piece_with_many_times_those_come_back_that_were_not_published() -> None:
    checkpoints = _checkpoints()
    _cut(checkpoints, 9, _staged((time, [time]) for time in range(9)))
    records = _written(checkpoints)
    checkpoints.published.rise(SINK, (4,))
    checkpoints.published.save()
    runs = _read_back([*records, *_written(checkpoints)], 9)
    assert [run.batch for run in runs] == [[4], [5], [6], [7], [8]]


def test_restoring_what_was_saved_gives_the_same_state() -> None:
    checkpoints = _checkpoints()
    state = _staged((time, [time]) for time in range(100))
    _cut(checkpoints, 60, state)
    records = _written(checkpoints)
    _cut(checkpoints, 100, state)
    records += _written(checkpoints)
    again = Staged()
    again.restore(_read_back(records, 100))
    assert sorted(again.times()) == sorted(state.times())
