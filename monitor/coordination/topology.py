"""Physical dataflow: every processor and edge of the layout on every worker.

Processor p of worker w has the flat index p * workers + w.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from recovery.fixed_point.solve import PhysicalEdge
from recovery.layout import Layout, ProcessorInfo
from recovery.metadata import Bound
from recovery.reachability import behind
from timely.time import Summary

T = TypeVar("T")


class Topology:
    """Processors and edges of `layout`, unfolded over its workers.

    Attributes:
        edges: the physical ones.
        incoming: for each flat index, (index in `edges`, number of the in-edge within the layout's order).
        kept: for each flat index, (index in `edges`, number of the out-edge among those that are kept, receiving worker).
        repeats: how far each processor does the same again; None where nothing is kept.
        renewed: `edges` for a round in which processors that are AtLeastOnce send anew.
        after_anew: the flat indices of all that they lead to.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.workers = layout.workers
        self.outgoing = layout.outgoing()
        into = layout.incoming()
        self.logs = [tuple(layout.edges[index].logged for index in ports) for ports in self.outgoing]
        self.count = len(layout.processors) * self.workers
        self.edges: list[PhysicalEdge] = []
        self.incoming: list[list[tuple[int, int]]] = [[] for _ in range(self.count)]
        self.kept: list[list[tuple[int, int, int]]] = [[] for _ in range(self.count)]
        ports_kept = [[index for index in ports if layout.edges[index].kept] for ports in self.outgoing]
        for index, edge in enumerate(layout.edges):
            summary, discarding = edge.summary, edge.discarding
            port = self.outgoing[edge.source].index(index)
            place = into[edge.target].index(index)
            for w in range(self.workers):
                for v in range(self.workers) if edge.spread else (w,):
                    source, target = self.flat(edge.source, w), self.flat(edge.target, v)
                    if edge.kept:
                        self.kept[source].append((len(self.edges), ports_kept[edge.source].index(index), v))
                    self.incoming[target].append((len(self.edges), place))
                    apart = edge.kept and v != w
                    self.edges.append(PhysicalEdge(source, target, summary, port, discarding, apart, lossy=edge.lossy))
        self.repeats: list[Bound] | None = None
        if any(self.kept):
            infos = [self.info(flat) for flat in range(self.count)]
            self.repeats = [info.everything if info.repeats else info.nothing for info in infos]

        anew = [p for p, info in enumerate(layout.processors) if info.anew]
        self.renewed = [replace(edge, anew=True) if self.info(edge.source).anew else edge for edge in self.edges]
        after = sorted(behind(((edge.source, edge.target) for edge in layout.edges), anew))
        self.after_anew = [self.flat(p, w) for p in after for w in range(self.workers)]

    def same(self) -> Iterable[PhysicalEdge]:
        """Edges both ways between the processors of each operator.

        With them all workers come back to one bound, as they must where state changes workers.
        """
        for processor, info in enumerate(self.layout.processors):
            first, summary = self.flat(processor, 0), Summary.identity(info.depth)
            for other in range(first + 1, first + self.workers):
                yield PhysicalEdge(first, other, summary, same=True)
                yield PhysicalEdge(other, first, summary, same=True)

    @cached_property
    def leaving(self) -> list[list[int]]:
        """Out-edges by flat index, as indexes in `edges`, made on first use.

        They are for questions of people.
        """
        found: list[list[int]] = [[] for _ in range(self.count)]
        for index, edge in enumerate(self.edges):
            found[edge.source].append(index)
        return found

    def flat(self, processor: int, worker: int) -> int:
        """Flat index of a processor on a worker."""
        return processor * self.workers + worker

    def info(self, flat: int) -> ProcessorInfo:
        """Layout's entry for a flat index."""
        return self.layout.processors[flat // self.workers]

    def name(self, flat: int) -> str:
        """Name of a processor, for messages.

        For example "operator 'count' of worker 1 (app.py:12)".
        """
        info = self.info(flat)
        return f"operator {info.name!r} of worker {flat % self.workers} ({info.site})"

    def by_worker(self, values: Sequence[T]) -> tuple[tuple[T, ...], ...]:
        """Rearrange values by flat index into `[worker][processor]`."""
        return tuple(tuple(values[w :: self.workers]) for w in range(self.workers))
