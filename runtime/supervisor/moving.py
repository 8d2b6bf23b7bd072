"""Move of a store to another number of workers, before its job starts.

The former workers come back one after the other, each from its journal, at one bound an operator. What they had not
published yet is published under their names, and what they have becomes the first checkpoint of the new workers, in journals
of a new layout. One write of the monitor's journal makes these the job's: before it the old layout holds, and all is done
again; after it the new one does, from its own cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from monitor.coordination.handshake import another_program, refusal
from monitor.coordination.options import Options
from monitor.coordination.records import (
    KeptDecision,
    KeptEvent,
    KeptLayout,
    KeptRounds,
    KeptWatermarks,
    Record,
    SavedJob,
)
from recovery.checkpoint.reading import read_checkpoints
from recovery.checkpoint.records import SourcePosition
from recovery.errors import NoSolutionError, ReportError
from recovery.guarantees.classes import operators_of
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound
from recovery.moving.former import FormerWorker
from recovery.moving.refusals import CannotMove, check_alike, refusals
from recovery.moving.successors import Successors
from recovery.place import Place, journal_of, layout_of
from recovery.protocol import Join
from recovery.store.interface import Buffer, Store
from recovery.store.reading import take_over
from runtime.folders.workspace import Workspace
from runtime.page.recorded import read_saved
from runtime.processes.monitor_journal import MonitorJournal
from runtime.session.outputs import OnCapture, OutputDriver
from timely.data.messages import Effect
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan, compile_plan
from timely.errors import FalkirkError, OperatorError
from timely.io.descriptors import with_descriptors
from timely.io.interface import Files, Partition
from timely.worker.worker import Worker

Publish = Callable[[Worker, list[Effect]], None]
"""Publication of outputs under the name of a former worker."""


@dataclass(frozen=True, slots=True)
class Around:
    """Surroundings of a move.

    Attributes:
        lay_out: layout of a plan of the program.
        incarnation: numbers for writers, each above all before.
        publish: see there.
        files: where sources may keep files of their own.
        now: seconds since 1970.
        accept: operators whose functions may have changed.
        note: gets what the user should know.
    """

    lay_out: Callable[[Plan], Layout]
    incarnation: Callable[[], int]
    publish: Publish
    files: Files | None
    now: float
    accept: Collection[str] = ()
    note: Callable[[str], None] = lambda text: None


def publish(
    worker: Worker, effects: list[Effect], on_capture: OnCapture, files: Workspace, job: str | None = None
) -> None:
    """Publish outputs of a former worker, as its own process would."""
    if not effects:
        return
    outputs = OutputDriver(worker, on_capture, lambda: None, files, time.monotonic, job)
    outputs.open()
    try:
        outputs.carry_out(effects)
    except BaseException:
        outputs.abort()
        raise
    outputs.close()


class WritesAtOnce:
    """Store client with synchronous operations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.spent = 0.0
        self._done: list[tuple[str, Exception | None]] = []

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write a blob."""
        self._store.put(name, parts)
        self._done.append((name, None))

    def delete(self, name: str) -> None:
        """Delete a blob."""
        self._store.delete(name)

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """Blobs written since the last call."""
        done, self._done = self._done, []
        return done

    def files(self) -> list[int]:
        """File descriptors to wait for: none."""
        return []

    def close(self) -> None:
        """Nothing is pending."""


def settle(store: Store, store_id: bytes, plan: Plan, layout: Layout, around: Around, may_move: bool) -> Layout:
    """Layout of a job at rest, with its journals moved if necessary.

    They are moved if they are of another number of workers than `plan`.

    The store must be locked. Where the state may not move, the layout is as it was, and the monitor refuses the job.

    Raises FalkirkError as `move` does, and CannotMove for a finished job.
    """
    saved = read_saved(store, store_id)
    if saved.layout is None:
        return layout
    if saved.layout.workers == plan.workers:
        sweep(store, saved.layout.number)
    elif saved.finished:  # its captures were handed over
        raise CannotMove(saved.layout.workers, plan.workers, ["an earlier run has finished it: nothing is left to do"])
    elif may_move:
        return move(store, store_id, saved, compile_plan(plan.graph, saved.layout.workers), plan, layout, around)
    return replace(layout, number=saved.layout.number)


def move(
    store: Store, store_id: bytes, saved: SavedJob, former: Plan, plan: Plan, layout: Layout, around: Around
) -> Layout:
    """Move a job at rest from `former` to `plan`; returns its new layout.

    The store must be locked. A move that is interrupted is done again from the beginning.

    Raises FalkirkError, and changes nothing, where the program or its store cannot go on with another number of workers.
    """
    before = saved.layout
    assert before is not None
    _check(before, former, plan, layout, around)
    number = 1 + max(before.number, *(found for found in map(layout_of, _owners(store)) if found is not None), 0)
    layout = replace(layout, number=number)
    journals = [
        take_over(store, journal_of(worker, before.number), store_id, around.incarnation())[:2]
        for worker in range(before.workers)
    ]
    bounds = _common(store, store_id, saved, before, layout.workers)
    generation = 1 + max(saved.rounds, saved.decision.generation if saved.decision is not None else 0)
    journal = MonitorJournal(store, store_id, around.incarnation(), WritesAtOnce(store))
    # What is safe is known before anything of it is published.
    _write(journal, KeptWatermarks((bounds,) * before.workers))
    successors = Successors(former, plan, layout, bounds, generation, _positions(plan, around.files))
    was = replace(around.lay_out(former), number=before.number)
    for worker, (old, found) in enumerate(journals):
        known = FormerWorker(former, was, worker, old.incarnation, old, found.read(), bounds, generation)
        around.publish(known.worker, known.outputs())
        try:
            successors.take(known)
        except OperatorError as error:
            raise CannotMove(before.workers, layout.workers, [str(error)]) from error
    for worker in range(layout.workers):
        owner = journal_of(worker, number)
        new, _, _ = take_over(store, owner, store_id, around.incarnation())
        new.resume()
        new.generation = generation
        for key, section in successors.sections(worker):
            new.add(key, section)
        segment = new.seal()
        assert segment is not None  # a layout is in it
        store.put(*segment)
    _write(journal, *_commit(saved, before, layout, bounds, generation, around.now))
    sweep(store, number)
    around.note(f"the state of {before.workers} worker(s) has moved to {layout.workers}")
    return layout


def sweep(store: Store, number: int) -> None:
    """Delete the journals of all layouts but `number`.

    They are of former ones, and of interrupted moves."""
    for name in store.names("worker-"):
        if layout_of(name.partition("/")[0]) not in (None, number):
            store.delete(name)


def _owners(store: Store) -> set[str]:
    return {name.partition("/")[0] for name in store.names("worker-")}


def _check(before: Layout, former: Plan, plan: Plan, layout: Layout, around: Around) -> None:
    """Raise FalkirkError for a changed program, or an unmovable one."""
    wrong = another_program(before, around.lay_out(former), around.accept)
    if wrong is not None:
        raise FalkirkError(wrong)
    reasons = refusals(plan, layout, operators_of(plan.graph))
    different = check_alike(around.lay_out(former), layout)
    if different is not None:
        reasons.append(different)
    for node in plan.graph.of_kind("source"):
        if not getattr(node.source, "layout_free", False):
            with _Opened(node, 0, plan.workers, around.files) as partitions:
                if not all(hasattr(each, "at_epoch") for each in partitions):
                    reasons.append(
                        f"{node} does not say that its partitions are the same for any number of workers: if they are, say "
                        "layout_free = True in its class"
                    )
    if reasons:
        raise CannotMove(before.workers, layout.workers, reasons)


def _common(store: Store, store_id: bytes, saved: SavedJob, before: Layout, workers: int) -> tuple[Bound, ...]:
    """Bound of each operator, one for all former workers.

    Raises FalkirkError if there is none."""
    decision = saved.decision
    options = Options(before, saved.watermarks, decision.bounds if decision is not None else None)
    for worker in range(before.workers):
        checkpoints = read_checkpoints(store, store_id, before, worker, WorkerRecorder(before, worker))
        xis = tuple(each.checkpoint.xi for each in checkpoints.saved())
        joins = Join(Place(worker), 0, checkpoints.generation, False, before, xis)
        try:
            wrong = refusal(joins, before, decision) or options.join(worker, xis)
        except ReportError as error:
            wrong = f"the journal of worker {worker} does not fit the others: {error}"
        if wrong is not None:
            raise FalkirkError(wrong)
        if decision is not None and joins.generation < decision.generation:
            options.cut_worker(worker, decision.bounds[worker])
    try:
        return options.common()
    except NoSolutionError as error:
        reason = f"{error}: it ended while a cut was written. After its next cut with {before.workers} it may change"
        raise CannotMove(before.workers, workers, [reason]) from error


def _commit(
    saved: SavedJob, before: Layout, layout: Layout, bounds: tuple[Bound, ...], generation: int, now: float
) -> tuple[Record, ...]:
    """Records of the new layout as the job's, written as one."""
    everyone = (bounds,) * layout.workers
    held = Options(layout, everyone, everyone).held(everyone, ())
    previous = saved.decision.generation if saved.decision is not None else 0
    last = max((event.n for event in saved.events), default=0)
    return (
        KeptLayout(layout),
        KeptWatermarks(everyone),
        KeptDecision(generation, previous, everyone, tuple(range(layout.workers)), held),
        KeptRounds(generation),
        KeptEvent("rescaled", now, {"from": before.workers, "workers": layout.workers}, last + 1),
    )


