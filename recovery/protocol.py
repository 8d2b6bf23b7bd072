"""The messages between workers and the monitor. Both ends are state machines; drivers carry the messages.

Messages of one sender arrive in order. MessagePack, typed: nothing that arrives is executed.

    worker                          monitor
      Join            ->                        here is what I can be restored to
                      <-   Decision             (catch-up: a round that this worker has not applied yet)
      Joined again ...
                      <-   Decision             restore to this, in a new generation
      Restored        ->
      Completed       ->                        so far is complete here
                      <-   Cut                  checkpoint this group here
      Durable         ->                        done: here is its Ξ
                      <-   Watermarks           never below this again: collect, acknowledge, release
                      <-   Drain                a worker has failed: stop, drain the links
      Drained         ->                        this is what I hold in memory
                      <-   Decision

What would happen is asked in the same way, without stopping anybody:

                      <-   Ask                  what would you hold if links were drained now?
      CurrentMemory            ->
                      <-   AskCost              and if this were decided?
      Cost        ->                        these messages would be sent again, that much be done again
      Unanswered      ->                        or, to either, why there is no answer
And while somebody looks at the page: Observe, and Observed in answer, which change nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recovery.epoch_ends import EpochEnds
from recovery.layout import Layout
from recovery.metadata import Bound, Xi
from timely.data.codec.typed import Typed
from timely.time import Time

LIVE = None
"""In a decision: the processor stays as it is, at ⊤."""


class InMemory(msgspec.Struct, frozen=True, array_like=True):
    """The memory of a live processor: beside what it has persisted it offers ⊤, and every bound up to `upto`.

    `notified` is N̄(p, ⊤), `delivered` M̄(d, ⊤) for each in-edge and `discards` D̄(e, ⊤) for each out-edge of the layout, in
    the order of `Layout.edges`. What it surely received, C(d), is `upto` as well.
    """

    upto: Bound
    notified: Bound
    delivered: tuple[Bound, ...]
    discards: tuple[Bound, ...]
    since: Bound = ()
    """It came back from its store at this bound, and can go below it only to its checkpoints."""
    kept: tuple[tuple[Bound, ...], ...] = ()
    """Of each kept out-edge, in that order, and each worker: the bound from which on all that was sent there is in memory."""


class Join(msgspec.Struct, tag=True, frozen=True):
    """A worker is there. `alive`: it holds state in memory, of generation `generation`, and is reconnecting.

    `generation` is that of the last decision that it has applied durably. `durable` is all that its store has.
    """

    worker: int
    incarnation: int
    generation: int
    alive: bool
    layout: Layout
    durable: tuple[Xi, ...]
    paused: bool = False


class Completed(msgspec.Struct, tag=True, frozen=True):
    """For each group of the layout: every processor of this worker has completed what lies before this."""

    worker: int
    generation: int
    upto: tuple[Bound, ...]


class Durable(msgspec.Struct, tag=True, frozen=True):
    """Ξ, S and L of a cut are persisted. `stateless` processors of the group have completed it as well."""

    worker: int
    generation: int
    group: int
    at: Bound
    xis: tuple[Xi, ...]
    waited: float = 0.0
    """Seconds from when the worker heard of the cut until it began to make its pieces,"""
    made: float = 0.0
    """until they were made, in between its other work,"""
    written: float = 0.0
    """and until they were durable."""


class Drained(msgspec.Struct, tag=True, frozen=True):
    """The links are empty; what each processor holds, and where epochs of sources ended, of any worker."""

    worker: int
    round: int
    memory: tuple[InMemory, ...]
    ends: tuple[EpochEnds, ...] = ()


class Restored(msgspec.Struct, tag=True, frozen=True):
    """The decision of `generation` has been applied, durably. `redone` counts epochs behind, for the timeline."""

    worker: int
    generation: int


class Released(msgspec.Struct, tag=True, frozen=True):
    """This worker is done for good: all is complete, persisted and released."""

    worker: int


class CurrentMemory(msgspec.Struct, tag=True, frozen=True):
    """The answer to `AskMemory`: what `Drained` would say now."""

    worker: int
    generation: int
    question: int
    memory: tuple[InMemory, ...]
    ends: tuple[EpochEnds, ...] = ()


class Resent(msgspec.Struct, tag=True, frozen=True, array_like=True):
    """Logged messages that would go again on an edge (by its index in `Layout.edges`), to `receiver`."""

    edge: int
    receiver: int
    messages: int
    bytes: int


class Redone(msgspec.Struct, tag=True, frozen=True, array_like=True):
    """Work that a processor would do again: records that it had handled in epochs that are not kept, at most; how many such
    epochs; and about how many seconds of this worker they took."""

    processor: int
    records: int
    epochs: int
    seconds: float


class Cost(msgspec.Struct, tag=True, frozen=True):
    """The answer to `AskCost`: what would follow from it on this worker."""

    worker: int
    generation: int
    question: int
    resent: tuple[Resent, ...]
    redone: tuple[Redone, ...]


class Unanswered(msgspec.Struct, tag=True, frozen=True):
    """The answer to `AskMemory` or `AskCost` of a worker that cannot answer: nothing but the question fails."""

    worker: int
    generation: int
    question: int
    reason: str


class ObservedHold(msgspec.Struct, frozen=True, array_like=True):
    """A reason for the place of a progress frontier: `count` things of kind `what` at `processor`, at `time`, on any worker."""

    what: str
    processor: int
    time: Time
    count: int
    here: bool
    """True if this worker has one of them."""


class Closely(msgspec.Struct, frozen=True, array_like=True):
    """One processor at a closer look: the minimal times that may still come to it, and what holds these back."""

    processor: int
    frontier: tuple[Time, ...]
    holds: tuple[ObservedHold, ...]


class Working(msgspec.Struct, frozen=True, array_like=True):
    """The progress of work that others do for a processor: `done` of `total` parts (0: it does not say), since `seconds`.

    `epoch` is -1 at the end of all input.
    """

    processor: int
    epoch: int
    what: str
    done: int
    total: int
    seconds: float


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A step of a fused chain: records that it has taken, and microseconds, since somebody looks."""

    processor: int
    name: str
    taken: int
    busy: int


