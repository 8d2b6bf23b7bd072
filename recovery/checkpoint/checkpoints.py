"""Checkpoints of one worker: made at cuts, read to restore, and collected.

A *cut* of a group persists, for every chain processor of the group, Ξ and what Table 1 of *Falkirk Wheel* asks
for beside it: the state that is new since the cut before, requests for notifications, logged messages, events of a full
history, positions of sources. All cuts of a worker that come due together go into one segment of its journal: one durable
write. Everything here is pure: sections go into the journal, whose driver writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import msgspec
import pyarrow as pa

from recovery.checkpoint import processor_checkpoints
from recovery.checkpoint.applied import AppliedDecisions
from recovery.checkpoint.processor_checkpoints import Key, Loaded, ProcessorCheckpoints, SavedCheckpoint
from recovery.checkpoint.published import PublishedBounds
from recovery.checkpoint.records import (
    PUBLISHED,
    Applied,
    Checkpoint,
    HistoryRecord,
    Logged,
    Opening,
    Piece,
    Published,
    Record,
    SourcePosition,
    check_fit,
    check_state,
    key_of,
    save_batch,
    saving,
    section,
)
from recovery.checkpoint.saved_events import SavedEvents
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound, Xi, at_cut, holds, nothing, within
from recovery.store.journal import Journal, cost
from recovery.store.segments import Section, size_of
from timely.data.batch import Batch, concat
from timely.state.interface import Run, Runs, State
from timely.state.shapes import digest_of
from timely.time import Time

MOST_EVENTS = 1000
"""Most events of a full history before a snapshot of `state` replaces it.

Only if the operator keeps nothing else.
"""

PIECE_ROWS = 4096
"""Initial rows of state in a piece, until the cost of pieces is measured."""

_RUN_ROWS = 4
"""Least rows counted for a run, for the fixed cost of one."""

RETAINED = 1 << 23
"""Bytes of small checkpoints kept in memory, for rewriting small segments."""

Positions: TypeAlias = Mapping[int, tuple[SourcePosition, ...]]
"""Positions of the partitions of sources, by processor."""


@dataclass(slots=True)
class Draft:
    """Cut in the making, piece by piece, so that the worker never pauses for long."""

    group: int
    at: Bound
    waited: float = 0.0
    began: float = 0.0
    """Time of the cut's beginning; `waited` is the delay since its request."""
    xis: list[Xi] = field(default_factory=list)
    states: list[tuple[int, SavedCheckpoint, Iterator[Run]]] = field(default_factory=list)
    """Processors still to be saved, with the rest of their state."""
    pieces: list[Section] = field(default_factory=list)
    """Finished pieces of the first processor in `states`."""
    next_run: Run | None = None
    """Run taken from the first state, and not yet in a piece."""


