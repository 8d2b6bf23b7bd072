"""Rollback of a worker to an earlier state, processor by processor.

Recovery decides; this carries out. A processor *stays* as it is, or is *restored* to a frontier of its times. Then queues
are pruned, requests for notifications armed again, and progress begins anew: what this worker holds is counted from
nothing, told to all others in its first frame of the generation, and nothing is handled before all their first frames are
here. (Isard and Abadi, *Falkirk Wheel*, section 3.6, and docs/theory.md.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappush

from timely.data.batch import Batch
from timely.data.messages import Frame, Message
from timely.dataflow.graph import Node
from timely.dataflow.plan import Origins, Processor
from timely.errors import OperatorError, error_text
from timely.operators.base import Operator, give_back
from timely.progress.line import tracker_for
from timely.progress.tracker import order_key, reaches
from timely.state.interface import Run, Runs, State
from timely.time import FINITE, Frontier, Time, leq, not_before
from timely.worker.outbox import Has
from timely.worker.processor import Letter, Runtime, acquaint, build_operator
from timely.worker.recorder import Recorder
from timely.worker.worker import NOTIFY, Worker


@dataclass(frozen=True, slots=True)
class RestoredProcessor:
    """Target of a processor's rollback: frontier, state, requests and capabilities.

    `frontier`: the times whose effects it keeps. `runs`: its state there, from storage; None: it has it in memory.
    `requests`: notifications asked for by events in the frontier and due outside it, (event, time). `held`: capabilities kept
    in it for times outside it, each with how many.
    """

    frontier: Frontier
    runs: Runs | None
    requests: tuple[tuple[Time, Time], ...] = ()
    held: tuple[tuple[Time, int], ...] = ()
    operator: Operator | None = None
    """Operator rebuilt by replay; None if it was not."""
    forgets: tuple[str, ...] = ()
    """Attributes of a surviving operator to reset to their initial values.

    Its transient attributes are always reset.
    """
    loaded: Operator | None = None
    """New operator with the state before `runs`; None: `runs` are all."""


Keeps = Callable[[int, int, Time, Time], bool]
"""Predicate for queued batches to keep: (edge, sending worker, event time, time)."""


@dataclass(frozen=True, slots=True)
class ResentBatch:
    """Logged batch to put back into a local input queue."""

    edge: int
    event: Time
    time: Time
    batch: Batch


@dataclass(frozen=True, slots=True)
class Orders:
    """Rollback orders for one worker.

    Processors absent from `restored` stay as they are.
    """

    generation: int
    restored: Mapping[int, RestoredProcessor]
    keeps: Keeps
    inputs: Mapping[int, Time | None]
    """Current time of each source, by node; None if ended."""
    local: Iterable[ResentBatch] = ()
    remote: Iterable[tuple[int, Message]] = ()
    """Logged messages to resend: (receiving worker, message)."""
    fresh: frozenset[int] = field(default_factory=frozenset)
    """Restored processors in need of a new operator: they hold data outside the state."""
    has: Has | None = None
    """Filter for resends: True for messages already held by their receivers."""


def rewind(worker: Worker, orders: Orders) -> dict[int, Frame]:
    """Carry out `orders`; returns the generation's first frame for each other worker."""
    _begin(worker, orders.generation, orders.has)
    for runtime in worker.runtimes:
        restored = orders.restored.get(runtime.processor.index)
        if restored is not None:
            _restore(worker, runtime, restored, runtime.processor.index in orders.fresh)
        _prune(runtime, orders.keeps)
    acquaint(worker.runtimes, worker.plan.of_node)
    for resent in orders.local:
        target = worker.plan.graph.edges[resent.edge].target
        letter: Letter = (resent.edge, worker.index, resent.event, resent.batch)
        mail = worker.runtimes[worker.plan.of_node[target.node]].mail
        mail.setdefault((target.port, resent.time), []).append(letter)
    _queue_all(worker)
    for receiver, message in orders.remote:
        worker._outbox.again(receiver, message)
        worker._count(worker.edge_places[message.edge], message.time, +1)
    for node, time in orders.inputs.items():
        worker.input_times[node] = time
        place = worker.runtimes[worker.plan.of_node[node]].processor.place
        assert place is not None
        for each in () if time is None else not_before(time):
            worker._count(place, each, +1)
    local = _local_work(worker)
    for place, time in local:
        worker._count(place, time, +1)
    frames = worker.take_frames(quiet=True)
    for place, time in local:  # the others hear of it when this worker is quiet, as of all work that it does by itself
        worker._count(place, time, -1)
    for other in worker.awaited:
        frames.setdefault(other, Frame(worker.index, worker.generation))
    return frames


