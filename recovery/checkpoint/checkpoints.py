"""The checkpoints of one worker: made at cuts, found again for a restore, and let go when nobody needs them.

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
    key_of,
    save_batch,
    section,
)
from recovery.layout import Layout
from recovery.metadata import Bound, Xi, at_cut, to_frontier
from recovery.recorder import NOTIFICATION, HistoryEvent, LogEntry, WorkerRecorder
from recovery.store.journal import Journal
from recovery.store.segments import Section
from timely.data.batch import Batch, concat, slice_
from timely.data.codec import decode, decode_batch, encode
from timely.errors import ProtocolError
from timely.state.interface import Run, Scan, Scannable, State
from timely.time import Time

MOST_EVENTS = 1000
"""A full history of more events is replaced by the operator's `state`, if it keeps nothing else."""

PIECE_ROWS = 4096
"""Rows of state in one piece, between two turns of the worker, while nothing is known of how long that takes."""

_RUN_ROWS = 4
"""A run counts for at least so many rows of a piece: it costs something, however small."""

_MANY, _MOST = 64, 4096
"""Number of checkpoints of small, and of large state that are replaced by one."""

_SMALL = 1 << 16
"""State of so many bytes is saved as a whole rather than in many small increments."""

SCAN_PIECES = 16
"""A cut saves so many pieces of a large state anew, or as much as is new, whichever is more."""

RETAINED = 1 << 23
"""Bytes of small checkpoints that are kept in memory, to be carried to where small segments are joined."""

Positions: TypeAlias = Mapping[int, tuple[SourcePosition, ...]]
"""The positions of the partitions of sources, by processor."""

Key: TypeAlias = tuple[Any, ...]
"""The key of a section of the journal: `recovery.checkpoint.records.key_of`."""


@dataclass(slots=True)
class SavedCheckpoint:
    """One checkpoint of one processor."""

    checkpoint: Checkpoint
    key: Key
    size: int
    rows: int = 0
    runs: list[tuple[Piece, Any]] = field(default_factory=list)
    """Payloads read from the store, until they have been restored."""
    sections: list[Section] = field(default_factory=list)
    """The written content, while it is small."""

    @property
    def bound(self) -> Bound:
        return self.checkpoint.xi.bound


@dataclass(slots=True)
class Draft:
    """A cut in the making: piece by piece, so that the worker is never away for long."""

    group: int
    at: Bound
    xis: list[Xi] = field(default_factory=list)
    states: list[tuple[int, SavedCheckpoint, Iterator[Run]]] = field(default_factory=list)
    """The processors that are still to be saved, with what is left of their state."""
    pieces: list[Section] = field(default_factory=list)
    """Of the first of them, made already."""
    next_run: Run | None = None
    """Taken from its state, and not yet in a piece."""


@dataclass(slots=True)
class _History:
    """The checkpoints of one processor, ascending."""

    saved: list[SavedCheckpoint] = field(default_factory=list)
    since: Bound | None = None
    """The bound at which it came back from the store; None once it can never go below that."""
    scan: Scan | None = None
    """A walk over its state, which is saved anew a little with each cut."""
    scan_since: Bound = ()
    """The cut with which that began."""
    unwieldy: bool = False
    """Its old checkpoints keep segments alive in which hardly anything else is."""


