"""State for counting the distinct values of expiring keys and their sessions.

Values live as long as their keys, or as the sessions of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from libraries.columns.kernels.added import Added
from libraries.columns.kernels.grouping import group_numbers, union
from libraries.columns.kernels.parts import Part
from libraries.columns.state.expiring import ExpiringTotals
from timely.data.kernels.columns import Numbers, numbers, whole
from timely.data.kernels.tables import Ids, distinct
from timely.time import Time

_THERE = "there()"


class ValuesOfKeys(ExpiringTotals):
    """Distinct values of each key.

    The columns are those of the key, and last the value.
    """

    def __init__(self, columns: Sequence[str], alike: int | None = None) -> None:
        self._present = Part("values", _THERE)
        super().__init__(columns, [self._present, Part("max", _THERE)], _THERE, alike)

    def new(self, time: Time, many: Sequence[list[pa.Array]]) -> list[pa.Array]:
        """Add values of keys; returns those not present before, each once.

        Raises:
            ValueError: if something was written at a later time before.
            TypeError: if a column changes to another type.
        """
        index = self.totals.index
        keys = distinct(np.concatenate([index.leading(columns[: self._common]) for columns in many]))
        held, _ = self.alike(keys)
        rows = [
            Added(columns, [pa.int64()] * 2, [np.ones(len(columns[0]), np.int64)] * 2, [None] * 2) for columns in many
        ]
        come = self.add(time, rows, lambda before, after: before[self._present] == 0)
        self.relate(keys, union([held, come.ids], len(self.totals)))
        return index.keys(come.ids)

    def give_up(self, time: Time, keys: list[pa.Array]) -> None:
        """Remove all values of these keys.

        Raises:
            ValueError: if something was written at a later time before.
        """
        leading = distinct(self.totals.index.leading(keys))
        held, _ = self.alike(leading)
        self.remove(time, held)
        self.relate(leading, held[:0])


class ValuesOfSessions(ValuesOfKeys):
    """Distinct values in the sessions of each key.

    The columns are those of the key, an event time, and last the value.

    A value stays at an event time of its session, which only grows: so sessions that meet move nothing here.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(columns, len(columns) - 2)

    def take(self, time: Time, keys: list[pa.Array], first: Numbers, last: Numbers) -> Numbers:
        """Remove some sessions; returns the number of distinct values in each.

        Args:
            time: of the event.
            keys: the columns of their keys.
            first, last: the event times of the first and the last row of each.

        Raises:
            ValueError: if something was written at a later time before.
        """
        index = self.totals.index
        owners = index.leading(keys)
        known = distinct(owners)
        ids, of = self.alike(known)
        at = numbers(whole(index.keys(ids)[-2]))
        session = _latest_before(owners, first, of, at)
        theirs = session >= 0
        theirs[theirs] = (owners[session[theirs]] == of[theirs]) & (at[theirs] <= last[session[theirs]])
        taken, session = ids[theirs], session[theirs]
        pairs = group_numbers([pa.array(session), index.keys(taken)[-1]])
        once = np.unique(pairs, return_index=True)[1]
        self.remove(time, taken)
        self.relate(known, ids[~theirs])
        return np.bincount(session[once], minlength=len(owners)).astype(np.int64)


def _latest_before(owners: Ids, first: Numbers, of: Ids, at: Numbers) -> Ids:
    """Index, for each pair of `of` and `at`, of the greatest pair not above it.

    The candidates are the pairs of `owners` and `first`; -1 where there is none.
    """
    many = len(owners)
    order = np.lexsort((np.arange(many + len(of)) >= many, np.append(first, at), np.append(owners, of)))
    before = np.maximum.accumulate(np.where(order < many, np.arange(len(order)), -1))
    found = np.empty(len(order), np.intp)
    found[order] = np.where(before >= 0, order[before], -1)
    return found[many:]
