"""The recorder against a model that keeps all events as they came, and works each answer out from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from msgspec import structs

from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import HistoryEvent
from recovery.metadata import Bound
from tests.recovery.layouts import layout
from tests.support.profile import tries
from timely.data.messages import Message
from timely.time import Time

FRONT, MIDDLE, BACK, END = range(4)
EPOCHS = 9


def plan(workers: int) -> Layout:
    """Front sends ahead to middle, which keeps its history; both middle and back log what they send, back to its own worker."""
    edges = "front=>middle, middle|back, back|end, front>end"
    found = layout("front chain, middle chain, back chain, end chain", edges, workers)
    infos = [structs.replace(info, finds_capabilities=True) for info in found.processors]
    infos[MIDDLE] = structs.replace(infos[MIDDLE], history=True)
    ahead, logged, local, plain = found.edges
    ahead, local = structs.replace(ahead, ahead=True), structs.replace(local, spread=False)
    return structs.replace(found, processors=tuple(infos), edges=(ahead, logged, local, plain))


@dataclass
class Events:
    """Events at one processor, as far as they were not taken back. Times are epochs."""

    low: int = 0
    """It never goes below this."""
    upto: int = 0
    """Messages come at this epoch, or a later one."""
    received: int = 0
    """Before this, everything has been received."""
    base: int = 0
    """It was rolled back to this last, and has acted on no more since than is said here."""
    delivered: dict[int, list[int]] = field(default_factory=dict)
    """By input port."""
    records: list[tuple[int, int]] = field(default_factory=list)
    since: int = 0
    """Events before this are in the store only."""
    sent: dict[int, list[int]] = field(default_factory=dict)
    """By edge: the times that may have been sent."""
    requests: list[tuple[int, int]] = field(default_factory=list)
    holds: list[tuple[int, int, int]] = field(default_factory=list)
    notified: list[int] = field(default_factory=list)
    acted: list[int] = field(default_factory=list)
    happened: list[tuple[int, int, int]] = field(default_factory=list)
    taken: dict[tuple[int, int], int] = field(default_factory=dict)
    """The times of the logged messages that were taken, by sender and number."""

    def held_at(self, bound: int) -> tuple[tuple[Time, int], ...]:
        counts: Counter[int] = Counter()
        for event, time, diff in self.holds:
            if event < bound <= time:
                counts[time] += diff
        return tuple(((time,), count) for time, count in sorted(counts.items()) if count > 0)

    def requested_at(self, bound: int) -> tuple[tuple[Time, Time], ...]:
        return tuple(((event,), (time,)) for event, time in self.requests if event < bound <= time)


class Model:
    """A recorder, driven at random, beside the events of its processors."""

    def __init__(self, random: Random, workers: int) -> None:
        self.random, self.workers = random, workers
        self.layout = plan(workers)
        self.recorder = WorkerRecorder(self.layout, 0)
        self.of = [Events() for _ in self.layout.processors]
        for number, edge in enumerate(self.layout.edges):
            self.of[edge.source].sent[number] = []
            self.of[edge.target].delivered[edge.target_port] = []
        self.logs: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        """By edge and receiver: (number, event, time)."""
        self.numbers: Counter[int] = Counter()
        """Of messages to each receiver."""
        self.order = self.records = 0

    def bound(self, p: int) -> int:
        """A bound to which a processor may be rolled back."""
        return self.random.randrange(self.of[p].low, EPOCHS)

    def step(self) -> None:
        p = self.random.randrange(4)
        events = self.of[p]
        now = self.random.randrange(max(events.upto, events.low), EPOCHS)
        later = now + self.random.randrange(4)
        match self.random.choices(
            ("deliver", "send", "request", "hold", "notify", "act", "take", "recall", "back", "restore", "collect"),
            (12, 14, 8, 10, 6, 3, 14, 3, 5, 3, 6),
        )[0]:
            case "deliver" if events.delivered:
                count, port = self.random.randrange(3), self.random.choice(sorted(events.delivered))
                self.recorder.delivered(p, port, (now,), [0] * count)
                events.delivered[port].append(now)
                events.records.append((now, count))
                self.records += count
                self.happens(p, port, now)
            case "send" if events.sent:
                self.send(self.random.choice(sorted(events.sent)), now, later)
            case "request":
                self.recorder.requested(p, (now,), (later,))
                if later > now:
                    events.requests.append((now, later))
            case "hold":
                diff = self.random.choice((1, 1, -1))
                self.recorder.held(p, (now,), (later,), diff)
                if later > now:
                    events.holds.append((now, later, diff))
            case "notify":
                self.recorder.notified(p, (now,))
                events.notified.append(now)
                self.happens(p, -1, now)
            case "act":
                self.recorder.acted(p, (now,))
                events.acted.append(now)
            case "take" if p in (MIDDLE, BACK):
                self.take(p, self.random.randrange(EPOCHS))
            case "recall":
                self.recall()
            case "back":
                self.restore(p, self.bound(p), None)
            case "restore":
                self.restore(p, self.bound(p), self.bound(p))
            case "collect":
                low = self.bound(p)
                self.recorder.collect(p, (low,))
                events.low = max(low, events.low)
                events.received = max(low, events.received)
                events.records = [each for each in events.records if each[0] >= low]

    def happens(self, p: int, port: int, time: int) -> None:
        if p == MIDDLE:
            self.order += 1
            self.of[p].happened.append((self.order, port, time))

    def send(self, number: int, event: int, time: int) -> None:
        edge = self.layout.edges[number]
        if not edge.resends:
            time = event
        logged = edge.logs((event,), (time,))
        self.recorder.sent(edge.source, edge.port, (event,), (time,), [time])
        if edge.logged or time == event:
            self.of[edge.source].sent[number].append(time)
        receiver = 0 if self.workers == 1 or not edge.spread else 1
        if receiver == 1 and edge.resends:
            message = Message(number, self.numbers[1] + 1, (event,), (time,), b"", [b"a", b"b"])
            self.recorder.shipped(1, message)
        if logged:
            self.numbers[receiver] += 1
            self.logs.setdefault((number, receiver), []).append((self.numbers[receiver], event, time))

    def take(self, p: int, time: int) -> None:
        """A message comes, perhaps once more, or again from a sender that has failed."""
        events, number, sender = self.of[p], self.random.randrange(12), self.random.randrange(2)
        time = events.taken.get((sender, number), time)  # the same again
        event = time if p == BACK else self.random.randrange(time + 1)
        logged = p == BACK or event != time
        new = not logged or (time >= events.received and (sender, number) not in events.taken)
        assert self.recorder.taken(sender, Message(p - 1, number, (event,), (time,), b"", [])) == new
        if new and logged:
            events.taken[sender, number] = time

    def recall(self) -> None:
        """An entry of the log of an earlier process of this worker."""
        for entries in [entries for entries in self.recorder.logs.values() if entries][:1]:
            entry = entries[0]
            assert entry.number <= self.numbers[entry.receiver]
            self.recorder.recall(entry)
            self.logs[entry.edge, entry.receiver].append((entry.number, entry.event[0], entry.time[0]))

    def restore(self, p: int, bound: int, stored: int | None) -> None:
        """`stored`: it comes back from a checkpoint made at the same bound; None: its memory is cut back."""
        events = self.of[p]
        requests, holds = events.requested_at(bound), events.held_at(bound)
        if stored is None:
            self.recorder.restored(p, (bound,), None)
            events.requests = [each for each in events.requests if each[0] < bound]
            events.holds = [each for each in events.holds if each[0] < bound]
            events.received = min(bound, events.received)
            for number, times in events.sent.items():
                events.sent[number] = [min(time, bound - 1) for time in times] if bound else []
            events.since = min(bound, events.since)
        else:
            self.recorder.restored(p, (bound,), requests, holds)
            events.requests = [(event[0], time[0]) for event, time in requests]
            events.holds = [(-1, time[0], count) for time, count in holds]
            events.received = bound
            events.sent = {number: [bound - 1] if bound else [] for number in events.sent}
            events.delivered = {port: [bound - 1] if bound else [] for port in events.delivered}
            events.since = bound
        events.base, events.notified, events.acted = bound, [], []
        events.upto = bound
        for port, times in events.delivered.items():
            events.delivered[port] = [min(time, bound - 1) for time in times] if bound else []
        events.records = [each for each in events.records if each[0] < bound]
        events.happened = [each for each in events.happened if each[2] < bound]
        events.taken = {number: time for number, time in events.taken.items() if time < bound}
        for (edge, receiver), entries in self.logs.items():
            if self.layout.edges[edge].source == p:
                self.logs[edge, receiver] = [each for each in entries if each[1] < bound]

    # What must be true

    def check(self) -> None:
        recorder = self.recorder
        assert recorder.records == self.records
        for p, events in enumerate(self.of):
            delivered = [max((time + 1 for time in times), default=0) for _, times in sorted(events.delivered.items())]
            assert recorder.delivered_bounds(p) == tuple((each,) for each in delivered)
            acted = max([events.base, *events.acted, *(time + 1 for time in events.notified)])
            assert recorder.notified_bound(p) == (acted,)
            assert recorder.since[p] == (events.since,)
            sent = [
                0 if self.layout.edges[number].logged else max((time + 1 for time in times), default=0)
                for number, times in sorted(events.sent.items())
            ]
            assert recorder.sent_bounds(p) == tuple((each,) for each in sent)
            counts: Counter[Time] = Counter()
            for time, count in events.records:
                counts[time,] += count
            assert recorder.handled[p] == counts
            for bound in range(events.low, EPOCHS + 4):
                discards: tuple[Bound, ...] = tuple((min(bound, each),) for each in sent)
                assert recorder.discards(p, (bound,)) == discards
                assert recorder.requests(p, (bound,)) == events.requested_at(bound)
                assert recorder.held_at(p, (bound,)) == events.held_at(bound)
        history = [(each.order, each.port, each.time[0]) for each in recorder.histories[MIDDLE]]
        assert history == self.of[MIDDLE].happened
        logs = {
            place: [(each.number, each.event[0], each.time[0]) for each in entries]
            for place, entries in recorder.logs.items()
        }
        assert {place: entries for place, entries in logs.items() if entries} == {
            place: entries for place, entries in self.logs.items() if entries
        }
        for entries in recorder.logs.values():
            for entry in entries:
                assert entry.batch == [entry.time[0]] if entry.receiver == 0 else bytes(entry.payload) == b"ab"
        self.check_room()

    def check_room(self) -> None:
        """Nothing is kept that only a rollback below what is safe would need."""
        for p, events in enumerate(self.of):
            memory = self.recorder._of[p]
            assert all(time >= (events.low,) for _, time, *_ in (*memory.requests, *memory.holds))
        for (number, _), known in self.recorder._taken.items():
            assert all(time >= (self.of[self.layout.edges[number].target].low,) for time in known.values())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(tries(8)))
def test_every_answer_follows_from_what_has_happened(seed: int, workers: int) -> None:
    model = Model(Random(seed), workers)
    for _ in range(250):
        model.step()
        model.check()


@pytest.mark.parametrize("seed", range(tries(20)))
def test_nothing_but_state_is_kept_if_nothing_else_was_there_from_the_event_before_the_first_later_one(
    seed: int,
) -> None:
    random = Random(seed)
    recorder = WorkerRecorder(plan(1), 0)
    for _ in range(30):
        events = [(random.randrange(4), random.random() < 0.5) for _ in range(random.randrange(6))]
        recorder.histories[MIDDLE] = [
            HistoryEvent(order, 0, (time,), beside=beside) for order, (time, beside) in enumerate(events)
        ]
        for bound in range(6):
            within = [number for number, (time, _) in enumerate(events) if time < bound]
            later = next((number for number, (time, _) in enumerate(events) if time >= bound), len(events))
            matter = [number for number in range(later - 1, within[-1] + 1) if number >= 0] if within else []
            kept = any(events[number][1] for number in {*matter, *within[-1:]})
            assert recorder.only_state(MIDDLE, (bound,)) == (not kept)
