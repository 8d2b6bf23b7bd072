"""Manifest of a region, the state of *gather*: the files and epochs of its runs.

A *due* epoch is one at whose completion the region runs. All of this is arithmetic on epochs, so that every attempt and every
incarnation decides alike.

Small files are merged into larger ones, where later runs are over their rows, too. Where runs are over everything there are few
files however many epochs there were: of each magnitude of rows fewer than `FAN`. A merge is an entry of its own time that
takes the place of others; they stay until it is there for good, so a rollback to before it finds them again.

Where runs are over the last n epochs the files of a *block* are merged, of `FAN` epochs, of `FAN` such blocks, and so on, as
soon as it is complete. A run takes the largest blocks that lie wholly in its epochs. Where it begins within one it takes
what that was merged from, which therefore stays as long as some run may need it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from libraries.spark.errors import SparkError
from libraries.spark.files.pinned_file import PinnedFile
from timely.data.codec.typed import shown
from timely.state import TimedBatches
from timely.state.interface import Event
from timely.time import FINITE, INF, Frontier

Over: TypeAlias = int | Literal["new", "all"]

FAN = 8
"""Number of files of a magnitude to be merged into one."""

LARGE = 32 << 20
"""Size in bytes of files too large for a merge."""


class ManifestEntry(NamedTuple):
    """File with rows of an epoch, or of several."""

    input: str
    path: str
    """Path of the file; empty if the entry has no rows.

    Such an entry says only that a run of the region before has given no rows, or which columns rows have.
    """
    rows: int
    size: int
    """File size in bytes."""
    schema: bytes
    """Serialized Arrow schema."""
    replaced: tuple[str, ...] = ()
    """Files replaced by this one; it has their rows."""
    digest: int = 0
    """Order-independent digest of its rows.

    See `libraries.spark.files.parquet.digest_of`.
    """
    place: str = ""
    """Partition folder of a table's file, below the folder of its epoch."""
    since: int = 0
    """First epoch of its block, for a merge."""


class Merge(NamedTuple):
    """Files of one input to be merged, with rows of epochs `since` to `until`."""

    since: int
    until: int
    entries: list[ManifestEntry]


Manifested: TypeAlias = tuple[int, list[ManifestEntry], list[tuple[str, bytes]], list[tuple[str, list[PinnedFile]]]]
"""A run, as sent by gather to compute: first epoch, files, schemas, tables' files.

The entries are those of its files; there is a schema for each input, and a list of files for each table that is a
folder.
"""


def _reach(over: Over) -> int:
    match over:
        case "new":
            return 0
        case "all":
            return INF
        case length:
            return length


@dataclass(frozen=True, slots=True)
class Calendar:
    """Schedule of runs: one every `every` epochs, over new rows, all, or n epochs.

    With `every` INF there is one, when all input has ended. Where inputs differ, `inputs` has each of them, and `over` is that
    which reaches back furthest.
    """

    every: int = 1
    over: Over = "new"
    inputs: tuple[tuple[str, Over], ...] = ()

    @classmethod
    def of_inputs(cls, every: int, overs: Mapping[str, Over]) -> Calendar:
        """Calendar for inputs with different spans.

        >>> Calendar.of_inputs(2, {"facts": "new", "rates": "all"}).over, Calendar.of_inputs(2, {"a": "new", "b": 3}).over
        ('all', 3)
        >>> Calendar.of_inputs(2, {"a": 3, "b": 3})
        Calendar(every=2, over=3, inputs=())
        """
        widest: Over = max(overs.values(), key=_reach)
        return cls(every, widest, tuple(overs.items()) if len(set(overs.values())) > 1 else ())

    def of(self, name: str) -> Calendar:
        """Calendar of an input."""
        return Calendar(self.every, dict(self.inputs)[name]) if self.inputs else self

    def parts(self) -> list[tuple[Calendar, frozenset[str] | None]]:
        """Calendars by span, each with the names of its inputs; None for all inputs."""
        if not self.inputs:
            return [(self, None)]
        return [
            (Calendar(self.every, over), frozenset(name for name, other in self.inputs if other == over))
            for over in dict.fromkeys(over for _, over in self.inputs)
        ]

    def due(self, epoch: int) -> int:
        """First due epoch at or after `epoch`.

        >>> Calendar(every=4).due(0), Calendar(every=4).due(3), Calendar(every=4).due(4), Calendar(every=INF).due(0) == INF
        (3, 3, 7, True)
        """
        if self.every == INF:
            return INF
        if epoch > FINITE - self.every:
            return epoch
        return epoch - epoch % self.every + self.every - 1

    def first(self, due: int) -> int:
        """First epoch covered by the run at `due`.

        >>> Calendar(every=4).first(7), Calendar(over="all").first(7), Calendar(over=3).first(7)
        (4, 0, 5)
        """
        if self.over == "all":
            return 0
        length = self.every if self.over == "new" else self.over
        return max(0, due - length + 1)

    def needed_after(self, epoch: int) -> int:
        """First epoch still needed by a run after `epoch`.

        >>> Calendar(every=2, over=3).needed_after(5)  # epochs 5 to 7, at 7
        5
        """
        return self.first(self.due(epoch + 1))


