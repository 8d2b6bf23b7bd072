"""Low-watermarks W: no processor ever rolls back below its own.

They are the greatest solution of Figure 6 of *Falkirk Wheel* over what is durable, without ⊤ (section 4.2), and rise
monotonically as processors report. `WatermarkSolver` checks the reports; the work is done by `forest`, for any time domains,
or, in dataflows too large for that, by `epochs`, compiled, where all times are epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from recovery.errors import ReportError
from recovery.fixed_point.epochs import EpochForest
from recovery.fixed_point.forest import Forest
from recovery.fixed_point.solve import PhysicalEdge
from recovery.metadata import Bound, depth_of, nothing, within
from timely.time import Summary

Report: TypeAlias = tuple[int, Bound, tuple[Bound, ...]]
"""Processor, its new bound, and for a chain the discards of every output port.

() is for no discards.
"""

_SAME = Summary.identity(1)

_LARGE = 20_000
"""Least number of edges for the compiled form."""

_MANY = 256
"""Least number of reports for a check of a batch as arrays."""


class WatermarkSolver:
    """Low-watermark of every processor, kept up to date.

    Args:
        kinds: of each processor the coordinates of its times, and whether it is a chain, which restores only the bounds
            that it reports (and ∅), or restores whatever lies within the bound that it completed last.
        edges: between processors, by their indices in `kinds`.
        start: low-watermarks that are known to hold, as after a decision or from a journal; ∅ everywhere without. What
            is durable beyond them is then reported once more.
        compiled: whether to use the compiled form where all times are epochs; by default in large dataflows.

    >>> from timely.time import Summary
    >>> w = WatermarkSolver([(1, False), (1, True)], [PhysicalEdge(0, 1, Summary.identity(1))])
    >>> w.completed(0, (4,)), sorted(w.report(1, (3,)))
    ([], [(0, (3,)), (1, (3,))])
    """

    def __init__(
        self,
        kinds: Sequence[tuple[int, bool]],
        edges: Sequence[PhysicalEdge],
        start: Sequence[Bound] | None = None,
        compiled: bool | None = None,
    ) -> None:
        self._kinds = kinds
        # D̄ = ∅ for every output port that has an edge, in the receiver's time domain.
        none: list[dict[int, Bound]] = [{} for _ in kinds]
        for edge in edges:
            if not edge.same:
                none[edge.source][edge.port] = nothing(edge.summary.result_depth)
        self._nothing = [tuple(ports.get(port, (0,)) for port in range(max(ports, default=-1) + 1)) for ports in none]
        first = [nothing(depth) for depth, _ in kinds] if start is None else start
        chains = [chain for _, chain in kinds]
        epochs_only = all(depth == 1 for depth, _ in kinds) and all(edge.summary == _SAME for edge in edges)
        if compiled is None:
            compiled = len(edges) >= _LARGE
        self._epochs = EpochForest(chains, first, edges) if compiled and epochs_only else None
        self._forest: Forest | EpochForest = self._epochs or Forest(chains, first, edges)
        self._changed: dict[int, Bound] = {}

    def report(self, processor: int, bound: Bound, discards: tuple[Bound, ...] = ()) -> list[tuple[int, Bound]]:
        """Report a chain's new option `bound`; `discards` is D̄(e, bound) by output port.

        Returns the processors whose low-watermark rose, each with the new one. What lies within its low-watermark
        already, or is reported a second time, changes nothing.

        Raises:
            ReportError: for a processor of the other kind, a bound below one reported before (unless it is the same
                report again), or discards that do not grow with the bound or are not one for each port.
        """
        if not self._kinds[processor][1]:
            raise ReportError(f"processor {processor} saves no checkpoints: what it can restore is told by `completed`")
        return self.tick([(processor, bound, discards)])

    def completed(self, processor: int, bound: Bound) -> list[tuple[int, Bound]]:
        """Report the completed bound of a processor without checkpoints.

        It can be restored to whatever lies within.

        Returns the processors whose low-watermark rose. Raises ReportError if it had completed more before.
        """
        if self._kinds[processor][1]:
            raise ReportError(f"processor {processor} restores its checkpoints only: it tells them by `report`")
        return self.tick([(processor, bound, ())])

    def tick(self, reports: Iterable[Report]) -> list[tuple[int, Bound]]:
        """Apply many reports at once; those of one processor must be in order.

        Returns the processors with a risen low-watermark, each once. Raises ReportError as `report` does; reports
        before the invalid one count, and the next tick returns what rose by them.
        """
        reports = list(reports)
        if self._epochs is not None and len(reports) >= _MANY:
            risen = self._epochs.update_many(reports)
            if risen is not None:
                self._changed.update(risen)
                return self.changed()
        new: dict[int, list[Report]] = {}
        error: ReportError | None = None
        for report in reports:
            try:
                if (more := self._checked(report, new.get(report[0]))) is not None:
                    new.setdefault(report[0], []).append(more)
            except ReportError as wrong:
                error = wrong
                break
        listed = [each for of_one in new.values() for each in of_one]
        self._changed.update(self._forest.update(listed, few=10 * len(new) < len(self._kinds)))
        if error is not None:
            raise error
        return self.changed()

    def _checked(self, report: Report, earlier: list[Report] | None) -> Report | None:
        """Report with all its discards; None if it adds nothing; raise ReportError."""
        p, bound, discards = report
        if not 0 <= p < len(self._kinds):
            raise ReportError(f"processor {p} is not one of the {len(self._kinds)} of this dataflow")
        depth, chain = self._kinds[p]
        if depth_of(bound) != depth:
            raise ReportError(f"processor {p} reported {bound}, where its times have {depth} coordinate(s)")
        none = self._nothing[p]
        # Ports without an edge discard nothing that anyone could miss.
        discards = (discards or none)[: len(none)] if chain else ()
        if chain and list(map(depth_of, discards)) != list(map(depth_of, none)):
            raise ReportError(
                f"processor {p} reported {discards} as discarded, where its outputs lead into time domains like {none}"
            )
        if earlier:
            _, last, last_discards = earlier[-1]
        else:
            last, last_discards = self._forest.limit(p), self._forest.last_discards(p)[: len(none)]
        if bound > last and within(last, bound):
            if not all(map(within, last_discards, discards)):
                raise ReportError(
                    f"processor {p} reported that it discarded less up to {bound}, {discards}, than up to {last}, "
                    f"{last_discards}: what is discarded can only grow"
                )
            return p, bound, discards
        if within(bound, self._forest.value(p)) or (bound == last and discards == last_discards):
            return None
        if chain:
            known = self._forest.known(p, bound)
            if known is not None and discards == known[: len(none)]:
                return None
            if any(discards == old for _, at, old in earlier or () if at == bound):
                return None
        raise ReportError(
            f"processor {p} reported {bound} with discards {discards} after {last}: reports of one processor must come in "
            "order, and say the same when they come again"
        )

    def changed(self) -> list[tuple[int, Bound]]:
        """Bounds risen since the last call."""
        found = list(self._changed.items())
        self._changed = {}
        return found

    def value(self, processor: int) -> Bound:
        """Low-watermark of a processor."""
        return self._forest.value(processor)

    def values(self) -> list[Bound]:
        """All low-watermarks."""
        return [self._forest.value(p) for p in range(len(self._kinds))]

    @property
    def touched(self) -> int:
        """Options looked at so far, as a measure of cost other than time."""
        return self._forest.touched
