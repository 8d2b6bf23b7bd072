"""Connected components on Pathway: `pw.iterate` over the least label of a node's neighbours, as in `components.py`.

The input and the changes are those of `components.py`. `--part change`: the median milliseconds from a changed edge to the end
of its time at the output. With each change an edge between two nodes of their own comes: without it Pathway does not say that
a time has ended at which no component changed.
"""

from __future__ import annotations

import os
import threading
import time

import numpy as np
from common import arguments, percentile, report

args = arguments()
os.environ["PATHWAY_THREADS"] = str(args.workers)

import pathway as pw  # noqa: E402

CHANGES = args.part == "change"
NODES: int = args.size
COUNT = 3 * NODES // 2 if CHANGES else 5 * NODES
_CHANGES = 20

ended = threading.Event()
found: dict[str, float] = {"rows": 0, "components": 0}
times: list[float] = []


class Edge(pw.Schema):
    """An edge of the graph; several may join the same nodes."""

    number: int = pw.column_definition(primary_key=True)
    begin: int
    end: int


class Edges(pw.io.python.ConnectorSubject):
    """All edges at once; then, if asked for, changes one by one."""

    @property
    def _deletions_enabled(self) -> bool:  # the way in which Pathway is told so
        return True

    def run(self) -> None:
        """Feed the edges, and wait for the answer to each commit."""
        rng = np.random.default_rng(7)
        begin, end = rng.integers(0, NODES, COUNT).tolist(), rng.integers(0, NODES, COUNT).tolist()
        for number in range(COUNT):
            self.next(number=number, begin=begin[number], end=end[number])
        started = time.perf_counter()
        self._answered()
        found["seconds"] = time.perf_counter() - started
        chosen = np.random.default_rng(8).integers(0, COUNT, _CHANGES).tolist() if CHANGES else []
        for place, edge in enumerate(chosen):
            for change in (self.delete, self.next):
                own = NODES + 4 * place + 2 * (change == self.next)
                started = time.perf_counter()
                change(number=edge, begin=begin[edge], end=end[edge])
                self.next(number=COUNT + own, begin=own, end=own + 1)
                self._answered()
                times.append((time.perf_counter() - started) * 1e3)

    def _answered(self) -> None:
        ended.clear()
        self.commit()
        ended.wait()


def changed(key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
    """Count the nodes that are the least of their component."""
    found["rows"] += 1
    if row["node"] == row["label"]:
        found["components"] += 1 if is_addition else -1


def over(time: int) -> None:
    """Let the next change come."""
    if found["rows"]:
        ended.set()


def spread(labels: pw.Table, both: pw.Table) -> dict[str, pw.Table]:
    """Each node's least label among its own and its neighbours'."""
    met = both.join(labels, both.begin == labels.node).select(node=both.end, label=labels.label)
    every = labels.select(labels.node, labels.label).concat_reindex(met)
    return {"labels": every.groupby(every.node).reduce(every.node, label=pw.reducers.min(every.label)), "both": both}


edges = pw.io.python.read(Edges(), schema=Edge, autocommit_duration_ms=None)
both = edges.select(edges.begin, edges.end).concat_reindex(edges.select(begin=edges.end, end=edges.begin))
labels = both.groupby(both.begin).reduce(node=both.begin, label=both.begin)
answer = pw.iterate(spread, labels=pw.iterate_universe(labels), both=both).labels
pw.io.subscribe(answer, on_change=changed, on_time_end=over)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
if CHANGES:
    times.sort()
    report(percentile(times, 0.5), p90=round(percentile(times, 0.9), 3), most=round(times[-1], 3))
else:
    report(found["seconds"])
