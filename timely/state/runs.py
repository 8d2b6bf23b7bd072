"""State of column operators that need the rows themselves: immutable runs, merged geometrically once compacted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import polars as pl
import pyarrow as pa

from timely.data.batch import Batch, Columns, as_arrow, as_polars, concat, nbytes
from timely.data.routing import hash_columns, shards_of
from timely.state.interface import WHOLE, Rows, Run, StateSize
from timely.time import INF, Frontier, Time

SHARD = "shard()"
"""The column of a saved run that holds the shard of each row's key (uint16)."""


class _Piece:
    """Rows of the times from `first` to `last` of one scope."""

    __slots__ = ("first", "last", "table")

    def __init__(self, first: Time, last: Time, table: Columns) -> None:
        self.first = first
        self.last = last
        self.table = table


class RunState:
    """Rows, running on along the innermost coordinate: a log-structured merge of column batches.

    A table appended at a time is a run. Compaction merges neighbouring runs in its frontier while the older is less
    than twice as large as the newer: n rows lie in O(log n) runs, and each is copied O(log n) times in all.
    (O'Neil et al., *The Log-Structured Merge-Tree*, 1996.)

    Args:
        keys: the columns by which rows belong to shards.
        frames: hold Polars frames instead of Arrow tables.
    """

    def __init__(self, keys: Sequence[str], frames: bool = False) -> None:
        self._keys = list(keys)
        self._form: Callable[[Batch], Columns] = as_polars if frames else as_arrow
        self._scopes: dict[Time, list[_Piece]] = {}
        self._compacted: dict[Time, int] = {}

    def append(self, time: Time, table: Columns) -> None:
        """Add rows at `time`.

        Raises:
            ValueError: if the scope has rows of a later time already.
        """
        pieces = self._scopes.setdefault(time[:-1], [])
        if pieces and time < pieces[-1].last:
            raise ValueError(
                f"rows came at {pieces[-1].last} and now at {time}: this state runs on along the last coordinate; "
                "append when a time is complete"
            )
        pieces.append(_Piece(time, time, self._form(table)))

    def tables(self, time: Time) -> list[Columns]:
        """All rows in the scope of `time`, up to `time`."""
        return [piece.table for piece in self._scopes.get(time[:-1], ()) if piece.last <= time]

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """The runs in `upto` and not in `after`, with the shard of each row.

        Raises:
            ValueError: if a merged run lies across the border of `upto` or `after`: the caller compacted too far.
        """
        return list(self.pieces(upto, after, lambda: WHOLE))

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The runs of `snapshot`, cut to about `rows()` rows."""
        chosen = [
            piece
            for outer, pieces in self._scopes.items()
            if not outer or (*outer, INF) not in upto  # over otherwise: nothing can ask for it any more
            for piece in pieces
            if not self._inside(piece, after) and self._inside(piece, upto)
        ]
        for piece in chosen:
            start = 0
            while start < len(piece.table):
                table = as_arrow(piece.table.slice(start, rows()))
                start += len(table)
                shards = shards_of(hash_columns([table[key] for key in self._keys]))
                yield Run(piece.last, table.add_column(0, SHARD, pa.array(shards)))

    @staticmethod
    def _inside(piece: _Piece, frontier: Frontier) -> bool:
        inside = piece.last in frontier
        if not inside and piece.first in frontier:
            raise ValueError(
                f"rows of {piece.first} to {piece.last} were merged, and {frontier} would part them: "
                "compact only what is never rolled back, and save again from a frontier that holds all of it"
            )
        return inside

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold."""
        self._scopes = {}
        self._compacted = {}
        for run in sorted(runs, key=lambda run: run.time):
            self.append(run.time, as_arrow(run.batch).drop_columns([SHARD]))

    def keep(self, frontier: Frontier) -> None:
        """Drop what came at times outside `frontier`.

        Raises:
            ValueError: if `frontier` would part merged runs.
        """
        for outer, pieces in list(self._scopes.items()):
            while pieces and not self._inside(pieces[-1], frontier):
                pieces.pop()
            self._compacted[outer] = min(self._compacted.get(outer, 0), len(pieces))
            if not pieces:
                del self._scopes[outer], self._compacted[outer]

    def compact(self, frontier: Frontier) -> None:
        """Merge runs inside `frontier`; drop scopes that lie in it as a whole, as nothing can come to them."""
        for outer, pieces in list(self._scopes.items()):
            if outer and (*outer, INF) in frontier:
                del self._scopes[outer]
                self._compacted.pop(outer, None)
                continue
            done = self._compacted.get(outer, 0)
            while done < len(pieces) and pieces[done].last in frontier:
                done += 1
                while done > 1 and len(pieces[done - 2].table) < 2 * len(pieces[done - 1].table):
                    pieces[done - 2 : done] = [self._merged(pieces[done - 2], pieces[done - 1])]
                    done -= 1
            self._compacted[outer] = done

    def _merged(self, older: _Piece, newer: _Piece) -> _Piece:
        table = self._form(concat([older.table, newer.table]))
        whole = table.rechunk() if isinstance(table, pl.DataFrame) else table.combine_chunks()
        return _Piece(older.first, newer.last, whole)

    def size(self) -> StateSize:
        """The size of the state."""
        pieces = [piece for pieces in self._scopes.values() for piece in pieces]
        return StateSize(
            sum(len(piece.table) for piece in pieces), sum(nbytes(piece.table) for piece in pieces), len(pieces)
        )
