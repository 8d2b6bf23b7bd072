"""Low-watermarks over any time domains, by a forest of witnesses.

The low-watermark is the greatest solution without ⊤, so it only rises, and the question after a report is who can rise now.
Every processor p has *ceilings*: nodes (p, b) that say "p cannot exceed b yet". The highest is its limit, the last bound
that it reported; the lowest is its low-watermark. A ceiling below the limit hangs on a witness: the ceiling of a
neighbour, or a higher one of its own, that was known before and from which it follows. So the nodes form a forest whose
roots are the limits. When a limit is lifted, its tree is all that could have depended on it:

- Its root is hung on another ceiling from which it follows and that lies outside the tree, if there is one: O(degree + depth).
- Otherwise the tree is taken down. Those processors whose lowest ceiling was in it try their next one, and whatever
  violates a constraint is lowered again, each time with a new ceiling that hangs on what made it necessary. What is left
  is accepted.

Whoever waits for a laggard hangs in its tree, and is not touched by the reports of others. A processor that waits takes
further reports without a look at its neighbours. (Witnesses are by option, not by processor: that p cannot exceed b may
follow from a *higher* ceiling of q, while the lowest of q follows from p.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

from recovery.fixed_point.descent import Step, beneath
from recovery.fixed_point.solve import PhysicalEdge, last_within
from recovery.metadata import Bound, inverse, meet, prefix, project, within
from timely.time import Summary


class _Ceiling:
    """Node of the forest: `processor` cannot exceed `bound`, because of `witness`.

    Without a witness it is a limit: the processor has reported no more.
    """

    __slots__ = ("bound", "dependents", "processor", "step", "witness")

    def __init__(self, processor: int, bound: Bound, witness: _Ceiling | None, step: Step | None) -> None:
        self.processor = processor
        self.bound = bound
        self.step = step
        self.dependents: dict[_Ceiling, None] = {}
        self.witness = witness
        if witness is not None:
            witness.dependents[self] = None

    def hang(self, witness: _Ceiling | None) -> None:
        """Move it below another witness."""
        if self.witness is not None:
            del self.witness.dependents[self]
        self.witness = witness
        if witness is not None:
            witness.dependents[self] = None

    def depends_on(self, other: _Ceiling) -> bool:
        """True if it is in the tree of `other`."""
        at: _Ceiling | None = self
        while at is not None and at is not other:
            at = at.witness
        return at is other


class Forest:
    """Low-watermarks of processors with times of any depth.

    It trusts that reports are in order.
    """

    def __init__(self, chains: Sequence[bool], start: Sequence[Bound], edges: Sequence[PhysicalEdge]) -> None:
        self.touched = 0
        """Ceilings made, moved, removed or lifted since the beginning."""
        self._edges = edges
        self._outgoing: list[list[int]] = [[] for _ in start]
        self._incoming: list[list[int]] = [[] for _ in start]
        for index, edge in enumerate(edges):
            self._outgoing[edge.source].append(index)
            self._incoming[edge.target].append(index)
        self._identity = [edge.summary == Summary.identity(edge.summary.depth) for edge in edges]
        self._chains = chains
        self._value = [bound if chain else prefix(bound) for bound, chain in zip(start, chains)]
        # Of chains: the options from the low-watermark up.
        self._bounds: list[list[Bound]] = [[bound] for bound in start]
        self._discards: list[list[tuple[Bound, ...]]] = [[()] for _ in start]
        self._ceilings = [[_Ceiling(p, bound, None, None)] for p, bound in enumerate(self._value)]
        # During one update: what the processors had that may rise, and how often each was lowered.
        self._risen: dict[int, Bound] = {}
        self._lowered: dict[int, int] = {}
        self._made: list[_Ceiling] = []

    def value(self, p: int) -> Bound:
        """Low-watermark of p."""
        return self._value[p]

    def limit(self, p: int) -> Bound:
        """Last bound reported by p."""
        return self._ceilings[p][-1].bound

    def known(self, p: int, bound: Bound) -> tuple[Bound, ...] | None:
        """Discards reported by a chain with `bound`; None if `bound` was not reported.

        () if the discards were forgotten.
        """
        at = bisect_right(self._bounds[p], bound) - 1  # below the low-watermark the last one, which is another
        return self._discards[p][at] if self._bounds[p][at] == bound else None

    def last_discards(self, p: int) -> tuple[Bound, ...]:
        """Discards of a chain's last report, or ()."""
        return self._discards[p][-1] if self._chains[p] else ()

    def update(self, reports: Iterable[tuple[int, Bound, tuple[Bound, ...]]], few: bool) -> list[tuple[int, Bound]]:
        """Raise limits, each above its processor's last; return risen low-watermarks.

        With `few`, each looks for another witness first; for many at once that would take longer than starting anew.
        """
        for p, bound, discards in reports:
            if not self._chains[p]:
                bound = prefix(bound)
                if bound == self.limit(p):
                    continue
            else:
                self._bounds[p].append(bound)
                self._discards[p].append(discards)
            self._lift(p, bound, few)
        return self._settle()

    # ------------------------------------------------------------------------------------------ lifting

    def _lift(self, p: int, bound: Bound, few: bool) -> None:
        ceilings = self._ceilings[p]
        limit = ceilings[-1]
        self.touched += 1
        if len(ceilings) > 1:
            # It waits for others. What followed from its limit still does so from a lower ceiling of its own.
            if limit.dependents:
                if not ceilings[-2].depends_on(limit):
                    limit.hang(ceilings[-2])
                    ceilings.append(_Ceiling(p, bound, None, None))
                    return
                self._take_down(limit.dependents)
            limit.bound = bound
            return
        if few and (witness := self._other_witness(p, bound, limit)) is not None:
            limit.hang(witness)
            ceilings.append(_Ceiling(p, bound, None, None))
            return
        self._risen[p] = self._value[p]
        self._take_down(limit.dependents)
        limit.bound = bound

    def _other_witness(self, p: int, bound: Bound, limit: _Ceiling) -> _Ceiling | None:
        """Ceiling outside the tree of `limit` able to hold p at its value.

        p may have up to `bound`.
        """
        value = self._value[p]
        inside: set[_Ceiling] = {limit}
        for index, neighbour, out in self._around(p):
            if neighbour in self._risen or self._fit(p, index, neighbour, out, bound) != value:
                continue
            path: list[_Ceiling] = []
            at: _Ceiling | None = self._ceilings[neighbour][0]
            while at is not None and at not in inside:
                path.append(at)
                at = at.witness
            if at is None:
                return self._ceilings[neighbour][0]
            inside.update(path)
        return None

    def _take_down(self, nodes: Iterable[_Ceiling]) -> None:
        """Remove these trees; processors losing their lowest ceiling may rise."""
        waiting = list(nodes)
        for node in waiting:
            node.hang(None)
        while waiting:
            node = waiting.pop()
            waiting += node.dependents
            self.touched += 1
            ceilings = self._ceilings[node.processor]
            if ceilings[0] is node:
                self._risen.setdefault(node.processor, self._value[node.processor])
            ceilings.remove(node)

    # ------------------------------------------------------------------------------------------ settling

    def _settle(self) -> list[tuple[int, Bound]]:
        """Raise processors to their lowest ceilings, then lower all violations.

        The rest is accepted.
        """
        risen = self._risen
        for p in risen:
            self._value[p] = self._ceilings[p][0].bound
        queue: deque[int] = deque()
        for p in risen:
            for index, neighbour, out in self._around(p):
                self._limit_by(p, index, neighbour, out, queue)
        while queue:
            r = queue.popleft()
            for index, q, out in self._around(r):
                if q in risen:
                    self._limit_by(q, index, r, not out, queue)
        changed: list[tuple[int, Bound]] = []
        for p, before in risen.items():
            value = self._value[p]
            if value == before:
                continue
            self.touched += 1
            changed.append((p, value))
            if self._chains[p]:
                at = bisect_right(self._bounds[p], value) - 1
                del self._bounds[p][:at], self._discards[p][:at]
        self._prune()
        risen.clear()
        self._lowered.clear()
        return changed

    def _around(self, p: int) -> Iterable[tuple[int, int, bool]]:
        """Edges of p, each with the neighbour at its other end, and True for an out-edge."""
        for index in self._incoming[p]:
            yield index, self._edges[index].source, False
        for index in self._outgoing[p]:
            yield index, self._edges[index].target, True

    def _limit_by(self, p: int, index: int, neighbour: int, out: bool, queue: deque[int]) -> None:
        """Lower p to the bound admitted by an edge to a neighbour."""
        # Again and again only where the neighbour is p itself: what it keeps limits what it may have discarded.
        while (most := self._fit(p, index, neighbour, out, self._value[p])) != self._value[p]:
            edge = self._edges[index]
            step = None if self._chains[p] else Step(neighbour, edge.backwards if out else edge.summary, backwards=out)
            self._lower(p, most, self._ceilings[neighbour][0], step)
            queue.append(p)

    def _fit(self, p: int, index: int, neighbour: int, out: bool, most: Bound) -> Bound:
        """Largest bound up to `most` admitted for p by an edge and its neighbour's bound."""
        edge = self._edges[index]
        if out and edge.same:
            return most
        at = self._value[neighbour]
        if out and edge.lossy:
            return most
        if not self._chains[p]:
            if self._identity[index]:
                return min(prefix(at), most)
            return min(prefix(inverse(edge.backwards, at) if out else project(edge.summary, at)), most)
        bounds, discards = self._bounds[p], self._discards[p]
        if not out:
            fixed = at if self._identity[index] else project(edge.summary, at)
            return bounds[last_within(bounds, meet(fixed, most))]
        option = bisect_right(bounds, most) - 1
        while option > 0 and not within(discards[option][edge.port], at):
            option -= 1
        return bounds[option]

    def _lower(self, p: int, most: Bound, witness: _Ceiling, step: Step | None) -> None:
        node = _Ceiling(p, most, witness, step)
        self._place(node)
        count = self._lowered[p] = self._lowered.get(p, 0) + 1
        if step is not None and count >= 4 and count & (count - 1) == 0:
            self._jump(node)

    def _place(self, node: _Ceiling) -> None:
        self.touched += 1
        self._ceilings[node.processor].insert(0, node)
        self._value[node.processor] = node.bound
        self._made.append(node)

    def _jump(self, node: _Ceiling) -> None:
        """Lower a processor descending round a cycle straight to the end of the descent."""
        steps: list[Step] = []
        at: _Ceiling | None = node
        while at is not None and at.step is not None:
            steps.append(at.step)
            at = at.witness
            if at is not None and at.processor == node.processor:
                lowest = beneath(steps[::-1], node.bound)
                if lowest < node.bound:
                    # It follows from the cycle, which is for ever, and from its present ceiling.
                    self._place(_Ceiling(node.processor, lowest, node, None))
                return

    def _prune(self) -> None:
        """Drop ceilings without dependents between the lowest and the limit."""
        for node in reversed(self._made):
            if not node.dependents and self._ceilings[node.processor][0] is not node:
                self._ceilings[node.processor].remove(node)
                node.hang(None)
        self._made.clear()