class Checkpoints:
    """Persisted checkpoints, logs and histories of a worker."""

    def __init__(self, layout: Layout, recorder: WorkerRecorder, journal: Journal) -> None:
        self._layout = layout
        self._recorder = recorder
        self._journal = journal
        self._of = [ProcessorCheckpoints() for _ in layout.processors]
        self._events = SavedEvents(layout, recorder, journal)
        self._applied = AppliedDecisions(journal)
        self.published = PublishedBounds(journal)
        self._retained: dict[Key, SavedCheckpoint] = {}
        self._retained_size = 0
        self._opening = Opening(layout)
        self._sender = {edge.edge: edge.source for edge in layout.edges}
        self._waits = [layout.groups[info.group].durable is not None for info in layout.processors]
        """Processors with checkpoints for a mate's memory, before the store."""
        self._digests = [digest_of(info.state or ()) for info in layout.processors]
        self.piece_rows = PIECE_ROWS
        """Rows wanted in the next piece of a cut, set by the driver, which has a clock."""
        self.most_events = MOST_EVENTS
        """Limit of events in a full history; the simulator sets a smaller one."""
        self.ahead: Mapping[int, Loaded] = {}
        """State loaded ahead of the first restore, by processor: see `following`."""
        self.used_ahead = 0
        """Number of processors restored from state loaded ahead."""
        self.saved_rows = 0
        """Rows of state saved so far."""
        heads, state, checkpoints = ([0] * len(layout.processors) for _ in range(3))
        self.persisted = heads, state, self._events.logged, self._events.happened, checkpoints
        """Numbers by processor, as in `PERSISTED`, without carried sections."""

    @property
    def generation(self) -> int:
        """Generation of the last decision applied."""
        return self._applied.generation

    def keeps(self, p: int, generation: int, event: Time) -> bool:
        """True if no decision after `generation` has excluded an event of processor `p`."""
        return self._applied.keeps(p, generation, event)

    # Making cuts

    def open(self) -> None:
        """Write the program's layout into a new journal."""
        self._add(self._opening)

    def sources(self, group: int, at: Bound) -> tuple[tuple[int, int], ...]:
        """Sources saved by a cut: processor, and end of the epochs read."""
        found = []
        for p in self._layout.members(group):
            info = self._layout.processors[p]
            bound = at_cut(at, info.depth)
            if info.role == "source" and self._of[p].lacks(bound):
                found.append((p, int(bound[0])))
        return tuple(found)

    def last_cut(self, group: int) -> Bound:
        """Last cut begun of an eager group, in which all are chains."""
        saved = [self._of[p].saved for p in self._layout.members(group)]
        return min(each[-1].bound if each else nothing(1) for each in saved)

    def cut(self, group: int, at: Bound, states: Callable[[int], State | None], positions: Positions) -> Draft:
        """Begin a cut; call `advance` until it is done.

        Every event of the group before it must have been handled.

        `positions` has those of the `sources` that it saves.
        """
        draft = Draft(group, at)
        for p in self._layout.members(group):
            info = self._layout.processors[p]
            bound = at_cut(at, info.depth)
            self._recorder.acted(p, bound)
            if not info.chain:
                continue
            known = self.at(p, bound)
            if known is not None:  # a new monitor asks again for what is on its way
                draft.xis.append(known.xi)
            elif self._of[p].lacks(bound):
                draft.xis.append(self._begin(p, bound, states(p), positions, draft))
        return draft

    def _begin(self, p: int, bound: Bound, state: State | None, positions: Positions, draft: Draft) -> Xi:
        info, history = self._layout.processors[p], self._of[p]
        last = history.saved[-1] if history.saved else None
        if info.history:  # its events are its state, until there are so many that state takes their place
            whole = state is not None and self._replaces_history(p, bound)
            keeps = whole
        else:
            keeps = state is not None
            whole = info.role not in ("sink", "capture") and (
                last is None or state is None or history.replaces(bound, state)
            )
        checkpoint = Checkpoint(
            xi=Xi(p, bound, self._recorder.discards(p, bound)),
            generation=self.generation,
            since=bound if whole else last.checkpoint.since if last is not None else info.nothing,
            pieces=0,
            requests=self._recorder.requests(p, bound),
            held=self._recorder.held_at(p, bound),
            positions=positions[p] if info.role == "source" else (),
            state=self._digests[p],
        )
        saved = SavedCheckpoint(checkpoint, key_of(checkpoint), 0)
        history.saved.append(saved)
        pieces: Iterator[Run] = iter(())
        if keeps:
            assert state is not None
            after = info.nothing if whole or last is None else last.bound
            pieces = history.new_runs(state, bound, after, lambda: self.piece_rows)
        draft.states.append((p, saved, pieces))
        return checkpoint.xi

    def _replaces_history(self, p: int, bound: Bound) -> bool:
        base = self.base(p, bound)
        events = sum(not holds(base, event.time) for event in self._recorder.histories[p])
        return events > self.most_events and self._recorder.only_state(p, bound)

    def advance(self, draft: Draft) -> bool:
        """Make the next piece of a cut; True when all of it is in the journal."""
        while draft.states:
            p, saved, pieces = draft.states[0]
            runs = self._gather(draft, pieces)
            if runs:
                with saving(self._layout.processors[p]):
                    header, payload = save_batch(concat([run.batch for run in runs]))
                described = tuple((run.time, run.part, len(run.batch)) for run in runs)
                slots = tuple(None if run.slot is None else (run.slot, run.gone) for run in runs)
                piece = Piece(p, saved.bound, described, header, slots if any(slots) else ())
                draft.pieces.append(section(piece, payload))
                rows = sum(rows for _, _, rows in described)
                saved.size += memoryview(payload).nbytes
                saved.rows += rows
                self.saved_rows += rows
                return False
            del draft.states[0]
            self._end(p, saved, draft.pieces)
            draft.pieces = []
        return True

    def _gather(self, draft: Draft, pieces: Iterator[Run]) -> list[Run]:
        """Runs of the next piece: up to a piece's rows, with batches of one kind."""
        runs: list[Run] = []
        rows = 0
        while rows < self.piece_rows:
            run = draft.next_run or next(pieces, None)
            draft.next_run = None
            if run is None:
                break
            if runs and not alike(runs[0].batch, run.batch):
                draft.next_run = run
                break
            runs.append(run)
            rows += max(len(run.batch), _RUN_ROWS)
        return runs

    def _end(self, p: int, saved: SavedCheckpoint, pieces: list[Section]) -> None:
        since = self._of[p].since_of(saved.checkpoint)
        saved.checkpoint = msgspec.structs.replace(saved.checkpoint, pieces=len(pieces), since=since)
        saved.sections = [section(saved.checkpoint), *pieces]
        heads, state, _, _, checkpoints = self.persisted
        heads[p] += cost(saved.sections[0])
        state[p] += sum(map(cost, pieces))
        checkpoints[p] += 1
        self._journal.waits = self._waits[p]
        self._write(saved)
        self._retain(saved)
        self._events.save(p, saved.bound, self.generation)
        self._journal.waits = False

    def _write(self, saved: SavedCheckpoint) -> None:
        for each in saved.sections:
            self._journal.add(saved.key, each)

    def _retain(self, saved: SavedCheckpoint) -> None:
        """Keep a small checkpoint's sections in memory, as far as there is room.

        They are rewritten when small segments are joined.
        """
        if saved.size >= self._journal.small:
            saved.sections = []
            return
        self._retained[saved.key] = saved
        self._retained_size += saved.size
        while self._retained_size > RETAINED:
            self._release(next(iter(self._retained)))

    def _add(self, record: Record) -> None:
        self._journal.add(key_of(record), section(record))

    # Decisions

    def apply(self, generation: int, bounds: Sequence[Bound | None]) -> None:
        """Record a decision in the journal, and drop records that it voids."""
        self._applied.apply(generation, bounds)
        for p, bound in enumerate(bounds):
            if bound is not None:
                for saved in self._of[p].cut_to(bound):
                    self._let_go(saved)
                self._events.cut_to(p, bound)

    def _let_go(self, saved: SavedCheckpoint) -> None:
        self._journal.dead(saved.key)
        self._release(saved.key)

    def _release(self, key: Key) -> None:
        """Release sections retained under a key."""
        saved = self._retained.pop(key, None)
        if saved is not None:
            self._retained_size -= saved.size
            saved.sections = []

    # Restoring

    def load(self, records: Sequence[tuple[Record, Any]], contents: bool = True) -> None:
        """Restore records of earlier incarnations; the last of each key counts.

        A decision voids records of earlier generations that lie outside it. Without `contents`, delivered batches
        are not decoded: that takes the classes of the program, which a mere reader of the store does not have.

        Raises FalkirkError for records that are damaged or of another program.
        """
        written_by: list[Layout] = []
        for record, _ in records:
            check_fit(record, self._layout, self._sender)
            if isinstance(record, Opening):
                written_by.append(record.layout)
            if isinstance(record, Applied):
                self._applied.load(record)
            elif isinstance(record, Published):
                self.published.load(record)
        current: dict[Key, SavedCheckpoint] = {}
        for record, payload in records:
            key = key_of(record)
            match record:
                case Checkpoint() if self._applied.holds(record.xi.processor, record.generation, record.xi.bound):
                    check_state(record, self._layout, self._digests, lambda: written_by)
                    current[key] = SavedCheckpoint(record, key, 0)
                    self._of[record.xi.processor].saved.append(current[key])
                case Piece() if key in current and any(
                    not self.published.holds(record.processor, time) for time, _, _ in record.runs
                ):
                    current[key].runs.append((record, payload))
                    current[key].size += size_of(payload)
                    current[key].rows += sum(rows for _, _, rows in record.runs)
                case Logged() if self._applied.keeps(self._sender[record.edge], record.generation, record.event):
                    self._events.load_log(record, payload)
                case HistoryRecord() if self._applied.keeps(record.processor, record.generation, record.time):
                    self._events.load_event(record, payload, contents)
        for history in self._of:
            history.saved.sort(key=lambda saved: saved.bound)
        self._events.sort()

    def live_keys(self) -> set[Key]:
        """Keys still in use, after `load`."""
        keys: set[Key] = {("opening",), PUBLISHED}
        keys.update(self._applied.keys())
        keys.update(saved.key for saved in self.saved())
        keys.update(self._events.keys())
        return keys

    def durable(self) -> tuple[Xi, ...]:
        """All durable Ξ, ascending by processor."""
        return tuple(saved.checkpoint.xi for saved in self.saved() if self._journal.is_stored(saved.key))

    def in_memory(self) -> tuple[Xi, ...]:
        """All Ξ in memory only, ascending by processor."""
        return tuple(saved.checkpoint.xi for saved in self.saved() if self._journal.is_in_memory(saved.key))

    def in_mate(self) -> tuple[Xi, ...]:
        """All Ξ in memory of worker and mate only, ascending by processor."""
        mirror = self._journal.mirror
        keys = (saved for saved in self.saved() if self._journal.is_in_memory(saved.key))
        return tuple(saved.checkpoint.xi for saved in keys if mirror is not None and mirror.is_stored(saved.key))

    def saved(self) -> Iterator[SavedCheckpoint]:
        """All checkpoints, including those being written, ascending by processor."""
        for history in self._of:
            yield from history.saved

    def epochs(self) -> set[int]:
        """Last epochs of all checkpoints."""
        return {saved.bound[0] for saved in self.saved()}

    def at(self, p: int, bound: Bound) -> Checkpoint | None:
        """Checkpoint of processor `p` at `bound`; None for ∅ and for one never needed."""
        found = self._of[p].at(bound)
        return found.checkpoint if found is not None else None

    def within(self, p: int, bound: Bound) -> Bound:
        """Newest saved bound of processor `p` within `bound`; ∅ for none."""
        none = self._layout.processors[p].nothing
        return next((saved.bound for saved in reversed(self._of[p].saved) if within(saved.bound, bound)), none)

    def runs(self, p: int, bound: Bound, last: bool = False, loaded: Loaded | None = None) -> Runs:
        """Runs of S(p, `bound`) from the store, in order of time.

        Those of `loaded` are left out.

        With `last` this is the last read, so each piece is dropped once it is read.
        """
        return self._of[p].runs(bound, lambda time: not self.published.holds(p, time), last, loaded)

    def of(self, p: int) -> ProcessorCheckpoints:
        """Checkpoints of processor `p`."""
        return self._of[p]

    def loaded(self, p: int, bound: Bound) -> Loaded | None:
        """State loaded ahead on the way to S(p, `bound`); None if there is none."""
        found = self.ahead.get(p)
        if found is None or (found.at is None and found.within is None):
            return None
        return None if found.rest(self._of[p].chain(bound)) is None else found

    def pieces(self, p: int, bound: Bound, loaded: Loaded | None) -> int:
        """Number of pieces of S(p, `bound`) to be read, without those of `loaded`."""
        return sum(map(len, self._of[p].left(self._of[p].chain(bound), loaded).values()))

    def came_back(self, p: int, bound: Bound) -> None:
        """Record a restore of processor `p` from the store at `bound`."""
        self._of[p].since = bound

    def forget_payloads(self) -> None:
        """Drop restored payloads, except for processors possibly going below them."""
        self.ahead = {}
        for history in self._of:
            if history.since is None:
                history.forget_payloads()

    # Letting go

    def collect(self, p: int, low: Bound) -> None:
        """Collect checkpoints of processor `p` made unnecessary by W = `low`."""
        history, info = self._of[p], self._layout.processors[p]
        if history.since is not None and within(history.since, low):
            history.since = None
            history.forget_payloads()
        inside = [at for at, saved in enumerate(history.saved) if within(saved.bound, low)]
        if inside:
            first = inside[-1]
            if info.history:
                first = self._collect_history(p, low, first)
            elif info.role not in ("sink", "capture"):
                first = history.index_of(history.saved[first].checkpoint.since)
            for saved in history.drop_before(first):
                self._let_go(saved)

    def _collect_history(self, p: int, low: Bound, last: int) -> int:
        """Drop events covered by a saved state; return the first checkpoint to keep.

        It is one of those up to `last`.
        """
        base = self.base(p, low)
        if base == self._layout.processors[p].nothing:
            return last
        self._events.collect_history(p, base)
        return self._of[p].index_of(base)

    def base(self, p: int, bound: Bound) -> Bound:
        """Newest bound within `bound` with a saved state of a full history; ∅ for none."""
        return self._of[p].base(bound) or self._layout.processors[p].nothing

    def collect_log(self, edge: int, receiver: int, low: Bound) -> None:
        """Collect a logged edge's entries within `low`, W of its receiver."""
        self._events.collect_log(edge, receiver, low)

    def forget_decisions(self) -> None:
        """Drop decisions without void records left, after a segment was written."""
        self._applied.forget()

    def carry(self) -> None:
        """Rewrite live records of old segments, so that these can be deleted."""
        keys = cast(list[Key], self._journal.carry())
        crowded = bool(keys) and self._journal.size > 4 * self._journal.live + 2 * processor_checkpoints.SMALL
        for key in keys:
            kind = key[0]
            if kind == "opening":
                self._add(self._opening)
            elif key == PUBLISHED:
                self.published.save(again=True)
            elif kind == "applied":
                self._applied.write_again(key[1])
            elif kind == "cut":
                self._carry_cut(key, crowded)
            else:
                self._events.write_again(key)

    def _carry_cut(self, key: Any, crowded: bool) -> None:
        """Rewrite a checkpoint, or have state not in memory saved anew.

        State is saved anew only if garbage takes much more room than live records.
        """
        _, p, bound = key
        saved = self._of[p].at(bound)
        assert saved is not None  # its key is dead as soon as it is gone
        if saved.sections:
            self._write(saved)
        elif not saved.checkpoint.pieces:
            self._add(saved.checkpoint)
        elif crowded:
            self._of[p].unwieldy = True


def alike(one: Batch, other: Batch) -> bool:
    """True if two batches can be saved as one and separated again."""
    if isinstance(one, list):
        return isinstance(other, list)
    return (
        isinstance(one, pa.Table)
        and isinstance(other, pa.Table)
        and one.schema.equals(other.schema, check_metadata=True)
        and not any(pa.types.is_dictionary(kind) for kind in one.schema.types)
    )
