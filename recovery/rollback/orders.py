"""From a decision to what one worker does: which state comes back, what stays queued, which logged messages go again.

This is step 3 and 4 of a round (Isard and Abadi, *Falkirk Wheel*, end of section 3.6): S'(p), and Q'(e) with the messages in
flight taken into account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from recovery.checkpoint.attributes import Attributes
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.operator_memory import Beside
from recovery.checkpoint.records import SourcePosition
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound, to_frontier
from recovery.protocol import Decision
from recovery.recorder import LogEntry, WorkerRecorder
from recovery.rollback.queues import goes_again, stays
from recovery.rollback.replay import replay
from timely.data.messages import Message
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.time import Frontier, Time
from timely.worker import restoring
from timely.worker.worker import Worker


class RollbackPlanner:
    """One worker's share of one decision.

    Args:
        remembers: it holds what it did before in memory; otherwise its processors come back from its store.
        stored_at: of what lies before this, by processor, memory knows state and events only; positions, requests and D̄ are
            in the store, because that is where they came from.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        worker: Worker,
        recorder: WorkerRecorder,
        checkpoints: Checkpoints,
        attributes: Attributes,
        beside: Beside,
        remembers: bool,
        stored_at: Sequence[Bound],
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._worker = worker
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._attributes = attributes
        self._beside = beside
        self._remembers = remembers
        self._stored_at = stored_at
        self.rewound: dict[int, tuple[int | None, tuple[SourcePosition, ...] | None]] = {}
        """Sources, by node, that must go on at an epoch (None: ended), with positions where they are not known here."""

    def orders(self, decision: Decision) -> restoring.Orders:
        """This worker's orders."""
        mine = decision.bounds[self._worker.index]
        remembers = self._remembers
        restored: dict[int, restoring.RestoredProcessor] = {}
        fresh: set[int] = set()
        inputs: dict[int, Time | None] = {}
        for p, bound in enumerate(mine):
            info, node = self._layout.processors[p], self._plan.processors[p].node
            if bound is not None:
                restored[p] = self._restore(p, bound, remembers)
                if node.holds or (node.factory is not None and self._worker.runtimes[p].operator.state is None):
                    fresh.add(p)  # what it keeps beside its state may be of what is rolled back
            if info.role == "source":
                if bound is None:
                    inputs[node.index] = self._worker.input_time(node.index)
                else:
                    checkpoint = self._checkpoints.at(p, bound)
                    known = remembers and bound >= self._stored_at[p]
                    positions = None if known else (checkpoint.positions if checkpoint is not None else ())
                    inputs[node.index] = (bound[0],) if bound[0] < NEVER else None
                    self.rewound[node.index] = (bound[0] if bound[0] < NEVER else None, positions)
        local, remote = self._resend(decision, remembers)
        return restoring.Orders(
            generation=decision.generation,
            restored=restored,
            keeps=self._keeps(decision, remembers),
            inputs=inputs,
            local=local,
            remote=remote,
            fresh=frozenset(fresh),
        )

    def _restore(self, p: int, bound: Bound, remembers: bool) -> restoring.RestoredProcessor:
        info = self._layout.processors[p]
        if remembers and bound < self._stored_at[p]:
            remembers = self._between(p, bound)
        if remembers:
            requests, held = self._recorder.requests(p, bound), self._recorder.held_at(p, bound)
            self._recorder.restored(p, bound, None)
            runs = None
        else:
            checkpoint = self._checkpoints.at(p, bound)
            requests, held = (checkpoint.requests, checkpoint.held) if checkpoint is not None else ((), ())
            self._recorder.restored(p, bound, requests, held)
            self._checkpoints.came_back(p, bound)
            runs = tuple(self._checkpoints.runs(p, bound))  # what it came back with may be one run for many times
        operator, runtime = None, self._worker.runtimes[p]
        state = runtime.operator.state
        if info.history and (not remembers or state is None or p in self._beside.of):
            base = self._checkpoints.base(p, bound)
            if runs is None and state is not None:
                runs = tuple(state.snapshot(to_frontier(base), Frontier.empty(info.depth)))
            events = [event for event in self._recorder.histories[p] if event.time >= base]
            whole = self._checkpoints.at(p, base)
            held_then = whole.held if whole is not None else ()
            operator = replay(runtime, runs or (), held_then, events, self._beside)
        return restoring.RestoredProcessor(
            to_frontier(bound), runs, requests, held, operator, tuple(self._attributes.changed(p)) if remembers else ()
        )

    def _between(self, p: int, bound: Bound) -> bool:
        """True if memory serves below the bound to which a processor came back from the store, for there is no checkpoint.

        Raises FalkirkError where neither does.
        """
        if not any(bound) or self._checkpoints.at(p, bound) is not None:
            return False
        info = self._layout.processors[p]
        if info.chain and info.role in ("operator", "source") and not info.history:
            raise FalkirkError(
                f"{info.kind} {info.name!r} was restored to {self._stored_at[p]}, and is now to go back to {bound}, where it "
                "has no checkpoint. What is in the store is safe: run the job again"
            )
        return True

    def _keeps(self, decision: Decision, remembers: bool) -> Callable[[int, int, Time, Time], bool]:
        ends = {edge.edge: edge for edge in self._layout.edges}
        mine = decision.bounds[self._worker.index]

        def keeps(index: int, sender: int, event: Time, time: Time) -> bool:
            edge = ends[index]
            source, target = decision.bounds[sender][edge.source], mine[edge.target]
            return remembers and stays(edge, source, target, sender not in decision.failed, event, time)

        return keeps

    def _resend(
        self, decision: Decision, remembers: bool
    ) -> tuple[list[restoring.ResentBatch], list[tuple[int, Message]]]:
        """Q'(e): the logged messages that their receivers need again."""
        local: list[restoring.ResentBatch] = []
        remote: list[tuple[int, Message]] = []
        logs = wanted(self._layout, self._recorder, self._worker.index, decision.bounds, lambda _: remembers)
        for entry in logs:
            if entry.receiver == self._worker.index:
                local.append(restoring.ResentBatch(entry.edge, entry.event, entry.time, entry.content()))
            else:
                remote.append((entry.receiver, entry.message()))
        return local, remote


def wanted(
    layout: Layout,
    recorder: WorkerRecorder,
    index: int,
    bounds: Sequence[Sequence[Bound | None]],
    remembers: Callable[[int], bool],
) -> Iterator[LogEntry]:
    """Of the logs of worker `index`, the messages that their receivers need again when `bounds[worker][processor]` is decided.

    `remembers(processor)`: it has its memory, so all that it has sent has arrived, or waits there.
    """
    ends = {edge.edge: edge for edge in layout.edges}
    for (number, receiver), entries in recorder.logs.items():
        edge = ends[number]
        source, target = bounds[index][edge.source], bounds[receiver][edge.target]
        lives = remembers(edge.source)
        for entry in entries:
            if goes_again(edge, source, target, lives, entry.event, entry.time):
                yield entry
