"""Journal of one owner: its records in the store, as numbered segments.

Sections are gathered while a write is under way and leave together with the next one (group commit). Each has a *key*; its
caller says when a key is dead. A segment that holds nothing live can be deleted; one that holds little is *cleaned*: the
caller writes what is live in it once more, with the next segment.

**When a segment may be deleted.** Every segment says in its head which earlier ones are still needed, once it is durable
itself. A segment is deleted only after a later one that leaves it out was acknowledged. So the newest segment tells exactly
which others must be there: one of them that is missing was lost, and holes among the rest are as they should be. What was
carried over is safe, too: the old place is left out by the segment that holds the new one.

A key that died is not written down as dead: it is read again for as long as its segment is needed for the sake of others. So
a reader must be able to tell from its other knowledge (decisions, the low-watermark) that it is not needed.

**How much room that takes.** Let a section *cost* its bytes and a little for its place in the table. A segment of which no
more than a quarter is live is cleaned. So once the writes have caught up, all segments together cost at most four times what
is live, and what waits for the next write. And of each byte that is written no more than a quarter is ever carried away from
its segment: that needs no budget. Small segments are joined to keep their number low, as soon as together they are no longer
small, and only while less was carried than was written anew. With N bytes written anew, J joined and C cleaned, J <= N and
C <= (N + J + C) / 4, so the journal never carries more than 5/3 N; under a steady load it is less than N. (The idea is that of
Rosenblum and Ousterhout for cleaning a log-structured file system, SOSP 1991, section 3.)

**Fencing.** Two incarnations of one owner may be alive: the old one was given up too early. Each begins with `fence`, an empty
segment at the next number. If the other was faster, the store says `AlreadyThere`; then `overtaken` hears of the newest
segment, and `fence` goes on behind it. Once its fence is acknowledged, an older incarnation cannot write any more: its next
number is taken, so it hears `AlreadyThere` and must stop, and it finds nothing new to delete. Only then does the new one read
the journal. `recovery.store.reading.take_over` does all of this for a store that answers at once.

Fences are never deleted. If they were, their numbers would be free again, a write of the old incarnation that was delayed for
long would succeed after all, and that incarnation would delete what the new one needs. They take some 200 bytes each.

**Sections that may wait.** What is added with `waits` is not sealed until `flush`: it is in memory only, and goes beside that
to the journal `mirror`, whose segments are in the memory of another process. There it is dead once it is durable here.

Nothing here does I/O. Methods take constant time per section; `carry` and `seal` also look at each segment.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from recovery.store.interface import Buffer
from recovery.store.segments import SealedParts, Section, SegmentMeta, segment_name, size_of

Key = Hashable

PLACE = 64
"""Bytes added to a section's cost, for its row in the table and its padding."""
SMALL = 64 * 1024
"""Largest cost of a segment to be joined with others."""
ROUND = 8 * 1024 * 1024
"""Most bytes carried over into one segment, unless a single old one has more."""
IDLE_RELEASE = 1024 * 1024
"""Bytes of garbage worth an empty segment, to delete them."""


def cost(section: Section) -> int:
    """Cost of a section in the journal, in bytes."""
    return len(section.head) + size_of(section.payload) + PLACE


@dataclass(slots=True)
class _Stored:
    """Durable segment: its cost, and the cost of its live sections by key."""

    size: int = 0
    live: dict[Key, int] = field(default_factory=dict)
    live_size: int = 0


@dataclass(slots=True)
class _Sealed:
    """Segment being written.

    `releases` are the segments that are not needed once it is durable.
    """

    meta: SegmentMeta
    name: str
    segment: _Stored
    releases: list[int]


class _Phase(Enum):
    FENCING = auto()
    READING = auto()
    WRITING = auto()


