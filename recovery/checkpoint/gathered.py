"""Checkpoints in a changing set of segments, up to date with each segment.

The set is that of a mate: segments of its worker's store, and segments in its memory only. Of one key the last segment of
either counts, and of both the later generation, as for whoever takes over (`records.current`, `records.newer`). The cost of a
segment goes by its own records, however much is there; only a decision makes all heads be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from recovery.checkpoint.applied import AppliedDecisions
from recovery.checkpoint.processor_checkpoints import Key, ProcessorCheckpoints, SavedCheckpoint
from recovery.checkpoint.records import Applied, Checkpoint, Opening, Piece, Record, check_fit, check_state, key_of
from recovery.layout import Layout
from recovery.store.interface import Buffer
from recovery.store.journal import Journal
from recovery.store.segments import Unread
from timely.state.shapes import digest_of

HELD = 1 << 48
"""Offset of the numbers of segments in memory only, behind those of the store."""


class GatheredCheckpoints:
    """Checkpoints of some processors; `add` and `remove` segments, then `settle`.

    Args:
        layout: of the program.
        processors: those of interest.
        content: reads the payload of a section, by segment and index.
    """

    def __init__(self, layout: Layout, processors: Iterable[int], content: Callable[[int, int], Buffer]) -> None:
        self._layout, self._content = layout, content
        self._senders = {edge.edge: edge.source for edge in layout.edges}
        self._digests = [digest_of(info.state or ()) for info in layout.processors]
        self._of = {p: ProcessorCheckpoints() for p in processors}
        self._segments: dict[int, dict[Key, list[tuple[int, Record, int]]]] = {}
        """Index, record and bytes of sections, by segment and key."""
        self._places: dict[Key, set[int]] = {}
        self._changed: dict[Key, None] = {}
        self._decisions: list[Applied] = []
        self._applied = AppliedDecisions(Journal("", b""))
        self._held: set[Key] = set()
        """Keys of current checkpoints in memory only."""

    def of(self, p: int) -> ProcessorCheckpoints:
        """Checkpoints of processor `p`, as of the last `settle`."""
        return self._of[p]

    def is_held(self, saved: SavedCheckpoint) -> bool:
        """True if a checkpoint is in memory only."""
        return saved.key in self._held

    def add(self, number: int, records: Sequence[tuple[Record, int]]) -> None:
        """Add a segment: records of its sections, with bytes of their payloads.

        Raises ProtocolError if one does not fit the program.
        """
        keys = self._segments[number] = {}
        for index, (record, size) in enumerate(records):
            if self._concerns(record):
                check_fit(record, self._layout, self._senders)
                keys.setdefault(key_of(record), []).append((index, record, size))
        for key in keys:
            self._places.setdefault(key, set()).add(number)
            self._changed[key] = None

    def _concerns(self, record: Record) -> bool:
        match record:
            case Opening() | Applied():
                return True
            case Checkpoint():
                return record.xi.processor in self._of
            case Piece():
                return record.processor in self._of
        return False

    def remove(self, number: int) -> None:
        """Remove a segment."""
        for key in self._segments.pop(number):
            places = self._places[key]
            places.discard(number)
            if not places:
                del self._places[key]
            self._changed[key] = None

    def settle(self) -> dict[int, list[SavedCheckpoint]]:
        """Take in all changes; return changed processors, with their new checkpoints.

        Raises OperatorError for a state of another shape.
        """
        changed, self._changed = self._changed, {}
        if any(key[0] == "applied" for key in changed) and self._decide():
            changed = dict.fromkeys((*changed, *self._places))
        found: dict[int, list[SavedCheckpoint]] = {}
        for key in changed:
            if key[0] == "cut":
                self._renew(key, found)
        return found

    def _decide(self) -> bool:
        """Read the decisions anew; True if they have changed."""
        keys = sorted(key for key in self._places if key[0] == "applied")
        decisions = [record for key in keys for _, record, _ in self._current(key)[1] if isinstance(record, Applied)]
        if decisions == self._decisions:
            return False
        self._decisions, self._applied = decisions, AppliedDecisions(Journal("", b""))
        for record in decisions:
            self._applied.load(record)
        return True

    def _current(self, key: Key) -> tuple[int, list[tuple[int, Record, int]]]:
        """Segment with the current sections of a key, and these."""
        places = self._places.get(key, ())
        stored = max((number for number in places if number < HELD), default=None)
        held = max((number for number in places if number >= HELD), default=None)
        found = [self._segments[number][key] if number is not None else [] for number in (stored, held)]
        ages = [max((_generation(record) for _, record, _ in sections), default=-1) for sections in found]
        if held is not None and ages[1] > ages[0]:
            return held, found[1]
        return -1 if stored is None else stored, found[0]

    def _renew(self, key: Key, found: dict[int, list[SavedCheckpoint]]) -> None:
        _, p, bound = key
        number, sections = self._current(key)
        new: SavedCheckpoint | None = None
        for index, record, size in sections:
            if isinstance(record, Checkpoint) and self._applied.holds(p, record.generation, bound):
                check_state(record, self._layout, self._digests, self._openings)
                new = SavedCheckpoint(record, key, 0)
            elif isinstance(record, Piece) and new is not None:
                new.runs.append((record, Unread(size, self._content, number, index)))
                new.size += size
                new.rows += sum(rows for _, _, rows in record.runs)
        of = self._of[p]
        at, there = of.index_of(bound), of.at(bound) is not None
        of.saved[at : at + there] = [] if new is None else [new]
        self._held.discard(key)
        if number >= HELD and new is not None:
            self._held.add(key)
        if there or new is not None:
            found.setdefault(p, []).extend([] if new is None else [new])

    def _openings(self) -> list[Layout]:
        """Layouts in the journal."""
        _, sections = self._current(("opening",))
        return [record.layout for _, record, _ in sections if isinstance(record, Opening)]


def _generation(record: Record) -> int:
    return record.generation if isinstance(record, Checkpoint) else 0
