"""Change of the program of a store, while no job uses it.

Operators are matched by name; what they have saved is carried into journals of a new layout, at the bounds at which the job
would go on after any failure. Added operators begin empty there. The change is planned first, and counts with one write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_dataclass

from msgspec.structs import replace

from monitor.coordination.handshake import functions_changed, layout_changes, operator_changes
from monitor.coordination.options import Options
from monitor.coordination.records import SavedJob, Value
from monitor.coordination.topology import Topology
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.reading import read_journal
from recovery.checkpoint.records import Record
from recovery.errors import NoSolutionError, ReportError
from recovery.layout import Layout, ProcessorInfo
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import NEVER, Bound
from recovery.moving.beginnings import Beginnings, begin
from recovery.moving.carried import Carried
from recovery.moving.matching import Matching, match, with_names
from recovery.place import journal_of
from recovery.store.interface import Buffer, Store
from recovery.store.reading import take_over
from runtime.page.recorded import read_saved
from runtime.processes.monitor_journal import MonitorJournal
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
from timely.errors import FalkirkError

MOST_REASONS = 8
"""Most reasons in an error."""

Bounds = tuple[tuple[Bound, ...], ...]
"""Bounds by worker and processor."""


class CannotUpgrade(FalkirkError):
    """Refusal of a changed program, with the reasons."""

    def __init__(self, reasons: list[str]) -> None:
        more = [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
        lines = "\n  ".join([*reasons[:MOST_REASONS], *more])
        super().__init__(
            f"the store cannot go on with this program:\n  {lines}\nRun the program as it was, or choose another store"
        )


@dataclass(frozen=True, slots=True)
class Change:
    """Fate of an operator in a change of the program.

    Attributes:
        fate: "same", "renamed", "changed", "added" or "removed".
        detail: former name, changed functions, first epoch, or what is lost.
    """

    fate: str
    name: str
    kind: str
    site: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Plan of a change: the operators, and all that it takes to carry it out."""

    changes: tuple[Change, ...]
    saved: SavedJob
    layout: Layout
    bounds: Bounds
    generation: int
    _carried: Carried
    _journals: tuple[tuple[list[tuple[Record, Buffer]], Checkpoints], ...]

    @property
    def differs(self) -> bool:
        """True if anything is to be written."""
        assert self.saved.layout is not None
        return any(change.fate != "same" for change in self.changes) or bool(
            layout_changes(self.saved.layout, self.layout)
        )


def plan_upgrade(
    store: Store,
    store_id: bytes,
    lay_out: Callable[[int], Layout],
    renames: Mapping[str, str],
    incarnation: Callable[[], int] | None = None,
) -> Upgrade:
    """Plan the change of a store to another program, and change nothing in it.

    Args:
        lay_out: layout of the program for so many workers.
        renames: new names of operators by former ones.
        incarnation: numbers for writers; with it the former workers are fenced off first.

    Raises CannotUpgrade, with all reasons, and FalkirkError for a store without a job, or with damage.
    """
    saved = read_saved(store, store_id)
    if saved.layout is None:
        raise FalkirkError("there is no job in the store yet: run the program")
    if saved.finished:
        raise CannotUpgrade(["an earlier run has finished it: nothing is left to do"])
    _check_renames(saved.layout, renames)
    before = with_names(saved.layout, renames)
    after = replace(lay_out(before.workers), number=next_layout(store, before))
    matching = match(before, after, set(renames.values()))
    journals = []
    for worker in range(before.workers):
        if incarnation is not None:
            take_over(store, journal_of(worker, before.number), store_id, incarnation())
        journals.append(read_journal(store, store_id, before, worker, WorkerRecorder(before, worker)))
    was = _decided(options_of(saved, saved.layout, [checkpoints for _, checkpoints in journals]))
    topology = Topology(after)
    begun = _begin(topology, matching, was)
    reasons = [*matching.reasons, *begun.reasons]
    now = topology.by_worker(begun.bounds)
    generation = next_generation(saved)
    carried = Carried(matching, was, now, generation)
    for worker, (records, checkpoints) in enumerate(journals):
        reasons += carried.lost(worker, records, checkpoints)
    if not reasons:
        reasons += _inconsistent(carried, after, now, [checkpoints for _, checkpoints in journals])
    if reasons:
        raise CannotUpgrade(list(dict.fromkeys(reasons)))
    unpublished = {
        p for worker, (_, checkpoints) in enumerate(journals) for p in carried.unpublished(checkpoints, worker)
    }
    changes = _changes(topology, matching, renames, begun, unpublished)
    return Upgrade(changes, saved, after, now, generation, carried, tuple(journals))


