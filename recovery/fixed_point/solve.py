"""Decision of a round: largest consistent bound of every processor.

Figure 6 of *Falkirk Wheel* over bounds (`recovery.metadata`). All that can be restored except ⊤ has N̄(p, g) = M̄(d, g) = g,
because it was saved when g was complete, and then the notification frontier f_n(p) can only be g. So there is one bound a
processor, which is f_n, and a mark on those that stay at ⊤ (*live*):

- f_n(q) ⊆ φ(d)(f_n(src)) on every edge. This implies M̄(d, f(q)) ⊆ φ(d)(f(src)) for all that are not live.
- A live processor keeps ⊤ while N̄(p, ⊤) ⊆ f_n(p), M̄(d, ⊤) ⊆ φ(d)(f(src)) and D̄(e, ⊤) ⊆ f(dst).
- D̄(e, f(p)) ⊆ f(dst): a processor that discards all that it sends can keep σ⁻¹(f(dst)) at most. If the sender has failed
  and the receiver is live, what the receiver surely holds, C(d), stands for its ⊤: the rest was lost on the way.

All these push downwards only, so lowering what violates one, until nothing does, ends in the greatest solution. Bounds need
not be prefixes: what a chain has persisted ascends, whatever its shape, and what is alive can keep any set.

Where survivors keep what they have, two constraints are weaker. A living sender discards only what it no longer holds in
memory (`Live.kept`). And f(q) may be ahead of φ(d)(f(src)) on an edge that is `suppressed`, as far as what src does again is
the same as before: `repeats`. Then f_n(p) ⊆ f(p) ∪ repeats(p), and is another bound than f(p).

Where an operator's state changes workers, all its processors come back to one bound: edges both ways, with the identity, on
which nothing is sent (`PhysicalEdge.same`), make f_n(p) equal on all workers.

Where what is done again is sent `anew`, at times that its receivers have not completed, φ of the edge is ⊤ at every bound:
only D̄ binds both ends, so that nothing is lost. On a `lossy` edge φ binds them, and D̄ only a living sender.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from recovery.errors import NoSolutionError
from recovery.fixed_point.descent import Step, beneath
from recovery.metadata import (
    MORE,
    Bound,
    depth_of,
    everything,
    image,
    inverse,
    meet,
    nothing,
    prefix,
    project,
    union,
    within,
)
from timely.time import Summary

LIVE = None
"""Decision to stay at ⊤, as it is."""


@dataclass(frozen=True, slots=True)
class PhysicalEdge:
    """Physical edge between two processors, by their flat indices.

    Its summary is that of the source.
    """

    source: int
    target: int
    summary: Summary
    port: int = 0
    """Output port of the source, an index into its discards."""
    discarding: Summary | None = None
    """Summary for unlogged messages; None: `summary`."""
    suppressed: bool = False
    """True if resends are filtered: the target may be ahead of the source.

    The source sends nothing twice that the target has when it comes back.
    """
    anew: bool = False
    """True if the source sends redone work at times new to the target.

    So the target keeps whatever it has.
    """
    same: bool = False
    """True between processors of one operator, restored to one bound.

    It carries no messages, so nothing is discarded on it. An edge leads the other way as well.
    """
    lossy: bool = False
    """True if D̄ = ∅ on it: a failed source makes nothing again for the target.

    A living one does, as far as its memory reaches.
    """

    @property
    def backwards(self) -> Summary:
        """Summary for limiting the sender's discards by the receiver's bound."""
        return self.discarding or self.summary


@dataclass(frozen=True, slots=True)
class AnyFrontier:
    """Options of a failed processor without checkpoints: every prefix g ⊆ `upto`.

    It logs nothing, so D̄(e, g) = ↓σ(g).
    """

    upto: Bound
    sets: bool = False
    """True if any other set within `upto` is an option too."""


@dataclass(frozen=True, slots=True)
class CheckpointChain:
    """Options of a failed chain: ∅ and `options`, ascending.

    Each is with D̄ for every output port, or () for ∅.
    """

    options: Sequence[tuple[Bound, tuple[Bound, ...]]]
    depth: int | None = None
    """Coordinates of its times, needed if neither an edge nor an option shows them."""


@dataclass(frozen=True, slots=True)
class Live:
    """Options of a living processor: ⊤, and any g with `floor` ⊆ g ⊆ `upto`.

    For g it drops from memory everything outside.
    """

    upto: Bound
    """Completed bound; also C(d), the times surely received on every in-edge."""
    delivered: Mapping[int, Bound]
    """M̄(d, ⊤) by index of the in-edge; ∅ where missing."""
    notified: Bound
    """N̄(p, ⊤)."""
    discards: tuple[Bound, ...]
    """D̄(e, ⊤) of each output port."""
    logs: tuple[bool, ...]
    """True for each output port with all messages logged: D̄(e, g) = ∅, not ↓σ(g)."""
    floor: Bound | None = None
    """Lower limit of the memory, from its last compaction; None: not compacted."""
    kept: Mapping[int, Bound] = field(default_factory=dict)
    """Start of the sent messages kept in memory, as a bound, by index of the out-edge.

    D̄(e, f) lies before it. Other edges keep none.
    """


Restorable: TypeAlias = AnyFrontier | CheckpointChain | Live


@dataclass(frozen=True, slots=True)
class Solution:
    """Rollback and notification frontiers chosen by the solver."""

    frontiers: list[Bound | None]
    """f(p) of every processor; LIVE for ⊤."""
    notifications: list[Bound]
    """f_n(p) of every processor."""


def solve(
    edges: Sequence[PhysicalEdge],
    processors: Sequence[Restorable],
    low_watermarks: Sequence[Bound] | None = None,
    repeats: Sequence[Bound] | None = None,
) -> list[Bound | None]:
    """Largest consistent f(p) of every processor; LIVE where it stays at ⊤.

    `repeats`: of each processor the bound up to which it does the same again, given the same, whatever it comes back to.
    None: no processor does, and no edge is suppressed.

    Raises:
        NoSolutionError: if a live processor would have to go below its floor, or any below its low-watermark.
    """
    return solution(edges, processors, low_watermarks, repeats).frontiers


def solution(
    edges: Sequence[PhysicalEdge],
    processors: Sequence[Restorable],
    low_watermarks: Sequence[Bound] | None = None,
    repeats: Sequence[Bound] | None = None,
) -> Solution:
    """`solve`, with the notification frontiers.

    Takes O(edges), more where checkpoints do not fit together.
    """
    descent = _Descent(edges, processors) if repeats is None else _RepeatingDescent(edges, processors, repeats)
    descent.run()
    frontiers: list[Bound | None] = [LIVE if live else bound for bound, live in zip(descent.bound, descent.live)]
    frontiers = frontiers[: len(processors)]
    for p, (bound, processor) in enumerate(zip(frontiers, processors)):
        if bound is None:
            continue
        if isinstance(processor, Live) and processor.floor is not None and not within(processor.floor, bound):
            raise _too_low(p, bound, "memory", processor.floor)
        if low_watermarks is not None and not within(low_watermarks[p], bound):
            raise _too_low(p, bound, "low-watermark", low_watermarks[p])
    return Solution(frontiers, descent.notifications())


def _too_low(p: int, bound: Bound, what: str, least: Bound) -> NoSolutionError:
    return NoSolutionError(
        f"processor {p} would have to roll back to {bound}, below its {what} at {least}: what it needs was collected too "
        "early, or a report is missing. Check that all stores of the job were given"
    )


def last_within(options: Sequence[Bound], most: Bound) -> int:
    """Index of the last of ascending bounds within `most`, which holds the first."""
    at = bisect_right(options, most) - 1  # those behind are no part of it
    while not within(options[at], most):
        at -= 1
    return at


def _remembers(sender: Restorable, index: int, held: Bound) -> bool:
    """True if a living sender keeps all messages that a target at `held` may lack."""
    return isinstance(sender, Live) and index in sender.kept and within(sender.kept[index], held)


class _Descent:
    """Worklist of the descent: `bound` is f_n, and f where it is not live."""

    def __init__(self, edges: Sequence[PhysicalEdge], processors: Sequence[Restorable]) -> None:
        count = len(processors)
        self._edges = edges
        self._processors = processors
        self._outgoing: list[list[int]] = [[] for _ in range(count)]
        self._incoming: list[list[int]] = [[] for _ in range(count)]
        depths: list[int | None] = [None] * count
        for index, edge in enumerate(edges):
            self._outgoing[edge.source].append(index)
            self._incoming[edge.target].append(index)
            depths[edge.source] = edge.summary.depth
            depths[edge.target] = edge.summary.result_depth
        self.bound: list[Bound] = []
        self.live: list[bool] = []
        # Of chains: all options from ∅ up, as two parallel lists, and which of them the bound is.
        self._options: list[list[Bound]] = [[]] * count
        self._discards: list[list[tuple[Bound, ...] | None]] = [[]] * count
        for p, processor in enumerate(processors):
            self.live.append(isinstance(processor, Live))
            if isinstance(processor, Live):
                self.bound.append(everything(depth_of(processor.upto)))
            elif isinstance(processor, AnyFrontier):
                self.bound.append(processor.upto if processor.sets else prefix(processor.upto))
            else:
                bottom = nothing(_depth(p, processor, depths[p]))
                self._options[p] = [bottom, *(bound for bound, _ in processor.options)]
                self._discards[p] = [None, *(discards or None for _, discards in processor.options)]
                self.bound.append(self._options[p][-1])
        self._identity = [edge.summary == Summary.identity(edge.summary.depth) for edge in edges]
        # Why a bound is what it is: the neighbour that alone determines it, and by which function.
        self._cause: list[Step | None] = [None] * count
        self._lowered = [0] * count
        self._waiting: deque[int] = deque()
        self._is_waiting = [False] * count

    def notifications(self) -> list[Bound]:
        """f_n(p) of every processor."""
        return self.bound

    def _is_ahead(self, index: int, target: int) -> bool:
        """True if the target of an edge may have more than φ of its source's bound."""
        return False

    def run(self) -> None:
        """Lower bounds until every constraint holds."""
        for p in range(len(self._processors)):
            self._wake(p)
        while self._waiting:
            p = self._waiting.popleft()
            self._is_waiting[p] = False
            self._spread(p)

    def _wake(self, p: int) -> None:
        if not self._is_waiting[p]:
            self._is_waiting[p] = True
            self._waiting.append(p)

    def _spread(self, p: int) -> None:
        """Lower the neighbours to fit the bound of p."""
        bound, live, processors = self.bound[p], self.live[p], self._processors
        for index in self._outgoing[p]:
            edge = self._edges[index]
            if edge.anew:
                continue
            q = edge.target
            fixed = bound if self._identity[index] else project(edge.summary, bound)
            if not live and self.live[q]:
                delivered = processors[q].delivered.get(index)  # type: ignore[union-attr]  # only Live is live
                if delivered is not None and not within(delivered, fixed):
                    self._fall(q)
            if not within(self.bound[q], fixed) and not self._is_ahead(index, q):
                self._lower(q, fixed, Step(p, edge.summary, backwards=False))
        for index in self._incoming[p]:
            edge = self._edges[index]
            if edge.same:
                continue
            r = edge.source
            sender = processors[r]
            if live:
                if isinstance(sender, Live):
                    continue
                held = processors[p].upto  # type: ignore[union-attr]  # only Live is live
            else:
                held = bound
            if edge.lossy:
                if not isinstance(sender, Live):
                    continue
                if sender.floor is not None:
                    held = union(held, image(edge.summary, sender.floor))
            if self.live[r]:
                assert isinstance(sender, Live)
                if not within(sender.discards[edge.port], held) and not _remembers(sender, index, held):
                    self._fall(r)
            elif isinstance(sender, CheckpointChain):
                self._drop_discarded(r, edge.port, held)
            elif isinstance(sender, AnyFrontier) or not sender.logs[edge.port]:
                keep = held if self._identity[index] else inverse(edge.backwards, held)
                if not within(self.bound[r], keep) and not _remembers(sender, index, held):
                    self._lower(r, keep, None if live else Step(p, edge.backwards, backwards=True))

    def _fall(self, p: int) -> None:
        """Take a living processor from ⊤ to its completed bound.

        It goes further down where that is too much.
        """
        processor = self._processors[p]
        assert isinstance(processor, Live)
        self.live[p] = False
        if not within(self.bound[p], processor.upto):
            self.bound[p] = meet(processor.upto, self.bound[p])
            self._cause[p] = None
        # What it discards at its new bound is another matter than at ⊤, so its receivers have their say again.
        for index in self._outgoing[p]:
            self._wake(self._edges[index].target)
        self._wake(p)

    def _lower(self, p: int, most: Bound, cause: Step | None) -> None:
        """Lower p to its largest option within `most`."""
        processor = self._processors[p]
        if isinstance(processor, CheckpointChain):
            self.bound[p] = self._options[p][last_within(self._options[p], meet(most, self.bound[p]))]
        else:
            if isinstance(processor, AnyFrontier) and not processor.sets:
                most = prefix(most)
            self.bound[p] = meet(most, self.bound[p])
            self._cause[p] = cause if self.bound[p] == most else None
            if self.live[p]:
                assert isinstance(processor, Live)
                if not within(processor.notified, self.bound[p]):
                    self._fall(p)
            self._lowered[p] += 1
            count = self._lowered[p]
            if count >= 4 and count & (count - 1) == 0:
                self._jump(p)
        self._wake(p)

    def _drop_discarded(self, p: int, port: int, held: Bound) -> None:
        """Lower a chain until its discards on `port` lie within the receiver's bound."""
        options, discards = self._options[p], self._discards[p]
        at = start = last_within(options, self.bound[p])
        while (lost := discards[at]) is not None and not within(lost[port], held):
            at -= 1
        if at < start:
            self.bound[p] = options[at]
            self._wake(p)

    def _jump(self, p: int) -> None:
        """Lower p straight to the end of a descent round a cycle.

        Only if it has come to a prefix: another set has gone down within some cut, which logs what goes round.
        """
        path: list[int] = []
        seen: dict[int, int] = {}
        at = p
        while at not in seen:
            cause = self._cause[at]
            if cause is None:
                return
            seen[at] = len(path)
            path.append(at)
            at = cause.source
        steps = [step for each in reversed(path[seen[at] :]) if (step := self._cause[each]) is not None]
        if MORE in self.bound[at]:
            return
        lowest = beneath(steps, self.bound[at])
        if lowest < self.bound[at]:
            self.bound[at] = lowest
            self._wake(at)


