"""Move of a store to another number of workers, before its job starts.

The former workers come back one after the other, each from its journal, at one bound an operator. What they had not
published yet is published under their names, and what they have becomes the first checkpoint of the new workers, in journals
of a new layout. One write of the monitor's journal makes these the job's: before it the old layout holds, and all is done
again; after it the new one does, from its own cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from monitor.coordination.handshake import another_program
from monitor.coordination.options import Options
from monitor.coordination.records import (
    KeptWatermarks,
    SavedJob,
)
from recovery.checkpoint.reading import read_checkpoints
from recovery.checkpoint.records import SourcePosition
from recovery.errors import NoSolutionError
from recovery.guarantees.classes import operators_of
from recovery.layout import Layout
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound
from recovery.moving.former import FormerWorker
from recovery.moving.refusals import CannotMove, HalfWritten, check_alike, refusals
from recovery.moving.successors import Successors
from recovery.place import journal_of
from recovery.store.interface import Store
from recovery.store.reading import take_over
from runtime.folders.workspace import Workspace
from runtime.page.recorded import read_saved
from runtime.processes.monitor_journal import MonitorJournal
from runtime.session.outputs import OnCapture, OutputDriver
from runtime.supervisor.rewriting import (
    WritesAtOnce,
    commit,
    next_generation,
    next_layout,
    options_of,
    sweep,
    write_journal,
    write_records,
)
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
    layout = replace(layout, number=next_layout(store, before))
    journals = [
        take_over(store, journal_of(worker, before.number), store_id, around.incarnation())[:2]
        for worker in range(before.workers)
    ]
    known = [
        read_checkpoints(store, store_id, before, worker, WorkerRecorder(before, worker))
        for worker in range(before.workers)
    ]
    bounds = _common(options_of(saved, before, known), before, layout.workers)
    generation = next_generation(saved)
    journal = MonitorJournal(store, store_id, around.incarnation(), WritesAtOnce(store))
    # What is safe is known before anything of it is published.
    write_records(journal, KeptWatermarks((bounds,) * before.workers))
    successors = Successors(former, plan, layout, bounds, generation, _positions(plan, around.files))
    was = replace(around.lay_out(former), number=before.number)
    for worker, (old, found) in enumerate(journals):
        gone = FormerWorker(former, was, worker, old.incarnation, old, found.read(), bounds, generation)
        around.publish(gone.worker, gone.outputs())
        try:
            successors.take(gone)
        except OperatorError as error:
            raise CannotMove(before.workers, layout.workers, [str(error)]) from error
    for worker in range(layout.workers):
        sections = successors.sections(worker)
        write_journal(store, store_id, layout, worker, around.incarnation(), generation, [sections])
    everyone = (bounds,) * layout.workers
    event = "rescaled", {"from": before.workers, "workers": layout.workers}
    write_records(journal, *commit(saved, layout, everyone, generation, around.now, *event))
    sweep(store, layout.number)
    around.note(f"the state of {before.workers} worker(s) has moved to {layout.workers}")
    return layout


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


def _common(options: Options, before: Layout, workers: int) -> tuple[Bound, ...]:
    """Bound of each operator, one for all former workers.

    Raises HalfWritten if there is none."""
    try:
        return options.common()
    except NoSolutionError as error:
        reason = f"{error}: it ended while a cut was written. After a savepoint with {before.workers} it may change"
        raise HalfWritten(before.workers, workers, [reason]) from error


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
