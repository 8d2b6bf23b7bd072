"""Worker: a deterministic state machine for its share of a dataflow, without I/O.

A driver *feeds* it input, frames of other workers and results of jobs, calls `run`, and carries out what it returns:
frames to send and effects (sink writes, jobs). The same worker therefore runs in the caller's process, in one of many
processes, in a Spark task, and under the simulator.

How it schedules (docs/engine.md says why that is safe):

- A batch is *pushed* through everything up to the next exchange or feedback without a queue in between.
- Queued batches (exchange inputs, feedbacks) and notifications that are complete wait in one heap, least time first and
  in the order of the graph within a time. So a notification comes after everything of this worker that could still
  cause something at its time; `timely.progress.tracker` answers only for what is *outside*: sources, kept capabilities,
  messages in flight, and what other workers still have to do.
- Batches of one time that wait at one input are joined into one before the operator sees them: batches grow under load.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from heapq import heapify, heappop, heappush
from typing import Any

from timely.data.batch import FAILURES, Batch, joined
from timely.data.messages import Effect, Frame, Message, StartJob
from timely.data.span import Span
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan, Route, Way
from timely.errors import FalkirkError, OperatorError
from timely.operators.base import Context
from timely.progress.line import tracker_for
from timely.progress.tracker import Antichain, order_key, reaches
from timely.time import FINITE, INF, Frontier, Time, as_time, is_epoch, not_before, visible
from timely.worker.outbox import Outbox, decode_message
from timely.worker.processor import Letter, Runtime, acquaint, build_operator, follow, no_such_output
from timely.worker.recorder import Recorder

_MUCH = 1 << 15
"""Received bytes handled in one turn before progress is reported early.

The work that follows may take much longer.
"""

_FEW = 64
"""Most waiting items to search through for an early progress report."""

NOTIFY = 1 << 30
"""Port number of notifications in the heap: sorts after an operator's batches."""

Item = tuple[tuple[int, ...], int, int, Time]
"""Heap entry: (order key, input port or NOTIFY, processor, time)."""


