"""Check of replay: a time done again must give the same output as before."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from falkirk.simulate.judging import exactly, shown
from falkirk.simulate.outside import Violation
from recovery.layout import Layout
from recovery.metadata import Bound, holds
from timely.data.batch import Batch
from timely.io.memory import rows_of
from timely.time import Time

Key = tuple[int, int, Time, Time, int | None]
"""Key of output: (processor, output port, event, time, None).

Of the part for one worker: (processor, edge, event, time, worker).
"""


class Sends:
    """Repeatable output of the processors of one worker, across its processes.

    Compared are records, not batches, of events that are complete; and only of operators that repeat, as all before
    them do. They must be equal to the last digit of a float, and go to the same workers.
    """

    def __init__(self, layout: Layout, worker: int) -> None:
        edges: nx.DiGraph[int] = nx.DiGraph((edge.source, edge.target) for edge in layout.edges)
        edges.add_nodes_from(range(len(layout.processors)))
        others = {p for p, info in enumerate(layout.processors) if not info.repeats}
        behind = {p for other in others for p in nx.descendants(edges, other)}
        self._watched = set(range(len(layout.processors))) - others - behind
        self._layout = layout
        self._worker = worker
        self._now: dict[Key, list[Batch]] = {}
        self._before: dict[Key, list[Batch]] = {}
        """Output of complete events from before a rollback."""

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """Record a batch sent by an event."""
        if processor in self._watched:
            self._now.setdefault((processor, port, event, time, None), []).append(batch)

    def routed(self, processor: int, edge: int, event: Time, time: Time, receiver: int, batch: Batch) -> None:
        """Record the part of an output for one worker."""
        if processor in self._watched:
            self._now.setdefault((processor, edge, event, time, receiver), []).append(batch)

    def taken_back(self, processor: int, bound: Bound, complete: Bound) -> None:
        """Roll a processor back to `bound`; events before `complete` were complete there."""
        for key in [key for key in self._now if key[0] == processor and not holds(bound, key[2])]:
            batches = self._now.pop(key)
            if holds(complete, key[2]):
                self._before.setdefault(key, batches)
        for key in [key for key in self._before if key[0] == processor and holds(bound, key[2])]:
            del self._before[key]  # it is not done again

    def complete(self, processor: int, upto: Bound) -> None:
        """Compare complete events of a processor before `upto` with earlier runs.

        Raises Violation.
        """
        for key in [key for key in self._before if key[0] == processor and holds(upto, key[2])]:
            before, now = _rows(self._before.pop(key)), _rows(self._now.get(key, []))
            if [exactly(row) for row in before] != [exactly(row) for row in now]:
                info, receiver = self._layout.processors[processor], key[4]
                to = "" if receiver is None else f" to worker {receiver}"
                raise Violation(
                    f"{info.kind} {info.name!r} of worker {self._worker} ({info.site}) sent {shown(before)}{to} at {key[3]}, "
                    f"and {shown(now)} when it did this again. If it cannot help that, declare why: by "
                    ".nondeterministic(reason), or in its region"
                )


def _rows(batches: Iterable[Batch]) -> list[object]:
    return sorted((row for batch in batches for row in rows_of(batch)), key=exactly)
