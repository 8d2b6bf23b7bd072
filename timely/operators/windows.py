"""Keyed windows: their state, growth and closing.

A window closes, and its result goes out, at the completion of the epoch whose watermark reaches its end. Windows that are
still open when the input ends close at time (INF,), which comes after every epoch: a notification there says that nothing
will come at any epoch any more, and what an event causes must not lie before it. (Holding the last epoch open for them
instead would hold back every frontier downstream by an epoch while the job runs.)

Results do not depend on the number of workers or on the order of batches: everything happens when an epoch is complete,
and aggregates that look at order see the records of each epoch by event time, and equal times by content.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import add, itemgetter
from typing import Any, cast

from timely.data.absent import ABSENT
from timely.data.batch import Batch
from timely.data.content import Item, in_order
from timely.data.keys import are_canonical, canonical
from timely.data.representatives import keys_of, represent_all
from timely.data.routing import shard_of, stable_hash
from timely.data.sums.records import add_up, lowered, total_of
from timely.operators.base import Context, Operator
from timely.operators.keyed import PLUS, Combine, grouped, pairs_of, stepped
from timely.operators.window_shapes import Aligned, Bounds, Epochs, Session, Sliding, Tumbling, Window, moved
from timely.state import KeyedState, Parts, TimedBatches, TimedValues
from timely.state.interface import Rows, Run
from timely.state.moving import everywhere
from timely.time import INF, Frontier, Time

Slot = tuple[Hashable, Any]
"""Id of an open window: (key, start)."""

Part = tuple[Hashable, Any, Any, Any]
"""Contribution of records to a window: (key, start, end, accumulator)."""

_PART_FIELDS = 4

END: Time = (INF,)
"""The time after every epoch of the root scope."""

_ROOT: Time = (0,)

_WATERMARK = "watermark"


# What windows hold ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Incremental aggregate of a window's values.

    `add(accumulator or ABSENT, items)` gives the new accumulator and changes none; `merge(earlier, later)` unites two, of two
    sessions or of what came before and now; `ordered` asks for the items of each epoch in order. `gather(slots, values)`,
    where event times and order do not matter, gives the accumulators of values that come together, each in its slot.
    """

    add: Callable[[Any, list[Item]], Any]
    merge: Combine | None
    finish: Callable[[Any], Any] = lambda accumulator: accumulator
    ordered: bool = False
    gather: Callable[[Iterable[Slot], Iterable[Any]], Mapping[Slot, Any]] | None = None


def counting() -> WindowAggregate:
    """Number of values."""
    return WindowAggregate(
        lambda total, items: (0 if total is ABSENT else total) + len(items), add, gather=lambda slots, _: Counter(slots)
    )


def combining(combine: Combine) -> WindowAggregate:
    """All values combined, epoch by epoch and in order of event time, then of content."""

    def add(total: Any, items: list[Item]) -> Any:
        values = map(itemgetter(1), items)
        return reduce(combine, values) if total is ABSENT else reduce(combine, values, total)

    return WindowAggregate(add, combine, ordered=True)


def reducing(combine: Combine) -> WindowAggregate:
    """All values combined in any order and grouping.

    By `PLUS` floats are rounded once, at the end.
    """
    if combine is PLUS:
        return _summing()

    def add(total: Any, items: list[Item]) -> Any:
        values = map(itemgetter(1), items)
        return reduce(combine, values) if total is ABSENT else reduce(combine, values, total)

    def gather(slots: Iterable[Slot], values: Iterable[Any]) -> Mapping[Slot, Any]:
        totals: dict[Slot, Any] = {}
        for slot, value in zip(slots, values):
            totals[slot] = combine(totals[slot], value) if slot in totals else value
        return totals

    return WindowAggregate(add, combine, gather=gather)


def _summing() -> WindowAggregate:
    def adding(total: Any, items: list[Item]) -> Any:
        values = map(itemgetter(1), items)
        return total_of(values if total is ABSENT else chain([total], values))

    def gather(slots: Iterable[Slot], values: Iterable[Any]) -> Mapping[Slot, Any]:
        totals: dict[Hashable, Any] = {}
        add_up(totals, list(zip(slots, values)))
        return cast("Mapping[Slot, Any]", totals)

    return WindowAggregate(adding, PLUS, lowered, gather=gather)


def folding(start: Callable[[], Any], step: Combine, merge: Combine | None) -> WindowAggregate:
    """All values taken in one by one, epoch by epoch and in order of event time."""
    return WindowAggregate(
        lambda total, items: stepped(start, step, total, map(itemgetter(1), items)),
        merge,
        ordered=True,
    )


