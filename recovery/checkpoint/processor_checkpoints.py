"""Checkpoints of one processor, ascending, and increments of its next one.

A checkpoint adds what is new since the one before, until there are so many of them, or so much in them is overwritten, that all
of the state is saved anew: at once if it is small, and a little with each cut (a *scan*) if it is large.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeAlias

from recovery.checkpoint.records import Checkpoint, Piece
from recovery.metadata import Bound, to_frontier, within
from recovery.store.segments import Section, content_of
from timely.data.batch import slice_
from timely.data.codec import decode_batch
from timely.errors import ProtocolError
from timely.operators.base import Operator
from timely.state.interface import Run, Runs, Scan, Scannable, State
from timely.time import Time

MANY, MOST = 64, 4096
"""Most checkpoints, of small and of large state, before a full one replaces them."""

SMALL = 1 << 16
"""Most bytes of small state, saved whole in place of many small increments."""

SCAN_PIECES = 16
"""Least pieces of a large state saved anew by one cut of a scan.

If more is new, it saves as much as is new.
"""

Key: TypeAlias = tuple[Any, ...]
"""Key of a journal's section: `recovery.checkpoint.records.key_of`."""


@dataclass(slots=True)
class SavedCheckpoint:
    """One checkpoint of one processor."""

    checkpoint: Checkpoint
    key: Key
    size: int
    rows: int = 0
    runs: list[tuple[Piece, Any]] = field(default_factory=list)
    """Payloads read from the store, until they are restored."""
    sections: list[Section] = field(default_factory=list)
    """Written sections, while they are small."""

    @property
    def bound(self) -> Bound:
        return self.checkpoint.xi.bound

    @property
    def identity(self) -> tuple[Bound, int]:
        """Bound and generation."""
        return self.bound, self.checkpoint.generation


@dataclass(slots=True)
class Loaded:
    """Operator with the state of some checkpoints, loaded ahead of need.

    Checkpoints are told apart by bound and generation: no two of both exist.
    """

    operator: Operator
    at: tuple[Bound, int] | None = None
    """Last checkpoint loaded whole."""
    within: tuple[Bound, int] | None = None
    """Partly loaded checkpoint; `pieces` of it are loaded."""
    pieces: int = 0

    def rest(self, chain: Sequence[SavedCheckpoint]) -> list[tuple[SavedCheckpoint, int]] | None:
        """Unloaded checkpoints of a chain, each with its number of loaded pieces.

        None: what is loaded does not lead to the end of the chain.
        """
        left = list(chain)
        if self.at is not None:
            ends = [place for place, saved in enumerate(left, 1) if saved.identity == self.at]
            if not ends:
                return None
            del left[: ends[0]]
        if self.within is None:
            return [(saved, 0) for saved in left]
        if not left or left[0].identity != self.within:
            return None
        return [(saved, self.pieces if saved is left[0] else 0) for saved in left]


