"""Plan of a rollback on one worker: restored state, kept queues, resent messages.

This is step 3 and 4 of a round (Isard and Abadi, *Falkirk Wheel*, end of section 3.6): S'(p), and Q'(e) with the messages in
flight taken into account. Planning reads and changes nothing: `recovery.rollback.carry_out` does what is planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from recovery.checkpoint.attributes import Attributes
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.operator_memory import OperatorMemory
from recovery.checkpoint.records import SourcePosition
from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.layout import Layout
from recovery.memory.kept_messages import Suppression
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import HistoryEvent
from recovery.metadata import NEVER, Bound, holds, to_frontier, within
from recovery.protocol import Decision, Resent
from recovery.rollback.queues import ResentCount, as_sent, stays, wanted
from timely.data.messages import Message
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.operators.base import Operator
from timely.state.interface import Runs
from timely.time import Frontier, Time
from timely.worker.outbox import Has
from timely.worker.restoring import Keeps, ResentBatch
from timely.worker.worker import Worker

SourceOrder: TypeAlias = tuple[int | None, tuple[SourcePosition, ...] | None, EpochEnds | None, int]
"""Rewind of a source: epoch, positions, known ends of epochs, least epoch to send.

An epoch of None: the source has ended. Positions of None: its driver knows them. Ends are those of epochs that
others have.
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """Full history to replay: all `events` since `runs` of state, in their order.

    `held` are the capabilities at the start.
    """

    runs: Runs
    held: tuple[tuple[Time, int], ...]
    events: Sequence[HistoryEvent]


@dataclass(frozen=True, slots=True)
class ProcessorOrder:
    """Order to take a processor back to `bound`, from its store or from memory.

    See `restoring.RestoredProcessor`.
    """

    bound: Bound
    from_store: bool
    requests: tuple[tuple[Time, Time], ...]
    held: tuple[tuple[Time, int], ...]
    runs: Runs | None
    replay: Replay | None
    forgets: tuple[str, ...]
    loaded: Operator | None = None
    """Operator with the state before `runs`; None: `runs` are all of it."""
    pieces: int = 0
    """Pieces of state in `runs`, of the store."""


@dataclass(frozen=True, slots=True)
class RollbackOrders:
    """One worker's share of a decision.

    Processors that are not in `restored` stay as they are.
    """

    generation: int
    bounds: tuple[Bound | None, ...]
    restored: Mapping[int, ProcessorOrder]
    fresh: frozenset[int]
    """Processors in `restored` with operators to be made anew.

    They may keep more than their state says.
    """
    stays: Keeps
    inputs: Mapping[int, Time | None]
    """Time of each source now, by node; None: it has ended."""
    sources: Mapping[int, SourceOrder]
    """Orders for sources to be rewound, by node."""
    local: Sequence[ResentBatch]
    remote: Sequence[tuple[int, Message]]
    resent: tuple[Resent, ...]
    """Messages of `local` and `remote`, counted."""
    has: Has | None
    """Test for messages already received by other workers."""