class Checkpoints:
    """The persisted half of a worker."""

    def __init__(self, layout: Layout, recorder: WorkerRecorder, journal: Journal) -> None:
        self._layout = layout
        self._recorder = recorder
        self._journal = journal
        self._of = [_History() for _ in layout.processors]
        self._log_keys: dict[Key, list[LogEntry]] = {}
        self._event_keys: dict[Key, list[HistoryEvent]] = {}
        self._applied: dict[int, Applied] = {}
        self._applied_at: dict[int, int] = {}
        """The segment from which on nothing is void by a decision."""
        self._retained: dict[Key, SavedCheckpoint] = {}
        self._retained_size = 0
        self._opening = Opening(layout)
        self.published = PublishedBounds(journal)
        self._sender = {edge.edge: edge.source for edge in layout.edges}
        self.generation = 0
        """Of the last decision that was applied."""
        self.piece_rows = PIECE_ROWS
        """The wanted number of rows of the next piece of a cut: for the driver, which has a clock, to set."""
        self.most_events = MOST_EVENTS
        """For the simulation, whose histories are short."""
        self.saved_rows = 0
        """Rows of state that were saved so far."""

    # Making cuts

    def open(self) -> None:
        """Write down of which program this journal is."""
        self._add(self._opening)

    def sources(self, group: int, at: Bound) -> tuple[tuple[int, int], ...]:
        """The sources that a cut will save: the processor, and the epoch before which all is read."""
        found = []
        for p in self._layout.members(group):
            info = self._layout.processors[p]
            bound = at_cut(at, info.depth)
            if info.role == "source" and (not self._of[p].saved or self._of[p].saved[-1].bound < bound):
                found.append((p, int(bound[0])))
        return tuple(found)

    def cut(self, group: int, at: Bound, states: Callable[[int], State | None], positions: Positions) -> Draft:
        """Begin a cut. Every event of the group before it must have been handled. Use `advance` until it is done.

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
            elif not self._of[p].saved or self._of[p].saved[-1].bound < bound:
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
                last is None or state is None or self._replaces(history, bound, state)
            )
        checkpoint = Checkpoint(
            xi=Xi(p, bound, self._recorder.discards(p, bound)),
            generation=self.generation,
            since=bound if whole else last.checkpoint.since if last is not None else info.nothing,
            pieces=0,
            requests=self._recorder.requests(p, bound),
            held=self._recorder.held_at(p, bound),
            positions=positions[p] if info.role == "source" else (),
        )
        saved = SavedCheckpoint(checkpoint, key_of(checkpoint), 0)
        history.saved.append(saved)
        pieces: Iterator[Run] = iter(())
        if keeps:
            assert state is not None
            if whole:
                history.scan = None
            pieces = self._pieces(history, state, bound, info.nothing if whole or last is None else last.bound)
        draft.states.append((p, saved, pieces))
        return checkpoint.xi

    def _replaces_history(self, p: int, bound: Bound) -> bool:
        base = self.base(p, bound)
        events = sum(event.time >= base for event in self._recorder.histories[p])
        return events > self.most_events and self._recorder.only_state(p, bound)

    def _replaces(self, history: _History, bound: Bound, state: State) -> bool:
        """True if all of a state is to be saved with this cut, in place of what is stored. Begins a scan where that is much."""
        if history.scan is not None:
            return False
        count, rows, size = self._stored(history)
        small = size <= 2 * _SMALL
        if not history.unwieldy and count < (_MANY if small else _MOST) and (small or rows <= 2 * state.size().rows):
            return False
        history.unwieldy = False
        if not small and isinstance(state, Scannable):
            history.scan, history.scan_since = state.scan(to_frontier(bound)), bound
        return history.scan is None

    @staticmethod
    def _stored(history: _History) -> tuple[int, int, int]:
        """The parts of the last checkpoint's state: numbers of checkpoints, rows, and bytes."""
        since = history.saved[-1].checkpoint.since
        count = rows = size = 0
        for saved in reversed(history.saved):
            if saved.bound < since:
                break
            count += 1
            rows += saved.rows
            size += saved.size
        return count, rows, size

    def _pieces(self, history: _History, state: State, bound: Bound, after: Bound) -> Iterator[Run]:
        """The runs that a cut saves of a state: new ones, and some of those to be saved anew."""
        upto, new = to_frontier(bound), 0
        for run in state.pieces(upto, to_frontier(after), self._rows):
            new += len(run.batch)
            yield run
        if history.scan is not None:
            left = max(new, SCAN_PIECES * self.piece_rows)
            for run in history.scan.pieces(upto, self._rows):
                yield run
                left -= len(run.batch)
                if left <= 0:
                    break

    def _rows(self) -> int:
        return self.piece_rows

    def advance(self, draft: Draft) -> bool:
        """Make the next piece of a cut. True when all of it is in the journal."""
        while draft.states:
            p, saved, pieces = draft.states[0]
            runs = self._gather(draft, pieces)
            if runs:
                header, payload = save_batch(concat([run.batch for run in runs]))
                told = tuple((run.time, run.part, len(run.batch)) for run in runs)
                draft.pieces.append(section(Piece(p, saved.bound, told, header), payload))
                rows = sum(rows for _, _, rows in told)
                saved.size += memoryview(payload).nbytes
                saved.rows += rows
                self.saved_rows += rows
                return False
            del draft.states[0]
            self._end(p, saved, draft.pieces)
            draft.pieces = []
        return True

    def _gather(self, draft: Draft, pieces: Iterator[Run]) -> list[Run]:
        """The runs of the next piece: as many as have the rows of a piece, and can be one batch."""
        runs: list[Run] = []
        rows = 0
        while rows < self.piece_rows:
            run = draft.next_run or next(pieces, None)
            draft.next_run = None
            if run is None:
                break
            if runs and not _alike(runs[0].batch, run.batch):
                draft.next_run = run
                break
            runs.append(run)
            rows += max(len(run.batch), _RUN_ROWS)
        return runs

    def _end(self, p: int, saved: SavedCheckpoint, pieces: list[Section]) -> None:
        history, since = self._of[p], saved.checkpoint.since
        if history.scan is not None and history.scan.over:  # with what was written meanwhile, that is all
            history.scan, since = None, history.scan_since
        saved.checkpoint = msgspec.structs.replace(saved.checkpoint, pieces=len(pieces), since=since)
        saved.sections = [section(saved.checkpoint), *pieces]
        self._write(saved)
        self._retain(saved)
        self._save_logs(p, saved.bound)
        if self._layout.processors[p].history:
            self._save_events(p, saved.bound)

    def _write(self, saved: SavedCheckpoint) -> None:
        for each in saved.sections:
            self._journal.add(saved.key, each)

    def _retain(self, saved: SavedCheckpoint) -> None:
        """Keep what was written, if it is so small that it is to be joined with others, and there is room."""
        if saved.size >= self._journal.small:
            saved.sections = []
            return
        self._retained[saved.key] = saved
        self._retained_size += saved.size
        while self._retained_size > RETAINED:
            self._release(next(iter(self._retained)))

    def _save_logs(self, p: int, bound: Bound) -> None:
        edges = {edge.edge: edge for edge in self._layout.edges if edge.source == p}
        for (index, receiver), entries in self._recorder.logs.items():
            edge = edges.get(index)
            if edge is None:
                continue
            fresh = [entry for entry in entries if not entry.durable and entry.event < bound]
            if not edge.logged:  # the receiver never goes below `bound` then
                fresh = [entry for entry in fresh if entry.time >= bound]
            if fresh:
                key = ("log", index, receiver, bound, self.generation)
                self._log_keys[key] = fresh
                self._add_log(key)

    def _add_log(self, key: Key) -> None:
        for entry in self._log_keys[key]:
            if entry.batch is not None and not entry.header:
                entry.header, entry.payload = save_batch(entry.batch)
            entry.durable = True
            what = (entry.edge, entry.receiver, entry.number, entry.event, entry.time, entry.header)
            self._add(Logged(*what, key[-2], key[-1]), entry.payload)

    def _save_events(self, p: int, bound: Bound) -> None:
        fresh = [event for event in self._recorder.histories[p] if not event.durable and event.time < bound]
        if fresh:
            key = ("events", p, bound, self.generation)
            self._event_keys[key] = fresh
            self._add_events(key)

    def _add_events(self, key: Key) -> None:
        for event in self._event_keys[key]:
            event.durable = True
            header, payload = b"", b""
            if event.port >= 0:
                header, payload = save_batch(event.what)
            elif event.port != NOTIFICATION:
                payload = encode(event.what)
            self._add(HistoryRecord(key[1], event.order, event.port, event.time, header, key[-2], key[-1]), payload)

    def _add(self, record: Record, payload: Any = b"") -> Key:
        key = key_of(record)
        self._journal.add(key, section(record, payload))
        return key

    # Decisions

    def apply(self, generation: int, bounds: Sequence[Bound | None]) -> None:
        """Note a decision in the journal, and let go of what it makes void."""
        self.generation = self._journal.generation = generation
        applied = Applied(generation, tuple(bounds))
        self._applied[generation] = applied
        self._applied_at[generation] = self._journal.next_number
        self._add(applied)
        self._cut_to(bounds)

    def _cut_to(self, bounds: Sequence[Bound | None]) -> None:
        for p, bound in enumerate(bounds):
            if bound is None:
                continue
            history = self._of[p]
            while history.saved and history.saved[-1].bound > bound:
                self._let_go(history.saved.pop())
            history.scan = None  # it may have gone past what is kept
            for key in [key for key in self._log_keys if self._sender[key[1]] == p]:
                self._narrow(self._log_keys, key, [e for e in self._log_keys[key] if e.event < bound])
            for key in [key for key in self._event_keys if key[1] == p]:
                self._narrow(self._event_keys, key, [e for e in self._event_keys[key] if e.time < bound])

    def _narrow(self, keys: dict[Key, list[Any]], key: Key, left: list[Any]) -> None:
        """Only `left` of what was saved under `key` is of use."""
        keys[key] = left
        if not left:
            del keys[key]
            self._journal.dead(key)

    def _let_go(self, saved: SavedCheckpoint) -> None:
        self._journal.dead(saved.key)
        self._release(saved.key)

    def _release(self, key: Key) -> None:
        """Forget what was written under a key."""
        saved = self._retained.pop(key, None)
        if saved is not None:
            self._retained_size -= saved.size
            saved.sections = []

    # Restoring

    def load(self, records: Sequence[tuple[Record, Any]], contents: bool = True) -> None:
        """Take over what earlier incarnations wrote; of a key that was written again only the last.

        A decision makes void what was written in earlier generations and lies outside it. Without `contents`, what was
        delivered is not read: that takes the classes of the program, which who only looks at a store does not have.

        Raises FalkirkError for records that are damaged or of another program.
        """
        for record, _ in records:
            check_fit(record, self._layout, self._sender)
            if isinstance(record, Applied):
                self._applied[record.generation] = record
                self._applied_at[record.generation] = self._journal.next_number
                self.generation = max(self.generation, record.generation)
            elif isinstance(record, Published):
                self.published.load(record)
        self._journal.generation = self.generation
        current: dict[Key, SavedCheckpoint] = {}
        for record, payload in records:
            key = key_of(record)
            match record:
                case Checkpoint() if self._holds(record.xi.processor, record.generation, record.xi.bound):
                    current[key] = SavedCheckpoint(record, key, 0)
                    self._of[record.xi.processor].saved.append(current[key])
                case Piece() if key in current and any(
                    not self.published.holds(record.processor, time) for time, _, _ in record.runs
                ):
                    current[key].runs.append((record, payload))
                    current[key].size += memoryview(payload).nbytes
                    current[key].rows += sum(rows for _, _, rows in record.runs)
                case Logged() if self._keeps(self._sender[record.edge], record.generation, record.event):
                    entry = LogEntry(
                        record.edge, record.receiver, record.number, record.event, record.time, record.header, payload
                    )
                    entry.durable = True
                    self._recorder.recall(entry)
                    self._log_keys.setdefault(key, []).append(entry)
                case HistoryRecord() if self._keeps(record.processor, record.generation, record.time):
                    what = None
                    if not contents:
                        pass
                    elif record.port >= 0:
                        what = decode_batch(record.header, payload)
                    elif record.port != NOTIFICATION:
                        what = decode(payload)
                    event = HistoryEvent(record.order, record.port, record.time, what, durable=True)
                    self._recorder.histories[record.processor].append(event)
                    self._recorder.order = max(self._recorder.order, record.order)
                    self._event_keys.setdefault(key, []).append(event)
        for history in self._of:
            history.saved.sort(key=lambda saved: saved.bound)
        for entries in self._recorder.logs.values():
            entries.sort(key=lambda entry: entry.number)
        for events in self._recorder.histories.values():
            events.sort(key=lambda event: event.order)

    def _holds(self, p: int, generation: int, bound: Bound) -> bool:
        """True if no decision after `generation` has left `bound` out."""
        return all(limit is None or bound <= limit for limit in self._limits(p, generation))

    def _keeps(self, p: int, generation: int, event: Time) -> bool:
        """The same of an event."""
        return all(limit is None or event < limit for limit in self._limits(p, generation))

    def _limits(self, p: int, generation: int) -> list[Bound | None]:
        return [applied.bounds[p] for number, applied in self._applied.items() if number > generation]

    def live_keys(self) -> set[Key]:
        """The keys that are still of use, after `load`."""
        keys: set[Key] = {("opening",), PUBLISHED}
        keys.update(("applied", generation) for generation in self._applied)
        keys.update(saved.key for saved in self.saved())
        keys.update(key for key, entries in self._log_keys.items() if entries)
        keys.update(key for key, events in self._event_keys.items() if events)
        return keys

    def durable(self) -> tuple[Xi, ...]:
        """All Ξ that are in the store, and not only on their way there; each processor's ascending."""
        return tuple(saved.checkpoint.xi for saved in self.saved() if self._journal.is_stored(saved.key))

    def saved(self) -> Iterator[SavedCheckpoint]:
        """All checkpoints, also those on their way to the store; each processor's ascending."""
        for history in self._of:
            yield from history.saved

    def at(self, p: int, bound: Bound) -> Checkpoint | None:
        """The checkpoint of processor `p` at `bound`; None for ∅ and where none was needed."""
        found = self._saved_at(p, bound)
        return found.checkpoint if found is not None else None

    def _saved_at(self, p: int, bound: Bound) -> SavedCheckpoint | None:
        return next((saved for saved in reversed(self._of[p].saved) if saved.bound == bound), None)

    def runs(self, p: int, bound: Bound) -> list[Run]:
        """S(p, `bound`), from what was read of the store."""
        found = self._saved_at(p, bound)
        since = bound if found is None else found.checkpoint.since
        return [
            run
            for saved in self._of[p].saved
            if since <= saved.bound <= bound
            for piece, payload in saved.runs
            for run in _runs_of(piece, payload)
            if not self.published.holds(p, run.time)
        ]

    def came_back(self, p: int, bound: Bound) -> None:
        """Processor `p` is restored from the store at `bound`."""
        self._of[p].since = bound

    def forget_payloads(self) -> None:
        """Forget payloads that have been restored; processors that may have to go below that keep theirs."""
        for history in self._of:
            if history.since is None:
                for saved in history.saved:
                    saved.runs = []

    # Letting go

    def collect(self, p: int, low: Bound) -> None:
        """Processor `p` of this worker never goes below `low`: only what a later rollback may need stays."""
        history, info = self._of[p], self._layout.processors[p]
        if history.since is not None and low >= history.since:
            history.since = None
            for saved in history.saved:
                saved.runs = []
        inside = [at for at, saved in enumerate(history.saved) if saved.bound <= low]
        if inside:
            first = inside[-1]
            if info.history:
                first = self._collect_events(p, low, first)
            elif info.role not in ("sink", "capture"):
                since = history.saved[first].checkpoint.since
                first = next(at for at, saved in enumerate(history.saved) if saved.bound >= since)
            for saved in history.saved[:first]:
                self._let_go(saved)
            del history.saved[:first]

    def _collect_events(self, p: int, low: Bound, last: int) -> int:
        """Drop the events whose effects a saved state holds. The first checkpoint to keep, of those up to `last`."""
        base = self.base(p, low)
        if not any(base):
            return last
        self._recorder.histories[p] = [event for event in self._recorder.histories[p] if event.time >= base]
        for key in [key for key in self._event_keys if key[1] == p]:
            self._narrow(self._event_keys, key, [event for event in self._event_keys[key] if event.time >= base])
        return next(at for at, saved in enumerate(self._of[p].saved) if saved.bound == base)

    def base(self, p: int, bound: Bound) -> Bound:
        """The newest bound up to `bound` at which the state of a processor with a full history was saved; ∅ for none."""
        wholes = [saved.bound for saved in self._of[p].saved if saved.checkpoint.whole and saved.bound <= bound]
        return wholes[-1] if wholes else self._layout.processors[p].nothing

    def collect_log(self, edge: int, receiver: int, low: Bound) -> None:
        """The processor behind a logged edge never goes below `low` on worker `receiver`."""
        entries = self._recorder.logs.get((edge, receiver))
        if not entries or not any(entry.time < low for entry in entries):
            return
        self._recorder.logs[edge, receiver] = [entry for entry in entries if entry.time >= low]
        for key in [key for key in self._log_keys if key[1:3] == (edge, receiver)]:
            self._narrow(self._log_keys, key, [entry for entry in self._log_keys[key] if entry.time >= low])

    def forget_decisions(self) -> None:
        """A segment was written: decisions are of no use when everything that they made void is gone."""
        for generation, at in list(self._applied_at.items()):
            if generation < self.generation and self._journal.oldest >= at:
                del self._applied[generation], self._applied_at[generation]
                self._journal.dead(("applied", generation))

    def carry(self) -> None:
        """Write again what keeps old segments of the journal alive."""
        keys = cast(list[Key], self._journal.carry())
        crowded = bool(keys) and self._journal.size > 4 * self._journal.live + 2 * _SMALL
        for key in keys:
            kind = key[0]
            if kind == "opening":
                self._add(self._opening)
            elif key == PUBLISHED:
                self.published.save(again=True)
            elif kind == "applied" and key[1] in self._applied:
                self._add(self._applied[key[1]])
            elif key in self._log_keys:
                self._add_log(key)
            elif key in self._event_keys:
                self._add_events(key)
            elif kind == "cut":
                self._carry_cut(key, crowded)

    def _carry_cut(self, key: Any, crowded: bool) -> None:
        """State that is not at hand any more is saved anew, if what is not needed takes much more room than what is."""
        _, p, bound = key
        saved = self._saved_at(p, bound)
        if saved is None:
            self._journal.dead(key)
        elif saved.sections:
            self._write(saved)
        elif not saved.checkpoint.pieces:
            self._add(saved.checkpoint)
        elif crowded:
            self._of[p].unwieldy = True


def _alike(one: Batch, other: Batch) -> bool:
    """True if two batches can be saved as one, and be told apart again."""
    if isinstance(one, list):
        return isinstance(other, list)
    return (
        isinstance(one, pa.Table)
        and isinstance(other, pa.Table)
        and one.schema.equals(other.schema, check_metadata=True)
        and not any(pa.types.is_dictionary(kind) for kind in one.schema.types)
    )


def _runs_of(piece: Piece, payload: Any) -> Iterator[Run]:
    batch = decode_batch(piece.header, payload)
    if sum(rows for _, _, rows in piece.runs) != len(batch) or any(rows < 0 for _, _, rows in piece.runs):
        raise ProtocolError(f"a piece of state in the journal of a worker has {len(batch)} rows, and says otherwise")
    start = 0
    for time, part, rows in piece.runs:
        yield Run(time, batch if rows == len(batch) else slice_(batch, start, rows), part)
        start += rows