# This module is the worker's other half, kept apart because only recovery needs it: it may touch the worker's insides.


def look(worker: Worker) -> list[tuple[int, Time]]:
    """Update frontiers and list the work ready here, as (processor, time)."""
    worker._propagate()
    return [(op, time) for _, _, op, time in worker._ready]


def quiet(worker: Worker) -> bool:
    """True if nothing is ready to be handled here.

    Only then do progress reports to other workers hold by themselves.
    """
    return not look(worker)


def listen(worker: Worker, recorder: Recorder | None) -> None:
    """Replace the recorder of events; the outbox keeps its recorder of messages."""
    worker._recorder = recorder


def watch_split(worker: Worker, watch: Callable[[int], None] | None) -> None:
    """Call `watch` when a batch is divided for a processor, and with -1 after it."""
    worker._watch_split = watch


def holding(worker: Worker) -> list[tuple[int, Time]]:
    """Capabilities held by operators, jobs included: (processor, time)."""
    return sorted(worker.held)


def resume(worker: Worker) -> None:
    """Release notifications already complete at the start of a generation.

    Called once all first frames are here: a frontier that stands still would wake nobody later.
    """
    worker._propagate()
    for watch, blocked in enumerate(worker._blocked):
        frontier = worker.tracker.frontier(watch)
        still = []
        for item in blocked:
            if reaches(frontier, item[3]):
                still.append(item)
            else:
                heappush(worker._ready, item)
        heapify(still)
        worker._blocked[watch] = still


def _begin(worker: Worker, generation: int, has: Has | None) -> None:
    """Discard waiting work and all progress for a new generation; input queues stay."""
    topology = worker.plan.topology
    worker.generation = generation
    worker.tracker = tracker_for(topology)
    worker.awaited = set(range(worker.plan.workers)) - {worker.index}
    worker.pressed_by.clear()
    worker._stack.clear()
    worker._deltas.clear()
    worker._ready = []
    worker._blocked = [[] for _ in topology.watches]
    worker._gated = []
    worker._outside = [None] * len(topology.watches)
    worker._outbox.begin(generation, has)
    worker._probed = {node.index: ((0,) * node.scope.depth,) for node in worker.plan.graph.of_kind("probe")}


def _restore(worker: Worker, runtime: Runtime, restored: RestoredProcessor, fresh: bool) -> None:
    processor, ctx = runtime.processor, runtime.ctx
    runs = restored.runs
    if restored.operator is not None:
        runtime.operator = restored.operator
    elif runs is None and fresh and runtime.operator.state is not None:
        empty = Frontier.empty(processor.node.shift.depth)
        runs = Runs.of(runtime.operator.state.snapshot(restored.frontier, empty))
    if restored.operator is None and (runs is not None or fresh):
        runtime.operator = restored.loaded or build_operator(processor, worker.effects, worker.staged)
        if worker._recorder is not None:
            runtime.tell_state()
    state = runtime.operator.state
    if restored.operator is not None:
        pass
    elif state is not None and runs is not None:
        load(processor.node, state, runs, restored.loaded is not None)
    elif state is not None:
        state.keep(restored.frontier)
        _forget(runtime.operator, processor, {*restored.forgets, *runtime.operator.transient})
    elif runs:
        node = processor.node
        raise OperatorError(f"{node.kind} {node.name!r} ({node.site}) had state when it was saved, and has none now")
    ctx.out.clear()
    ctx.pending = {}
    for event, time in restored.requests:
        known = ctx.pending.get(time)
        if known is None or event < known:
            ctx.pending[time] = event
    op = processor.index
    worker.held = {key: count for key, count in worker.held.items() if key[0] != op}
    worker.held.update(((op, time), count) for time, count in restored.held)
    if restored.held and restored.operator is None:
        give_back(runtime.operator, ctx, restored.held)
    worker.jobs = {number: job for number, job in worker.jobs.items() if job[0] != op}


