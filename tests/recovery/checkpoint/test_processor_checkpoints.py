"""The checkpoints of one processor against their definitions, and when all of its state is saved anew."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recovery.checkpoint.processor_checkpoints import (
    MANY,
    MOST,
    SCAN_PIECES,
    SMALL,
    Loaded,
    ProcessorCheckpoints,
    SavedCheckpoint,
)
from recovery.checkpoint.records import Checkpoint, Piece, save_batch
from recovery.metadata import Bound, Xi
from timely.errors import ProtocolError
from timely.operators.base import Operator
from timely.state.interface import Run
from timely.time import Frontier


def saved(bound: int, since: int, size: int = 0, rows: int = 0) -> SavedCheckpoint:
    return SavedCheckpoint(Checkpoint(Xi(0, (bound,), ()), 1, (since,), 0, (), ()), ("checkpoint", bound), size, rows)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_asked_of_checkpoints_follows_from_each_of_them(seed: int) -> None:
    random = Random(seed)
    known = ProcessorCheckpoints()
    assert known.lacks((1,))
    since, everything = 0, list[SavedCheckpoint]()
    for bound in sorted(random.sample(range(1, 30), 12)):
        since = bound if random.random() < 0.3 or not since else since
        everything.append(saved(bound, since, random.randrange(1, 9), random.randrange(1, 9)))
    known.saved = list(everything)
    for bound in range(32):
        assert known.lacks((bound,)) == (bound > everything[-1].bound[0])
        assert known.at((bound,)) == next((each for each in everything if each.bound == (bound,)), None)
        whole = [each.bound for each in everything if each.checkpoint.whole and each.bound <= (bound,)]
        assert known.base((bound,)) == max(whole, default=None)
    parts = [each for each in everything if each.bound >= (since,)]
    assert known.stored() == (len(parts), sum(each.rows for each in parts), sum(each.size for each in parts))
    decided: Bound = (random.randrange(30),)
    known.scan = _Scan()
    assert known.cut_to(decided) == [each for each in everything if each.bound > decided]
    assert known.saved == [each for each in everything if each.bound <= decided]
    assert known.scan is None
    if known.saved:
        low = random.choice(known.saved).bound
        first = known.index_of((low[0],))
        assert known.drop_before(first) == [each for each in everything if each.bound < low]
        assert known.saved == [each for each in everything if low <= each.bound <= decided]


class _Scan:
    over = False


class _State:
    """State of `rows` rows that cannot be walked over."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def size(self) -> Any:
        return SimpleNamespace(rows=self.rows)


class _Walkable(_State):
    def scan(self, upto: Frontier) -> _Scan:
        assert upto == Frontier.before([(9,)])
        return _Scan()


def stored(count: int, rows: int, size: int) -> ProcessorCheckpoints:
    """A processor with `count` checkpoints, `rows` rows and `size` bytes in all."""
    parts = [saved(bound, 1) for bound in range(1, count + 1)]
    parts[0].rows, parts[0].size = rows, size
    return ProcessorCheckpoints(parts)


LARGE = 2 * SMALL + 1


@pytest.mark.parametrize(
    ("count", "rows", "size", "anew"),
    [
        (MANY - 1, 10**9, 2 * SMALL, False),  # small state: only the number of checkpoints counts
        (MANY, 0, 2 * SMALL, True),
        (MANY, 0, LARGE, False),
        (MOST - 1, 20, LARGE, False),
        (MOST, 20, LARGE, True),
        (1, 21, LARGE, True),  # more than half of the rows that are stored is overwritten
    ],
)
def test_all_is_saved_anew_when_there_are_many_checkpoints_or_most_of_them_is_overwritten(
    count: int, rows: int, size: int, anew: bool
) -> None:
    known = stored(count, rows, size)
    assert known.replaces((9,), _State(10)) == anew  # type: ignore[arg-type]
    assert known.scan is None
    walked = stored(count, rows, size)
    at_once = size <= 2 * SMALL
    assert walked.replaces((9,), _Walkable(10)) == (anew and at_once)  # type: ignore[arg-type]
    assert (walked.scan is not None) == (anew and not at_once)
    if walked.scan is not None:
        assert walked.scan_since == (9,)
        assert not walked.replaces((10,), _Walkable(10))  # type: ignore[arg-type]  # one walk after the other


def test_what_keeps_old_segments_alive_is_saved_anew_once() -> None:
    known = stored(1, 1, 1)
    known.unwieldy = True
    assert known.replaces((9,), _State(10))  # type: ignore[arg-type]
    assert not known.replaces((9,), _State(10))  # type: ignore[arg-type]


