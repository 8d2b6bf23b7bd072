"""Memory of a worker's events, for rollback: implements the engine's `Recorder`.

Of messages it keeps the greatest times delivered and sent, which is what M̄(d, ⊤) and D̄(e, ⊤) come down to for frontiers
that are totally ordered; of full histories the events. `Channels` keeps the messages themselves.
`recovery.checkpoint.checkpoints` decides what is saved, and when it is forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from recovery.layout import Layout
from recovery.memory.channels import Channels
from recovery.memory.records import NOTIFICATION, RESULT, HistoryEvent
from recovery.metadata import (
    Bound,
    after,
    cut_within,
    holds,
    image,
    last_of,
    last_time,
    meet,
    nothing,
    union,
)
from timely.data.batch import Batch
from timely.errors import OperatorError
from timely.time import Summary, Time, visible


@dataclass(slots=True)
class _Memory:
    """Recorded times of one processor."""

    delivered: list[Time]
    """Greatest time delivered on each input port, as tuples; () for none."""
    sent: list[Time]
    """Greatest time sent on each output port, () for none.

    It leaves out messages with times that follow from the events that are kept.
    """
    requests: list[tuple[Time, Time]] = field(default_factory=list)
    """Notifications requested for later times than their event's.

    (event, time), delivered ones too.
    """
    holds: list[tuple[Time, Time, int]] = field(default_factory=list)
    """Capabilities for later times than their event's, kept (+1) or returned (-1).

    (event, time, difference).
    """


class WorkerRecorder(Channels):
    """Recorder of worker `index`; see `timely.worker.recorder.Recorder`."""

    def __init__(self, layout: Layout, index: int) -> None:
        super().__init__(layout, index)
        self._reach: dict[tuple[int, int], bool] = {}
        """True for outputs with later times logged, by processor and port.

        Outputs where all is logged, and those that change times unlogged, are left out.
        """
        self.histories: dict[int, list[HistoryEvent]] = {
            p: [] for p, info in enumerate(layout.processors) if info.history
        }
        self.beside: dict[int, Callable[[], bool]] = {}
        """Tests for memory beside `state`, by processor with a history.

        Only operators with a history that may end in their `state` have one.
        """
        self.handled: list[dict[Time, int]] = [{} for _ in layout.processors]
        """Records handled by each processor, by time as far as cuts distinguish it.

        Only those that may have to be done again.
        """
        self._whole = [min(layout.groups[info.group].depth, info.depth) for info in layout.processors]
        self.records = 0
        """Records handled by all processors, ever."""
        self.order = 0
        self.since: list[Bound] = [info.nothing for info in layout.processors]
        """Restored bound by processor: below it memory has only state and events.

        Positions, requests and D̄ of what lies before are in the store, because that is where they came from.
        """
        self._notified: list[Time] = [()] * len(layout.processors)
        """Greatest time notified, by processor, as tuples; () for none."""
        self._acted: list[Bound] = [info.nothing for info in layout.processors]
        """Greatest bound acted on as complete other than by notification, by processor."""
        self._of: list[_Memory] = []
        self._local: dict[tuple[int, int], list[int]] = {}
        """Logged edges within the worker, by (processor, port)."""
        for p in range(len(layout.processors)):
            ports_in = [layout.edges[e].target_port for e in self._incoming[p]]
            ports_out = [layout.edges[e].port for e in self._outgoing[p]]
            self._of.append(_Memory([()] * (max(ports_in, default=0) + 1), [()] * (max(ports_out, default=-1) + 1)))
            for e in self._outgoing[p]:
                edge = layout.edges[e]
                if not edge.logged and edge.discarding == Summary.identity(edge.depth):
                    self._reach[p, edge.port] = edge.ahead
                if edge.resends and (layout.workers == 1 or not edge.spread):
                    self._local.setdefault((p, edge.port), []).append(edge.edge)

    # What the engine tells

    def delivered(self, processor: int, port: int, time: Time, batch: Batch) -> None:
        """Record a batch about to be handled."""
        greatest = self._of[processor].delivered
        if time > greatest[port]:
            greatest[port] = time
        records, handled, at = len(batch), self.handled[processor], time[: self._whole[processor]]
        handled[at] = handled.get(at, 0) + records
        self.records += records
        if processor in self.histories:
            self._happened(processor, port, time, batch)

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
        """Record a batch sent."""
        memory = self._of[processor]
        if port >= len(memory.sent):  # nobody is there
            return
        ahead = self._reach.get((processor, port)) if time != event else None
        if ahead is None:
            if time > memory.sent[port]:
                memory.sent[port] = time
        elif not ahead:
            raise self._too_far(processor, event, time, "sent a message")
        if self._local:
            for edge in self._local.get((processor, port), ()):
                self.kept(edge, event, time, batch)

    def requested(self, processor: int, event: Time, time: Time) -> None:
        """Record a request in an event at `event` for a notification at `time`."""
        if time != event:
            whole = self._whole[processor]
            if time[:whole] != event[:whole] and not self._remembers(processor):
                raise self._too_far(processor, event, time, "asked for a notification")
            self._of[processor].requests.append((event, time))

    def notified(self, processor: int, time: Time) -> None:
        """Record a notification about to be handled."""
        if time > self._notified[processor]:
            self._notified[processor] = time
        if processor in self.histories:
            self._happened(processor, NOTIFICATION, time, None)

    def resulted(self, processor: int, time: Time, result: Any) -> None:
        """Record the result of a job about to be handled."""
        if processor in self.histories:
            self._happened(processor, RESULT, time, result)

    def held(self, processor: int, event: Time, time: Time, diff: int) -> None:
        """Record a capability kept or returned.

        Of those for the event's own time nothing outlives a checkpoint.
        """
        if time > event:
            info = self._layout.processors[processor]
            if not info.chain:
                raise self._too_far(processor, event, time, "kept a capability")
            if not info.finds_capabilities:
                raise OperatorError(
                    f"{info.kind} {info.name!r} ({info.site}) keeps a capability for {visible(time)} in an event at "
                    f"{visible(event)}, and could "
                    "not find it again after a failure: let it have on_restore(ctx, capabilities), which gives it back"
                )
            self._of[processor].holds.append((event, time, diff))

    def started(self, processor: int, event: Time, time: Time) -> None:
        """Record the start of a job, at its event's own time only.

        A job cannot be saved, so it must be one that is started again when its time is done again.
        """
        if time != event:
            info = self._layout.processors[processor]
            raise OperatorError(
                f"{info.kind} {info.name!r} ({info.site}) starts a job for {visible(time)} in an event at "
                f"{visible(event)}, which nobody would "
                "start again after a failure: ask for a notification then, and start it there, or by a capability that was "
                "kept then"
            )

    def kept_state(self, processor: int, event: Time, time: Time) -> None:
        """Check state kept under another time than its event's.

        A checkpoint has it, where there are any.
        """
        if not self._remembers(processor):
            raise self._too_far(processor, event, time, "keeps state")

    def completed(self, processor: int) -> None:
        """Record the end of an event in an operator with state.

        What is new its state knows itself.
        """
        if (keeps := self.beside.get(processor)) is not None:
            self.histories[processor][-1].beside = keeps()

    def _remembers(self, processor: int) -> bool:
        """True if later times may follow from an event: saved, or declared lost."""
        info = self._layout.processors[processor]
        return info.chain or info.comes_back_empty

    def _happened(self, processor: int, port: int, time: Time, what: Any) -> None:
        self.order += 1
        self.histories[processor].append(HistoryEvent(self.order, port, time, what))

    def _too_far(self, processor: int, event: Time, time: Time, what: str) -> OperatorError:
        info = self._layout.processors[processor]
        mend = "leave out stateful=False"
        if info.bare:
            mend = "give it Lazy() or Batch() by .policy(...)"
        return OperatorError(
            f"{info.kind} {info.name!r} ({info.site}), in an event at {visible(event)}, {what} for {visible(time)}, which "
            f"nobody would remember after a failure: {mend}"
        )

    # What recovery asks

    def acted(self, processor: int, bound: Bound) -> None:
        """Record an action on completeness up to `bound`, such as a checkpoint."""
        self._acted[processor] = union(bound, self._acted[processor])

    def notified_bound(self, processor: int) -> Bound:
        """N̄(p, ⊤): all times acted on as complete."""
        notified, acted = self._notified[processor], self._acted[processor]
        return union(after(notified), acted) if notified else acted

    def only_state(self, processor: int, bound: Bound) -> bool:
        """True if events before `bound` left nothing but `state` in an operator.

        So it is if nothing else was there after the last of them. If events of later times came in between, which may have
        taken away what was there, nothing may have been there from then on.
        """
        events = self.histories[processor]
        inside = [holds(bound, event.time) for event in events]
        if True not in inside:
            return True
        last = len(inside) - 1 - inside[::-1].index(True)
        pure = inside.index(False) if False in inside else len(inside)
        return not any(event.beside for event in events[max(pure - 1, 0) : last + 1])

    def delivered_bounds(self, processor: int) -> tuple[Bound, ...]:
        """M̄(d, ⊤) of each in-edge."""
        info, memory = self._layout.processors[processor], self._of[processor]
        ports = [self._layout.edges[e].target_port for e in self._incoming[processor]]
        return tuple(after(memory.delivered[port]) if memory.delivered[port] else info.nothing for port in ports)

    def sent_bounds(self, processor: int) -> tuple[Bound, ...]:
        """D̄(e, ⊤) of each out-edge; ∅ for logged ones."""
        return tuple(
            after(greatest) if not edge.logged and greatest else nothing(edge.summary.result_depth)
            for edge, greatest in self._sent(processor)
        )

    def discards(self, processor: int, bound: Bound) -> tuple[Bound, ...]:
        """D̄(e, f) of each out-edge for f = `bound`."""
        result = []
        for edge, greatest in self._sent(processor):
            least = nothing(edge.summary.result_depth)
            if not edge.logged and greatest:
                least = meet(image(edge.discarding, bound), after(greatest))
            result.append(least)
        return tuple(result)

    def requests(self, processor: int, bound: Bound) -> tuple[tuple[Time, Time], ...]:
        """Requests in S(p, f): asked for within f = `bound`, due outside it."""
        return tuple(
            (event, time)
            for event, time in self._of[processor].requests
            if holds(bound, event) and not holds(bound, time)
        )

    def held_at(self, processor: int, bound: Bound) -> tuple[tuple[Time, int], ...]:
        """Capabilities in S(p, f): kept within f = `bound`, for times outside it.

        Those given back within f are left out.
        """
        counts: Counter[Time] = Counter()
        for event, time, diff in self._of[processor].holds:
            if (not event or holds(bound, event)) and not holds(bound, time):
                counts[time] += diff
        return tuple(sorted((time, count) for time, count in counts.items() if count > 0))

    def restored(
        self,
        processor: int,
        bound: Bound,
        requests: tuple[tuple[Time, Time], ...] | None,
        held: tuple[tuple[Time, int], ...] = (),
    ) -> None:
        """Record a rollback of a processor to `bound`.

        `requests` and `held` came from storage; None: they are known here.
        """
        memory = self._of[processor]
        whole = cut_within(bound, self._whole[processor])
        self.handled[processor] = {at: n for at, n in self.handled[processor].items() if holds(whole, at)}
        self.since[processor] = bound if requests is not None else meet(bound, self.since[processor])
        self._notified[processor], self._acted[processor] = (), bound  # its frontier is complete, and no more than that
        last = last_time(bound) or ()
        memory.delivered = [min(time, last) if requests is None else last for time in memory.delivered]
        if requests is not None:
            memory.requests = list(requests)
            memory.holds = [((), time, count) for time, count in held]
            # What was sent before is not known here: what a checkpoint says of it is at most what it may have been.
            memory.sent = [last_of(edge, bound) for edge in self._ports(processor)]
        else:
            memory.requests = [each for each in memory.requests if holds(bound, each[0])]
            memory.holds = [each for each in memory.holds if not each[0] or holds(bound, each[0])]
            memory.sent = [min(time, last_of(edge, bound)) for time, edge in zip(memory.sent, self._ports(processor))]
        self._undo(processor, bound, requests is not None)
        if processor in self.histories:
            self.histories[processor] = [event for event in self.histories[processor] if holds(bound, event.time)]

    def collect(self, processor: int, bound: Bound) -> None:
        """Drop records needed only for rollbacks below `bound`, the processor's W."""
        memory = self._of[processor]
        whole = cut_within(bound, self._whole[processor])
        self.handled[processor] = {at: n for at, n in self.handled[processor].items() if not holds(whole, at)}
        if memory.requests:
            memory.requests = [each for each in memory.requests if not holds(bound, each[1])]
        if memory.holds:
            memory.holds = [each for each in memory.holds if not holds(bound, each[1])]
        self._settle(processor, bound)

    def _ports(self, processor: int) -> list[Summary]:
        summaries = {self._layout.edges[e].port: self._layout.edges[e].discarding for e in self._outgoing[processor]}
        return [summaries.get(port, Summary.identity(1)) for port in range(len(self._of[processor].sent))]

    def _sent(self, processor: int) -> list[tuple[Any, Time]]:
        memory = self._of[processor]
        edges = [self._layout.edges[e] for e in self._outgoing[processor]]
        return [(edge, memory.sent[edge.port]) for edge in edges]
