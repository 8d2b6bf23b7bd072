"""Messages between workers and the monitor.

Messages of one sender arrive in order. MessagePack, typed: nothing that arrives is executed.

    worker                          monitor
      Join            ->                        here is what I can be restored to
                      <-   Decision             (catch-up: a round that this worker has not applied yet)
      Join again ...
                      <-   Decision             restore to this, in a new generation
      Restored        ->
      Completed       ->                        so far is complete here
                      <-   Cut                  checkpoint this group here
      Durable         ->                        done: here is its Ξ
                      <-   ReadUntil            a savepoint: begin no further epoch, or none from this one on
      Begun           ->                        this is the first that is not begun here
      Settled         ->                        all before that epoch is safe and published
      Mate            ->                        my mate has in memory what is not durable, or is gone
      Flushed         ->                        what was in memory only is durable
                      <-   Watermarks           never below this again: collect, acknowledge, release
                      <-   Drain                a worker has failed: stop, drain the links
      Drained         ->                        this is what I hold in memory
                      <-   Decision

What would happen is asked in the same way, without stopping anybody:

                      <-   AskMemory            what would you hold if links were drained now?
      CurrentMemory   ->
                      <-   AskCost              and if this were decided?
      Cost            ->                        these messages would be sent again, that much be done again
      Unanswered      ->                        or, to either, why there is no answer

And while somebody looks at the page: Observe, and Observed in answer, which change nothing.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recovery.epoch_ends import EpochEnds
from recovery.incomplete import Gap
from recovery.layout import Layout
from recovery.metadata import Bound, Xi
from recovery.place import Place
from timely.data.codec.typed import Typed
from timely.time import Time

LIVE = None
"""In a decision: the processor stays as it is, at ⊤."""


class InMemory(msgspec.Struct, frozen=True, array_like=True):
    """Memory of a live processor: it can stay at ⊤, or go back to bounds up to `upto`.

    It offers these beside what it has persisted.

    `notified` is N̄(p, ⊤), `delivered` M̄(d, ⊤) for each in-edge and `discards` D̄(e, ⊤) for each out-edge of the layout, in
    the order of `Layout.edges`. What it surely received, C(d), is `upto` as well.
    """

    upto: Bound
    notified: Bound
    delivered: tuple[Bound, ...]
    discards: tuple[Bound, ...]
    since: Bound = ()
    """Bound of its last restore; below it only its checkpoints are offered."""
    kept: tuple[tuple[Bound, ...], ...] = ()
    """Start of the sent messages still in memory, as bounds.

    They are by kept out-edge, in that order, and worker.
    """


class Join(msgspec.Struct, tag=True, frozen=True):
    """Announcement of a worker: content of its store, and memory if `alive`.

    `alive`: it holds state in memory, of generation `generation`, and is reconnecting.

    `generation` is that of the last decision that it has applied durably. `durable` is all that its store has.
    """

    place: Place
    incarnation: int
    generation: int
    alive: bool
    layout: Layout
    durable: tuple[Xi, ...]
    paused: bool = False
    held: tuple[Xi, ...] = ()
    """Checkpoints in memory only: of the mate whose place it took, or of its own mate."""
    mate: bool = False
    """True if its mate has all of `held`."""


class Completed(msgspec.Struct, tag=True, frozen=True):
    """Bounds by group: this worker's processors have completed all times before."""

    place: Place
    generation: int
    upto: tuple[Bound, ...]


class Durable(msgspec.Struct, tag=True, frozen=True):
    """Confirmation of a cut: Ξ, S and L are persisted.

    `stateless` processors of the group have completed it as well.
    """

    place: Place
    generation: int
    group: int
    at: Bound
    xis: tuple[Xi, ...]
    waited: float = 0.0
    """Seconds from receipt of the cut to the start of its pieces."""
    made: float = 0.0
    """Seconds from then until the pieces were made, in between other work."""
    written: float = 0.0
    """Seconds from then until they were durable."""
    size: int = 0
    """Bytes of its segment, shared with cuts written together."""
    held: bool = False
    """True if it is in the memory of the worker's mate, and not durable yet."""


class Flushed(msgspec.Struct, tag=True, frozen=True):
    """Report of durable checkpoints, in memory only before."""

    place: Place
    generation: int
    xis: tuple[Xi, ...]


class Mate(msgspec.Struct, tag=True, frozen=True):
    """Report of a mate with all checkpoints not yet durable, or of its end."""

    place: Place
    there: bool


class Drained(msgspec.Struct, tag=True, frozen=True):
    """Report of drained links: memory of each processor, and ends of source epochs.

    The ends are those known here, of any worker.
    """

    place: Place
    round: int
    memory: tuple[InMemory, ...]
    ends: tuple[EpochEnds, ...] = ()


class Resent(msgspec.Struct, tag=True, frozen=True, array_like=True):
    """Logged messages to resend on an edge, to `receiver`.

    `edge` is its index in `Layout.edges`.
    """

    edge: int
    receiver: int
    messages: int
    bytes: int


