"""Garbage collection and release by low-watermarks and final commits."""

from __future__ import annotations

from recovery.agent.effects import Acknowledge
from recovery.agent.state import AgentState
from recovery.metadata import Bound, to_frontier, within
from timely.operators.ends import StagedEnd


class Collection:
    """Effects of low-watermarks and of durable commits on a worker."""

    def __init__(self, own: AgentState) -> None:
        self._own = own
        self._acknowledged = dict.fromkeys((node.index for node in own.plan.graph.of_kind("source")), 0)
        self._gates: list[list[int]] = [[] for _ in own.layout.groups]
        """Closing gates downstream of each group."""
        for edge in own.layout.edges:
            if edge.target in own.worker.gates:
                self._gates[own.layout.processors[edge.source].group].append(edge.target)

    def raise_low(self, changed: tuple[tuple[int, int, Bound], ...]) -> None:
        """Apply raised low-watermarks, as (processor, worker, bound)."""
        own = self._own
        for p, worker, bound in changed:
            if within(bound, own.low[worker][p]):
                continue
            own.low[worker][p] = bound
            own.known_ends.collect((worker, p), bound[0])
            for edge in own.layout.edges:
                if edge.target == p:
                    if edge.resends:
                        own.checkpoints.collect_log(edge.edge, worker, bound)
                    if edge.kept:
                        own.recorder.shipments.forget((edge.edge, worker), bound)
            if worker == own.index:
                self.let_go(p, bound)

    def raise_memory(self, changed: tuple[tuple[int, int, Bound], ...]) -> None:
        """Apply risen W₁, as (processor, worker, bound).

        It trims queues, and releases early output.

        Nothing durable rests on it, and no source hears of it.
        """
        own = self._own
        for p, worker, bound in changed:
            for edge in own.layout.edges:
                if edge.target == p and edge.kept:
                    own.recorder.shipments.forget((edge.edge, worker), bound)
            if worker == own.index and own.alive and own.layout.processors[p].early:
                operator = own.worker.runtimes[p].operator
                assert isinstance(operator, StagedEnd)
                operator.on_watermark(to_frontier(bound))
                own.checkpoints.published.rise(p, bound)

    def let_go(self, p: int, bound: Bound) -> None:
        """Apply a raised low-watermark of local processor `p`: collect and release."""
        own = self._own
        own.checkpoints.collect(p, bound)
        own.recorder.collect(p, bound)
        if own.alive:
            operator = own.worker.runtimes[p].operator
            # What is replayed begins with the state as it was saved last.
            base = own.checkpoints.base(p, bound) if p in own.operator_memory.of else bound
            operator.on_watermark(to_frontier(base))
            if isinstance(operator, StagedEnd):
                own.checkpoints.published.rise(p, bound)

    def acknowledge(self) -> None:
        """Acknowledge input within the low-watermarks of the sources."""
        own = self._own
        for node in self._acknowledged:
            self._acknowledge_before(node, own.low[own.index][own.plan.of_node[node]][0])

    def _acknowledge_before(self, node: int, epoch: int) -> None:
        if epoch > self._acknowledged[node]:
            self._acknowledged[node] = epoch
            self._own.effects.append(Acknowledge(node, epoch))

    def release(self, group: int, at: Bound) -> None:
        """Open the gates behind a group with a durable cut.

        If nothing can take that back, publish its outputs, and acknowledge its input, without waiting for the monitor.
        """
        own = self._own
        for gate in self._gates[group]:
            own.worker.open(gate, at)
        if own.layout.groups[group].independent:
            for p in own.layout.members(group):
                operator = own.worker.runtimes[p].operator
                if isinstance(operator, StagedEnd):
                    operator.on_watermark(to_frontier(at))
                    own.checkpoints.published.rise(p, at)
            own.perform()
            for node in self._acknowledged:
                if own.layout.processors[own.plan.of_node[node]].group == group:
                    self._acknowledge_before(node, at[0])