def _write(journal: MonitorJournal, *records: Record) -> None:
    journal.write(0, records)
    journal.written()


class _Opened:
    """Partitions of a worker, opened for their names and positions only."""

    def __init__(self, node: Node, worker: int, workers: int, files: Files | None) -> None:
        source = node.source
        assert source is not None
        filing = getattr(source, "with_files", None)
        if filing is not None and files is not None:
            source = filing(files, node.name)
        self._partitions = with_descriptors(lambda: list(source.partitions(worker, workers)))

    def __enter__(self) -> list[Partition]:
        return self._partitions

    def __exit__(self, *_: object) -> None:
        for partition in self._partitions:
            partition.close()


def _positions(
    plan: Plan, files: Files | None
) -> Callable[[Node, int, int, Mapping[str, SourcePosition]], tuple[SourcePosition, ...]]:
    def positions(
        node: Node, epoch: int, worker: int, former: Mapping[str, SourcePosition]
    ) -> tuple[SourcePosition, ...]:
        """Positions of partitions as they were, and of shares of epochs at `epoch`.

        What is gone is missed by worker 0."""
        found = []
        missing = dict(former)
        free = getattr(node.source, "layout_free", False)
        for each in range(plan.workers) if free and worker == 0 else (worker,):
            with _Opened(node, each, plan.workers, files) as partitions:
                for partition in partitions:
                    known = missing.pop(partition.name, None)
                    if each != worker:
                        continue
                    if not free:
                        found.append(SourcePosition(partition.name, partition.at_epoch(epoch), False, None, 0))  # type: ignore[attr-defined]
                    elif known is not None:
                        found.append(known)
        return (*found, *missing.values()) if free and worker == 0 else tuple(found)

    return positions
