"""Following of a living worker's journal: its durable state, loaded ahead of need.

A mate reads each segment of its worker once it is durable, and loads the state of operators piece by piece, into operators
of its own. It stays one checkpoint behind the newest, so that a decision for the newest or the one before finds what it needs,
and nothing has to be taken out again. What is loaded counts nowhere: a decision is made as without mates, and whoever restores
uses what is loaded where it is a beginning of what it would read (`Loaded.rest`). Everything else is read from the store.

Of a worker whose checkpoints go to its mate's memory (`recovery.agent.holding`) the segments that it sends are taken as those
of the store (`hold`, `let_go`); they are kept whole, for whoever takes over.

In memory are the state, heads of records, and payloads that are still to be loaded, up to a limit; payloads of what is loaded
are left in the store (`Unread`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.processor_checkpoints import Key, Loaded, SavedCheckpoint, runs_of
from recovery.checkpoint.records import Applied, Checkpoint, Opening, Piece, Record, current, key_of, newer, record_of
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound, to_frontier, within
from recovery.store.following import GrowingJournal
from recovery.store.interface import Buffer, NotThere, Store
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta, Unread, content_of, decode_segment, segment_number, size_of
from timely.dataflow.plan import Plan
from timely.state.interface import absorbs
from timely.worker import restoring
from timely.worker.processor import build_operator

_HELD = 1 << 48
"""Offset of the numbers of segments in memory only, behind those of the store."""

KEPT = 64 << 20
"""Limit on bytes of payloads kept in memory until loaded; others are read again."""

_FOLLOWED = (Opening, Applied, Checkpoint, Piece)


@dataclass(frozen=True, slots=True)
class Taken:
    """Content of a mate, for the next incarnation of its worker."""

    segments: Mapping[int, tuple[SegmentMeta, list[Section]]]
    """Of the store, by number."""
    loaded: Mapping[int, Loaded]
    held: Sequence[tuple[SegmentMeta, list[Section]]]
    """In memory only, in order."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a follower: of the operator furthest back, and bytes.

    Attributes:
        loaded: bound of what is loaded; None if nothing can be.
        behind: durable checkpoints not loaded.
        left: bytes of pieces that a take-over at the newest checkpoints would still load.
    """

    loaded: Bound | None
    behind: int
    left: int


class Following:
    """Durable state of a worker, read segment by segment and loaded piece by piece.

    Args:
        plan: of the process that follows.
        layout: of the program.
        index: of the worker.
        store, owner, store_id: where its journal is.
    """

    def __init__(self, plan: Plan, layout: Layout, index: int, store: Store, owner: str, store_id: bytes) -> None:
        self._plan, self._layout, self._index = plan, layout, index
        self._journal = owner, store_id
        self._newest: SegmentMeta | None = None
        self._held_news = False
        self._growing = GrowingJournal(store, owner, store_id)
        self.kept_limit = KEPT
        self.segments: dict[int, tuple[SegmentMeta, list[Section]]] = {}
        """Needed segments, without loaded payloads."""
        self._records: dict[int, list[tuple[Record, Key]]] = {}
        self.kept = 0
        """Bytes of payloads kept until they are loaded."""
        self._todo: deque[tuple[int, SavedCheckpoint, int]] = deque()
        """Checkpoints to load: processor, checkpoint, number of loaded pieces."""
        self.found: Checkpoints | None = None
        """All checkpoints in the segments."""
        new = {p: Loaded(build_operator(plan.processors[p], [])) for p in self._candidates()}
        self.loaded: dict[int, Loaded] = {p: each for p, each in new.items() if _can_be_loaded(each)}

    def _candidates(self) -> list[int]:
        infos = enumerate(self._layout.processors)
        return [p for p, info in infos if info.role == "operator" and info.chain and not info.history]

    def turn(self) -> bool:
        """Load one piece, or else look at the journal; False if nothing was done.

        Raises StoreError where the journal cannot be read, OperatorError where what was saved does not fit the program.
        """
        with suppress(NotThere):  # its worker has let go of it: what took its place is seen now
            if self.step():
                return True
        self._growing.forget()
        newest = self._growing.news()
        if newest is None:
            if self._held_news and self._newest is not None:
                self.settle(self._newest)
                return True
            return False
        try:
            for meta, sections in self._growing.missing(newest, self.segments):
                self.add(meta, sections)
        except NotThere:
            return False
        self.settle(newest)
        self._growing.seen(newest)
        return True

    def add(self, meta: SegmentMeta, sections: list[Section]) -> None:
        """Take a segment; `settle` after the last one."""
        records = [record_of(section.head) for section in sections]
        self._records[meta.number] = [(record, key_of(record)) for record in records]
        kept = [
            self._left(record, section, meta.number, i) for i, (record, section) in enumerate(zip(records, sections))
        ]
        self.segments[meta.number] = meta, kept

    def hold(self, name: str, data: Buffer) -> None:
        """Keep a segment of the worker in memory; raises StoreCorrupt for any other."""
        meta, sections = decode_segment(data, name, self._journal[1])
        number = _HELD + meta.number
        records = [record_of(section.head) for section in sections]
        self._records[number] = [(record, key_of(record)) for record in records]
        self.segments[number] = meta, [Section(bytes(s.head), bytes(content_of(s.payload))) for s in sections]
        self._held_news = True

    def let_go(self, name: str) -> None:
        """Forget a segment in memory."""
        number = segment_number(name)
        if number is not None and self.segments.pop(_HELD + number, None) is not None:
            del self._records[_HELD + number]
            self._held_news = True

    def forget_held(self) -> None:
        """Forget all segments of an earlier process."""
        for number in [number for number in self.segments if number >= _HELD]:
            del self.segments[number], self._records[number]
            self._held_news = True

    def _left(self, record: Record, section: Section, number: int, index: int) -> Section:
        """Section with a payload of its own, or one that is left in the store."""
        size = size_of(section.payload)
        if isinstance(record, Piece) and record.processor in self.loaded:
            if self.kept + size > self.kept_limit:
                return Section(section.head, Unread(size, self._growing.payload, number, index))
            self.kept += size
        return Section(section.head, bytes(content_of(section.payload)))

    def settle(self, newest: SegmentMeta) -> None:
        """Drop segments no longer needed with `newest`, and choose checkpoints to load."""
        self._newest, self._held_news = newest, False
        needed = {*newest.needed_numbers(), newest.number}
        for number in [each for each in self.segments if each < _HELD and each not in needed]:
            for index in range(len(self.segments[number][1])):
                self._unload(number, index)
            del self.segments[number], self._records[number]
        stored, held = (
            current(
                [
                    (number, key, (record, (number, index)))
                    for number in sorted(self._records)
                    if (number >= _HELD) == in_memory
                    for index, (record, key) in enumerate(self._records[number])
                ]
            )
            for in_memory in (False, True)
        )
        followed = [
            (record, Unread(size_of(self.segments[number][1][index].payload), self._content, number, index))
            for both in newer(stored, held)
            for record, (number, index) in both
            if isinstance(record, _FOLLOWED)
        ]
        found = Checkpoints(self._layout, WorkerRecorder(self._layout, self._index), Journal(*self._journal))
        found.load(followed, contents=False)
        self.found = found
        self._todo.clear()
        for p in self.loaded:
            self._todo += [(p, *each) for each in self._rest(p, found.of(p).saved, found)]

    def _rest(self, p: int, saved: list[SavedCheckpoint], found: Checkpoints) -> list[tuple[SavedCheckpoint, int]]:
        """Checkpoints of a processor to load, in order; begins anew if it must."""
        if not saved:
            self.loaded[p] = self._new(p)
            return []
        goal = saved[-2:][0]
        at = self.loaded[p].at
        if at is not None and within(goal.bound, at[0]) and any(each.identity == at for each in saved):
            goal = next(each for each in saved if each.identity == at)
        rest = self.loaded[p].rest(found.of(p).chain(goal.bound))
        if rest is None:
            self.loaded[p] = self._new(p)
            rest = self.loaded[p].rest(found.of(p).chain(goal.bound))
        return rest or []

    def _new(self, p: int) -> Loaded:
        old = self.loaded[p]
        if old.at is None and old.within is None:
            return old
        return Loaded(build_operator(self._plan.processors[p], []))

    def _content(self, number: int, index: int) -> Buffer:
        return content_of(self.segments[number][1][index].payload)

    def _unload(self, number: int, index: int) -> None:
        """Leave the payload of a section in the store, where it is one of a piece to load."""
        record, section = self._records[number][index][0], self.segments[number][1][index]
        if number >= _HELD:
            return
        if isinstance(record, Piece) and record.processor in self.loaded and not isinstance(section.payload, Unread):
            size = size_of(section.payload)
            self.kept -= size
            self.segments[number][1][index] = Section(section.head, Unread(size, self._growing.payload, number, index))

    @property
    def size(self) -> int:
        """Bytes in the needed segments."""
        return sum(size_of(section.payload) for _, sections in self.segments.values() for section in sections)

    @property
    def caught_up(self) -> bool:
        """True if nothing is left to load now."""
        return not self._todo and not self._held_news

    def step(self) -> bool:
        """Load one piece; False if there is none.

        Raises StoreError if it cannot be read: when the worker has let go of it, `settle` finds what took its place.
        """
        while self._todo and not self._held_news:
            p, saved, done = self._todo[0]
            loaded, node = self.loaded[p], self._plan.processors[p].node
            state = loaded.operator.state
            assert state is not None
            if done < len(saved.runs):
                piece, payload = saved.runs[done]
                runs = list(runs_of(piece, payload))
                loaded.within, loaded.pieces = saved.identity, done + 1
                self._todo[0] = p, saved, done + 1
                restoring.load(node, state, runs, more=True)
                self._unload(payload.segment, payload.index)
                return True
            del self._todo[0]
            loaded.at, loaded.within, loaded.pieces = saved.identity, None, 0
            state.compact(to_frontier(saved.bound))
        return False

    @property
    def progress(self) -> Progress:
        """Progress at this moment."""
        bounds, behind, left = [], 0, 0
        for p, loaded in self.loaded.items() if self.found is not None else ():
            assert self.found is not None
            saved = self.found.of(p).saved
            bounds.append(self._layout.processors[p].nothing if loaded.at is None else loaded.at[0])
            if not saved:
                continue
            known = [place for place, each in enumerate(saved, 1) if each.identity == loaded.at]
            behind = max(behind, len(saved) - (known[0] if known else 0))
            chain = self.found.of(p).chain(saved[-1].bound)
            rest = loaded.rest(chain)
            for each, done in [(each, 0) for each in chain] if rest is None else rest:
                left += sum(size_of(payload) for _, payload in each.runs[done:])
        return Progress(min(bounds, key=lambda bound: bound[0], default=None), behind, left)

    def take_over(self, writer: int | None) -> Taken:
        """Segments and state for the next incarnation of the worker; this is then empty.

        `writer`: the last incarnation in the store; what an earlier one has sent is of no use.
        """
        stored = {number: segment for number, segment in self.segments.items() if number < _HELD}
        held = [self.segments[number] for number in sorted(self.segments) if number >= _HELD]
        taken = Taken(stored, self.loaded, [each for each in held if each[0].incarnation == writer])
        self._growing.forget()
        self.segments, self.loaded, self._records = {}, {}, {}
        self._todo.clear()
        return taken


def _can_be_loaded(new: Loaded) -> bool:
    return new.operator.state is not None and absorbs(new.operator.state)