class RollbackPlanner:
    """Planner of one worker's share of a decision.

    Args:
        remembers: it holds what it did before in memory; otherwise its processors come back from its store.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        worker: Worker,
        recorder: WorkerRecorder,
        checkpoints: Checkpoints,
        attributes: Attributes,
        operator_memory: OperatorMemory,
        remembers: bool,
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._worker = worker
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._attributes = attributes
        self._operator_memory = operator_memory
        self._remembers = remembers
        self._again = ResentCount(layout)

    def orders(self, decision: Decision) -> RollbackOrders:
        """Plan this worker's share of a decision."""
        mine = decision.bounds[self._worker.index]
        remembers = self._remembers
        restored: dict[int, ProcessorOrder] = {}
        fresh: set[int] = set()
        inputs: dict[int, Time | None] = {}
        sources: dict[int, SourceOrder] = {}
        ends = KnownEnds(decision.ends)
        for p, bound in enumerate(mine):
            info, node = self._layout.processors[p], self._plan.processors[p].node
            if bound is not None:
                lowest = within(bound, decision.watermarks[self._worker.index][p])
                restored[p] = self._restore(p, bound, remembers, lowest)
                if node.holds or self._worker.runtimes[p].operator.state is None:
                    fresh.add(p)  # what it keeps beside its state may be of what is rolled back
            if info.role == "source":
                if bound is None:
                    inputs[node.index] = self._worker.input_time(node.index)
                else:
                    checkpoint = self._checkpoints.at(p, bound)
                    known = remembers and within(self._recorder.since[p], bound)
                    positions = None if known else (checkpoint.positions if checkpoint is not None else ())
                    epoch = bound[0] if bound[0] < NEVER else None
                    least = max(bound[0], decision.current if info.anew else 0)
                    inputs[node.index] = (least,) if epoch is not None else None
                    sources[node.index] = (epoch, positions, ends.of((self._worker.index, p)), least)
        local, remote = self._resend(decision, remembers)
        return RollbackOrders(
            generation=decision.generation,
            bounds=mine,
            restored=restored,
            fresh=frozenset(fresh),
            stays=self._keeps(decision, remembers),
            inputs=inputs,
            sources=sources,
            local=local,
            remote=remote,
            resent=self._again.result(),
            has=self._has(decision),
        )

    def _restore(self, p: int, bound: Bound, remembers: bool, lowest: bool) -> ProcessorOrder:
        if remembers and not within(self._recorder.since[p], bound):
            remembers = self._between(p, bound)
        loaded, pieces = None, 0
        if remembers:
            requests, held = self._recorder.requests(p, bound), self._recorder.held_at(p, bound)
            runs = None
        else:
            checkpoint = self._checkpoints.at(p, bound)
            requests, held = (checkpoint.requests, checkpoint.held) if checkpoint is not None else ((), ())
            loaded = self._checkpoints.loaded(p, bound)
            # What it came back with may be one run for many times.
            pieces = self._checkpoints.pieces(p, bound, loaded)
            runs = self._checkpoints.runs(p, bound, last=lowest, loaded=loaded)
        info, state = self._layout.processors[p], self._worker.runtimes[p].operator.state
        again = None
        if info.history and (not remembers or state is None or p in self._operator_memory.of):
            again = self._replay(p, bound, runs)
        forgets = tuple(self._attributes.changed(p))
        operator = None if loaded is None else loaded.operator
        return ProcessorOrder(bound, not remembers, requests, held, runs, again, forgets, operator, pieces)

    def _replay(self, p: int, bound: Bound, runs: Runs | None) -> Replay:
        """History of a processor from its last saved state up to `bound`.

        `runs`: that state, where it is read anyway.
        """
        base, state = self._checkpoints.base(p, bound), self._worker.runtimes[p].operator.state
        if runs is None and state is not None:
            runs = Runs.of(state.snapshot(to_frontier(base), Frontier.empty(self._layout.processors[p].depth)))
        whole = self._checkpoints.at(p, base)
        history = self._recorder.histories[p]
        events = [event for event in history if holds(bound, event.time) and not holds(base, event.time)]
        return Replay(runs or Runs.of(()), whole.held if whole is not None else (), events)

    def _between(self, p: int, bound: Bound) -> bool:
        """True if memory serves below a processor's restored bound.

        Then there is no checkpoint.

        Raises FalkirkError where neither does.
        """
        if not any(bound) or self._checkpoints.at(p, bound) is not None:
            return False
        info = self._layout.processors[p]
        if info.chain and info.role in ("operator", "source") and not info.history:
            raise FalkirkError(
                f"{info.kind} {info.name!r} was restored to {self._recorder.since[p]}, and is now to go back to {bound}, where "
                "it has no checkpoint. What is in the store is safe: run the job again"
            )
        return True

    def _keeps(self, decision: Decision, remembers: bool) -> Keeps:
        ends = {edge.edge: edge for edge in self._layout.edges}
        here = self._worker.index
        mine = decision.bounds[here]

        def keeps(index: int, sender: int, event: Time, time: Time) -> bool:
            lives = sender not in decision.failed
            edge = as_sent(ends[index], lives)
            source, target = decision.bounds[sender][edge.source], mine[edge.target]
            return remembers and stays(edge, source, target, lives, event, time)

        return keeps

    def _has(self, decision: Decision) -> Has | None:
        """Filter for resends: receivers hold times before their last restored bound.

        None if no receiver was restored to more than ∅: then messages need no test.
        """
        suppression = Suppression(decision.held)
        targets = {
            (worker, edge.edge): edge.target
            for edge in self._layout.edges
            if edge.kept
            for worker, bounds in enumerate(decision.held)
            if any(bounds[edge.target])
        }

        def has(worker: int, edge: int, time: Time) -> bool:
            target = targets.get((worker, edge))
            return target is not None and suppression.has(worker, target, time)

        return has if targets else None

    def _resend(self, decision: Decision, remembers: bool) -> tuple[list[ResentBatch], list[tuple[int, Message]]]:
        """Q'(e): messages needed again by their receivers."""
        has = self._has(decision)
        local: list[ResentBatch] = []
        remote: list[tuple[int, Message]] = []
        logs = wanted(self._layout, self._recorder, self._worker.index, decision.bounds, lambda _: remembers)
        for entry in logs:
            if entry.receiver == self._worker.index:
                local.append(ResentBatch(entry.edge, entry.event, entry.time, entry.content()))
            elif has is None or not has(entry.receiver, entry.edge, entry.time):
                remote.append((entry.receiver, entry.message()))
            else:
                continue
            self._again.add(entry)
        return local, remote