class Observed(msgspec.Struct, tag=True, frozen=True):
    """An observation of a worker, for people: nothing is decided by it. See `runtime.observer` for `numbers`."""

    worker: int
    generation: int
    numbers: bytes
    read: int
    """Records that its sources have read in this process."""
    written: int
    newest: int | None
    """The newest epoch that all its sources have reached; None when they have ended."""
    latencies: tuple[float, ...] = ()
    """Seconds from the end of reading an epoch until it was complete, of those completed since the last time."""
    closely: tuple[Closely, ...] = ()
    working: tuple[Working, ...] = ()
    """Jobs of operators, and what sources have others read."""
    furthest: int | None = None
    """The newest epoch of that source of it that is furthest ahead; `newest` is that of the slowest."""
    members: tuple[Member, ...] = ()
    """The steps of the fused chains that somebody looks at closely."""


ToMonitor: TypeAlias = (
    Join | Completed | Durable | Drained | Restored | Released | CurrentMemory | Cost | Unanswered | Observed
)


class Cut(msgspec.Struct, tag=True, frozen=True):
    """Checkpoint every processor of `group` that persists anything, at all times before `at` (`metadata.at_cut`)."""

    generation: int
    group: int
    at: Bound


class Watermarks(msgspec.Struct, tag=True, frozen=True):
    """W has risen: (processor, worker, bound)."""

    changed: tuple[tuple[int, int, Bound], ...]


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Round `round` begins: stop, send an end marker to each of `alive`, and wait for theirs."""

    round: int
    alive: tuple[int, ...]


class Decision(msgspec.Struct, tag=True, frozen=True):
    """The rollback frontiers of `generation`: `bounds[worker][processor]`, LIVE for ⊤. Binding.

    `failed` are the workers that had no memory of their own in this round. `watermarks[worker][processor]` is W.
    `held` are the bounds at which processors came back last, in this round or an earlier one: they have all before these.
    `ends` are those of epochs of sources that are read again as they were. Sources that are AtLeastOnce and go back go on in
    epoch `current`, or in that to which they go back, if that is later.
    With `catch_up` it is an earlier round's, to be noted in the worker's store before it joins again.
    """

    generation: int
    bounds: tuple[tuple[Bound | None, ...], ...]
    failed: tuple[int, ...]
    watermarks: tuple[tuple[Bound, ...], ...]
    catch_up: bool = False
    held: tuple[tuple[Bound, ...], ...] = ()
    ends: tuple[EpochEnds, ...] = ()
    current: int = 0


class Refused(msgspec.Struct, tag=True, frozen=True):
    """This worker cannot take part, and why."""

    reason: str


class AskMemory(msgspec.Struct, tag=True, frozen=True):
    """A question: the memory of this worker if its links were drained now. `CurrentMemory` is the answer."""

    question: int


class AskCost(msgspec.Struct, tag=True, frozen=True):
    """A question: the cost of these bounds, were they decided. `failed[worker]`: processors there without memory."""

    question: int
    bounds: tuple[tuple[Bound | None, ...], ...]
    failed: tuple[tuple[int, ...], ...]


ROWS = (
    "epoch",  # of the least time that may still come
    "inner",  # the coordinate after that
    "pending",  # notifications
    "held",  # capabilities
    "queued",  # batches
    "rows",  # of state
    "bytes",  # of state, about
    "logged",  # messages
    "logged_bytes",
    "kept_messages",  # of exchanges, in memory only (`recovery.kept`)
    "kept_bytes",
    "kept_from",  # the epoch from which on all of it is there; -1 of who sends nothing to other workers
    "taken",  # records
    "sent",  # records
    "busy",  # microseconds
)
END = 1 << 62
"""In the rows `epoch` and `inner`: nothing will come any more."""


class Observe(msgspec.Struct, tag=True, frozen=True):
    """Somebody looks: say how you are doing, every `every` seconds, for the next `seconds`; more of `closely` than others."""

    every: float
    seconds: float
    closely: tuple[int, ...] = ()


ToWorker: TypeAlias = Cut | Watermarks | Drain | Decision | Refused | AskMemory | AskCost | Observe

_encoder = msgspec.msgpack.Encoder()
_to_monitor: Typed[ToMonitor] = Typed("a message of a worker", ToMonitor)
_to_worker: Typed[ToWorker] = Typed("a message of the monitor", ToWorker)


def encode_message(message: ToMonitor | ToWorker) -> bytes:
    """A message as bytes."""
    return _encoder.encode(message)


def decode_to_monitor(data: bytes | memoryview) -> ToMonitor:
    """A message of a worker. Raises ProtocolError for anything else."""
    return _to_monitor.decode(data)


def decode_to_worker(data: bytes | memoryview) -> ToWorker:
    """A message of the monitor. Raises ProtocolError for anything else."""
    return _to_worker.decode(data)