class Redone(msgspec.Struct, tag=True, frozen=True, array_like=True):
    """Work to be repeated by a processor.

    At most so many records that it had handled in epochs that are not kept; the number of such epochs; and about how
    many seconds of this worker they took.
    """

    processor: int
    records: int
    epochs: int
    seconds: float


class Restored(msgspec.Struct, tag=True, frozen=True):
    """Confirmation: the decision of `generation` is applied, durably."""

    place: Place
    generation: int
    resent: tuple[Resent, ...] = ()
    redone: tuple[Redone, ...] = ()
    """Undone work of this process; none of a process without memory."""
    ahead: int = 0
    """Operators with state loaded ahead, by a mate."""
    pieces: int = 0
    """Pieces of state read from the store beside that."""


class Released(msgspec.Struct, tag=True, frozen=True):
    """Report of a finished worker: all is complete, persisted and released."""

    place: Place


class Begun(msgspec.Struct, tag=True, frozen=True):
    """Answer to `ReadUntil` without an epoch: sources have begun none from `epoch` on."""

    place: Place
    generation: int
    epoch: int


class Settled(msgspec.Struct, tag=True, frozen=True):
    """Report of a worker at a savepoint: all before `epoch` is safe and published."""

    place: Place
    generation: int
    epoch: int


class CurrentMemory(msgspec.Struct, tag=True, frozen=True):
    """Answer to `AskMemory`: content of a `Drained` message at this moment."""

    place: Place
    generation: int
    question: int
    memory: tuple[InMemory, ...]
    ends: tuple[EpochEnds, ...] = ()


class Cost(msgspec.Struct, tag=True, frozen=True):
    """Answer to `AskCost`: consequences on this worker."""

    place: Place
    generation: int
    question: int
    resent: tuple[Resent, ...]
    redone: tuple[Redone, ...]


class Unanswered(msgspec.Struct, tag=True, frozen=True):
    """Answer of a worker unable to answer `AskMemory` or `AskCost`.

    Nothing but the question fails.
    """

    place: Place
    generation: int
    question: int
    reason: str


class ObservedHold(msgspec.Struct, frozen=True, array_like=True):
    """Reason holding back a progress frontier.

    There are `count` things of kind `what` at `processor`, at `time`, on any worker.
    """

    what: str
    processor: int
    time: Time
    count: int
    here: bool
    """True if this worker has one of them."""


class Closely(msgspec.Struct, frozen=True, array_like=True):
    """Details of one processor: minimal times still to come, and reasons for them."""

    processor: int
    frontier: tuple[Time, ...]
    holds: tuple[ObservedHold, ...]


class Working(msgspec.Struct, frozen=True, array_like=True):
    """Progress of outside work for a processor.

    `done` of `total` parts (0: it does not say), since `seconds`.

    `epoch` is -1 at the end of all input.
    """

    processor: int
    epoch: int
    what: str
    done: int
    total: int
    seconds: float


class Member(msgspec.Struct, frozen=True, array_like=True):
    """Step of a fused chain under observation: records taken, and microseconds."""

    processor: int
    name: str
    taken: int
    busy: int


class Exposed(msgspec.Struct, frozen=True, array_like=True):
    """Table of unsafe records: those to be handled again after a rollback.

    `records` is an array of 64-bit integers, a row for each of the ascending epochs `begins`, a column for each processor:
    records handled at this epoch or later that may have to be handled again. `each`: seconds of the worker a record, on
    average since its process began; None before the first.
    """

    begins: tuple[int, ...]
    records: bytes
    each: float | None


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """Output of a processor's port: records and batches, since its process began.

    `size`: bytes of a record as a log has it, by samples; None: unknown; -1: its records cannot be saved.
    """

    processor: int
    port: int
    records: int
    batches: int
    size: float | None


PERSISTED = (
    "heads",  # bytes of checkpoints without their state
    "state",  # bytes
    "logs",  # bytes
    "events",  # bytes of histories
    "checkpoints",
    "batches",  # taken; one event of a history each
)


class Persisting(msgspec.Struct, frozen=True, array_like=True):
    """Measured persistence of a worker, since its process began.

    `written` is an array of 64-bit integers, a row for each of PERSISTED, a column for each processor.
    """

    written: bytes
    segments: int
    size: int
    """Bytes of all segments."""
    durable: float
    """Seconds until each was durable, all together."""
    saving: float
    """Processor seconds for pieces of cuts."""
    storing: float
    """Processor seconds for writing segments."""
    cpu: float
    """Processor seconds of the process."""
    encoding: float | None
    """Processor seconds a byte, of sampled batches; None: unknown."""
    sent: tuple[Sent, ...]


class ProcessUse(msgspec.Struct, frozen=True, array_like=True):
    """Process of a worker: resident bytes, processor seconds, start since 1970."""

    pid: int
    host: str
    memory: int
    cpu: float
    began: float