class Journal:
    """Writer's view of the journal of one owner.

    First `fence` (and `stored`), then `recovered` for each segment that is read, then `resume`; from then on `seal` and
    `stored`. Sections may be added at any time.

    Args:
        owner: the folder of the segments, for example "worker-000".
        store_id: 16 bytes that tell this store from all others.
        incarnation: of this writer; written into each segment.
        newest, fences: the newest segment that is there, if there is one, and all fences (`recovery.store.reading.Survey`).

    Set `generation` whenever it changes: it is written into each segment.
    """

    def __init__(
        self,
        owner: str,
        store_id: bytes,
        incarnation: int = 0,
        newest: SegmentMeta | None = None,
        fences: Sequence[int] = (),
    ) -> None:
        self.owner = owner
        self.incarnation = incarnation
        self.generation = 0
        self.written = 0
        """Cost of all sections added anew by this incarnation."""
        self.carried = 0
        """Cost of all sections added again to replace those of an earlier segment."""
        self.restless = True
        """True if `seal` may have a reason for a segment.

        If nothing has happened since it found none, it need not be called again.
        """
        self.waits = False
        """True while added sections wait for `flush`."""
        self.mirror: Journal | None = None
        self._waiting: dict[Key, list[Section]] = {}
        self._flushed: dict[Key, list[Section]] = {}
        """Formerly waiting sections, until durable."""
        self.small = SMALL
        self.idle_release = IDLE_RELEASE
        self.store_id = store_id
        self._last = -1
        self._fence = 0
        self._fences: tuple[int, ...] = ()
        self._phase = _Phase.FENCING
        self._gathered: dict[Key, list[Section]] = {}
        self._costs: dict[Key, int] = {}
        self._sealed: _Sealed | None = None
        self._segments: dict[int, _Stored] = {}  # in order of number
        self._places: dict[Key, int] = {}
        if newest is not None:
            self.overtaken(newest, fences)

    # Writing

    def add(self, key: Key, section: Section) -> None:
        """Add a section to the next segment.

        Its buffers must not change until the segment is acknowledged.

        Several sections of one key add up while they are gathered for the same segment. A key that an earlier segment holds
        is replaced as a whole: that is how a key is carried, and how it gets a new value.
        """
        if self.waits:
            self._waiting.setdefault(key, []).append(section)
            if self.mirror is not None:
                self.mirror.add(key, section)
            return
        price = cost(section)
        self.restless = True
        self._gathered.setdefault(key, []).append(section)
        self._costs[key] = self._costs.get(key, 0) + price
        if key in self._places:
            self.carried += price
        else:
            self.written += price

    def dead(self, key: Key) -> None:
        """Mark `key` as dead.

        A key that is not there is fine. Sections not sealed yet are not written.
        """
        self.restless = True
        self._gathered.pop(key, None)
        self._costs.pop(key, None)
        self._waiting.pop(key, None)
        self._flushed.pop(key, None)
        self._forget_mirrored(key)
        if self._sealed is not None:
            _forget(self._sealed.segment, key)
        place = self._places.pop(key, None)
        if place is not None:
            _forget(self._segments[place], key)

    @classmethod
    def fresh(cls, owner: str, store_id: bytes, incarnation: int) -> Journal:
        """Journal ready to write, in an empty store with no other writer."""
        journal = cls(owner, store_id, incarnation)
        name, _ = journal.fence()
        journal.stored(name)
        journal.resume()
        return journal

    def flush(self) -> None:
        """Move waiting sections to the next segment."""
        waiting, self._waiting, waits, self.waits = self._waiting, {}, self.waits, False
        for key, sections in waiting.items():
            for section in sections:
                self.add(key, section)
        self._flushed.update(waiting)
        self.waits = waits

    def mirrored(self, mirror: Journal | None) -> None:
        """Begin, or end, to copy to `mirror` what is not durable; it gets all there is."""
        self.mirror = mirror
        if mirror is not None:
            for key, sections in (*self._flushed.items(), *self._waiting.items()):
                for section in sections:
                    mirror.add(key, section)

    def _forget_mirrored(self, key: Key) -> None:
        if self.mirror is not None:
            self.mirror.dead(key)

    def carry(self) -> list[Key]:
        """Keys of sections to `add` again before calling `seal`, to clean old segments.

        Nothing is lost if it does not, or does so for some of them only. They come from segments that are mostly dead; and if
        something was gathered anyway, from small ones that are worth joining.
        """
        if self._phase is not _Phase.WRITING:
            return []
        moving = self._sealed.segment.live if self._sealed is not None else {}
        keys: list[Key] = []
        small: list[Key] = []
        total = joined = 0
        for segment in self._segments.values():
            if not segment.live:
                continue
            mostly_dead = segment.live_size * 4 <= segment.size
            if not mostly_dead and segment.size >= self.small:
                continue
            waiting = [key for key in segment.live if key not in self._gathered and key not in moving]
            price = sum(segment.live[key] for key in waiting)
            if not mostly_dead:
                small += waiting
                joined += price
            elif not total or total + price <= ROUND:
                keys += waiting
                total += price
        if self._gathered and joined >= self.small and self.carried + total + joined <= self.written:
            keys += small
        return keys

    @property
    def due(self) -> bool:
        """True if `seal` would return a segment."""
        if self._sealed is not None or self._phase is not _Phase.WRITING:
            return False
        return bool(self._gathered) or self._releasable() >= self.idle_release

    def seal(self) -> tuple[str, Sequence[Buffer]] | None:
        """Next segment for the store, as name and bytes; None if there is no reason.

        That is so while another one is under way, and as long as nothing was added, unless much could be deleted.
        """
        if not self.due:
            # What is under way, or is still being read, will say so when it is over.
            self.restless = self._sealed is not None or self._phase is not _Phase.WRITING
            return None
        return self._seal()

    def stored(self, name: str) -> list[str]:
        """Acknowledge segment `name`; return the names of segments to delete.

        Each is returned once. One that is not deleted, because this process dies, is found by the next incarnation.
        """
        sealed = self._sealed
        if sealed is None or sealed.name != name:
            raise ValueError(f"{name} is not the segment of {self.owner} that is being written")
        self._sealed = None
        self.restless = True
        if self._phase is _Phase.FENCING:
            self._phase = _Phase.READING
            return []
        number = sealed.meta.number
        for key in sealed.segment.live:
            place = self._places.get(key)
            if place is not None:
                _forget(self._segments[place], key)
            self._places[key] = number
        self._segments[number] = sealed.segment
        for key in [key for key in self._flushed if key in self._places and key not in self._gathered]:
            del self._flushed[key]
            self._forget_mirrored(key)
        for released in sealed.releases:
            del self._segments[released]
        return [segment_name(self.owner, released) for released in sealed.releases]

    # A new incarnation

    def fence(self) -> tuple[str, Sequence[Buffer]]:
        """Empty segment at the next number, to be put before any read or write.

        Acknowledge it with `stored`. If the store says `AlreadyThere`, find the newest segment: if it `is_mine`, the put
        succeeded after all; otherwise tell `overtaken`, and put what `fence` gives then.
        """
        if self._phase is not _Phase.FENCING or self._sealed is not None:
            raise ValueError(f"{self.owner} has begun already")
        self._fence = self.next_number
        return self._seal()

    def overtaken(self, newest: SegmentMeta, fences: Sequence[int]) -> None:
        """Continue behind `newest`, written meanwhile by another incarnation."""
        if self._phase is not _Phase.FENCING:
            raise ValueError(f"{self.owner} was fenced off by segment {newest.number}: it must stop")
        self._sealed = None
        self._last = newest.number
        self._fences = tuple(fences)
        self._segments = {number: _Stored() for number in newest.needed_numbers()}
        if not newest.is_fence:
            self._segments[newest.number] = _Stored()

    def is_mine(self, meta: SegmentMeta) -> bool:
        """True if this incarnation wrote the segment.

        So it is for a put whose acknowledgement was lost, and that was tried again.
        """
        return (meta.owner, meta.incarnation) == (self.owner, self.incarnation)

    def recovered(self, meta: SegmentMeta, sections: Sequence[Section], keys: Sequence[Key | None]) -> None:
        """Restore a segment: the key of each section, or None if it is not needed.

        To be called in order of number. A key that an earlier segment has is replaced. Segments for which this is not called
        hold nothing that is needed.
        """
        if self._phase is not _Phase.READING or meta.number not in self._segments:
            raise ValueError(f"segment {meta.number} of {meta.owner} was not there when this journal was fenced")
        segment = self._segments[meta.number]
        for section, key in zip(sections, keys, strict=True):
            price = cost(section)
            segment.size += price
            if key is None:
                continue
            place = self._places.get(key)
            if place is not None and place != meta.number:
                _forget(self._segments[place], key)
            self._places[key] = meta.number
            segment.live[key] = segment.live.get(key, 0) + price
            segment.live_size += price

    def resume(self) -> None:
        """Start writing: all segments are read, and garbage may be deleted."""
        if self._phase is not _Phase.READING:
            raise ValueError(f"{self.owner} has not been fenced, or was resumed already")
        self._phase = _Phase.WRITING

    # What it holds

    @property
    def next_number(self) -> int:
        """Number of the next segment."""
        return self._last + 1

    @property
    def oldest(self) -> int:
        """Number of the oldest needed segment, or of the next one if none is needed."""
        return next(iter(self._segments), self._last + 1)

    @property
    def in_flight(self) -> str | None:
        """Name of the segment being written."""
        return self._sealed.name if self._sealed is not None else None

    @property
    def gathered(self) -> int:
        """Cost of sections waiting for the next segment."""
        return sum(self._costs.values())

    @property
    def unwritten(self) -> int:
        """Cost of sections waiting for the next segment or being written."""
        return self.gathered + (self._sealed.segment.size if self._sealed is not None else 0)

    @property
    def live(self) -> int:
        """Cost of live and durable sections."""
        return sum(segment.live_size for segment in self._segments.values())

    @property
    def size(self) -> int:
        """Cost of all segments not yet released."""
        return sum(segment.size for segment in self._segments.values())

    def is_stored(self, key: Key) -> bool:
        """True if a section of `key` is durable; it may be being rewritten."""
        return key in self._places

    @property
    def waiting(self) -> bool:
        """True if something waits for `flush`."""
        return bool(self._waiting)

    def is_in_memory(self, key: Key) -> bool:
        """True if sections of `key` waited, and are not durable yet."""
        return key in self._waiting or key in self._flushed

    def __contains__(self, key: Key) -> bool:
        """True if `key` is live, durable or not."""
        return (
            key in self._gathered
            or key in self._waiting
            or key in self._places
            or (self._sealed is not None and key in self._sealed.segment.live)
        )

    # Inside

    def _releasable(self) -> int:
        return sum(segment.size for segment in self._segments.values() if not segment.live)

    def _seal(self) -> tuple[str, Sequence[Buffer]]:
        gathered: dict[Key, list[Section]] = {}
        costs: dict[Key, int] = {}
        if self._phase is _Phase.WRITING:  # a fence is empty, even if something was gathered before
            gathered, self._gathered = self._gathered, gathered
            costs, self._costs = self._costs, costs
        total = sum(costs.values())
        needed: list[tuple[int, int]] = []
        releases = []
        for number, stored in self._segments.items():
            if self._phase is _Phase.WRITING and stored.live.keys() <= costs.keys():
                releases.append(number)
            elif needed and needed[-1][1] == number - 1:
                needed[-1] = (needed[-1][0], number)
            else:
                needed.append((number, number))
        self._last += 1
        meta = SegmentMeta(
            owner=self.owner,
            number=self._last,
            generation=self.generation,
            incarnation=self.incarnation,
            fence=self._fence,
            needed=tuple(needed),
            fences=self._fences if self._phase is _Phase.FENCING else (),
        )
        name = segment_name(self.owner, meta.number)
        self._sealed = _Sealed(meta, name, _Stored(total, costs, total), releases)
        sections = [section for several in gathered.values() for section in several]
        return name, SealedParts(meta, sections, self.store_id)


def _forget(segment: _Stored, key: Key) -> None:
    segment.live_size -= segment.live.pop(key, 0)