@dataclass(slots=True)
class ProcessorCheckpoints:
    """Checkpoints of one processor, ascending."""

    saved: list[SavedCheckpoint] = field(default_factory=list)
    since: Bound | None = None
    """Bound restored from the store; None once it can never go below that."""
    scan: Scan | None = None
    """Scan of large state, to save it anew, a little with each cut."""
    scan_since: Bound = ()
    """Cut at the beginning of the scan."""
    unwieldy: bool = False
    """True if old checkpoints keep mostly dead segments alive."""

    # Reading

    def lacks(self, bound: Bound) -> bool:
        """True if the newest checkpoint lies strictly within `bound`, or there is none."""
        return not self.saved or (self.saved[-1].bound != bound and within(self.saved[-1].bound, bound))

    def at(self, bound: Bound) -> SavedCheckpoint | None:
        """Checkpoint at `bound`, or None."""
        at = bisect_right(self.saved, bound, key=_bound)
        return self.saved[at - 1] if at and self.saved[at - 1].bound == bound else None

    def base(self, bound: Bound) -> Bound | None:
        """Newest full checkpoint within `bound`."""
        return next((s.bound for s in reversed(self.saved) if s.checkpoint.whole and within(s.bound, bound)), None)

    def chain(self, bound: Bound, after: Bound | None = None) -> list[SavedCheckpoint]:
        """Checkpoints with the pieces of S(p, `bound`), in order.

        Those before the one at `after` are left out if that is one of them.
        """
        found = self.at(bound)
        since = bound if found is None else found.checkpoint.since
        if after is not None and within(since, after) and within(after, bound) and self.at(after) is not None:
            since = after
        first = bisect_left(self.saved, since, key=_bound)
        last = bisect_right(self.saved, bound, key=_bound)
        return [each for each in self.saved[first:last] if within(since, each.bound) and within(each.bound, bound)]

    def left(self, chain: list[SavedCheckpoint], loaded: Loaded | None) -> dict[Key, list[tuple[Piece, Any]]]:
        """Pieces of a chain to be read, without those of `loaded`, by checkpoint."""
        rest = [(saved, 0) for saved in chain] if loaded is None else loaded.rest(chain)
        assert rest is not None
        return {saved.key: saved.runs[skipped:] for saved, skipped in rest}

    def runs(self, bound: Bound, wanted: Callable[[Time], bool], last: bool, loaded: Loaded | None = None) -> Runs:
        """Runs of S(p, `bound`) from the store, at `wanted` times.

        Those of `loaded` are left out.

        Each piece is decoded when it is asked for, and forgotten then if this is the `last` time.
        """
        chosen = self.chain(bound)
        left = self.left(chosen, loaded)

        def read() -> Iterator[Run]:
            for saved in chosen:
                pieces = left.pop(saved.key, [])[::-1]
                if last:
                    saved.runs = []
                while pieces:
                    yield from (run for run in runs_of(*pieces.pop()) if wanted(run.time))

        return Runs(sum(saved.rows for saved in chosen if left.get(saved.key)), read)

    # What the next checkpoint saves

    def replaces(self, bound: Bound, state: State) -> bool:
        """True if this cut saves all of a state anew; large state begins a scan."""
        if self.scan is not None:
            return False
        count, rows, size = self.stored()
        small = size <= 2 * SMALL
        if not self.unwieldy and count < (MANY if small else MOST) and (small or rows <= 2 * state.size().rows):
            return False
        self.unwieldy = False
        if not small and isinstance(state, Scannable):
            self.scan, self.scan_since = state.scan(to_frontier(bound)), bound
        return self.scan is None

    def stored(self) -> tuple[int, int, int]:
        """Checkpoints, rows and bytes of the state stored for the last checkpoint."""
        since = self.saved[-1].checkpoint.since
        count = rows = size = 0
        for saved in reversed(self.saved):
            if saved.bound < since:
                break
            count += 1
            rows += saved.rows
            size += saved.size
        return count, rows, size

    def new_runs(self, state: State, bound: Bound, after: Bound, piece_rows: Callable[[], int]) -> Iterator[Run]:
        """Runs saved by a cut at `bound`: all since `after`, and a part of the scan."""
        upto, new = to_frontier(bound), 0
        for run in state.pieces(upto, to_frontier(after), piece_rows):
            new += len(run.batch)
            yield run
        if self.scan is not None:
            left = max(new, SCAN_PIECES * piece_rows())
            for run in self.scan.pieces(upto, piece_rows):
                yield run
                left -= len(run.batch)
                if left <= 0:
                    break

    def since_of(self, checkpoint: Checkpoint) -> Bound:
        """First checkpoint needed by a new one: the scan's, once that is over."""
        if self.scan is None or not self.scan.over:
            return checkpoint.since
        self.scan = None  # with what was written meanwhile, that is all
        return self.scan_since

    # Letting go

    def cut_to(self, bound: Bound) -> list[SavedCheckpoint]:
        """Drop and return the checkpoints outside `bound`."""
        kept = [saved for saved in self.saved if within(saved.bound, bound)]
        gone, self.saved = self.saved[len(kept) :], kept
        self.scan = None  # it may have gone past what is kept
        return gone

    def drop_before(self, first: int) -> list[SavedCheckpoint]:
        """Drop and return the checkpoints before index `first`."""
        gone, self.saved = self.saved[:first], self.saved[first:]
        return gone

    def index_of(self, bound: Bound) -> int:
        """Index of the first checkpoint from `bound` on."""
        return bisect_left(self.saved, bound, key=_bound)

    def forget_payloads(self) -> None:
        """Drop payloads read from the store."""
        for saved in self.saved:
            saved.runs = []


def _bound(saved: SavedCheckpoint) -> Bound:
    return saved.bound


def runs_of(piece: Piece, payload: Any) -> Iterator[Run]:
    """Runs of a piece, decoded; raises ProtocolError if it is damaged."""
    batch = decode_batch(piece.header, content_of(payload))
    if sum(rows for _, _, rows in piece.runs) != len(batch) or any(rows < 0 for _, _, rows in piece.runs):
        raise ProtocolError(f"a piece of state in the journal of a worker has {len(batch)} rows, and says otherwise")
    start = 0
    for (time, part, rows), kept in zip(piece.runs, piece.slots or repeat(None), strict=bool(piece.slots)):
        slot, gone = kept or (None, False)
        yield Run(time, batch if rows == len(batch) else slice_(batch, start, rows), part, slot, gone)
        start += rows