def collecting() -> WindowAggregate:
    """The list of all values, in order of event time.

    The accumulator is a tuple of chunks, each more than twice as long as the next: adding costs O(log n) an item.
    """

    def add(chunks: Any, items: list[Item]) -> Any:
        return _settled(() if chunks is ABSENT else chunks, (tuple(items),))

    def finish(chunks: Any) -> list[Any]:
        return [value for _, value in sorted((item for chunk in chunks for item in chunk), key=itemgetter(0))]

    return WindowAggregate(add, _settled, finish, ordered=True)


def _settled(
    earlier: tuple[tuple[Item, ...], ...], later: tuple[tuple[Item, ...], ...]
) -> tuple[tuple[Item, ...], ...]:
    chunks = list(earlier)
    for chunk in later:
        chunks.append(chunk)
        while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
            last = chunks.pop()
            chunks[-1] += last
    return tuple(chunks)


# State ----------------------------------------------------------------------------------------------------------------


class OpenWindows(KeyedState):
    """(key, start) → (end, accumulator) of every open window, in the shard of the key.

    Changes are gathered during an event and written by `commit`. Which window ends next is found in an index that is a
    cache: made again from the state after `restore` and `keep`. Everything costs what it touches, however many windows
    are open.
    """

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[Slot, tuple[Any, Any] | None] = {}
        self._index: _Index | None = None

    def get(self, slot: Slot) -> tuple[Any, Any] | None:  # type: ignore[override]
        """End and accumulator of a window; None if it is not open."""
        if slot in self._changes:
            return self._changes[slot]
        return self.read(_ROOT).get(slot)

    def put(self, slot: Slot, end: Any, accumulator: Any) -> None:
        """Open a window, or change an open one."""
        held = self.get(slot)
        if held is None:
            self._indexed().add(slot, end)
        elif held[0] != end:
            self._indexed().remove(slot, held[0])
            self._indexed().add(slot, end)
        self._changes[slot] = (end, accumulator)

    def take(self, slot: Slot) -> tuple[Any, Any]:
        """Take an open window out: its end and accumulator. KeyError if there is none."""
        held = self.get(slot)
        if held is None:
            raise KeyError(slot)
        self._indexed().remove(slot, held[0])
        self._changes[slot] = None
        return held

    def overlapping(self, key: Hashable, start: Any, end: Any) -> list[Slot]:
        """Open windows of `key` overlapping [start, end), earliest first.

        Only for windows that are disjoint within a key, as sessions are.
        """
        starts = self._indexed().starts.get(key, [])
        at_last = start == end  # a session of the last of all datetimes, which nothing is behind
        last = bisect_right(starts, end) if at_last else bisect_left(starts, end)
        first = last
        while first and ((held := self._end((key, starts[first - 1]))) > start or (at_last and held == end)):
            first -= 1
        return [(key, at) for at in starts[first:last]]

    def close(self, upto: Any = None) -> Iterator[tuple[Slot, Any, Any]]:
        """Take out every window with end <= `upto` (None: all), by end.

        Yields (slot, end, accumulator).
        """
        for slot in self._indexed().upto(upto):
            end, accumulator = self.take(slot)
            yield slot, end, accumulator

    def commit(self, time: Time) -> None:
        """Write the changes at `time`.

        Windows that opened and closed in this event leave no trace.
        """
        changes, self._changes = self._changes, {}
        if updates := {slot: held for slot, held in changes.items() if held is not None}:
            self.write(time, updates)
        if closed := [slot for slot, held in changes.items() if held is None]:
            self.remove(time, closed)

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """Runs of state as for any state by key, with a window in the shard of its key."""
        for run in super().pieces(upto, after, rows):
            yield Run(
                run.time, [_in_shard_of_key(record) for record in cast("list[tuple[Any, ...]]", run.batch)], run.part
            )

    def scan(self, upto: Frontier) -> None:
        """No scan for snapshots: windows close before long."""

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by the content of `runs`."""
        super().restore(runs)
        self._index = None

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs` after those loaded before."""
        super().absorb(runs)
        self._index = None

    def keep(self, frontier: Frontier) -> None:
        """Undo writes at times outside `frontier`."""
        super().keep(frontier)
        self._index = None

    def _end(self, slot: Slot) -> Any:
        held = self.get(slot)
        assert held is not None
        return held[0]

    def _indexed(self) -> _Index:
        if self._index is None:
            self._index = _Index((slot, value[0]) for slot, value in self.read(_ROOT).items())
        return self._index


def _in_shard_of_key(record: tuple[Any, ...]) -> tuple[Any, ...]:
    return (shard_of(stable_hash(record[1][0])), *record[1:])


