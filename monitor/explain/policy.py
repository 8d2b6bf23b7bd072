"""Other policies for a running job: exposure, bytes and processor time, by measured rates. Pure.

What would be is a layout: the one that the production code makes of the program with these policies. What its cuts would be
follows from intervals and rates, and the solver of `monitor.explain.exposure` is given options at such cuts. The policies of
now go through the same model, beside what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from monitor.coordination.options import Options, OptionsRecord
from monitor.explain.exposure import Danger, Fate, Reduced, fate
from monitor.explain.measured import Rates, of_all
from monitor.explain.persistence import Persistence, cuts_a_second, lag, persistence, places
from recovery.layout import Layout
from recovery.metadata import Bound, at_cut, at_epoch, image, meet, nothing
from recovery.protocol import END, ROWS, Observed

Told: TypeAlias = Mapping[int, Observed]

TYPICAL, WORST = 0.5, 1.0
"""Shares of an interval since the last cut."""

CPU_LEAVES_OUT = "Processor time has what encoding, checkpoints and writes cost. Waiting behind gates, and smaller batches, are not in it."


class Exposure(msgspec.Struct, frozen=True):
    """Cost of the death of a worker; seconds are of the worker with most of the work."""

    worker: int
    records: float
    seconds: float


def carried_over(
    layout: Layout, of: Sequence[int | None], measured: Layout, options: Options
) -> list[tuple[Bound, ...]]:
    """Completed cuts of each group of `layout`, by worker: `[worker][group]`."""
    found = []
    for upto in options.upto:
        of_worker = []
        for number, group in enumerate(layout.groups):
            known = (
                [
                    at_cut(upto[measured.processors[of_p].group], 1)
                    for p in layout.members(number)
                    if (of_p := of[p]) is not None and layout.processors[p].kind != "gate"
                ]
                if upto is not None
                else []
            )
            of_worker.append(at_epoch(reduce(meet, known)[0], group.depth) if known else nothing(group.depth))
        found.append(tuple(of_worker))
    return found


def supposed_options(layout: Layout, done: Sequence[tuple[Bound, ...]], cuts: Sequence[Sequence[Bound]]) -> Options:
    """Options of a job with this layout: `done[worker][group]` is complete, `cuts[worker][group]` is the last cut.

    Low-watermarks are those that follow.
    """
    count = len(layout.processors) * layout.workers
    blank = Options(layout)
    low, completed, chains = [], [], []
    for flat in range(count):
        p, worker = divmod(flat, layout.workers)
        info = layout.processors[p]
        bound = at_cut(cuts[worker][info.group], info.depth)
        edges = [layout.edges[e] for e in blank.topology.outgoing[p]]
        lost = tuple(
            nothing(edge.summary.result_depth) if edge.logged else image(edge.discarding, bound) for edge in edges
        )
        low.append(info.nothing)
        chains.append(((bound, lost),) if info.chain and any(bound) else ())
        completed.append(info.nothing if info.chain else at_cut(done[worker][info.group], info.depth))
    found = Options.of_record(layout, OptionsRecord(tuple(low), tuple(completed), tuple(chains), tuple(done)))
    found.raise_watermarks()
    return found


class Supposed:
    """Job with another layout, at the moment of its last observations.

    Args:
        layout: with the policies in question.
        measured: layout of the job.
        options: of the job.
        told: the last observation of each worker.
        rates: of each worker.
    """

    def __init__(
        self, layout: Layout, measured: Layout, options: Options, told: Told, rates: Mapping[int, Rates]
    ) -> None:
        self.layout, self.measured, self.options, self.told, self.rates = layout, measured, options, told, rates
        self.of = places(layout, measured)
        self.done = carried_over(layout, self.of, measured, options)
        self._reduced = Reduced(layout)
        self._told = {worker: self._as_told(said) for worker, said in told.items()}

    def cuts(self, share: float) -> list[tuple[Bound, ...]]:
        """Last cut of each group, by worker, if `share` of its interval has passed since."""
        found = []
        for number, group in enumerate(self.layout.groups):
            upto = [self.done[worker][number][0] for worker in range(self.layout.workers)]
            least, row = min(upto), []
            for worker in range(self.layout.workers):
                rates = self.rates[worker]
                often = cuts_a_second(group, rates)
                behind = rates.epochs * ((share / often if often else 0.0) + lag(rates))
                begin = upto[worker] if group.eager else least
                row.append(at_epoch(begin if begin >= END else max(0, begin - round(behind)), group.depth))
            found.append(row)
        return [tuple(row[worker] for row in found) for worker in range(self.layout.workers)]

    def fate(self, worker: int, cuts: Sequence[Sequence[Bound]]) -> Fate:
        """Frontiers if a worker died, with these last cuts."""
        options = supposed_options(self.layout, self.done, cuts)
        return fate(self._reduced, options, [worker], self._told)

    def exposure(self, cuts: Sequence[Sequence[Bound]]) -> list[Exposure]:
        """Cost of each worker's death, with these last cuts."""
        options = supposed_options(self.layout, self.done, cuts)
        found = []
        for worker in range(self.layout.workers):
            epochs = fate(self._reduced, options, [worker], self._told).epochs
            undone = [self._undone(w, of_worker.tolist()) for w, of_worker in enumerate(epochs)]
            each = [self._each(w) for w in range(self.layout.workers)]
            found.append(Exposure(worker, sum(undone), max(n * s for n, s in zip(undone, each))))
        return found

    def persistence(self) -> dict[int, Persistence]:
        """Cost of what is written, by worker."""
        return {w: persistence(self.layout, self.of, self.measured, rates) for w, rates in self.rates.items()}

    def _each(self, worker: int) -> float:
        said = self.told[worker].exposed
        return 0.0 if said is None or said.each is None else said.each

    def _undone(self, worker: int, epochs: Sequence[int]) -> float:
        """Records that a worker would handle again, of processors that go back to these epochs."""
        said, rates = self.told[worker].exposed, self.rates[worker]
        if said is None:
            return 0.0
        table = np.frombuffer(said.records, np.int64).reshape(len(said.begins), -1)
        found = 0.0
        for epoch, q in zip(epochs, self.of):
            if epoch >= END or q is None:
                continue
            low = self.options.low(self.options.topology.flat(q, worker))[0]
            of_epoch = float(rates.taken[q]) / rates.epochs if rates.epochs else 0.0
            found += _from(said.begins, table[:, q].tolist(), max(epoch, low), low) + of_epoch * max(0, low - epoch)
        return found

    def _as_told(self, said: Observed) -> Observed:
        """Observation with the columns of this layout."""
        table = np.frombuffer(said.numbers, np.int64).reshape(len(ROWS), -1)
        of = [q if q is not None else -1 for q in self.of]
        moved = np.where(np.array(of) >= 0, table[:, of], 0)
        now = {q: p for p, q in enumerate(self.of) if q is not None and self.layout.processors[p].kind != "gate"}
        ends = tuple(replace(each, processor=now[each.processor]) for each in said.ends if each.processor in now)
        return replace(said, numbers=moved.astype(np.int64).tobytes(), exposed=None, ends=ends)