class Manifest(TimedBatches):
    """Entries of files by time; entries needed by no later run are dropped.

    That is done once they can never come back.
    """

    transient = False

    def __init__(self, calendar: Calendar) -> None:
        super().__init__()
        self._calendar = calendar

    def written_in(self, event: Event) -> None:
        """No-op: events change entries at their own times only."""

    def entries(self, first: int, last: int) -> list[ManifestEntry]:
        """Entries of the epochs from `first` to `last`, in order, without replaced ones.

        The order is that of their names, not of their coming: who gathers them again has the same.
        """
        return [entry for _, entry in self._dated(first, last)]

    def _dated(self, first: int, last: int) -> list[tuple[int, ManifestEntry]]:
        """Entries with the last epoch of their rows, for the same epochs."""
        firsts = {name: max(first, self._calendar.of(name).first(last)) for name, _ in self._calendar.inputs}
        found = [
            (time[0], entry)
            for time in sorted(self.times())
            if first <= time[0] <= last
            for entry in sorted(self._at(time))
            if entry.path
            and time[0] >= (begin := firsts.get(entry.input, first))
            and (not entry.replaced or entry.since >= begin)
        ]
        replaced = {path for _, entry in found for path in entry.replaced}
        return [(epoch, entry) for epoch, entry in found if entry.path not in replaced]

    def schemas(self) -> dict[str, tuple[int, bytes]]:
        """Latest epoch and schema of each input."""
        return {
            entry.input: (time[0], entry.schema)
            for time in sorted(self.times())
            for entry in self._at(time)
            if entry.schema
        }

    def ripe(self, last: int) -> list[Merge]:
        """Merges due for files up to epoch `last`."""
        merges: list[Merge] = []
        for calendar, names in self._calendar.parts():
            match calendar.over:
                case "new":
                    pass
                case "all":
                    merges += self._alike(last, names)
                case length:
                    merges += self._blocks(last, calendar, length, names)
        return merges

    def _alike(self, last: int, names: frozenset[str] | None) -> list[Merge]:
        """Merges of files of similar size, across epochs."""
        alike: defaultdict[tuple[str, int], list[ManifestEntry]] = defaultdict(list)
        for entry in self.entries(0, last):
            if entry.size < LARGE and (names is None or entry.input in names):
                alike[entry.input, _magnitude(entry.rows)].append(entry)
        return [Merge(0, last, entries) for entries in alike.values() if len(entries) >= FAN]

    def _blocks(self, last: int, calendar: Calendar, length: int, names: frozenset[str] | None) -> list[Merge]:
        """Merges of files in complete blocks, the smallest with enough files first.

        No later run begins within such a block for now.

        What the run at `last` takes from a merge is merged by no smaller one again, which would have rows a second time.
        """
        needed = calendar.needed_after(last)
        left = [
            (entry.since if entry.replaced else epoch, entry)
            for epoch, entry in self._dated(calendar.first(last), last)
            if entry.size < LARGE and (names is None or entry.input in names)
        ]
        merges: list[Merge] = []
        size = FAN
        while size <= length:
            blocks: defaultdict[tuple[str, int], list[ManifestEntry]] = defaultdict(list)
            for epoch, entry in left:
                blocks[entry.input, epoch - epoch % size].append(entry)
            for (name, since), entries in blocks.items():
                until = since + size - 1
                inside = any(since <= merge.since <= until and merge.entries[0].input == name for merge in merges)
                if len(entries) >= FAN and since >= needed and until <= last and not inside:
                    merges.append(Merge(since, until, entries))
            size *= FAN
        return merges

    def compact(self, frontier: Frontier) -> None:
        """Drop entries needed by no run outside `frontier`.

        Of each input the last entry stays, for its schema.
        """
        inside = sorted((time for time in self.times() if time in frontier), reverse=True)
        if not inside:
            return
        if self._calendar.over == "all":
            self._settle(inside)
        last = inside[0][0]
        first = self._calendar.needed_after(last)
        firsts = {name: self._calendar.of(name).needed_after(last) for name, _ in self._calendar.inputs}
        known: set[str] = set()
        for time in inside:
            names = {entry.input for entry in self._at(time) if entry.schema}
            stays = {name for name in names if time[0] >= firsts.get(name, first) or name not in known}
            if time[0] < first and not stays:
                self.pop(time)
            elif firsts and not names <= stays:
                self.replace(time, [entry for entry in self._at(time) if entry.input in stays])
            known |= names

    def _settle(self, inside: Sequence[tuple[int, ...]]) -> None:
        """Drop files replaced by merges at these times, now permanent."""
        replaced = {path for time in inside for entry in self._at(time) for path in entry.replaced}
        if not replaced:
            return
        for time in inside:
            left = [entry._replace(replaced=()) for entry in self._at(time) if entry.path not in replaced]
            if left:
                self.replace(time, left)
            else:
                self.pop(time)

    def _at(self, time: tuple[int, ...]) -> Iterator[ManifestEntry]:
        for batch in self._times.get(time, ()):
            yield from entries_of(batch)


def entries_of(batch: Any) -> Iterable[ManifestEntry]:
    """Validated manifest entries of a batch from another worker or the store.

    Raises:
        SparkError: if these are none.
    """
    try:
        return msgspec.convert(batch, list[ManifestEntry], from_attributes=True)
    except msgspec.ValidationError as error:
        raise SparkError(f"a list of files cannot be read: {shown(error)}") from None


def _magnitude(rows: int) -> int:
    """Order of magnitude of a number of rows.

    Merging `FAN` files of one magnitude gives at least the next.
    """
    return rows.bit_length() // (FAN.bit_length() - 1)
