"""State of column aggregates with expiring keys: sessions, and totals with a TTL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from libraries.columns.kernels.grouping import union
from libraries.columns.kernels.parts import Part
from libraries.columns.kernels.totals import Totals
from libraries.columns.state.totals import Changed, TotalsState, _Totals
from timely.data.kernels.columns import Numbers, whole
from timely.data.kernels.tables import Ids, ranges
from timely.state.interface import Run, Runs, Scan
from timely.time import Frontier, Time

_ROOT: Time = (0,)


class ExpiringTotals(TotalsState):
    """Totals of expiring keys, in the root scope.

    The *moment* of a key is the greatest value of the column `by` among its rows. A removed key has no values of
    `by`: it is saved like that, and counts as absent. Its id is reused once more than half of the keys are absent,
    and no rollback can bring them back.
    """

    few = 1024
    """Minimum number of removed keys before ids are reassigned."""

    def __init__(self, keys: Sequence[str], parts: Sequence[Part], by: str, alike: int | None = None) -> None:
        """State of these parts by `keys`, with moments by `by`.

        Keys with the first `alike` columns in common (the default: all but the last) can be asked for, by `alike`.
        """
        super().__init__(keys, parts)
        self._common = len(keys) - 1 if alike is None else alike
        self._values = Part("values", by)
        self._moment = Part("max", by)
        self._due: _Due | None = None
        self._given_up = 0
        self._walk: ref[Scan] | None = None
        self._alike: _Alike | None = None

    @property
    def shape(self) -> str:
        """Shape of the totals, with the column of the moments."""
        return f"{super().shape}, until {self._moment.column}"

    @property
    def totals(self) -> Totals:
        """Totals, including removed keys: see `there`."""
        return self._scope(_ROOT).totals

    def there(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Mask of the keys in `ids` still present."""
        found: npt.NDArray[np.bool_] = self.totals.of(self._values)[ids] > 0
        return found

    def all(self) -> Ids:
        """Ids of all keys present."""
        return np.flatnonzero(self.totals.of(self._values)) if len(self.totals) else np.zeros(0, np.intp)

    def remove(self, time: Time, ids: Ids) -> None:
        """Remove these keys, all different.

        Raises:
            ValueError: if something was written at a later time before.
        """
        if len(ids):
            self._scope(time).clear(time, ids)
            self._given_up += len(ids)

    def expire(self, time: Time, bound: int | None) -> Changed | None:
        """Remove the keys with moments up to `bound` (None: all).

        Returns them as they were; None if there are none.
        """
        if not len(self.totals):
            return None
        if bound is None:
            ids = self.all()
        else:
            if self._due is None:
                self._due = _Due(self)
                self._due.add(self.all())
            ids = self._due.upto(bound)
        if not len(ids):
            return None
        gone = Changed(self.totals, ids, self.totals.gather(ids))
        self.remove(time, ids)
        return gone

    def _touched(self, ids: Ids) -> None:
        if self._due is not None:
            self._due.add(ids)

    def alike(self, leading: Ids) -> tuple[Ids, Ids]:
        """Keys with the given leading-column numbers, and the number of each.

        The numbers, all different, are those of `KeyIndex.leading` for the common columns. Later keys are found if
        they were passed to `relate`.
        """
        if self._alike is None:
            self._alike = _Alike(self, self._common)
        return self._alike.of(leading)

    def relate(self, leading: Ids, ids: Ids) -> None:
        """Replace the keys known for these leading-column numbers by `ids`."""
        assert self._alike is not None
        self._alike.put(leading, ids)

    def moments(self, ids: Ids) -> Numbers:
        """Moments of these keys."""
        found: Numbers = self.totals.of(self._moment)[ids]
        return found

    def scan(self, upto: Frontier) -> Scan | None:
        """Incremental scan in order of id; ids stay fixed until it is over."""
        walk = super().scan(upto)
        self._walk = None if walk is None else ref(walk)
        return walk

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, in place of all content."""
        super().restore(runs)
        self._began_anew()

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, after those loaded before."""
        super().absorb(runs)
        self._began_anew()

    def keep(self, frontier: Frontier) -> None:
        """Undo writes at times outside `frontier`."""
        super().keep(frontier)
        self._began_anew()

    def _began_anew(self) -> None:
        self._due = self._alike = None
        self._given_up = len(self.totals) - len(self.all())

    def without_past(self) -> bool:
        """Stop keeping history; returns False, as removed keys are still to compact."""
        super().without_past()
        return False

    def compact(self, frontier: Frontier) -> None:
        """Forget the history within `frontier`, and the keys removed there."""
        super().compact(frontier)
        if self._given_up >= self.few and 2 * self._given_up > len(self.totals):
            walk = None if self._walk is None else self._walk()
            scope = self._scope(_ROOT)
            if not scope.walks and (walk is None or walk.over):
                self._forget(scope)

    def _forget(self, scope: _Totals) -> None:
        """Renumber the keys present or recoverable by a rollback."""
        old = scope.totals
        kept = old.of(self._values) > 0
        for _, (_, touched, _) in scope.log:
            kept[touched] = True
        self._given_up = 0  # and if it did not pay now, not before as many more are gone
        ids = np.flatnonzero(kept)
        if 2 * len(ids) > len(old):
            return
        new = Totals(old.keys, old.parts, expected=len(ids))
        table = old.table(ids)
        kinds = [table.schema.field(part.name).type for part in old.parts]
        new.put_table(new.ids([whole(table[key]) for key in old.keys], kinds), table)
        before = np.concatenate([[0], np.cumsum(kept)])
        for number, (time, (known, touched, values)) in enumerate(scope.log):
            scope.log[number] = (time, (int(before[known]), before[touched], values))
        scope.totals = new
        self._due = self._alike = None