class _Index:
    """The open windows by end and by key."""

    __slots__ = ("_at_end", "_ends", "starts")

    def __init__(self, windows: Iterable[tuple[Slot, Any]]) -> None:
        self._at_end: dict[Any, dict[Slot, None]] = {}
        self._ends: list[Any] = []
        self.starts: dict[Hashable, list[Any]] = {}
        for (key, start), end in windows:
            self._at_end.setdefault(end, {})[key, start] = None
            self.starts.setdefault(key, []).append(start)
        self._ends = list(self._at_end)
        heapify(self._ends)
        for starts in self.starts.values():
            starts.sort()

    def add(self, slot: Slot, end: Any) -> None:
        if end not in self._at_end:
            self._at_end[end] = {}
            heappush(self._ends, end)
        self._at_end[end][slot] = None
        insort(self.starts.setdefault(slot[0], []), slot[1])

    def remove(self, slot: Slot, end: Any) -> None:
        # An end without windows stays in the heap until its turn.
        self._at_end[end].pop(slot)
        starts = self.starts[slot[0]]
        del starts[bisect_left(starts, slot[1])]
        if not starts:
            del self.starts[slot[0]]

    def upto(self, end: Any) -> Iterator[Slot]:
        """Windows ending by `end` (None: all).

        Each of them must be taken out before the next is asked for.
        """
        while self._ends and (end is None or self._ends[0] <= end):
            slots = self._at_end[self._ends[0]]
            while slots:
                yield next(iter(slots))
            del self._at_end[heappop(self._ends)]


# Operators ------------------------------------------------------------------------------------------------------------


class EventWindows(Operator):
    """Windows over event time: port 0 takes records on time, port 1 watermarks.

    Records are (key, event time, value), or come as what `parts_of` makes of them.

    A record that came late for some of its windows is put into those that are still open.
    Gives ((key, Window), result) when the watermark passes a window's end, and the rest when the input has ended.
    """

    repeats_over = "time"
    moves_by_key = True

    def __init__(self, shape: Tumbling | Sliding | Session, aggregate: WindowAggregate) -> None:
        self._aggregate = aggregate
        self._gap = shape.gap if isinstance(shape, Session) else None
        self._aligned = None if isinstance(shape, Session) else shape.aligned()
        self._parts = parts_of(shape, aggregate)
        self._now = TimedBatches()
        self._watermarks = TimedValues()
        self._open = OpenWindows()
        self._passed = everywhere(KeyedState())
        self._parts_windows = isinstance(shape, Sliding)
        self.state = Parts(self._now, self._watermarks, self._open, self._passed)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port == 0:
            self._now.add(time, batch)
            ctx.notify_at(END)
        else:
            self._watermarks.at(time)[_WATERMARK] = batch[0]
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = self._now.pop(time)
        if self._parts is not None:
            self._merge(self._parts, batches)
        else:
            records = list(chain.from_iterable(batches))
            keys = _keys_of(records)
            if self._aligned is not None:
                self._fill(self._aligned, keys, records)
            else:
                self._extend(keys, records)
        for watermark in self._watermarks.pop(time).values():
            self._emit(ctx, self._open.close(watermark))
            if self._parts_windows:
                self._passed.write(time, {_WATERMARK: watermark})
        if time == END:
            self._emit(ctx, self._open.close())
        self._open.commit(time)

    def _emit(self, ctx: Context, closed: Iterable[tuple[Slot, Any, Any]]) -> None:
        finish = self._aggregate.finish
        ctx.send([((key, Window(start, end)), finish(total)) for (key, start), end, total in closed])

    def _add(self, total: Any, items: list[Item]) -> Any:
        return self._aggregate.add(total, in_order(items) if self._aggregate.ordered else items)

    def _merge(self, parts: Callable[[Batch], list[Part]], batches: list[Any]) -> None:
        """Merge parts of records into the open windows."""
        merge = self._aggregate.merge
        assert merge is not None
        apart = list(chain.from_iterable(batch for batch in batches if batch and len(batch[0]) == _PART_FIELDS))
        whole = list(chain.from_iterable(batch for batch in batches if batch and len(batch[0]) != _PART_FIELDS))
        passed = self._last_watermark()
        # Keys that have travelled are other objects: a NaN among them would be found by nobody.
        merged = [*apart, *parts(whole)]
        for key, (_, start, end, total) in zip(_keys_of(merged), merged):
            if passed is None or end > passed:
                held = self._open.get((key, start))
                self._open.put((key, start), end, total if held is None else merge(held[1], total))

    def _fill(self, aligned: Aligned, keys: list[Hashable], records: list[tuple[Hashable, Any, Any]]) -> None:
        """Put every record into its aligned windows."""
        times = [record[1] for record in records]
        spans = {at: aligned.spans(at) for at in set(times)}
        passed = self._last_watermark()
        if passed is not None:
            spans = {at: [span for span in found if span[1] > passed] for at, found in spans.items()}
        ends = dict(chain.from_iterable(spans.values()))
        groups: dict[Slot, list[Item]] = defaultdict(list)
        for slot, item in zip(*_placed(keys, times, [(at, value) for _, at, value in records], spans)):
            groups[slot].append(item)
        for slot, items in groups.items():
            held = self._open.get(slot)
            self._open.put(slot, ends[slot[1]], self._add(ABSENT if held is None else held[1], items))

    def _last_watermark(self) -> Any:
        """Watermark to filter out closed windows of late records; None if not needed."""
        return self._passed.read(_ROOT).get(_WATERMARK) if self._parts_windows else None

    def _extend(self, keys: list[Hashable], records: list[tuple[Hashable, Any, Any]]) -> None:
        """Put every record into its key's session: a new, lengthened or merged one."""
        of_key: dict[Hashable, list[Item]] = {}
        times = represent_all([record[1] for record in records])
        for key, at, (*_, value) in zip(keys, times, records):
            of_key.setdefault(key, []).append((at, value))
        for key, items in of_key.items():
            items.sort(key=itemgetter(0))
            first = 0
            for after in range(1, len(items) + 1):
                if after == len(items) or items[after][0] >= moved(items[after - 1][0], self._gap):
                    self._join(key, items[first:after])
                    first = after

    def _join(self, key: Hashable, items: list[Item]) -> None:
        start, end, total = items[0][0], moved(items[-1][0], self._gap), ABSENT
        for slot in self._open.overlapping(key, start, end):
            held_end, held = self._open.take(slot)
            start, end = min(start, slot[1]), max(end, held_end)
            if total is ABSENT:
                total = held
            else:
                assert self._aggregate.merge is not None
                total = self._aggregate.merge(total, held)
        self._open.put((key, start), end, self._add(total, items))


