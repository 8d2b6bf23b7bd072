"""Column pruning: only columns used by a region's query are written to its input.

A first run has all columns. What Spark's analysis of its query refers to is noted in a file of the region, which every worker
finds; who does not find it, or finds that it is about another query or other columns, writes all. A file's rows are known by
all their columns, whichever are in it, and what is in it the file says: so all of these choices are right, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from uuid import uuid4

import msgspec

from timely.data.codec.typed import Typed
from timely.errors import ProtocolError
from timely.operators.base import JobContext


class _Note(msgspec.Struct, frozen=True):
    query: str
    columns: tuple[str, ...]
    read: tuple[str, ...]


_NOTE: Typed[_Note] = Typed("a note of the columns that a query reads", _Note)


@dataclass(frozen=True, slots=True)
class Reads:
    """Note of the columns used of a region's `input` by the query `query`.

    `query` identifies the query, and all by which that may mean something else.
    """

    region: str
    input: str
    query: str

    @classmethod
    def of(cls, region: str, input: str, *what: object) -> Reads:
        """Note for the query identified by the values `what`."""
        return cls(region, input, blake2b(repr(what).encode(), digest_size=16).hexdigest())

    def left_out(self, context: JobContext, columns: Sequence[str]) -> tuple[str, ...]:
        """Unused columns of the input."""
        with suppress(OSError, ProtocolError):
            path = context.folder(f"{self.region}/reads") / self.input
            note = _NOTE.decode(path.read_bytes())
            if (note.query, note.columns) == (self.query, tuple(columns)):
                return tuple(name for name in columns if name not in note.read)
        return ()

    def note(self, context: JobContext, columns: Sequence[str], read: Collection[str]) -> None:
        """Note the columns used by the query."""
        path = context.folder(f"{self.region}/reads") / self.input
        unfinished = path.with_name(f"{path.name}-{uuid4().hex}.part")
        unfinished.write_bytes(msgspec.msgpack.encode(_Note(self.query, tuple(columns), tuple(sorted(read)))))
        unfinished.replace(path)