class Observed(msgspec.Struct, tag=True, frozen=True):
    """Observation of a worker, for display only.

    See `runtime.recovery.observer` for `numbers`.
    """

    place: Place
    generation: int
    numbers: bytes
    read: int
    """Number of records read by its sources in this process."""
    written: int
    newest: int | None
    """Newest epoch reached by all of its sources; None when they have ended."""
    latencies: tuple[float, ...] = ()
    """Seconds from reading to completion, of epochs since the last observation."""
    closely: tuple[Closely, ...] = ()
    working: tuple[Working, ...] = ()
    """Running jobs of operators, and queries of sources."""
    furthest: int | None = None
    """Newest epoch of its furthest source; `newest` is that of the slowest."""
    members: tuple[Member, ...] = ()
    """Steps of the fused chains under close observation."""
    incarnation: int = -1
    """Number of the process among those at its place; -1: unknown."""
    exposed: Exposed | None = None
    ends: tuple[EpochEnds, ...] = ()
    """Known ends of epochs cut by a clock, without their partitions."""
    process: ProcessUse | None = None
    """Its process, while a page is open."""
    persisting: Persisting | None = None

    def fits(self, processors: int) -> bool:
        """True if its tables have a column for each of so many processors."""
        table, persisting = self.exposed, self.persisting
        return (
            len(self.numbers) == 8 * len(ROWS) * processors
            and (table is None or (len(table.begins) > 0 and len(table.records) == 8 * len(table.begins) * processors))
            and (persisting is None or len(persisting.written) == 8 * len(PERSISTED) * processors)
        )


ToMonitor: TypeAlias = (
    Join
    | Completed
    | Durable
    | Flushed
    | Mate
    | Drained
    | Restored
    | Released
    | Begun
    | Settled
    | CurrentMemory
    | Cost
    | Unanswered
    | Observed
)


class Cut(msgspec.Struct, tag=True, frozen=True):
    """Order to checkpoint the processors of `group` at all times before `at`.

    Those that persist anything do (`metadata.at_cut`).
    """

    generation: int
    group: int
    at: Bound


class ReadUntil(msgspec.Struct, tag=True, frozen=True):
    """Order to read no epoch from `epoch` on; NEVER: no limit any more.

    None: none that is not begun, and `Begun` is the answer.
    """

    generation: int
    epoch: int | None = None


class Watermarks(msgspec.Struct, tag=True, frozen=True):
    """Risen low-watermarks W: (processor, worker, bound)."""

    changed: tuple[tuple[int, int, Bound], ...]
    memory: tuple[tuple[int, int, Bound], ...] = ()
    """Risen W₁, the same with memory of mates counted."""


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Order to drain the links in round `round`.

    The process stops, sends an end marker to each of `alive`, and waits for theirs.
    """

    round: int
    alive: tuple[Place, ...]


class Decision(msgspec.Struct, tag=True, frozen=True):
    """Binding decision on the rollback frontiers of `generation`.

    They are `bounds[worker][processor]`, LIVE for ⊤.

    `failed` are the workers that had no memory of their own in this round. `watermarks[worker][processor]` is W.
    `held` are the bounds at which processors came back last, in this round or an earlier one: they have all before these.
    `gaps` are the incomplete epochs of outputs, by this round and all before it.
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
    gaps: tuple[Gap, ...] = ()


class Refused(msgspec.Struct, tag=True, frozen=True):
    """Refusal of a worker, with the reason."""

    reason: str


class AskMemory(msgspec.Struct, tag=True, frozen=True):
    """Question about a worker's memory, were its links drained now.

    `CurrentMemory` is the answer.
    """

    question: int


class AskCost(msgspec.Struct, tag=True, frozen=True):
    """Question about the cost of these bounds, were they decided.

    `failed[worker]`: processors there without memory.
    """

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
    "kept_messages",  # of exchanges, in memory only (`recovery.memory.kept_messages`)
    "kept_bytes",
    "kept_from",  # the epoch from which on all of it is there; -1 of who sends nothing to other workers
    "taken",  # records
    "sent",  # records
    "busy",  # microseconds
)
END = 1 << 62
"""Value in the rows `epoch` and `inner` if nothing will come any more."""


class Observe(msgspec.Struct, tag=True, frozen=True):
    """Request for observations every `every` seconds, for the next `seconds`.

    It asks for details of the processors in `closely`.
    """

    every: float
    seconds: float
    closely: tuple[int, ...] = ()
    sampled: bool = False
    """Records and time are counted in a part of the time, and taken for the rest."""


ToWorker: TypeAlias = Cut | ReadUntil | Watermarks | Drain | Decision | Refused | AskMemory | AskCost | Observe

_encoder = msgspec.msgpack.Encoder()
_to_monitor: Typed[ToMonitor] = Typed("a message of a worker", ToMonitor)
_to_worker: Typed[ToWorker] = Typed("a message of the monitor", ToWorker)


def encode_message(message: ToMonitor | ToWorker) -> bytes:
    """Encode a message."""
    return _encoder.encode(message)


def decode_to_monitor(data: bytes | memoryview) -> ToMonitor:
    """Decode a message of a worker.

    Raises ProtocolError for anything else.
    """
    return _to_monitor.decode(data)


def decode_to_worker(data: bytes | memoryview) -> ToWorker:
    """Decode a message of the monitor.

    Raises ProtocolError for anything else.
    """
    return _to_worker.decode(data)
