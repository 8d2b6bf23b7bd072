"""The journal against a model: each answer is the one that follows from what was written, has died and is on its way.

The model knows two rules only: a segment may go once a later durable one leaves it out; what is carried comes from segments of
which at most a quarter is live, or joins small ones for no more than was written anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from recovery.store import journal as journal_module
from recovery.store.journal import cost
from recovery.store.reading import take_over
from recovery.store.segments import SegmentMeta, decode_segment, segment_name, segment_number
from tests.recovery.store.owners import OWNER, STORE, memory_disk, section
from tests.support.profile import tries

KEYS = tuple("abcdefghijklmnopqrstuvwxyzABCD")
LARGE, JOINED, MOST = 4_000, 2_000, 200
"""Bytes in place of `IDLE_RELEASE`, `SMALL` and `ROUND`: as many as a few sections have."""


@dataclass
class Written:
    """A segment: the payloads of each key, and the keys that are live in it."""

    payloads: dict[str, list[int]]
    live: set[str] = field(default_factory=set)

    def price(self, key: str) -> int:
        return sum(cost(section(key, size)) for size in self.payloads[key])

    @property
    def size(self) -> int:
        return sum(map(self.price, self.payloads))

    @property
    def live_size(self) -> int:
        return sum(map(self.price, self.live))

    @property
    def mostly_dead(self) -> bool:
        return 4 * self.live_size <= self.size


class Model:
    """A journal on a disk, driven step by step, and what must be true of it."""

    def __init__(self) -> None:
        self.disk = memory_disk()
        self.durable: dict[int, Written] = {}
        self.alive: set[str] = set()
        """Pieces that its owner has added and not declared dead, durable or not."""
        self.incarnation = -1
        self.begin()

    def begin(self) -> None:
        """Another process takes the journal over: it reads all that is needed, and declares dead what it knows to be dead."""
        self.incarnation += 1
        self.gathered = Written({})
        self.flight: tuple[int, Written, bytes, list[int]] | None = None
        self.written = self.carried = 0
        self.journal, found, _ = take_over(self.disk, OWNER, STORE, self.incarnation)
        self.tune()
        assert not self.journal.due
        read = list(found.read())
        assert {meta.number for meta, _ in read if not meta.is_fence} == self.durable.keys()
        for number, each in self.durable.items():
            each.live = {key for key in each.payloads if self.newest(key) == number}
        known = {key for each in self.durable.values() for key in each.live}
        for meta, sections in read:
            keys = [each.head.decode() for each in sections]
            there = self.durable[meta.number].payloads if sections else {}
            wanted = [(key, size) for key, sizes in there.items() for size in sizes]
            assert list(zip(keys, (len(each.payload) for each in sections))) == wanted
            newest = [self.incarnation % 2 or self.newest(key) == meta.number for key in keys]  # a later one may say it
            self.journal.recovered(meta, sections, [key if tells else None for key, tells in zip(keys, newest)])
            with pytest.raises(ValueError, match="was not there"):
                self.journal.recovered(
                    SegmentMeta(owner=OWNER, number=10_000, generation=0, incarnation=0, fence=0), [], []
                )
        self.alive &= known
        self.check()
        assert not self.journal.due
        assert not self.journal.carry()
        self.journal.resume()
        for key in sorted(known - self.alive):
            self.dead(key)

    def tune(self) -> None:
        self.journal.idle_release, self.journal.small = LARGE, JOINED

    def newest(self, key: str) -> int | None:
        return max((number for number, each in self.durable.items() if key in each.payloads), default=None)

    def place(self, key: str) -> int | None:
        return next((number for number, each in self.durable.items() if key in each.live), None)

    # Steps

    def add(self, key: str, size: int) -> None:
        self.journal.add(key, section(key, size))
        self.alive.add(key)
        self.gathered.payloads.setdefault(key, []).append(size)
        self.gathered.live.add(key)
        if self.place(key) is None:
            self.written += cost(section(key, size))
        else:
            self.carried += cost(section(key, size))

    def dead(self, key: str) -> None:
        self.journal.dead(key)
        self.alive.discard(key)
        self.gathered.payloads.pop(key, None)
        for each in (self.gathered, *([self.flight[1]] if self.flight else []), *self.durable.values()):
            each.live.discard(key)

    def carry(self) -> None:
        keys = [str(key) for key in self.journal.carry()]
        moving = self.flight[1].live if self.flight else set()
        left = {
            number: [key for key in each.payloads if key in each.live - self.gathered.live - moving]
            for number, each in self.durable.items()
        }
        mostly = [number for number, each in self.durable.items() if each.live and each.mostly_dead]
        small = [
            number for number, each in self.durable.items() if each.live and not each.mostly_dead and each.size < JOINED
        ]
        prices = {number: sum(map(self.durable[number].price, keys)) for number, keys in left.items()}
        total, cleaned = 0, []
        for number in mostly:
            if not total or total + prices[number] <= MOST:
                total += prices[number]
                cleaned += left[number]
        joined = sum(prices[number] for number in small)
        joins = self.gathered.payloads and joined >= JOINED and self.carried + total + joined <= self.written
        assert keys == cleaned + ([key for number in small for key in left[number]] if joins else [])
        for key in keys:
            for size in self.durable[self.place(key) or 0].payloads[key]:
                self.add(key, size)

    def seal(self) -> None:
        due = self.due()
        sealed = self.journal.seal()
        assert (sealed is not None) == due
        if sealed is None:
            assert self.flight is not None or not self.journal.restless
            return
        released = [number for number, each in self.durable.items() if each.live <= self.gathered.payloads.keys()]
        data = b"".join(sealed[1])
        meta, sections = decode_segment(data, store_id=STORE)
        assert (sealed[0], meta.incarnation) == (segment_name(OWNER, meta.number), self.incarnation)
        assert list(meta.needed_numbers()) == [number for number in self.durable if number not in released]
        runs = [number for number in self.durable if number not in released]
        assert len(meta.needed) == sum(number - 1 not in runs for number in runs)
        assert not meta.fences
        wanted = [(key, size) for key, sizes in self.gathered.payloads.items() for size in sizes]
        assert [(each.head.decode(), len(each.payload)) for each in sections] == wanted
        self.flight = meta.number, self.gathered, data, released
        self.gathered = Written({})
        with pytest.raises(ValueError, match="has begun already"):
            self.journal.fence()

    def land(self) -> None:
        """Let the write that is on its way reach the disk."""
        if self.flight is not None:
            number, written, data, released = self.flight
            self.disk.put(segment_name(OWNER, number), [data])
            for earlier in released:
                del self.durable[earlier]
            for earlier in self.durable.values():
                earlier.live -= written.payloads.keys()
            self.durable[number] = written

    def acknowledge(self) -> None:
        if self.flight is not None:
            number, _, _, released = self.flight
            self.land()
            self.flight = None
            gone = self.journal.stored(segment_name(OWNER, number))
            assert gone == [segment_name(OWNER, each) for each in released]
            for name in gone:
                self.disk.delete(name)

    # What must be true

    def due(self) -> bool:
        releasable = sum(each.size for each in self.durable.values() if not each.live)
        return self.flight is None and (bool(self.gathered.payloads) or releasable >= LARGE)

    def check(self) -> None:
        journal = self.journal
        flight = self.flight[1] if self.flight else Written({})
        assert journal.live == sum(each.live_size for each in self.durable.values())
        assert journal.size == sum(each.size for each in self.durable.values())
        assert journal.gathered == self.gathered.size
        assert journal.unwritten == self.gathered.size + flight.size
        assert (journal.written, journal.carried) == (self.written, self.carried)
        assert journal.in_flight == (None if self.flight is None else segment_name(OWNER, self.flight[0]))
        for key in KEYS:
            assert journal.is_stored(key) == (self.place(key) is not None)
            assert (key in journal) == (
                key in self.gathered.payloads or key in flight.live or self.place(key) is not None
            )
        assert journal.restless or not journal.due
        assert journal.oldest == min(self.durable, default=journal.next_number)
        for number, each in self.durable.items():
            assert segment_name(OWNER, number) in self.disk.names("")
            assert number == segment_number(segment_name(OWNER, number)) < journal.next_number
            assert each.live <= each.payloads.keys()


def step(model: Model, random: Random) -> None:
    """One thing happens; all at once what does not matter by itself."""
    key = random.choice(KEYS)
    match random.choices(("add", "dead", "write", "carry", "seal", "acknowledge", "restart"), (35, 24, 25, 6, 8, 8, 1))[
        0
    ]:
        case "add":
            model.add(key, random.choice((0, 50, 300, 300, JOINED // 4 - 65, JOINED // 2 - 65, JOINED - 65, 3_000)))
        case "dead":
            model.dead(random.choice(sorted(model.alive) or KEYS))
        case "write":
            model.carry()
            model.seal()
            model.check()
            model.acknowledge()
        case "carry":
            model.carry()
        case "seal":
            model.seal()
        case "acknowledge":
            model.acknowledge()
        case "restart":
            if random.random() < 0.5:
                model.land()
            model.begin()


@pytest.mark.parametrize("seed", range(tries(20)))
def test_every_answer_follows_from_what_was_written_and_died(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ROUND", MOST)
    random, model = Random(seed), Model()
    for _ in range(300):
        step(model, random)
        model.check()