def _from(begins: Sequence[int], counts: Sequence[int], epoch: int, low: int) -> float:
    """Records from an epoch on, by a table with some epochs; what lies before `low` is kept."""
    at = int(np.searchsorted(np.array(begins, np.int64), epoch, side="right")) - 1
    begin, count = max(begins[at], low), counts[at]
    if epoch <= begin:
        return float(count)
    if at + 1 == len(begins):
        return 0.0
    share = (epoch - begin) / (begins[at + 1] - begin)
    return count - share * (count - counts[at + 1])


def compare(
    changes: Mapping[str, str],
    layout: Layout,
    options: Options,
    told: Told,
    rates: Mapping[int, Rates],
    exposure: Sequence[Danger],
) -> dict[str, Any]:
    """What other policies would change, as JSON for page and terminal.

    Args:
        changes: policies by region, in words.
        layout: of the program with them.
        options: of the job.
        told: the last observation of each worker.
        rates: of each worker; without all of them only the layouts are compared.
        exposure: of the job now, as solved.
    """
    measured = options.layout
    found: dict[str, Any] = {
        "policies": [{"region": region, "policy": policy} for region, policy in changes.items()],
        "before": _plan(measured),
        "after": _plan(layout),
        "promises": _promises(measured, layout),
        "workers": None,
        "bytes": None,
        "cpu": None,
        "seconds": None,
        "unknown": [],
    }
    whole = all(w in rates and w in told and options.upto[w] is not None for w in range(measured.workers))
    if not whole or not all(each.epochs for each in rates.values()):
        found["unknown"] = [
            "what it costs is not known: that takes some seconds in which all workers run, and sources go from epoch to epoch"
        ]
        return found
    before, after = (Supposed(plan, measured, options, told, rates) for plan in (measured, layout))
    now = {each.who: each for each in exposure}
    of_each = [[plan.exposure(plan.cuts(share)) for share in (TYPICAL, WORST)] for plan in (before, after)]
    found["workers"] = [
        {
            "worker": w,
            "now": None if w not in now else {"records": now[w].records, "seconds": now[w].redo},
            **{
                name: {how: _cost(known[w]) for how, known in zip(("typical", "worst"), both)}
                for name, both in zip(("before", "after"), of_each)
            },
        }
        for w in range(measured.workers)
    ]
    old, new = before.persistence(), after.persistence()
    written, cpu = of_all(rates.values())
    sizes = [sum(each.size for each in known.values()) for known in (old, new)]
    spent = [sum(each.seconds(rates[w]) for w, each in known.items()) for known in (old, new)]
    found["bytes"] = {
        "measured": written,
        "before": sizes[0],
        "after": max(written + sizes[1] - sizes[0], sizes[1] / 2),
    }
    found["cpu"] = {"measured": cpu, "before": spent[0], "after": max(cpu + spent[1] - spent[0], 0.0)}
    found["kinds"] = {
        kind: [sum(getattr(each, kind) for each in known.values()) for known in (old, new)]
        for kind in ("state", "logs", "events", "heads")
    }
    found["unknown"] = [*sorted(set().union(*(each.unknown for each in new.values()))), CPU_LEAVES_OUT]
    return found


def _cost(exposure: Exposure) -> dict[str, float]:
    return {"records": round(exposure.records), "seconds": exposure.seconds}


def _plan(layout: Layout) -> dict[str, Any]:
    """Groups and logs of a layout, by names."""
    names = [info.name for info in layout.processors]
    return {
        "groups": [
            {
                "operators": [names[p] for p in layout.members(number)],
                "saved": any(layout.processors[p].chain for p in layout.members(number)),
                "epochs": group.epochs,
                "seconds": group.seconds,
                "eager": group.eager,
            }
            for number, group in enumerate(layout.groups)
        ],
        "logs": [[names[edge.source], names[edge.target]] for edge in layout.edges if edge.logged],
    }


def _promises(before: Layout, after: Layout) -> list[dict[str, Any]]:
    """Outputs with other promises."""
    known = {each.output: each for each in before.promises}
    return [
        {
            "output": each.output,
            **{
                name: {"one": promise.one.name.lower(), "any": promise.any.name.lower()}
                for name, promise in (("before", known[each.output]), ("after", each))
            },
        }
        for each in after.promises
        if each.output in known and (known[each.output].one, known[each.output].any) != (each.one, each.any)
    ]
