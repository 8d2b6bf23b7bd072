"""Inputs changed by hand, and snapshots of captured collections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from libraries.columns.verbs.dataflow import Dataflow
from libraries.differential.collection import Collection, from_changes
from libraries.differential.identity import identity
from libraries.differential.operators import added_up
from libraries.differential.rows import as_pairs, rows_of
from runtime.session.handles import InputHandle
from runtime.session.session import Session
from timely.data.batch import Batch
from timely.errors import naming_the_line
from timely.time import Time, leq


def input_of(flow: Dataflow, name: str) -> Collection:
    """Collection changed by hand through `Input(session, name)`.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> seen = differential.input_of(flow, "words").count().capture("out")
    >>> with falkirk.Session(flow) as session:
    ...     words = differential.Input(session, "words")
    ...     words.insert_all(["a", "b", "a"])
    ...     words.close()
    ...     session.run()
    ...     differential.snapshot(session.captured("out"))
    {('a', 2): 1, ('b', 1): 1}
    """
    return from_changes(flow.input(name))


class Input:
    """Input of the collection `input_of(flow, name)`: changes at the input's epoch.

    With `checked`, it knows what is there, and refuses to remove what is not; that costs a dictionary of all records.
    Otherwise a record that was removed more often than it was inserted is an error of the first verb that cannot do with it.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> seen = differential.input_of(flow, "prices").max().capture("out")
    >>> with falkirk.Session(flow) as session:
    ...     prices = differential.Input(session, "prices")
    ...     prices.insert(("apple", 3))
    ...     prices.upsert("pear", 5)
    ...     prices.advance_to(1)
    ...     prices.remove(("apple", 3))
    ...     prices.upsert("pear", 6)
    ...     prices.close()
    ...     session.run()
    ...     changes = session.captured("out")
    >>> differential.snapshot(changes, epoch=0)
    {('apple', 3): 1, ('pear', 5): 1}
    >>> differential.snapshot(changes)
    {('pear', 6): 1}
    """

    def __init__(self, session: Session, name: str, checked: bool = False) -> None:
        self._handle: InputHandle = session.input(name)
        self._name = name
        self._there: Counter[Any] | None = Counter() if checked else None
        self._values: dict[Any, Any] = {}

    @naming_the_line
    def change(self, record: Any, by: int) -> None:
        """Change the multiplicity of `record` by `by`, which may be negative."""
        if self._there is not None:
            name = identity(record)
            if self._there[name] + by < 0:
                raise ValueError(
                    f"input {self._name!r}: {record!r:.200} is there {self._there[name]} times and cannot be removed "
                    f"{-by} times"
                )
            self._there[name] += by
            if not self._there[name]:
                del self._there[name]
        self._handle.send([(record, by)])

    def insert(self, record: Any) -> None:
        """Insert `record` once."""
        self.change(record, 1)

    def remove(self, record: Any) -> None:
        """Remove `record` once."""
        self.change(record, -1)

    def insert_all(self, records: Iterable[Any]) -> None:
        """Insert each record once."""
        for record in records:
            self.change(record, 1)

    @naming_the_line
    def columns(self, key: Any, value: Any = None, diff: Any = 1) -> None:
        """Insert integers, or pairs of integers, given as arrays; `diff` -1 removes them."""
        rows = rows_of(key, value, diff)
        if not len(rows):
            return
        if self._there is None:
            self._handle.send([rows])
        else:
            for record, by in rows.pairs():
                self.change(record, by)

    def upsert(self, key: Any, value: Any) -> None:
        """Replace the value of `key` set by this method; None removes it."""
        before = self._values.get(key)
        if before is not None:
            self.change((key, before), -1)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
            self.change((key, value), 1)

    def advance_to(self, epoch: int) -> None:
        """Promise to make no more changes before `epoch`."""
        self._handle.advance_to(epoch)

    def close(self) -> None:
        """Promise to make no more changes."""
        self._handle.close()


def snapshot(captured: Iterable[tuple[Time, Batch]], epoch: int | None = None) -> dict[Any, int]:
    """Multiplicity of each captured record, at the end or after `epoch`.

    >>> from falkirk import differential
    >>> differential.snapshot([((0,), [("a", 1)]), ((1,), [("a", -1), ("b", 2)])])
    {'b': 2}
    """
    changes: list[tuple[Any, int]] = []
    for time, batch in captured:
        if epoch is None or leq(time, (epoch,)):
            assert isinstance(batch, list)
            changes += as_pairs(batch)
    there: dict[Any, int] = {}
    for record, by in added_up(changes):
        there[record] = there.get(record, 0) + by
    return {record: times for record, times in there.items() if times}
