"""Exposure of a job: cost of a worker's failure now, by known options. Pure.

The solver of a round is given what the monitor knows: the options of the worker that fails are those it has reported, and
of each living worker the least that it surely has. Where a living processor received or sent anything at all is unknown, so
it is taken to have received from all and sent to all: it stays at ⊤ only where that changes nothing. All this makes the set
of allowed frontiers smaller, so the greatest of them holds no more than what a round would decide at this moment: exposure
errs on the side of too much.

To be cheap it is solved for two workers, the one that fails and all others together, and operators that go back together
anyway are one. Both only add constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from monitor.coordination.options import Option, Options
from monitor.explain.measured import Pace
from recovery.epoch_ends import KnownEnds
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, Live, PhysicalEdge, Restorable, solve
from recovery.layout import EdgeInfo, Layout
from recovery.metadata import NEVER, Bound, at_cut, at_epoch, everything, image, meet, nothing, prefix, union, within
from recovery.protocol import END, ROWS, Observed
from recovery.reachability import behind, joined
from timely.time import FINITE, Summary

MONITOR = -1
"""Place of the monitor among mortal processes."""

_KEPT_FROM = ROWS.index("kept_from")
_DEAD, _LIVING = 0, 1
_ROOT = -1


class Danger(msgspec.Struct, frozen=True, array_like=True):
    """Cost of the death of a worker, or of the monitor (-1).

    `records`: number of records that operators of all workers would handle again, as of the last sample and by the rates
    since; `redo`: seconds of the worker with most of that work; `restore`: seconds from a failure until all run again, as last
    measured; `back`: processors that would go back. None: unknown.
    """

    who: int
    records: int | None
    redo: float | None
    restore: float | None
    back: int | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds until all is as it was; None if a part is unknown."""
        return None if self.redo is None or self.restore is None else self.redo + self.restore

    @property
    def text(self) -> str:
        """Cost in words.

        >>> Danger(1, 2523, 0.029, None).text
        'if worker 1 died now: 2,523 records, 29 ms of work, and restoring, which was not measured yet'
        >>> Danger(0, 7, 0.5, 1.25).text, Danger(2, None, None, 1.0).text
        ('if worker 0 died now: 7 records, 1,750 ms', 'if worker 2 died now: unknown')
        """
        who = "the monitor" if self.who == MONITOR else f"worker {self.who}"
        if self.records is None or self.redo is None:
            return f"if {who} died now: unknown"
        if self.seconds is None:
            rest = f"{self.redo * 1000:,.0f} ms of work, and restoring, which was not measured yet"
        else:
            rest = f"{self.seconds * 1000:,.0f} ms"
        return f"if {who} died now: {self.records:,} records, {rest}"

    def as_json(self) -> dict[str, Any]:
        """JSON form, for the page and the card of a rollback."""
        return {**msgspec.structs.asdict(self), "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class Fate:
    """Frontiers after a supposed failure, `[worker][processor]`; None: ⊤.

    `epochs` are the first epochs that they leave out, as an array; END for what is kept whole.
    """

    bounds: tuple[tuple[Bound | None, ...], ...]
    epochs: npt.NDArray[np.int64]

    @property
    def back(self) -> int:
        """Number of processors rolled back."""
        return sum(bound is not None for bounds in self.bounds for bound in bounds)


class Reduced:
    """Dataflow of a layout for two workers, with equal operators joined.

    Two operators are one where a message between them is neither logged nor changes its time nor leaves the worker: then
    D̄(e, f) = f(src) ⊆ f(dst) ⊆ φ(d)(f(src)) = f(src).
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        inside = [self._joins(edge) for edge in layout.edges]
        together = [(edge.source, edge.target) for edge, joins in zip(layout.edges, inside) if joins]
        self.members = joined(len(layout.processors), together)
        number = {p: at for at, members in enumerate(self.members) for p in members}
        self.of = [number[p] for p in range(len(number))]
        """Node of each operator."""
        self.leaving: list[list[tuple[int, EdgeInfo, int]]] = [[] for _ in self.members]
        """Out-edges of each node: index in the layout, edge, port of its source."""
        ports = layout.outgoing()
        for index, edge in enumerate(layout.edges):
            if not inside[index]:
                self.leaving[self.of[edge.source]].append((index, edge, ports[edge.source].index(index)))
        self.edges, self.into, self.kept = self._edges()
        sending = [any(layout.processors[p].anew for p in members) for members in self.members]
        self.renewed = [replace(edge, anew=True) if sending[edge.source // 2] else edge for edge in self.edges]
        wavering = _wavering(layout)
        ways = [(edge.source, edge.target) for edge in layout.edges] + [(_ROOT, p) for p in wavering]
        unsure = {layout.processors[p].group for p in behind(ways, [_ROOT])}
        by_epoch = all(group.depth == 1 for group in layout.groups)
        self.steady = [by_epoch and layout.processors[members[0]].group not in unsure for members in self.members]
        """True for nodes of repeating groups fed by repeating ones, cut at epochs."""
        self.survives = layout.workers > 1 and any(edge.kept for edge in layout.edges)

    def _joins(self, edge: EdgeInfo) -> bool:
        one, other = self.layout.processors[edge.source], self.layout.processors[edge.target]
        across = edge.spread and self.layout.workers > 1
        same = (one.group, one.repeats, one.anew, one.depth) == (other.group, other.repeats, other.anew, other.depth)
        ends = one.role == "source" and not one.repeats  # how far it repeats is known of each by itself
        plain = edge.summary == Summary.identity(edge.depth) and not edge.lossy
        return same and not across and not edge.resends and not ends and plain

    def _edges(self) -> tuple[list[PhysicalEdge], list[list[int]], list[list[tuple[int, int]]]]:
        """Edges; in-edges of each node; kept ones of each living node, by place."""
        edges: list[PhysicalEdge] = []
        into: list[list[int]] = [[] for _ in range(2 * len(self.members))]
        kept: list[list[tuple[int, int]]] = [[] for _ in self.members]
        halves = (_DEAD, _LIVING) if self.layout.workers > 1 else (_DEAD,)
        for node, leaving in enumerate(self.leaving):
            for port, (_, edge, _) in enumerate(leaving):
                for half in halves:
                    for other in halves if edge.spread else (half,):
                        target = 2 * self.of[edge.target] + other
                        into[target].append(len(edges))
                        if edge.kept and half == _LIVING:
                            kept[node].append((len(edges), port))
                        apart = edge.kept and half != other
                        ends = 2 * node + half, target
                        edges.append(PhysicalEdge(*ends, edge.summary, port, edge.discarding, apart, lossy=edge.lossy))
        return edges, into, kept


def _wavering(layout: Layout) -> list[int]:
    return [p for p, info in enumerate(layout.processors) if not info.repeats and info.role in ("source", "operator")]


def fate(
    reduced: Reduced,
    options: Options,
    failed: Collection[int],
    samples: Mapping[int, Observed],
    held: Sequence[Sequence[Bound | None]] = (),
) -> Fate:
    """Frontiers if the workers `failed` died now.

    Args:
        reduced: dataflow of the job.
        options: of its processors.
        told: the last observation of each worker, of this generation.
        held: bounds at which processors came back last, `[worker][processor]`; None: never.
    """
    return _Supposed(reduced, options, sorted(failed), samples, held).solve()


class _Supposed:
    """Problem of one supposed failure."""

    def __init__(
        self,
        reduced: Reduced,
        options: Options,
        failed: list[int],
        samples: Mapping[int, Observed],
        held: Sequence[Sequence[Bound | None]],
    ) -> None:
        self.reduced, self.options, self.failed, self.held = reduced, options, failed, held
        self.layout = layout = reduced.layout
        self.living = [worker for worker in range(layout.workers) if worker not in failed]
        self.known = KnownEnds(each for worker in self.living if worker in samples for each in samples[worker].ends)
        count = len(layout.processors)
        self.kept_from = {
            worker: np.frombuffer(samples[worker].numbers, np.int64).reshape(len(ROWS), count)[_KEPT_FROM].tolist()
            for worker in self.living
            if worker in samples
        }

    def solve(self) -> Fate:
        """Fate of all processors."""
        reduced, layout = self.reduced, self.layout
        nodes: list[Restorable] = []
        for node in range(len(reduced.members)):
            nodes.append(self._stored(node, self.failed))
            nodes.append(self._live(node) if self.living else AnyFrontier(nothing(self._depth(node))))
        edges = reduced.renewed if self._renews() else reduced.edges
        repeats = self._repeats() if reduced.survives and self.living else None
        while True:
            found = solve(edges, nodes, None, repeats)
            stuck = [
                at for at, bound in enumerate(found) if at % 2 == _LIVING and bound and self._between(at, bound, nodes)
            ]
            if not stuck:
                break
            for at in stuck:
                nodes[at] = self._stored(at // 2, self.living)
        halves = [_LIVING if worker in self.living else _DEAD for worker in range(layout.workers)]
        bounds = tuple(tuple(found[2 * node + half] for node in reduced.of) for half in halves)
        epochs = [[END if bound is None else min(bound[0], END) for bound in of_worker] for of_worker in bounds]
        return Fate(bounds, np.array(epochs, np.int64).reshape(layout.workers, len(layout.processors)))

    def _depth(self, node: int) -> int:
        return self.layout.processors[self.reduced.members[node][0]].depth

    def _flats(self, node: int, workers: Sequence[int]) -> list[int]:
        width = self.layout.workers
        return [p * width + worker for p in self.reduced.members[node] for worker in workers]

    # Without memory

    def _stored(self, node: int, workers: Sequence[int]) -> Restorable:
        """Options of a node on workers without memory: those of all its processors."""
        options, topology = self.options, self.options.topology
        flats = self._flats(node, workers)
        chains = [flat for flat in flats if topology.info(flat).chain]
        others = [options.completed(flat) for flat in flats if not topology.info(flat).chain]
        if not chains:
            return AnyFrontier(reduce(meet, others))
        low = reduce(union, (options.low(flat) for flat in chains))
        listed = [dict(options.chains[flat]) for flat in chains]
        common = [bound for bound, _ in options.chains[chains[0]] if within(low, bound)]
        for other in listed[1:]:
            if len(common) != len(other) or any(bound not in other for bound in common):
                common = [bound for bound in common if bound in other]
        if others:
            upto = reduce(meet, others)
            common = [bound for bound in common if within(bound, upto) and prefix(bound) == bound]
        at = dict(zip(chains, listed))
        found: list[Option] = [(bound, self._discards(node, workers, bound, at)) for bound in common]
        return CheckpointChain(found, self._depth(node))

    def _discards(
        self, node: int, workers: Sequence[int], bound: Bound, at: Mapping[int, Mapping[Bound, tuple[Bound, ...]]]
    ) -> tuple[Bound, ...]:
        """D̄ on each out-edge of a node, at a saved bound."""
        found = []
        for _, edge, port in self.reduced.leaving[node]:
            lost = nothing(edge.summary.result_depth)
            if not edge.logged and not edge.lossy:
                lost = image(edge.discarding, bound)
                for worker in workers:
                    saved = at.get(edge.source * self.layout.workers + worker)
                    if saved is not None:
                        lost = union(lost, saved[bound][port])
            found.append(lost)
        return tuple(found)

    # With memory

    def _upto(self, node: int) -> Bound:
        """Bound surely completed by all living processors of a node."""
        info = self.layout.processors[self.reduced.members[node][0]]
        done = []
        for worker in self.living:
            upto = self.options.upto[worker]
            low = reduce(meet, (self.options.low(flat) for flat in self._flats(node, [worker])))
            done.append(low if upto is None else union(low, at_cut(upto[info.group], info.depth)))
        return reduce(meet, done)

    def _live(self, node: int) -> Live:
        reduced, leaving = self.reduced, self.reduced.leaving[node]
        depth = self._depth(node)
        kept = {
            index: from_
            for index, port in reduced.kept[node]
            if (from_ := self._kept(leaving[port][1], reduced.edges[index].target)) is not None
        }
        return Live(
            self._upto(node),
            {index: everything(depth) for index in reduced.into[2 * node + _LIVING]},
            everything(depth),
            tuple((nothing if edge.logged else everything)(edge.summary.result_depth) for _, edge, _ in leaving),
            tuple(edge.logged for _, edge, _ in leaving),
            None,
            kept,
        )

    def _kept(self, edge: EdgeInfo, target: int) -> Bound | None:
        """Start of an edge's messages kept by all living workers; None: unknown.

        To the dead: where only what no receiver needs any more was forgotten, all of it is there. Within a living worker
        what is complete is forgotten, so it counts where a receiver that falls goes no further than to that.
        """
        depth = edge.summary.result_depth
        begin = nothing(depth) if target % 2 == _DEAD else self._upto(target // 2)
        if target % 2 == _LIVING and not self.reduced.steady[target // 2]:
            return None
        for worker in self.living:
            if worker not in self.kept_from:
                return None
            epoch = self.kept_from[worker][edge.source]
            if epoch > 0 and epoch > self._let_go(edge.source):
                begin = union(begin, at_epoch(min(epoch, NEVER), depth))
        return begin

    def _let_go(self, source: int) -> int:
        """First epoch of an operator's output still needed by a failed receiver."""
        lows = [
            self.options.low(edge.target * self.layout.workers + worker)
            for edge in self.layout.edges
            if edge.source == source and edge.kept
            for worker in self.failed
        ]
        return min((low[0] + any(low[1:]) for low in lows), default=0)

    def _between(self, at: int, bound: Bound, nodes: Sequence[Restorable]) -> bool:
        """True if memory may not reach an unsaved bound; see `Options.decide`."""
        if not self.held or not isinstance(nodes[at], Live):
            return False
        for flat in self._flats(at // 2, self.living):
            processor, worker = divmod(flat, self.layout.workers)
            since = self.held[worker][processor]
            saves = self.layout.processors[processor].chain and since is not None and not within(since, bound)
            if saves and all(option != bound for option, _ in self.options.chains[flat]):
                return True
        return False

    # The whole

    def _renews(self) -> bool:
        """True if AtLeastOnce sources would go on in a later epoch."""
        topology, options = self.options.topology, self.options
        groups = {topology.info(flat).group for flat in topology.after_anew}
        done = [upto[group][0] for upto in options.upto if upto is not None for group in groups]
        return bool(topology.after_anew) and max(done, default=0) < FINITE and options.current_epoch({}) > 0

    def _repeats(self) -> list[Bound]:
        found: list[Bound] = []
        for members in self.reduced.members:
            info = self.layout.processors[members[0]]
            for workers in (self.failed, self.living):
                samples = 0 if info.repeats else self._samples(members, workers)
                found.append(info.everything if info.repeats else at_epoch(samples, info.depth))
        return found

    def _samples(self, members: Sequence[int], workers: Sequence[int]) -> int:
        """End of the epochs surely repeated by a source; 0 for none."""
        if self.layout.processors[members[0]].role != "source":
            return 0
        width = self.layout.workers
        return min(
            self.known.repeats((worker, p), self.options.low(p * width + worker)[0], workers is self.failed)
            for p in members
            for worker in workers
        )


def danger(
    who: int,
    found: Fate,
    samples: Mapping[int, Observed],
    restore: float | None,
    paces: Mapping[int, Pace] = MappingProxyType({}),
) -> Danger:
    """Cost of a fate, by each worker's last observation and its pace since."""
    records, redo = 0, 0.0
    for worker, epochs in enumerate(found.epochs):
        exposed = samples[worker].exposed if worker in samples else None
        if exposed is None:
            return Danger(who, None, None, restore, found.back)
        begins = np.array(exposed.begins, np.int64)
        table = np.frombuffer(exposed.records, np.int64).reshape(len(begins), len(epochs))
        rows = np.searchsorted(begins, epochs, side="right") - 1
        again = table[rows, np.arange(len(epochs))].astype(np.float64)
        if (pace := paces.get(worker)) is not None and len(pace.taken) == len(epochs):
            newest = exposed.begins[-1]
            again = np.where(epochs > newest, 0.0, again) + pace.handled(newest, epochs)
        undone = round(float(np.where(epochs < END, again, 0.0).sum()))
        records += undone
        redo = max(redo, undone * (exposed.each or 0.0))
    return Danger(who, records, redo, restore, found.back)