def _placed(
    keys: list[Hashable], times: list[Any], things: list[Any], spans: Mapping[Any, list[Bounds]]
) -> tuple[Iterable[Slot], Iterable[Any]]:
    """Slots of all windows of each record, with its thing for each.

    `spans` has the windows of each event time.
    """
    if all(len(found) == 1 for found in spans.values()):
        starts = {at: start for at, ((start, _),) in spans.items()}
        return zip(keys, map(starts.__getitem__, times)), things
    places = [[start for start, _ in spans[at]] for at in times]
    slots = [(key, start) for key, starts in zip(keys, places) for start in starts]
    return slots, [thing for thing, starts in zip(things, places) for _ in starts]


def parts_of(shape: Tumbling | Sliding | Session, aggregate: WindowAggregate) -> Callable[[Batch], list[Part]] | None:
    """Function from records to contributions to windows, or None.

    Records are (key, event time, value). None where their order or the places of windows are not known before all
    have come together.
    """
    gather = aggregate.gather
    if isinstance(shape, Session) or gather is None:
        return None
    aligned, gathered = shape.aligned(), gather

    def parts(records: Batch) -> list[Part]:
        assert isinstance(records, list)
        times = [record[1] for record in records]
        spans = {at: aligned.spans(at) for at in set(times)}
        ends = dict(chain.from_iterable(spans.values()))
        slots, values = _placed(_keys_of(records), times, [record[2] for record in records], spans)
        return [(key, start, ends[start], total) for (key, start), total in gathered(slots, values).items()]

    return parts


def _keys_of(records: list[Any]) -> list[Hashable]:
    keys = represent_all(keys_of(records))
    return keys if are_canonical(keys) else list(map(canonical, keys))


class EpochWindows(Operator):
    """Windows of epochs over pairs (key, value), emitted at their last epoch.

    A window is Window(first epoch, first of the next).

    Needs no watermark: that a window's last epoch is complete says all. What comes after every epoch, as the last windows
    of an operator before this one do, makes a window of its own, Window(INF, INF).
    """

    repeats_over = "time"
    moves_by_key = True

    def __init__(self, shape: Epochs, aggregate: WindowAggregate) -> None:
        self._shape = shape
        self._aggregate = aggregate
        self._now = TimedBatches()
        self._open = OpenWindows()
        self.state = Parts(self._now, self._open)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._now.add(time, pairs_of(batch))
        ctx.notify_at()
        if time != END:
            ctx.notify_at((self._shape.around(time)[1] - 1,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        start, end = self._shape.around(time)
        aggregate = self._aggregate
        for key, values in grouped(self._now.pop(time)).items():
            items = [(0, value) for value in values]
            held = self._open.get((key, start))
            total = ABSENT if held is None else held[1]
            self._open.put((key, start), end, aggregate.add(total, in_order(items) if aggregate.ordered else items))
        if time == END or end == time[0] + 1:
            closed = self._open.close(end)
            ctx.send([((key, Window(start, end)), aggregate.finish(total)) for (key, _), _, total in closed])
        self._open.commit(time)