def upgrade(store: Store, store_id: bytes, plan: Upgrade, incarnation: Callable[[], int], now: float) -> None:
    """Carry out a change: the store must be locked, and its former workers fenced.

    One that is interrupted has changed nothing, and is begun again from the beginning.
    """
    for worker, (records, checkpoints) in enumerate(plan._journals):
        sections = plan._carried.sections(worker, records, checkpoints)
        write_journal(store, store_id, plan.layout, worker, incarnation(), plan.generation, sections)
    journal = MonitorJournal(store, store_id, incarnation(), WritesAtOnce(store))
    fates: dict[str, Value] = {
        fate: [change.name for change in plan.changes if change.fate == fate]
        for fate in sorted({change.fate for change in plan.changes} - {"same"})
    }
    written = commit(plan.saved, plan.layout, plan.bounds, plan.generation, now, "upgraded", fates)
    write_records(journal, *written)
    sweep(store, plan.layout.number)


def _check_renames(layout: Layout, renames: Mapping[str, str]) -> None:
    names = {name for info in layout.processors for name in (info.name, *info.members)}
    for name in renames:
        if name not in names:
            raise FalkirkError(f"--rename {name}={renames[name]}: the store has no operator {name!r}")


def _decided(options: Options) -> Bounds:
    """Bounds of a restart after a failure of all workers."""
    decided = options.decide({})
    return tuple(tuple(bound for bound in of if bound is not None) for of in decided)


def _begin(topology: Topology, matching: Matching, was: Bounds) -> Beginnings:
    infos = [topology.info(flat) for flat in range(topology.count)]
    known, midway = {}, []
    for flat, info in enumerate(infos):
        p, worker = divmod(flat, topology.workers)
        if p in matching.processors:
            known[flat] = bound = was[worker][matching.processors[p]]
            if any(bound[1:]):
                midway.append(f"{_named(info)} is in the midst of an epoch: let the program as it was finish it first")
    depths, sources = [info.depth for info in infos], [info.role == "source" for info in infos]
    found = begin(topology.edges, depths, sources, known, [_named(info) for info in infos])
    return replace_dataclass(found, reasons=[*found.reasons, *dict.fromkeys(midway)])


def _inconsistent(carried: Carried, layout: Layout, now: Bounds, journals: list[Checkpoints]) -> list[str]:
    """Reasons of the solver against the bounds, which it must decide by itself."""
    options = Options(layout, now)
    try:
        for worker, checkpoints in enumerate(journals):
            wrong = options.join(worker, carried.xis(worker, checkpoints))
            if wrong is not None:
                return [wrong]
        decided = options.decide({})
    except (NoSolutionError, ReportError) as error:
        return [f"operators that are joined in another way are at other epochs: {error}"]
    return [] if decided == now else ["operators that are joined in another way are at other epochs"]


def _changes(
    topology: Topology, matching: Matching, renames: Mapping[str, str], begun: Beginnings, unpublished: Collection[int]
) -> tuple[Change, ...]:
    found = []
    functions = functions_changed(matching.before, matching.after)
    otherwise = operator_changes(matching.before, matching.after)
    workers, infos = matching.after.workers, matching.after.processors
    edges = topology.edges
    former_names, names = (
        {name for info in of for name in _members(info)} for of in (matching.before.processors, infos)
    )
    first_names = {new: former for former, new in renames.items() if former != new}
    for p, info in enumerate(infos):
        first = min(begun.bounds[p * workers : (p + 1) * workers])[0]
        without = [
            f"without what {infos[edges[index].source // workers].name!r} sent before epoch {epoch}"
            for index, epoch in begun.missed.items()
            if edges[index].target // workers == p
        ]
        begins = ", ".join(dict.fromkeys([f"begins at {_epoch(first)}", *without]))
        for name in _members(info):
            if name not in former_names or (p not in matching.processors and info.chain):
                found.append(Change("added", name, info.kind, info.site, begins))
                continue
            lines = [*functions.get(name, ()), *otherwise.get(name, ())]
            if name in first_names:
                lines = [f"was called {first_names[name]!r}", *lines]
            fate = "renamed" if name in first_names else "changed" if lines else "same"
            found.append(Change(fate, name, info.kind, info.site, "; ".join(lines)))
    for p, info in enumerate(matching.before.processors):
        lost = []
        if info.state:
            lost.append("its state is dropped")
        if p in unpublished:
            lost.append("results that are saved, and not published yet, are dropped")
        gone = [name for name in _members(info) if name not in names]
        found += [Change("removed", name, info.kind, info.site, "; ".join(lost)) for name in gone]
    return tuple(found)


def _members(info: ProcessorInfo) -> tuple[str, ...]:
    return info.members or (info.name,)


def _epoch(epoch: int) -> str:
    return "the end of its input" if epoch >= NEVER else f"epoch {epoch}"


def _named(info: ProcessorInfo) -> str:
    return f"{info.kind} {info.name!r} ({info.site})"
