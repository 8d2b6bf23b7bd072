"""State collecting a time's input until the time is complete.

An entry belongs to the event that wrote it, also where it is kept under another time than the event's, called a
*slot* here: a checkpoint at a frontier has the entries written by events in it, for whatever slot, and a rollback
drops those written by events outside it. So entries of one slot are kept apart by their events; and an entry taken
out by another event than its writer stays until no rollback can undo that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NoReturn

import polars as pl

from timely.data.absent import ABSENT
from timely.data.batch import Batch, length, nbytes
from timely.data.routing import shard_of, stable_hash
from timely.data.span import Span
from timely.state.interface import Event, NoMapping, Rows, Run, StateSize
from timely.time import Frontier, Time, leq, visible

Version = tuple[Time, dict[Any, Any]]
"""Version of a slot: time of the event that wrote last, and the values after it."""


class TimedValues(NoMapping):
    """Dictionary of accumulating values for each time.

    Runs hold (shard, key, value) records, and (shard, key) where a key was removed.

    An event may write for a later time, and one at a later time may take that out: both are saved, and taken back. For one time
    other events write in order: in notifications, which come when a time is complete.

    >>> sums = falkirk.TimedValues()
    >>> sums.at((0,))["a"] = 1
    >>> sums.at((0,))["a"] += 2
    >>> sums.pop((0,))
    {'a': 3}
    """

    transient = True
    _use = "state.at(time) gives one, to be changed in place, and state.pop(time) gives and drops it"

    def __init__(self) -> None:
        self._times: dict[Time, dict[Any, Any]] = {}
        """Current values by time."""
        self._plain = True
        """True while every write is assumed to be at its event's own time.

        That is so until an event is given by `written_in`.
        """
        self._event: Event | None = None
        self._versions: dict[Time, list[Version]] = {}
        """Versions of slots written by events at other times, the last one current."""
        self._gone: dict[Time, list[tuple[Time, list[Version]]]] = {}
        """Entries taken out, by slot: (event time, versions of the events before it)."""

    def written_in(self, event: Event) -> None:
        """Set the event of all writes from now on."""
        self._event, self._plain = event, False

    @property
    def empty(self) -> bool:
        """True if no time has a dictionary."""
        return not self._times

    def at(self, time: Time) -> dict[Any, Any]:
        """Dictionary of `time`, to be changed in place.

        Replace its values instead of mutating them.

        Raises:
            ValueError: if another event has written for `time` before, at a later time than the present one.
        """
        if not self._plain and (self._versions or self._gone or self._event is None or self._event.time != time):
            return self._version(time)
        held = self._times.get(time)
        if held is None:
            held = self._times[time] = {}
        return held

    def _version(self, time: Time) -> dict[Any, Any]:
        time, now = _kept_for(self._event, time)
        held, versions = self._times.get(time), self._versions.get(time)
        self._check_not_taken(time, now)
        if versions is None:
            if now == time:
                return self._times.setdefault(time, {})
            versions = self._versions[time] = [] if held is None else [(time, held)]
        if versions:
            last, held = versions[-1]
            if last == now:
                return held
            _check_order(time, last, now, "written")
        held = self._times[time] = dict(held or ())
        versions.append((now, held))
        return held

    def _check_not_taken(self, slot: Time, now: Time) -> None:
        for taken, _ in self._gone.get(slot, ()):
            _check_order(slot, taken, now, "taken out")

    def pop(self, time: Time) -> dict[Any, Any]:
        """Take out the dictionary of `time`.

        Raises:
            ValueError: if another event has written for `time`, or taken it out, at a later time than the present one.
        """
        if self._plain:
            return self._times.pop(time, {})
        time, now = _kept_for(self._event, time)
        if now == time and not self._versions and not self._gone:
            return self._times.pop(time, {})
        self._check_not_taken(time, now)
        held = self._times.get(time)
        if held is None:
            return {}
        versions = self._versions.get(time) or [(time, held)]
        _check_order(time, versions[-1][0], now, "written")
        del self._times[time]
        self._versions.pop(time, None)
        if before := [version for version in versions if version[0] != now]:
            self._gone.setdefault(time, []).append((now, before))
            held = dict(held)
        return held

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Changes of every slot by events in `upto` and not in `after`.

        They follow a mark where such an event took out earlier entries.
        """
        runs: list[Run] = []
        for time, several in self._gone.items():
            for taken, versions in several:
                if taken not in upto:
                    runs += self._changed(time, versions, upto, after)
                    break  # what came behind is not in `upto` either
                if taken not in after and versions[0][0] in after:
                    runs.append(Run(taken, [], slot=time, gone=True))
        for time, held in self._times.items():
            if time in self._versions:
                runs += self._changed(time, self._versions[time], upto, after)
            elif time in upto and time not in after:
                runs.append(Run(time, _records(held)))
        return runs

    def _changed(self, slot: Time, versions: list[Version], upto: Frontier, after: Frontier) -> Iterator[Run]:
        inside = [version for version in versions if version[0] in upto]
        if not inside or inside[-1][0] in after:
            return
        known = next((values for time, values in reversed(inside) if time in after), {})
        time, values = inside[-1]
        new = {key: value for key, value in values.items() if known.get(key, ABSENT) is not value}
        new.update((key, ABSENT) for key in known if key not in values)
        yield Run(time, _records(new), slot=slot)

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """Snapshot in pieces: a run per time is small enough."""
        yield from self.snapshot(upto, after)

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs` in place of all content."""
        self._times, self._versions, self._gone = {}, {}, {}
        self.absorb(runs)

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs` after those loaded before."""
        for run in runs:
            assert isinstance(run.batch, list)
            self._plain = self._plain and run.slot is None
            time = run.time if run.slot is None else run.slot
            if run.gone:
                self._times.pop(time, None)
                self._versions.pop(time, None)
                continue
            held = self._times.setdefault(time, {})
            if run.slot is not None or time in self._versions:
                self._versions[time] = [(run.time, held)]
            for record in run.batch:
                if len(record) == 3:
                    held[record[1]] = record[2]
                else:
                    held.pop(record[1], None)

    def keep(self, frontier: Frontier) -> None:
        """Undo writes and removals by events outside `frontier`."""
        self._times = {time: held for time, held in self._times.items() if time in frontier or time in self._versions}
        for time, versions in list(self._versions.items()):
            self._go_back(time, versions, frontier)
        for time, several in list(self._gone.items()):
            undone = next((at for at, (taken, _) in enumerate(several) if taken not in frontier), len(several))
            if undone < len(several):
                self._go_back(time, several[undone][1], frontier)
                del several[undone:]
                if not several:
                    del self._gone[time]

    def _go_back(self, time: Time, versions: list[Version], frontier: Frontier) -> None:
        left = [version for version in versions if version[0] in frontier]
        self._times.pop(time, None)
        self._versions.pop(time, None)
        if left:
            self._times[time] = left[-1][1]
            if len(left) > 1 or left[0][0] != time:
                self._versions[time] = left

    def compact(self, frontier: Frontier) -> None:
        """Forget removals by events in `frontier`, and versions older than their writes."""
        for versions in self._versions.values():
            inside = sum(event in frontier for event, _ in versions)
            if inside > 1:
                del versions[: inside - 1]
        _forget(self._gone, frontier)

    def size(self) -> StateSize:
        """Size of the state."""
        older = [values for versions in self._versions.values() for _, values in versions[:-1]]
        older += [values for several in self._gone.values() for _, versions in several for _, values in versions]
        held = [*self._times.values(), *older]
        return StateSize(sum(map(len, held)), sum(nbytes(list(values.items())) for values in held), len(held))


class TimedBatches(NoMapping):
    """Batches for each time, in order of arrival.

    Each is a run; its keys are known to the operator only.

    An event may add to a later time, and one at a later time may take that out: both are saved, and taken back.

    >>> waiting = falkirk.TimedBatches()
    >>> waiting.add((0,), [1, 2])
    [[1, 2]]
    >>> waiting.add((0,), [3])
    [[1, 2], [3]]
    >>> waiting.pop((0,))
    [[1, 2], [3]]
    """

    transient = True
    _use = "state.add(time, batch) adds to the batches of a time, and state.pop(time) gives and drops them"

    def __init__(self) -> None:
        self._times: dict[Time, list[Batch]] = {}
        """Batches of events at their own time."""
        self._spans: list[Span] = []
        """Batches of several times arriving together; they follow all others."""
        self._plain = True
        """True while every batch is assumed to be of its event's own time."""
        self._event: Event | None = None
        self._others: dict[Time, dict[Time, list[Batch]]] = {}
        """Batches of events at other times, by slot and event."""
        self._so_far: dict[Time, list[Batch]] = {}
        """Cache of all batches, in order, of slots in `_others`."""
        self._gone: dict[Time, list[tuple[Time, dict[Time, list[Batch]]]]] = {}
        """Batches taken out, by slot: (event time, batches of other events by their time)."""

    def written_in(self, event: Event) -> None:
        """Set the event of all writes from now on."""
        self._event, self._plain = event, False

    def add(self, time: Time, batch: Batch) -> list[Batch]:
        """Append a batch; returns the batches of `time` so far.

        Raises:
            ValueError: if an event at a later time than the present one has taken out what `time` had.
        """
        if self._spans:
            self._cut()
        if not self._plain and (self._others or self._gone or self._event is None or self._event.time != time):
            return self._add(time, batch)
        held = self._times.get(time)
        if held is None:
            held = self._times[time] = []
        held.append(batch)
        return held

    def _add(self, time: Time, batch: Batch) -> list[Batch]:
        time, now = _kept_for(self._event, time)
        self._check_not_taken(time, now)
        if now == time:
            held = self._times.setdefault(time, [])
            if time not in self._others:
                held.append(batch)
                return held
        else:
            held = self._others.setdefault(time, {}).setdefault(now, [])
        so_far = self._so_far.get(time)
        if so_far is None:
            so_far = self._so_far[time] = _in_order(self._written(time))
        held.append(batch)
        so_far.append(batch)
        return so_far

    def _check_not_taken(self, slot: Time, now: Time) -> None:
        for taken, _ in self._gone.get(slot, ()):
            _check_order(slot, taken, now, "taken out")

    def _written(self, time: Time) -> dict[Time, list[Batch]]:
        """Batches of a slot by the event of their arrival."""
        others = self._others.get(time, {})
        return {**others, time: self._times[time]} if time in self._times else others

    def add_span(self, span: Span) -> None:
        """Append a batch to each time of a span."""
        self._spans.append(span)

    def times(self) -> list[Time]:
        """Times with batches."""
        self._cut()
        return list({**self._times, **self._others}) if self._others else list(self._times)

    def replace(self, time: Time, batch: Batch) -> None:
        """Replace all batches of `time` by one.

        Raises as `pop`.
        """
        self.pop(time)
        self.add(time, batch)

    def pop(self, time: Time) -> list[Batch]:
        """Take out the batches of `time`.

        Raises:
            ValueError: if one of them came in an event at a later time than the present one, or one there took them out.
        """
        if self._spans:
            self._cut()
        if self._plain:
            return self._times.pop(time, [])
        return self._pop(*_kept_for(self._event, time))

    def _pop(self, time: Time, now: Time) -> list[Batch]:
        if now == time and not self._others and not self._gone:
            return self._times.pop(time, [])
        self._check_not_taken(time, now)
        written = self._written(time)
        if not written:
            return []
        for each in written:
            _check_order(time, each, now, "written")
        for held in (self._times, self._others, self._so_far):
            held.pop(time, None)
        if before := {each: batches for each, batches in written.items() if each != now}:
            self._gone.setdefault(time, []).append((now, before))
        return _in_order(written)

    def span(self, times: Sequence[Time]) -> Span | None:
        """Batches of `times` as one span; None if there are none.

        No earlier time may have batches.

        Raises:
            TypeError: if they are not all frames of the same columns.
        """
        if len(self._spans) == 1 and not self._times and not self._others:
            return self._spans[0].divided(times[-1])[0]
        self._cut()
        frames: list[tuple[Time, pl.DataFrame]] = []
        for time in times:
            for batch in _in_order(self._written(time)):
                if not isinstance(batch, pl.DataFrame):
                    raise TypeError("a span takes frames")
                frames.append((time, batch))
        return Span.of(frames) if frames else None

    def drop(self, times: Sequence[Time]) -> None:
        """Drop the batches of `times`, each in the event at its time.

        No earlier time may have batches.
        """
        if len(self._spans) == 1 and not self._times and not self._others:
            later = self._spans[0].divided(times[-1])[1]
            self._spans = [] if later is None else [later]
            return
        self._cut()
        for time in times:
            self._pop(time, time)

    def _cut(self) -> None:
        """Split the spans into batches by time."""
        spans, self._spans = self._spans, []
        for span in spans:
            for time, batch in span.parts():
                self._times.setdefault(time, []).append(batch)

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Batches of events in `upto` and not in `after`.

        They follow marks where such events took out others.
        """
        self._cut()
        runs: list[Run] = []
        for time, several in self._gone.items():
            for taken, written in several:
                if taken not in upto:
                    runs += _runs(time, written, upto, after)
                elif taken not in after and any(event in after for event in written):
                    runs.append(Run(taken, [], slot=time, gone=True))
        for time, others in self._others.items():
            runs += _runs(time, others, upto, after)
        runs += [
            Run(time, batch)
            for time, held in self._times.items()
            if time in upto and time not in after
            for batch in held
        ]
        return runs

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """Snapshot in pieces: a run per time is small enough."""
        yield from self.snapshot(upto, after)

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs` in place of all content."""
        self._times, self._spans, self._others, self._so_far, self._gone = {}, [], {}, {}, {}
        self.absorb(runs)

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs` after those loaded before."""
        for run in runs:
            self._plain = self._plain and run.slot is None
            time = run.time if run.slot is None else run.slot
            if run.gone:
                self._times.pop(time, None)
                self._others.pop(time, None)
            elif run.time == time:
                self._times.setdefault(time, []).append(run.batch)
            else:
                self._others.setdefault(time, {}).setdefault(run.time, []).append(run.batch)

    def keep(self, frontier: Frontier) -> None:
        """Undo additions and removals by events outside `frontier`."""
        self._cut()
        self._so_far = {}
        back = [
            (time, written)
            for time, several in self._gone.items()
            for taken, written in several
            if taken not in frontier
        ]
        for time, written in back:
            self._gone[time] = [each for each in self._gone[time] if each[0] in frontier]
            if not self._gone[time]:
                del self._gone[time]
            for event, batches in written.items():
                if event == time:
                    self._times[time] = [*batches, *self._times.get(time, ())]
                else:
                    others = self._others.setdefault(time, {})
                    others[event] = [*batches, *others.get(event, ())]
        self._times = {time: held for time, held in self._times.items() if time in frontier}
        for time, others in list(self._others.items()):
            self._others[time] = {event: batches for event, batches in others.items() if event in frontier}
            if not self._others[time]:
                del self._others[time]

    def compact(self, frontier: Frontier) -> None:
        """Forget removals by events in `frontier`."""
        _forget(self._gone, frontier)

    def size(self) -> StateSize:
        """Size of the state."""
        self._cut()
        written = [*self._others.values(), *(held for several in self._gone.values() for _, held in several)]
        lists = chain(self._times.values(), *(each.values() for each in written))
        batches = [batch for held in lists for batch in held]
        return StateSize(sum(map(length, batches)), sum(map(nbytes, batches)), len(batches))


def _kept_for(event: Event | None, time: Time) -> tuple[Time, Time]:
    """Slot, in plain numbers, and time of the event that writes it or takes it out."""
    if event is None or event.time == time:
        return time, time
    return event.keeps_for(time), event.time


def _in_order(written: dict[Time, list[Batch]]) -> list[Batch]:
    """All batches in order of their events, the same after a replay."""
    return [batch for _, held in sorted(written.items()) for batch in held]


def _runs(slot: Time, written: dict[Time, list[Batch]], upto: Frontier, after: Frontier) -> Iterator[Run]:
    """Runs of a slot's batches from events in `upto` and not in `after`."""
    for event, batches in written.items():
        if event in upto and event not in after:
            yield from (Run(event, batch, slot=None if event == slot else slot) for batch in batches)


def _records(values: dict[Any, Any]) -> list[Any]:
    return [
        (shard_of(stable_hash(key)), key) if value is ABSENT else (shard_of(stable_hash(key)), key, value)
        for key, value in values.items()
    ]


def _forget(gone: dict[Time, list[tuple[Time, Any]]], frontier: Frontier) -> None:
    """Forget removals by events in `frontier`."""
    for time, several in list(gone.items()):
        left = [each for each in several if each[0] not in frontier]
        if left:
            gone[time] = left
        else:
            del gone[time]


def _check_order(slot: Time, before: Time, now: Time, what: str) -> None:
    """Refuse an event not ordered after another on which it depends.

    It would not find the same after a replay.
    """
    if not leq(before, now):
        _refuse(slot, before, now, what)


def _refuse(slot: Time, before: Time, now: Time, what: str) -> NoReturn:
    raise ValueError(
        f"what is kept for {visible(slot)} was {what} in an event at {visible(before)}, and is now wanted in one at "
        f"{visible(now)}, which need not come after it: write and take out for other times than the event's own in "
        "on_notify, where times come in their order"
    )