def load(node: Node, state: State, runs: Iterable[Run], more: bool = False) -> None:
    """Restore the state of an operator; with `more`, add to what was loaded before.

    Raises OperatorError, with its name, if the saved state is that of another program.
    """
    try:
        if more:
            state.absorb(runs)  # type: ignore[attr-defined]  # whoever loads ahead asks `absorbs`
        else:
            state.restore(runs)
    except (
        OperatorError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise OperatorError(
            f"{node}: what was saved of its state cannot be restored ({error_text(error)}): it is that of another program. Run "
            "the program as it was, or choose another store"
        ) from error


def _forget(operator: Operator, processor: Processor, names: Collection[str]) -> None:
    """Reset attributes of a surviving operator to their initial values."""
    if names:
        new = vars(build_operator(processor, []))
        for name in names:
            vars(operator).pop(name, None)
            if name in new:
                setattr(operator, name, new[name])


def _prune(runtime: Runtime, keeps: Keeps) -> None:
    for (port, time), letters in list(runtime.mail.items()):
        kept = [letter for letter in letters if keeps(letter[0], letter[1], letter[2], time)]
        if kept:
            runtime.mail[port, time] = kept
        else:
            del runtime.mail[port, time]


def _local_work(worker: Worker) -> list[tuple[int, Time]]:
    """Pointstamps standing for queued batches of this worker itself.

    Within a generation no other worker needs to know of such work: its cause is retracted only after it is done. At a
    generation's start it has no cause yet, so an earlier pointstamp stands in for it.
    """
    if worker.plan.workers == 1:
        return []
    found = set()
    for runtime in worker.runtimes:
        arrivals = worker.plan.arrivals[runtime.processor.nodes[0].index]
        for (_, time), letters in runtime.mail.items():
            if any(not isinstance(letter[3], Message) for letter in letters):
                found.add(_cause(arrivals, time))
    return sorted(found)


def _cause(arrivals: Origins, time: Time) -> tuple[int, Time]:
    """Latest pointstamp able to lead to `time`, as (place, time there)."""
    best: tuple[Time, int, Time] | None = None
    for place, summaries in arrivals.items():
        for summary in summaries:
            kept = tuple(at - by if at < FINITE else at for at, by in zip(time, summary.add))
            before = (*kept, *(0,) * (summary.depth - summary.keep))
            if min(before) >= 0 and summary.carries(before) and leq(summary(before), time):
                candidate = (summary(before), place, before)
                best = candidate if best is None else max(best, candidate)
    assert best is not None  # nothing waits where nothing can come from a source
    return best[1], best[2]


def _queue_all(worker: Worker) -> None:
    """Rebuild heap, blocked notifications and counts from the processors' queues."""
    ready = []
    worker.queued_bytes = 0
    for runtime in worker.runtimes:
        op, processor = runtime.processor.index, runtime.processor
        for (port, time), letters in runtime.mail.items():
            at = (order_key(time, runtime.rank), port, op, time)
            if op in worker.gates and time >= worker.gates[op]:
                worker._stop_at_gate(at)
            else:
                ready.append(at)
            for edge, _, _, item in letters:
                if isinstance(item, Message):
                    worker.queued_bytes += item.nbytes
                    worker._count(worker.edge_places[edge], time, +1)
        for time in runtime.ctx.pending:
            assert processor.watch is not None
            heappush(worker._blocked[processor.watch], (order_key(time, runtime.rank), NOTIFY, op, time))
            if processor.place is not None and worker.plan.workers > 1:
                worker._delta(processor.place, time, +1)
    heapify(ready)
    worker._ready = ready
    for (op, time), count in worker.held.items():
        place = worker.runtimes[op].processor.place
        assert place is not None
        worker._count(place, time, count)
