"""Running joins on equal keys, with rows of both sides kept.

They are kept along the innermost coordinate:

- inner: every pair of a left and a right row comes out once, at the time of the later of the two. With dL and dR new at
  a time, L before it and R up to it, that is dL ⋈ R and L ⋈ dR.
- semi: every left row that has a match comes out once, at its own time or, later, at that of its first match: dL ⋉ R, and of
  L those that match a key in dR which R had not before. Of the right side only keys are kept, each once, and of the left side
  rows without a match.
- anti, as changes: every left row without a match comes out at its own time, and is taken back where it would come out of a
  semi join.
- lookup: every left row comes out at its own time, with all right rows known when that time is complete, or with nulls.
  Right rows that come later do not reach it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.rows import KeyedFrame, Matches
from libraries.columns.operators.joins.joining import LEFT, RIGHT, Joining, marked, signed
from libraries.columns.state import OrderedRowsState, RowsState
from timely.data.batch import as_polars, divide
from timely.data.kernels.series import series_of
from timely.data.span import Span
from timely.time import Time

How = Literal["inner", "left", "right", "full", "semi", "anti", "lookup"]

Kept = TypeVar("Kept", bound=RowsState | OrderedRowsState)


class RunningJoin(Joining, Generic[Kept]):
    """Joins new rows of each side with the kept rows of the other.

    Args:
        how: "inner", "semi", "anti" or "lookup".
        kept: the rows of each side; none, if a subclass joins each time by itself.
    """

    refreshes = False
    """True if a semi join keeps keys again that come again."""

    def __init__(
        self,
        on: Sequence[str],
        how: How,
        kept: tuple[Kept, ...],
        right: Mapping[str, Any] | None,
        suffix: str,
        left: Mapping[str, Any] | None = None,
    ) -> None:
        self.how: How = how
        self._kept = kept
        super().__init__(on, right, suffix, kept, left)

    def _as_kept(self, time: Time, rows: pl.DataFrame | Span | None) -> KeyedFrame | None:
        """New rows of a side, as they are kept."""
        return None if rows is None else KeyedFrame(rows, self._on)

    def _among(self, side: int, time: Time, rows: KeyedFrame, by_row: bool = False) -> Matches | None:
        """Matches of `rows` among the kept rows of a side."""
        raise NotImplementedError

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        mine, theirs = self._as_kept(time, new_left), self._as_kept(time, new_right)
        if self.how in ("semi", "anti"):
            return self._meet_once(time, mine, theirs)
        if self.how == "inner":
            return self._pairs(mine, theirs, *self._both(time, mine, theirs))
        right = self._kept[RIGHT]
        if theirs is not None:
            right.append(time, theirs)
        if mine is None:
            return []
        met = self._among(RIGHT, time, mine)
        return [self._looked_up(mine.frame.get_columns(), met, right.rows(time).columns())]

    def _both(
        self, time: Time, mine: KeyedFrame | None, theirs: KeyedFrame | None
    ) -> tuple[Matches | None, Matches | None]:
        """Keep new rows, and match those of each side.

        Left ones meet all right rows, right ones the left rows of earlier times.
        """
        left, right = self._kept
        if theirs is not None:
            right.append(time, theirs)
        of_mine = None if mine is None else self._among(RIGHT, time, mine)
        of_theirs = None if theirs is None else self._among(LEFT, time, theirs, by_row=True)
        if mine is not None:
            left.append(time, mine)
        return of_mine, of_theirs

    def _pairs(
        self, mine: KeyedFrame | None, theirs: KeyedFrame | None, of_mine: Matches | None, of_theirs: Matches | None
    ) -> list[pl.DataFrame]:
        """Joined pairs of new rows and their matches."""
        found = []
        if mine is not None and of_mine is not None:
            found.append(self._beside(mine.take(of_mine.places), of_mine.columns))
        if theirs is not None and of_theirs is not None:
            found.append(self._beside(of_theirs.columns, theirs.take(of_theirs.places)))
        return found

    def _meet_once(self, time: Time, mine: KeyedFrame | None, theirs: KeyedFrame | None) -> list[pl.DataFrame]:
        """Left rows with their first match at `time`.

        Of an anti join these are taken back, and come out when they have none.
        """
        left, right = self._kept
        anti = self.how == "anti"
        found: list[pl.DataFrame] = []
        if theirs is not None:
            new_keys = self._new_keys(time, RIGHT, theirs)
            if new_keys is not None and (waiting := self._among(LEFT, time, new_keys, by_row=True)) is not None:
                rows = self._beside(waiting.columns, [])
                found.append(signed(rows, -1) if anti else rows)
            kept = self._keys(theirs) if self.refreshes else new_keys
            if kept is not None:
                right.append(time, kept)
        if mine is not None:
            met = self._among(RIGHT, time, mine)
            some, others = map(as_polars, divide(mine.frame, series_of("", marked(met, mine.count))))
            rows = self._beside((others if anti else some).get_columns(), [])
            if len(rows):
                found.append(signed(rows, 1) if anti else rows)
            if len(others):
                left.append(time, KeyedFrame(others, self._on))
        return found

    def _keys(self, rows: KeyedFrame, chosen: npt.NDArray[np.bool_] | None = None) -> KeyedFrame | None:
        """Keys of the chosen rows, each once; None if there are none."""
        keys = rows.frame.select(*self._on, *self.hidden)
        keys = (keys if chosen is None else keys.filter(chosen)).drop_nulls().unique(maintain_order=True)
        return KeyedFrame(keys, self._on) if len(keys) else None

    def _new_keys(self, time: Time, side: int, rows: KeyedFrame) -> KeyedFrame | None:
        """Keys new to their side, each once; None if there are none."""
        return self._keys(rows, ~marked(self._among(side, time, rows), rows.count))