class Worker:
    """State machine of one worker: takes input, emits frames and effects.

    It is number `index` of `plan.workers`. `recorder` is called for every event (None: no recovery). Sinks and
    captures in `staged`, by node, hold their output until `release`. Input and results enter through `feed`,
    `advance`, `receive` and `finish`; `run` works; `take_frames` and `effects` give the output.
    """

    def __init__(
        self,
        plan: Plan,
        index: int = 0,
        recorder: Recorder | None = None,
        generation: int = 0,
        staged: Container[int] | None = None,
    ) -> None:
        self.plan = plan
        self.index = index
        self.generation = generation
        self.staged = staged
        self.effects: list[Effect] = []
        self.pressed_by: set[int] = set()
        self.acting: Node | None = None
        """Operator running now or last.

        Drivers name slow operators by it, and clear it between turns.
        """
        self._watch_split: Callable[[int], None] | None = None
        self.tracker = tracker_for(plan.topology)
        self._recorder = recorder
        self._peers = plan.workers
        self._grows = plan.workers > 1 or any(
            node.holds or node.kind == "gate" for node in plan.graph.nodes
        )  # events here may add work outside of this worker
        self._ready: list[Item] = []
        self._blocked: list[list[Item]] = [[] for _ in plan.topology.watches]
        self.gates: dict[int, Time] = {}
        """Bound of each closable gate, by processor: earlier times pass."""
        self._gated: list[Item] = []
        """Heap entries of batches waiting at gates."""
        self._outside: list[Frontier | None] = [None] * len(plan.topology.watches)
        self._deltas: dict[tuple[int, Time], int] = {}
        self._outbox = Outbox(plan, index, recorder)
        self._stack: list[tuple[Runtime, int, Time, Batch]] = []
        self.input_times: dict[int, Time | None] = {}
        """Current time of each local source and input, by node; None if ended.

        Read only.
        """
        self.jobs: dict[int, tuple[int, Time]] = {}  # whose results are awaited; a rollback forgets some
        self._next_job = 0
        self.held: dict[tuple[int, Time], int] = {}
        self.awaited: set[int] = set()
        """Workers still to send their first frame of this generation.

        Nothing is handled before.
        """
        self._upstream: dict[int, frozenset[int]] = {}
        """Cache of the processors able to cause work at a processor, itself included."""
        self._probed: dict[int, Antichain] = {n.index: ((0,) * n.scope.depth,) for n in plan.graph.of_kind("probe")}
        self.edge_places: dict[int, int] = {}
        self.queued_bytes = 0
        """Bytes of received messages not yet handled."""
        self.late: Callable[[], bool] | None = None
        """Driver's callback: True if other workers may be waiting for frames by now."""
        self.telling = False
        """True after `run` returned early for its frames to be sent."""
        self._received_bytes = 0
        self.runtimes = [
            Runtime(
                processor,
                build_operator(processor, self.effects, self.staged),
                Context(
                    self, processor.index, processor.node.name, processor.node.site, index, plan.sharers(processor)
                ),
            )
            for processor in plan.processors
        ]
        follow(self.runtimes)
        self._entrances = {
            processor.node.index: self.runtimes[processor.index]
            for processor in plan.processors
            if processor.node.kind in ("source", "input")
        }
        acquaint(self.runtimes, plan.of_node)
        if recorder is None:
            for runtime in self.runtimes:
                runtime.settle()
        else:
            for runtime in self.runtimes:
                runtime.tell_state()
        for processor in plan.processors:
            if (
                processor.node.kind == "gate"
                and recorder is not None
                and processor.node.index not in plan.standing_open
            ):
                self.gates[processor.index] = (0,) * processor.node.scope.depth
            for routes in processor.routes:
                self.edge_places.update((r.edge.index, r.place) for r in routes if r.place is not None)
        for node, runtime in self._entrances.items():
            start = (0,) * runtime.node.scope.depth
            assert runtime.processor.place is not None
            self.input_times[node] = start
            self.tracker.update(runtime.processor.place, start, plan.workers)
        self._propagate()

    # Input

    def feed(self, node: int, time: Time | None, batch: Batch) -> None:
        """Feed a batch from source or input `node` at `time` (None: its current time).

        Everything up to the next exchange or feedback handles it at once.
        """
        current = self.input_times[node]
        if time is None:
            time = current
        if current is None or time is None or not (time is current or current <= time):
            if time is None:
                raise OperatorError(f"input {self.plan.graph.nodes[node].name!r} is closed")
            raise self._passed(node, "send at", time)
        if len(batch):
            runtime = self._entrances[node]
            runtime.ctx.time = time
            follower = runtime.follower
            if follower is None or follower.mail or self._recorder is not None:
                runtime.ctx.out.append((0, time, batch))
                self._fan_out(runtime)
            else:
                self._stack.append((follower, runtime.port, time, batch))
            self._drive()

    def feed_span(self, node: int, span: Span) -> None:
        """Feed batches of several times, none before its current one, from source `node`.

        A recorder is called for each time as if its batch came by itself.
        """
        self._spread(self._entrances[node], span)

    def takes_spans(self, node: int) -> bool:
        """True if all receivers of source `node` take spans of several times."""
        entrance = self._entrances[node]
        return entrance.spans and all(
            way == Way.PUSH and self.runtimes[target].spans for [way, target, *_] in entrance.routes[0]
        )

    def advance(self, node: int, time: Time | None) -> None:
        """Advance source or input `node` to `time`; None closes it.

        In a nested scope it goes through its times in lexicographic order.
        """
        current = self.input_times[node]
        if time == current:
            return
        if time is not None and current is not None and not (len(current) == 1 and is_epoch(time) and time[0] < FINITE):
            try:
                time = as_time(time, len(current))
                if max(time) >= FINITE:
                    raise ValueError("END comes when the input is closed; close() it")
            except ValueError as error:
                name = self.plan.graph.nodes[node].name
                shown = visible(time) if isinstance(time, tuple) else time
                raise OperatorError(f"input {name!r} cannot advance to {shown!r}: {error}") from None
        if current is None or not (time is None or current <= time):
            raise self._passed(node, "advance to", time)
        place = self._entrances[node].processor.place
        assert place is not None
        self.input_times[node] = time
        if time is None or len(time) > 1:
            for each in not_before(time) if time is not None else ():
                self._count(place, each, +1)
            for each in not_before(current):
                self._count(place, each, -1)
            return
        self.tracker.move(place, current, time)
        if self._peers > 1:
            self._delta(place, time, +1)
            self._delta(place, current, -1)

    def _passed(self, node: int, what: str, time: Time | None) -> OperatorError:
        """Error of input `node`: it is past `time`, and cannot do `what` there."""
        current = self.input_times[node]
        at = "its end" if current is None else str(current)
        if current is not None and len(current) > 1:
            fast, slow = (*current[:-1], current[-1] + 1), (current[0] + 1, *(0,) * (len(current) - 1))
            at += f", and times compare coordinate by coordinate, the first one first: go on to {fast}, or to {slow}"
        return OperatorError(f"input {self.plan.graph.nodes[node].name!r} cannot {what} {time}: it is at {at}")

    def input_time(self, node: int) -> Time | None:
        """Current time of source or input `node` on this worker; None if ended."""
        return self.input_times[node]

    def receive(self, frame: Frame) -> None:
        """Receive a frame of another worker; frames of older generations are dropped."""
        if frame.generation < self.generation:
            return
        update = self.tracker.update
        for place, time, diff in frame.progress:
            update(place, time, diff)
        self.awaited.discard(frame.sender)
        if frame.pressed:
            self.pressed_by.add(frame.sender)
        else:
            self.pressed_by.discard(frame.sender)
        for message in frame.messages:
            target = self.plan.graph.edges[message.edge].target
            self.queued_bytes += message.nbytes
            op = self.plan.of_node[target.node]
            self._enqueue(op, target.port, message.time, (message.edge, frame.sender, message.event, message))

    def finish(self, job: int, result: Any) -> None:
        """Deliver the result of job number `job` to its operator."""
        if job not in self.jobs:
            return  # it was started by what has been rolled back
        op, time = self.jobs.pop(job)
        runtime, recorder = self.runtimes[op], self._recorder
        runtime.ctx.time = time
        self.acting = runtime.node
        if recorder is not None:
            recorder.resulted(op, time, result)
        try:
            runtime.operator.on_result(runtime.ctx, time, result)
        except FalkirkError:
            raise
        except FAILURES as error:
            raise runtime.blame(time, error, None) from error
        self._fan_out(runtime)
        if recorder is not None and runtime.operator.state is not None:
            recorder.completed(op)
        self._drive()
        self.hold(op, time, -1)

    # Work

    def run(self, limit: int = 1 << 60) -> bool:
        """Handle up to `limit` queued batches and notifications.

        True: nothing more can be done until new input comes. Besides the limit, two things end it with False: an
        operator that, when notified of a time, asks to be notified of it again; and in a loop, before an operator
        that may take long, progress for which other workers may be waiting. Of epochs several are in flight, so no
        worker waits for a single one.
        """
        ready, runtimes = self._ready, self.runtimes
        if self.awaited:
            return True
        while True:
            if self.tracker.dirty:
                self._propagate()
            if not ready:
                return True
            if not limit:
                return False
            limit -= 1
            item = heappop(ready)
            _, port, op, time = item
            runtime = runtimes[op]
            if port == NOTIFY:
                if self._grows and self._still_blocked(runtime, time):
                    continue
                if len(time) > 1 and self._deltas and not self.telling and self._should_tell(runtime):
                    heappush(ready, item)
                    if not self._queue_first():
                        self.telling = True
                        return False
                    continue
                if ready and runtime.spans and len(times := self._together(runtime, time)) > 1:
                    self._notify_several(runtime, times)
                else:
                    self._notify(runtime, time)
            else:
                self._collect(runtime, port, time)
            if self._stack:
                self._drive()
            if port == NOTIFY and time in runtime.ctx.pending:
                return False  # it asked for another one: it has more to do than others should wait for

    def _still_blocked(self, runtime: Runtime, time: Time) -> bool:
        """Block a notification again if events since its completion may lead to its time.

        Work of this worker is not in the tracker, but its messages, capabilities and jobs are as soon as they exist.
        """
        watch = runtime.processor.watch
        assert watch is not None
        if not self.tracker.reaches(watch, time):
            return False
        heappush(self._blocked[watch], (order_key(time, runtime.rank), NOTIFY, runtime.processor.index, time))
        return True

    def _should_tell(self, runtime: Runtime) -> bool:
        """True if other workers may be waiting and progress can be reported right now.

        Work that waits here may still cause something at a reported time, so it must be visible to the others.
        Notifications with a place are; queued batches are not, but can be handled first (`_queue_first`).
        """
        if self._received_bytes <= _MUCH and (self.late is None or not self.late()):
            return False
        places = [self.runtimes[op].processor.place for _, port, op, _ in self._ready if port == NOTIFY]
        return len(self._ready) <= _FEW and runtime.processor.place is not None and None not in places

    def _queue_first(self) -> bool:
        """Handle the earliest queued batch, ahead of due notifications; False if none."""
        waiting = [item for item in self._ready if item[1] != NOTIFY]
        if not waiting:
            return False
        item = min(waiting)
        self._ready.remove(item)
        heapify(self._ready)
        _, port, op, time = item
        self._collect(self.runtimes[op], port, time)
        self._drive()
        return True

    def _notify(self, runtime: Runtime, time: Time) -> None:
        ctx, processor = runtime.ctx, runtime.processor
        self.acting = runtime.node
        del ctx.pending[time]
        if processor.place is not None and self._peers > 1:
            self._delta(processor.place, time, -1)
        ctx.time = time
        recorder = self._recorder
        if recorder is not None:
            recorder.notified(processor.index, time)
        try:
            runtime.operator.on_notify(ctx, time)
        except FalkirkError:
            raise
        except FAILURES as error:
            raise runtime.blame(time, error, None) from error
        if out := ctx.out:
            if runtime.has_receivers or recorder is not None or len(out) > 1 or out[0][0]:
                self._fan_out(runtime)
            else:
                out.clear()
        state = runtime.operator.state
        if recorder is not None:
            if state is not None:
                recorder.completed(processor.index)
        elif state is not runtime.settled:
            assert processor.watch is not None
            runtime.operator.on_watermark(self._completed_at(processor.watch, time))

    def _together(self, runtime: Runtime, time: Time) -> list[Time]:
        """Times to notify an operator of in one call: `time`, and complete later ones.

        Nothing that waits here can lead to the operator at one of them.
        """
        op = runtime.processor.index
        ahead = self._upstream.get(op)
        if ahead is None:
            ahead = self._upstream[op] = self.plan.upstream(op)
        items = [item for item in self._ready if item[2] == op and item[1] == NOTIFY]
        if not items:
            return [time]
        bound = min(
            (item[3][0] for item in self._ready if item[2] in ahead and (item[2] != op or item[1] != NOTIFY)),
            default=None,
        )
        watch, reaches = runtime.processor.watch, self.tracker.reaches
        assert watch is not None
        taken = {
            item
            for item in items
            if (bound is None or item[3][0] < bound) and not (self._grows and reaches(watch, item[3]))
        }
        if taken:
            self._ready[:] = [item for item in self._ready if item not in taken]
            heapify(self._ready)
        return [time, *sorted(item[3] for item in taken)]

    def _notify_several(self, runtime: Runtime, times: list[Time]) -> None:
        """Notify an operator of several times in one call."""
        ctx, processor = runtime.ctx, runtime.processor
        self.acting = runtime.node
        for time in times:
            del ctx.pending[time]
            if processor.place is not None and self._peers > 1:
                self._delta(processor.place, time, -1)
            if self._recorder is not None:
                self._recorder.notified(processor.index, time)
        ctx.time = times[0]
        try:
            runtime.operator.on_notify_several(ctx, times)
        except FalkirkError:
            raise
        except FAILURES as error:
            raise runtime.blame(ctx.time, error, None) from error
        self._spread_out(runtime)

    def _spread(self, runtime: Runtime, span: Span) -> None:
        """Route a span sent on a processor's first output."""
        recorder = self._recorder
        if recorder is not None:
            for time, batch in span.parts():
                recorder.sent(runtime.processor.index, 0, time, time, batch)
        for way, target, port, route in runtime.routes[0]:
            there = self.runtimes[target]
            if way == Way.PUSH and there.spans and not there.mail:
                ctx = there.ctx
                if recorder is not None:
                    for time, batch in span.parts():
                        recorder.delivered(target, port, time, batch)
                ctx.time = span.times[0]
                self.acting = there.node
                try:
                    there.operator.on_span(ctx, port, span)
                except FalkirkError:
                    raise
                except FAILURES as error:
                    raise there.blame(ctx.time, error, next(span.parts())[1]) from error
                self._spread_out(there)
                continue
            for time, batch in span.parts():
                if way:
                    self._queue(route, time, time, batch)
                elif there.mail and self._overtakes(route, time):
                    self._enqueue_own(route, time, time, batch)
                else:
                    self._stack.append((there, port, time, batch))
                    self._drive()

    def _spread_out(self, runtime: Runtime) -> None:
        """Route all batches and spans sent by an operator at several times."""
        ctx, recorder = runtime.ctx, self._recorder
        if ctx.out and recorder is None:
            self._fan_out(runtime)
            self._drive()
        elif ctx.out:
            sent = ctx.out.copy()
            ctx.out.clear()
            for port, time, batch in sent:  # each in the event of its time, as the recorder must know it
                ctx.time = time
                ctx.out.append((port, time, batch))
                self._fan_out(runtime)
                self._drive()
        if recorder is not None and runtime.operator.state is not None:
            recorder.completed(runtime.processor.index)
        if ctx.spans:
            spans, ctx.spans = ctx.spans, []
            for span in spans:
                self._spread(runtime, span)

    def _drive(self) -> None:
        """Push the stacked batches, and all they cause, as far as the next queues.

        A sole batch for a sole follower skips the stack.
        """
        stack, recorder = self._stack, self._recorder
        while stack:
            runtime, port, time, batch = stack.pop()
            while True:
                ctx = runtime.ctx
                ctx.time = time
                self.acting = runtime.node
                if recorder is not None:
                    recorder.delivered(runtime.processor.index, port, time, batch)
                try:
                    runtime.operator.on_batch(ctx, port, time, batch)
                except FalkirkError:
                    stack.clear()
                    raise
                except FAILURES as error:
                    stack.clear()
                    raise runtime.blame(time, error, batch) from error
                if out := ctx.out:
                    follower = runtime.follower
                    if (
                        follower is not None
                        and len(out) == 1
                        and recorder is None
                        and not follower.mail
                        and not out[0][0]
                    ):
                        _, time, batch = out.pop()
                        runtime, port = follower, runtime.port
                        continue
                    self._fan_out(runtime)
                if recorder is not None and runtime.operator.state is not None:
                    recorder.completed(runtime.processor.index)
                break

    def _fan_out(self, runtime: Runtime) -> None:
        """Route the batches sent in this event.

        Those for the stack are put there in reverse, so that they leave it in order.
        """
        ctx, runtimes, stack = runtime.ctx, self.runtimes, self._stack
        recorder, out, below = self._recorder, ctx.out, len(self._stack)
        if recorder is not None:
            for port, time, batch in out:
                recorder.sent(runtime.processor.index, port, ctx.time, time, batch)
        try:
            for port, time, batch in out:
                for way, target, target_port, route in runtime.routes[port]:
                    if way:
                        self._queue(route, ctx.time, time, batch)
                    elif runtimes[target].mail and self._overtakes(route, time):
                        self._enqueue_own(route, ctx.time, time, batch)
                    else:
                        stack.append((runtimes[target], target_port, time, batch))
        except IndexError:
            if port < len(runtime.routes):
                raise
            raise no_such_output(runtime.processor.node, port) from None
        if len(stack) > below + 1:
            stack[below:] = stack[: below - 1 if below else None : -1]
        out.clear()

    def _queue(self, route: Route, event: Time, time: Time, batch: Batch) -> None:
        if route.way == Way.QUEUE:
            self._enqueue_own(route, event, time, batch)
            return
        place = route.place
        assert place is not None
        if route.way == Way.BROADCAST:
            parts: list[Batch | None] = [batch] * self._peers
        else:
            parts = self._split(route, batch)
        for worker, part in enumerate(parts):
            if part is None or not len(part):
                continue
            if worker == self.index:
                if self._recorder is not None and route.edge.index in self._recorder.shipping:
                    self._recorder.kept(route.edge.index, event, time, part)
                self._enqueue(route.processor, route.port, time, (route.edge.index, worker, event, part))
            elif self._outbox.add(worker, route, event, time, part):
                self._count(place, time, +1)

    def _split(self, route: Route, batch: Batch) -> list[Batch | None]:
        """Divide a batch between workers, by functions of the operator behind."""
        sender, self.acting = self.acting, self.runtimes[route.processor].node
        watch = self._watch_split
        if watch is None:
            parts = self._outbox.split(route, batch)
        else:
            watch(route.processor)
            parts = self._outbox.split(route, batch)
            watch(-1)
        self.acting = sender
        return parts

    def _overtakes(self, route: Route, time: Time) -> bool:
        """True if batches resent after a rollback still wait on a route without a queue."""
        waiting = self.runtimes[route.processor].mail.get((route.port, time), ())
        return any(letter[0] == route.edge.index for letter in waiting)

    def _enqueue_own(self, route: Route, event: Time, time: Time, batch: Batch) -> None:
        self._enqueue(route.processor, route.port, time, (route.edge.index, self.index, event, batch))

    def _enqueue(self, op: int, port: int, time: Time, letter: Letter) -> None:
        runtime = self.runtimes[op]
        waiting = runtime.mail.get((port, time))
        if waiting is None:
            runtime.mail[port, time] = [letter]
            item = (order_key(time, runtime.rank), port, op, time)
            if op in self.gates and time >= self.gates[op]:
                self._stop_at_gate(item)
            else:
                heappush(self._ready, item)
        else:
            waiting.append(letter)

    def _stop_at_gate(self, item: Item) -> None:
        """Park a batch in front of its gate and count it as outstanding.

        So no operator behind the gate takes its time for complete.
        """
        _, _, op, time = item
        place = self.runtimes[op].processor.place
        assert place is not None
        self._gated.append(item)
        self._count(place, time, +1)

    def open(self, gate: int, bound: Time) -> None:
        """Open `gate`, a processor, for all times before `bound`."""
        self.gates[gate] = bound
        place = self.runtimes[gate].processor.place
        assert place is not None
        waiting, self._gated = self._gated, []
        for item in waiting:
            if item[2] == gate and item[3] < bound:
                heappush(self._ready, item)
                self._count(place, item[3], -1)
            else:
                self._gated.append(item)

    def _collect(self, runtime: Runtime, port: int, time: Time) -> None:
        """Move the batches of `time` waiting at an input to the stack, joined where alike."""
        waiting = runtime.mail.pop((port, time))
        batches: list[Batch] = []
        for edge, sender, _, item in waiting:
            if isinstance(item, Message):
                self.queued_bytes -= item.nbytes
                self._received_bytes += item.nbytes
                self._count(self.edge_places[edge], time, -1)
                if (
                    self._recorder is not None
                    and edge in self._recorder.logged
                    and not self._recorder.taken(sender, item)
                ):
                    continue
                batches.append(decode_message(item))
            else:
                batches.append(item)
        several = joined([batch for batch in batches if len(batch)])
        self._stack.extend((runtime, port, time, batch) for batch in reversed(several))

    # What operators ask for (timely.operators.base.Engine)

    def request(self, op: int, event: Time, time: Time, again: bool = False) -> None:
        """Register a notification of operator `op` at `time`.

        `again`: a later event has registered it already, so only the recorder is called.
        """
        runtime = self.runtimes[op]
        processor = runtime.processor
        watch = processor.watch
        if watch is None:
            raise OperatorError(
                f"{processor.node} asked for a notification but was made with notifies=False: leave that away"
            )
        if self._recorder is not None:
            self._recorder.requested(op, event, time)
        if again:
            return
        if processor.place is not None and self._peers > 1:
            self._delta(processor.place, time, +1)
        if self.tracker.dirty:
            self._propagate()
        heap = self._blocked[watch] if self.tracker.reaches(watch, time) else self._ready
        key = (time[0], runtime.rank[0]) if len(time) == 1 else order_key(time, runtime.rank)
        heappush(heap, (key, NOTIFY, op, time))

    def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None:
        """Retain (+1) or release (-1) a capability of operator `op`.

        `own`: the capability was retained in an event at its own time.
        """
        processor = self.runtimes[op].processor
        if processor.place is None or not processor.node.holds:
            raise OperatorError(f"{processor.node} kept a capability but was made with holds=False: say holds=True")
        if self._recorder is not None and not own:
            self._recorder.held(op, self.runtimes[op].ctx.time, time, diff)
        self.held[op, time] = self.held.get((op, time), 0) + diff
        if not self.held[op, time]:
            del self.held[op, time]
        self._count(processor.place, time, diff)

    def start(self, op: int, time: Time, job: Callable[..., Any], context: bool, own: bool = False) -> None:
        """Hand a job of operator `op` to the driver, holding `time` until its result.

        `own` as for `hold`.
        """
        if self._recorder is not None and not own:
            self._recorder.started(op, self.runtimes[op].ctx.time, time)
        self.hold(op, time, +1, own)
        number, self._next_job = self._next_job, self._next_job + 1
        self.jobs[number] = (op, time)
        self.effects.append(StartJob(number, self.plan.processors[op].node.index, time, job, context))

    def keeps(self, op: int, event: Time, time: Time) -> None:
        """Record a write or removal, by an event, of state kept under another time."""
        if self._recorder is not None:
            self._recorder.kept_state(op, event, time)

    def take_effects(self) -> list[Effect]:
        """Take the effects for the driver to carry out, in order."""
        effects, self.effects[:] = self.effects.copy(), []
        return effects

    # Progress

    def _count(self, place: int, time: Time, diff: int) -> None:
        self.tracker.update(place, time, diff)
        if self._peers > 1:
            self._delta(place, time, diff)

    def _delta(self, place: int, time: Time, diff: int) -> None:
        slot = (place, time)
        count = self._deltas.get(slot, 0) + diff
        if count:
            self._deltas[slot] = count
        else:
            del self._deltas[slot]

    def _propagate(self) -> None:
        """Move complete notifications from the blocked lists into the heap."""
        for watch in self.tracker.propagate():
            self._outside[watch] = None
            blocked = self._blocked[watch]
            if not blocked:
                continue  # nobody waits here, so nobody needs to know
            frontier = self.tracker.frontier(watch)
            if not frontier:
                for item in blocked:
                    heappush(self._ready, item)
                blocked.clear()
            elif len(frontier[0]) == 1:
                least = frontier[0]
                while blocked and blocked[0][3] < least:
                    heappush(self._ready, heappop(blocked))
            else:
                still = []
                for item in blocked:
                    if reaches(frontier, item[3]):
                        still.append(item)
                    else:
                        heappush(self._ready, item)
                if len(still) < len(blocked):
                    heapify(still)
                    self._blocked[watch] = still

    def _completed_at(self, watch: int, time: Time) -> Frontier:
        """Completed frontier of an operator during its notification of `time`.

        `time` is the first in the heap.

        What is left on this worker comes later in the order of the graph, so it cannot lead into the lexicographic prefix
        of `time`; what is outside cannot lead into the frontier of the watch.
        """
        if len(time) == 1:
            return Frontier(((time[0] + 1,),), 1) if time[0] < INF else Frontier.top(1)
        outside = self._outside[watch]
        if outside is None:
            outside = self._outside[watch] = Frontier.before(self.tracker.frontier(watch), len(time))
        return outside & Frontier.lexicographic(time)

    def take_frames(self, quiet: bool, pressed: bool = False) -> dict[int, Frame]:
        """Frames for the other workers, by receiver.

        Messages go at once; progress only when the worker is `quiet` or `telling`, which lets most changes cancel. `pressed`
        tells the others to pause their sources.
        """
        progress = []
        if (quiet or self.telling) and self._deltas:
            progress = [(place, time, diff) for (place, time), diff in self._deltas.items()]
            self._deltas.clear()
        self.telling, self._received_bytes = False, 0
        return self._outbox.take(self.generation, progress, pressed)

    def pending(self) -> list[tuple[int, Time]]:
        """Outstanding notifications in order of time: (processor, time)."""
        waiting = [item for blocked in self._blocked for item in blocked]
        waiting += [item for item in self._ready if item[1] == NOTIFY]
        return [(op, time) for _, _, op, time in sorted(waiting)]

    def probe(self, node: int) -> Antichain:
        """Minimal times still able to reach probe `node` on any worker.

        As of the last moment at which this worker had nothing ready.
        """
        if self.tracker.dirty:
            self._propagate()
        if self._ready:
            return self._probed[node]
        frontier = self._probed[node] = self.tracker.frontier(self.plan.probes[node])
        return frontier

    def check(self) -> None:
        """Assert the invariants between two calls; the simulator does so every turn."""
        assert not self._stack, "a batch was left on its way"
        waiting = [*self._ready, *self._gated, *(item for blocked in self._blocked for item in blocked)]
        batches = sorted((op, port, time) for _, port, op, time in waiting if port != NOTIFY)
        mail = sorted((op, *slot) for op, runtime in enumerate(self.runtimes) for slot in runtime.mail)
        assert batches == mail, f"the heap has {batches}, the queues of inputs have {mail}"
        armed = sorted((op, time) for _, port, op, time in waiting if port == NOTIFY)
        asked = sorted((op, time) for op, runtime in enumerate(self.runtimes) for time in runtime.ctx.pending)
        assert armed == asked, f"notifications that wait: {armed}; those that were asked for: {asked}"
        letters = [item for runtime in self.runtimes for mail in runtime.mail.values() for *_, item in mail]
        queued = sum(item.nbytes for item in letters if isinstance(item, Message))
        assert queued == self.queued_bytes, f"{queued} bytes are queued, {self.queued_bytes} are counted"
        assert all(time >= self.gates[op] for *_, op, time in self._gated), f"open gates hold back: {self._gated}"
        assert all(count > 0 for count in self.held.values()), f"capabilities given back too often: {self.held}"
        assert all(job in self.held for job in self.jobs.values()), f"jobs without a capability: {self.jobs}"

    @property
    def done(self) -> bool:
        """True if nothing is outstanding on any worker, for good."""
        quiet = not self._ready and not any(self._blocked) and not self._deltas
        return quiet and not self.tracker.active and not self.awaited

    def forget(self) -> None:
        """Release the operators after the end.

        No more work is possible; answers such as `done` stay valid.
        """
        self.runtimes.clear()
        self._entrances.clear()

    def epochs_in_flight(self, node: int) -> int:
        """Number of epochs from the oldest incomplete one to source `node`'s current one."""
        current = self.input_times[node]
        if current is None:
            return 0
        oldest = current[0]
        for watch in self.plan.ends[node]:
            for least in self.tracker.frontier(watch):
                oldest = min(oldest, least[0])
        return current[0] - oldest