class _RepeatingDescent(_Descent):
    """Descent with repeated work: f_n has nodes of its own, after all processors.

    f_n(q) ⊆ φ(d)(f_n(src)) is an edge between such nodes, f(p) ⊆ f_n(p) one from the node to the processor, and f_n(p) ⊆ f(p) ∪
    repeats(p) is written out in `_spread`. These edges have no way back: they carry no messages, so nothing is discarded.
    """

    def __init__(
        self, edges: Sequence[PhysicalEdge], processors: Sequence[Restorable], repeats: Sequence[Bound]
    ) -> None:
        self._count = count = len(processors)
        self._repeats = repeats
        nodes = [AnyFrontier(everything(depth_of(bound)), sets=True) for bound in repeats]
        between = [
            replace(edge, source=count + edge.source, target=count + edge.target, suppressed=False) for edge in edges
        ]
        down = [PhysicalEdge(count + p, p, Summary.identity(depth_of(bound))) for p, bound in enumerate(repeats)]
        super().__init__([*edges, *between, *down], [*processors, *nodes])
        self._real = real = len(edges)
        self._incoming = [[index for index in into if index < real] for into in self._incoming]

    def notifications(self) -> list[Bound]:
        return self.bound[self._count :]

    def _is_ahead(self, index: int, target: int) -> bool:
        # At ⊤ it has no bound: M̄ was looked at.
        return self._edges[index].suppressed or (self.live[target] and index < self._real)

    def _spread(self, p: int) -> None:
        _Descent._spread(self, p)
        if p < self._count and not self.live[p]:
            node, repeats = self._count + p, self._repeats[p]
            most = union(self.bound[p], repeats)
            if not within(self.bound[node], most):
                step = Step(p, Summary.identity(depth_of(most)), backwards=False, least=repeats)
                self._lower(node, most, None if MORE in repeats else step)

    def _fall(self, p: int) -> None:
        _Descent._fall(self, p)
        for index in self._incoming[p]:
            self._wake(self._edges[index].source)  # they limit its bound, now that it has one


def _depth(p: int, chain: CheckpointChain, by_edge: int | None) -> int:
    if chain.options:
        return depth_of(chain.options[0][0])
    depth = chain.depth if by_edge is None else by_edge
    if depth is None:
        raise ValueError(f"processor {p} has neither an edge nor an option that tells its time domain: give its depth")
    return depth
