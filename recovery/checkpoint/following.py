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

from recovery.checkpoint.gathered import HELD, GatheredCheckpoints
from recovery.checkpoint.processor_checkpoints import Loaded, SavedCheckpoint, runs_of
from recovery.checkpoint.records import Piece, Record, record_of
from recovery.layout import Layout
from recovery.metadata import Bound, to_frontier, within
from recovery.store.following import GrowingJournal
from recovery.store.interface import Buffer, NotThere, Store
from recovery.store.segments import Section, SegmentMeta, Unread, content_of, decode_segment, segment_number, size_of
from timely.dataflow.plan import Plan
from timely.state.interface import absorbs
from timely.worker import restoring
from timely.worker.processor import build_operator

KEPT = 64 << 20
"""Limit on bytes of payloads kept in memory until loaded; others are read again."""


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
        behind: durable checkpoints neither loaded nor in memory.
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
        self._plan, self._layout = plan, layout
        self._store_id = store_id
        self._held_news = False
        self._growing = GrowingJournal(store, owner, store_id)
        self.kept_limit = KEPT
        self.segments: dict[int, tuple[SegmentMeta, list[Section]]] = {}
        """Needed segments, without loaded payloads."""
        self._pieces: dict[int, list[bool]] = {}
        """True for sections with pieces to load, by segment."""
        self.kept = 0
        """Bytes of payloads of the store kept until they are loaded."""
        self.size = 0
        """Bytes in the needed segments."""
        new = {p: Loaded(build_operator(plan.processors[p], [])) for p in self._candidates()}
        self.loaded: dict[int, Loaded] = {p: each for p, each in new.items() if _can_be_loaded(each)}
        self.found = GatheredCheckpoints(layout, self.loaded, self._content)
        """Checkpoints in the segments."""
        self._todo: dict[int, deque[tuple[SavedCheckpoint, int]]] = {}
        """Checkpoints to load, each with its number of loaded pieces, by processor."""
        self._settled = False

    def _candidates(self) -> list[int]:
        infos = enumerate(self._layout.processors)
        return [p for p, info in infos if info.role == "operator" and info.chain and not info.history]

    def turn(self, load: bool = True) -> bool:
        """Load one piece, or else look at the journal; False if nothing was done.

        Without `load` it only looks.

        Raises StoreError where the journal cannot be read, OperatorError where what was saved does not fit the program.
        """
        with suppress(NotThere):  # its worker has let go of it: what took its place is seen now
            if load and self.step():
                return True
        self._growing.forget()
        try:
            # What is held adds to what is durable, so that is looked at first.
            newest = self._growing.news()
            if newest is not None:
                for meta, sections in self._growing.missing(newest, self.segments):
                    self.add(meta, sections)
        except NotThere:
            return False
        if newest is not None:
            self._drop_all_but({*newest.needed_numbers(), newest.number})
            self._growing.seen(newest)
        elif not (self._held_news and self._settled):
            return False
        self.settle()
        return True

    def add(self, meta: SegmentMeta, sections: list[Section]) -> None:
        """Take a segment; `settle` after the last one."""
        records = [record_of(section.head) for section in sections]
        pieces = [isinstance(record, Piece) and record.processor in self.loaded for record in records]
        self._pieces[meta.number] = pieces
        kept = [
            self._left(section, meta.number, i) if pieces[i] else _own(section) for i, section in enumerate(sections)
        ]
        self._take(meta.number, meta, kept, records)

    def _take(self, number: int, meta: SegmentMeta, sections: list[Section], records: list[Record]) -> None:
        sizes = [size_of(section.payload) for section in sections]
        self.found.add(number, list(zip(records, sizes)))
        self.segments[number] = meta, sections
        self.size += sum(sizes)

    def hold(self, name: str, data: Buffer) -> None:
        """Keep a segment of the worker in memory; raises StoreCorrupt for any other."""
        meta, sections = decode_segment(data, name, self._store_id)
        self._take(HELD + meta.number, meta, sections, [record_of(section.head) for section in sections])
        self._held_news = True

    def let_go(self, name: str) -> None:
        """Forget a segment in memory."""
        number = segment_number(name)
        if number is not None and HELD + number in self.segments:
            self._drop(HELD + number)
            self._held_news = True

    def forget_held(self) -> None:
        """Forget all segments of an earlier process."""
        for number in [number for number in self.segments if number >= HELD]:
            self._drop(number)
            self._held_news = True

    def _left(self, section: Section, number: int, index: int) -> Section:
        """Section with a payload of its own, or one that is left in the store."""
        size = size_of(section.payload)
        if self.kept + size > self.kept_limit:
            return Section(section.head, Unread(size, self._growing.payload, number, index))
        self.kept += size
        return _own(section)

    def _drop_all_but(self, needed: set[int]) -> None:
        """Drop all other segments of the store."""
        for number in [number for number in self.segments if number < HELD and number not in needed]:
            for index in range(len(self.segments[number][1])):
                self._unload(number, index)
            self._drop(number)
            del self._pieces[number]

    def _drop(self, number: int) -> None:
        self.found.remove(number)
        _, sections = self.segments.pop(number)
        self.size -= sum(size_of(section.payload) for section in sections)

    def settle(self) -> None:
        """Choose checkpoints to load, after segments have come or gone."""
        self._held_news, self._settled = False, True
        for p, new in self.found.settle().items():
            self._aim(p)
            if (at := self.loaded[p].at) is not None:
                for _, payload in (run for saved in new if saved.bound <= at[0] for run in saved.runs):
                    self._unload(payload.segment, payload.index)  # it was loaded from memory

    def _aim(self, p: int) -> None:
        """Choose checkpoints of a processor to load; begin anew if it must."""
        of = self.found.of(p)
        self._todo.pop(p, None)
        if not of.saved:
            self.loaded[p] = self._new(p)
            return
        goal = of.saved[-2:][0]
        at = self.loaded[p].at
        if at is not None and within(goal.bound, at[0]):
            there = of.at(at[0])
            goal = there if there is not None and there.identity == at else goal
        rest = self._rest(p, goal.bound)
        if rest is None:
            self.loaded[p] = self._new(p)
            rest = self._rest(p, goal.bound)
        if rest:
            self._todo[p] = deque(rest)

    def _rest(self, p: int, bound: Bound) -> list[tuple[SavedCheckpoint, int]] | None:
        """Checkpoints of a processor to load up to `bound`, as `Loaded.rest`."""
        loaded = self.loaded[p]
        return loaded.rest(self.found.of(p).chain(bound, None if loaded.at is None else loaded.at[0]))

    def _new(self, p: int) -> Loaded:
        old = self.loaded[p]
        if old.at is None and old.within is None:
            return old
        return Loaded(build_operator(self._plan.processors[p], []))

    def _content(self, number: int, index: int) -> Buffer:
        return content_of(self.segments[number][1][index].payload)

    def _unload(self, number: int, index: int) -> None:
        """Leave the payload of a section in the store, where it is one of a piece to load."""
        if number >= HELD or not self._pieces[number][index]:
            return
        _, sections = self.segments[number]
        if not isinstance(sections[index].payload, Unread):
            size = size_of(sections[index].payload)
            self.kept -= size
            sections[index] = Section(sections[index].head, Unread(size, self._growing.payload, number, index))

    @property
    def caught_up(self) -> bool:
        """True if nothing is left to load now."""
        return not self._todo and not self._held_news

    def step(self) -> bool:
        """Load one piece; False if there is none.

        Raises StoreError if it cannot be read: when the worker has let go of it, `settle` finds what took its place.
        """
        while self._todo and not self._held_news:
            p, todo = next(iter(self._todo.items()))
            saved, done = todo[0]
            loaded, node = self.loaded[p], self._plan.processors[p].node
            state = loaded.operator.state
            assert state is not None
            if done < len(saved.runs):
                piece, payload = saved.runs[done]
                runs = list(runs_of(piece, payload))
                loaded.within, loaded.pieces = saved.identity, done + 1
                todo[0] = saved, done + 1
                restoring.load(node, state, runs, more=True)
                self._unload(payload.segment, payload.index)
                return True
            todo.popleft()
            if not todo:
                del self._todo[p]
            loaded.at, loaded.within, loaded.pieces = saved.identity, None, 0
            state.compact(to_frontier(saved.bound))
        return False

    @property
    def progress(self) -> Progress:
        """Progress at this moment."""
        bounds, behind, left = [], 0, 0
        for p, loaded in self.loaded.items() if self._settled else ():
            of = self.found.of(p)
            bounds.append(self._layout.processors[p].nothing if loaded.at is None else loaded.at[0])
            if not of.saved:
                continue
            known = None if loaded.at is None else of.at(loaded.at[0])
            first = 0 if known is None or known.identity != loaded.at else of.index_of(known.bound) + 1
            behind = max(behind, sum(not self.found.is_held(saved) for saved in of.saved[first:]))
            newest = of.saved[-1].bound
            rest = self._rest(p, newest)
            for each, done in [(each, 0) for each in of.chain(newest)] if rest is None else rest:
                left += sum(size_of(payload) for _, payload in each.runs[done:])
        return Progress(min(bounds, key=lambda bound: bound[0], default=None), behind, left)

    def take_over(self, writer: int | None) -> Taken:
        """Segments and state for the next incarnation of the worker; this is then empty.

        `writer`: the last incarnation in the store; what an earlier one has sent is of no use.
        """
        stored = {number: segment for number, segment in self.segments.items() if number < HELD}
        held = [self.segments[number] for number in sorted(self.segments) if number >= HELD]
        taken = Taken(stored, self.loaded, [each for each in held if each[0].incarnation == writer])
        self._growing.forget()
        self.segments, self.loaded = {}, {}
        self._todo.clear()
        return taken


def _can_be_loaded(new: Loaded) -> bool:
    return new.operator.state is not None and absorbs(new.operator.state)


def _own(section: Section) -> Section:
    """Section with a payload of its own, not a view of its segment."""
    return Section(section.head, bytes(content_of(section.payload)))