class _Walk:
    """A walk that gives runs of 10 rows, `left` of them."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def over(self) -> bool:
        return self.left == 0

    def pieces(self, upto: Frontier, rows: Any) -> Iterator[Run]:
        while self.left:
            self.left -= 1
            yield Run((0,), [0] * 10)


class _Fresh(_State):
    """State with two runs that are new."""

    def pieces(self, upto: Frontier, after: Frontier, rows: Any) -> Iterator[Run]:
        yield from (Run((1,), [1] * self.rows), Run((2,), [2] * self.rows))


@pytest.mark.parametrize(
    ("fresh", "walked"), [(0, SCAN_PIECES), (7, SCAN_PIECES), (80, SCAN_PIECES), (200, 40), (201, 41)]
)
def test_a_cut_saves_as_much_anew_as_is_new_or_a_few_pieces(fresh: int, walked: int) -> None:
    known = ProcessorCheckpoints(scan=_Walk(50), scan_since=(7,))  # type: ignore[arg-type]
    runs = list(known.new_runs(_Fresh(fresh), (9,), (8,), lambda: 10))  # type: ignore[arg-type]
    assert [len(run.batch) for run in runs] == [fresh, fresh, *[10] * walked]
    known.scan = None
    assert len(list(known.new_runs(_Fresh(fresh), (9,), (8,), lambda: 10))) == 2  # type: ignore[arg-type]


def test_the_state_begins_where_a_walk_began_once_that_is_over() -> None:
    made = saved(9, 2).checkpoint
    known = ProcessorCheckpoints(scan=_Walk(1), scan_since=(7,))  # type: ignore[arg-type]
    assert known.since_of(made) == (2,)
    assert known.scan is not None
    known.scan.left = 0  # type: ignore[attr-defined]
    assert known.since_of(made) == (7,)
    assert known.since_of(made) == (2,)


def piece(*rows: int) -> Piece:
    header, _ = save_batch(["a", "b", "c"])
    return Piece(0, (3,), tuple(((epoch,), 0, count) for epoch, count in enumerate(rows)), header)


def test_a_state_is_in_the_pieces_since_its_checkpoint_began_and_up_to_it() -> None:
    _, payload = save_batch(["a", "b", "c"])
    known = ProcessorCheckpoints([saved(2, 2), saved(4, 2), saved(6, 6), saved(8, 6)])
    for each in known.saved:
        each.runs = [(piece(1, 2), payload)]
    for bound, parts in ((2, 1), (4, 2), (6, 1), (8, 2), (5, 0)):
        runs = list(known.runs((bound,), lambda _: True, last=False))
        assert [(run.time, list(run.batch)) for run in runs] == [((0,), ["a"]), ((1,), ["b", "c"])] * parts
    known.forget_payloads()
    assert not known.runs((8,), lambda _: True, last=False)


def test_of_what_is_read_for_the_last_time_no_more_than_a_piece_is_there_at_once() -> None:
    known = ProcessorCheckpoints([saved(2, 2), saved(4, 2)])
    payloads: list[weakref.ref[Any]] = []
    for each in known.saved:
        for _ in range(3):
            payload = np.frombuffer(save_batch(["a", "b", "c"])[1], np.uint8)
            payloads.append(weakref.ref(payload))
            each.runs.append((piece(1, 2), payload))
            each.rows += 3
        del payload
    assert len(list(known.runs((4,), lambda time: time == (1,), last=False))) == 6
    runs = known.runs((4,), lambda _: True, last=True)
    assert runs.rows == 18
    left = []
    for run in runs:
        del run
        left.append(sum(payload() is not None for payload in payloads))
    assert left == [6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1]
    assert not known.runs((4,), lambda _: True, last=False)


@pytest.mark.parametrize("rows", [(1, 1), (1, 3), (4, -1), (-1, 4), ()])
def test_a_piece_with_other_rows_than_it_says_is_refused(rows: tuple[int, ...]) -> None:
    known = ProcessorCheckpoints([saved(3, 3)])
    known.saved[0].runs = [(piece(*rows), save_batch(["a", "b", "c"])[1])]
    with pytest.raises(ProtocolError, match="3 rows, and says otherwise"):
        list(known.runs((3,), lambda _: True, last=False))


@pytest.mark.parametrize("known_pieces", range(7))
@pytest.mark.parametrize("asked", [3, 5, 6])
def test_what_is_loaded_ahead_and_the_rest_are_each_piece_once(known_pieces: int, asked: int) -> None:
    """Checkpoints at 3, 5 and 6, of two pieces each: the mate has loaded so many of these, in order."""
    of = ProcessorCheckpoints([saved(3, 3), saved(5, 3), saved(6, 3)])
    for number, each in enumerate(of.saved):
        batches = [save_batch([2 * number + i]) for i in range(2)]
        each.runs = [(Piece(0, each.bound, ((each.bound, 0, 1),), header), payload) for header, payload in batches]
    whole, part = divmod(known_pieces, 2)
    at = of.saved[whole - 1].identity if whole else None
    loaded = Loaded(Operator(), at, of.saved[whole].identity if part else None, part)
    chain = of.chain((asked,))
    if known_pieces > 2 * len(chain):
        assert loaded.rest(chain) is None, "it has more than was decided"
        return
    runs = of.runs((asked,), lambda time: True, False, loaded)
    assert [row for run in runs for row in run.batch] == list(range(known_pieces, 2 * len(chain)))


def test_what_is_loaded_ahead_of_another_checkpoint_is_of_no_use() -> None:
    of = ProcessorCheckpoints([saved(3, 3), saved(5, 5), saved(6, 5)])
    assert Loaded(Operator(), of.saved[0].identity).rest(of.chain((6,))) is None, "all was saved anew since"
    assert Loaded(Operator(), ((5,), 2)).rest(of.chain((6,))) is None, "another generation has made it"
    assert Loaded(Operator(), of.saved[1].identity, ((6,), 2), 1).rest(of.chain((6,))) is None
    assert Loaded(Operator(), of.saved[1].identity).rest(of.chain((6,))) == [(of.saved[2], 0)]