class _Due:
    """Keys in the order of their moments: a cache derived from the state.

    Sorted runs, each more than twice as long as the next. A key is added again whenever its moment may have risen;
    merging runs removes the duplicates.
    """

    def __init__(self, state: ExpiringTotals) -> None:
        self._state = state
        self._runs: list[tuple[Numbers, Ids]] = []

    def add(self, ids: Ids) -> None:
        """Add keys with new moments."""
        while self._runs and len(self._runs[-1][1]) <= 2 * len(ids):
            ids = union([ids, self._runs.pop()[1]], len(self._state.totals))
        self._push(ids[self._state.there(ids)])

    def _push(self, ids: Ids) -> None:
        if len(ids):
            moments = self._state.moments(ids)
            order = np.argsort(moments, kind="stable")
            self._runs.append((moments[order], ids[order]))

    def upto(self, bound: int) -> Ids:
        """Take the keys with moments up to `bound`."""
        found, rest = [], []
        for moments, ids in self._runs:
            count = int(np.searchsorted(moments, bound, side="right"))
            if count:
                found.append(ids[:count])
            if count < len(ids):
                rest.append((moments[count:], ids[count:]) if count else (moments, ids))
        self._runs = rest
        if not found:
            return np.zeros(0, np.intp)
        ids = union(found, len(self._state.totals))
        return ids[self._state.there(ids) & (self._state.moments(ids) <= bound)]


class _Alike:
    """Keys grouped by their first `common` columns: a cache derived from the state.

    Groups are identified by the number of these columns (`KeyIndex.leading`). Removed keys stay until the group is
    put again.
    """

    def __init__(self, state: ExpiringTotals, common: int) -> None:
        self._state = state
        self._common = common
        self._begin = np.zeros(0, np.intp)
        self._count = np.zeros(0, np.intp)
        self._ids = np.zeros(0, np.intp)
        self._end = 0
        """Length of the used part of `_ids`, superseded entries included."""
        self.put(np.zeros(0, np.intp), state.all())

    def of(self, leading: Ids) -> tuple[Ids, Ids]:
        """Keys of the given groups, and the group of each."""
        known = leading[leading < len(self._count)]
        count = self._count[known]
        ids, of = self._ids[ranges(self._begin[known], count)], known.repeat(count)
        there = self._state.there(ids)
        return ids[there], of[there]

    def put(self, leading: Ids, ids: Ids) -> None:
        """Replace the keys of the given groups by `ids`, all different."""
        self._count[leading[leading < len(self._count)]] = 0
        if not len(ids):
            return
        owners = self._state.totals.index.leading_of(ids, self._common)
        self._make_room(int(owners.max()) + 1, len(ids))
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        begins = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        self._begin[owners[begins]] = begins + self._end
        self._count[owners[begins]] = np.diff(begins, append=len(owners))
        self._ids[self._end : self._end + len(ids)] = ids[order]
        self._end += len(ids)

    def _make_room(self, owners: int, ids: int) -> None:
        """Make room for group numbers below `owners` and `ids` more ids.

        Superseded entries are dropped.
        """
        if owners > len(self._count):
            more = np.zeros(max(64, 2 * owners) - len(self._count), np.intp)
            self._begin, self._count = np.append(self._begin, more), np.append(self._count, more)
        if self._end + ids > len(self._ids):
            held = self._ids[ranges(self._begin, self._count)]
            self._begin, self._end = np.cumsum(self._count) - self._count, len(held)
            self._ids = np.zeros(max(64, 2 * (self._end + ids)), np.intp)
            self._ids[: self._end] = held


class CountedRows(ExpiringTotals):
    """Multiset of signed rows: each distinct row with the sum of its signs.

    The rows of given keys are found by `alike`.

    Args:
        keys: the columns of the key.
        sign: the column of the sign.
    """

    def __init__(self, keys: Sequence[str], sign: str) -> None:
        self.count = Part("sum", sign)
        super().__init__(keys, [Part("values", sign), Part("max", sign), self.count], sign, len(keys))
        self.leading = len(keys)
        """Number of key columns; they come first."""
        self.columns: list[str] | None = None
        """Columns of the rows; None until the first rows come."""

    @property
    def parts(self) -> list[Part]:
        """Aggregates kept for each row."""
        return self._parts

    def name(self, columns: Sequence[str]) -> None:
        """Set the columns of rows, key columns first, before any rows are held."""
        self.columns = self._keys = list(columns)
        self._scopes = {}

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, in place of all content."""
        known = Runs.of(runs)
        self.columns = None
        super().restore(Runs(known.rows, lambda: map(self._named, known)))

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, after those loaded before."""
        super().absorb(map(self._named, runs))

    def _named(self, run: Run) -> Run:
        if self.columns is None:
            assert isinstance(run.batch, pa.Table)
            self.name(run.batch.column_names[1 : -len(self._parts)])  # behind the shard, and before the parts
        return run
