"""Other policies for a running job: exposure, bytes, processor time. Pure.

Costs follow from measured rates.

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
from monitor.explain.exposure import Danger, Fate, Reduced, danger, fate
from monitor.explain.measured import Rates, of_all
from monitor.explain.persistence import Persistence, cuts_a_second, lag, persistence, places
from recovery.layout import EdgeInfo, Layout
from recovery.metadata import Bound, at_cut, at_epoch, image, meet, nothing
from recovery.protocol import END, ROWS, Observed
from recovery.reachability import behind

Samples: TypeAlias = Mapping[int, Observed]

Cuts: TypeAlias = Sequence[Sequence[Sequence[Bound]]]
"""Cuts of a job: `[worker][group]`, ascending."""

TYPICAL, WORST = 0.5, 1.0
"""Shares of an interval since the last cut."""

_MOST_CUTS = 64
_EPOCH, _KEPT_FROM = ROWS.index("epoch"), ROWS.index("kept_from")

CPU_LEAVES_OUT = "Processor time has what encoding, checkpoints and writes cost. Waiting behind gates is not in it."


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
            members = layout.members(number)
            places_of = [of[p] for p in members if layout.processors[p].kind != "gate"] or [of[p] for p in members]
            known = [
                at_cut(upto[measured.processors[q].group], 1) for q in places_of if upto is not None and q is not None
            ]
            of_worker.append(at_epoch(reduce(meet, known)[0], group.depth) if known else nothing(group.depth))
        found.append(tuple(of_worker))
    return found


def supposed_options(layout: Layout, done: Sequence[tuple[Bound, ...]], cuts: Cuts) -> Options:
    """Options of a job with this layout.

    `done[worker][group]` is complete, `cuts[worker][group]` are its cuts, ascending.

    Low-watermarks are those that follow.
    """
    blank = Options(layout)
    low, completed, chains = [], [], []
    for flat in range(blank.topology.count):
        p, worker = divmod(flat, layout.workers)
        info, edges = layout.processors[p], [layout.edges[e] for e in blank.topology.outgoing[p]]
        bounds = [at_cut(cut, info.depth) for cut in cuts[worker][info.group] if any(cut)] if info.chain else []
        low.append(info.nothing)
        chains.append(tuple((bound, tuple(_lost(edge, bound) for edge in edges)) for bound in bounds))
        completed.append(info.nothing if info.chain else at_cut(done[worker][info.group], info.depth))
    found = Options.of_record(layout, OptionsRecord(tuple(low), tuple(completed), tuple(chains), tuple(done)))
    found.raise_watermarks()
    return found


def _lost(edge: EdgeInfo, bound: Bound) -> Bound:
    """D̄ of an edge at a cut; that of an unlogged one is all that it may have been."""
    return nothing(edge.summary.result_depth) if edge.logged else image(edge.discarding, bound)


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
        self, layout: Layout, measured: Layout, options: Options, samples: Samples, rates: Mapping[int, Rates]
    ) -> None:
        self.layout, self.measured, self.options, self.samples, self.rates = layout, measured, options, samples, rates
        self.of = places(layout, measured)
        self.done = carried_over(layout, self.of, measured, options)
        self._reduced = Reduced(layout)
        self._let_go = np.array([self._safe(q) for q in range(len(measured.processors))], np.int64)
        """First epoch of each operator's output still needed by a receiver."""
        self._samples = {worker: self._in_layout(reported) for worker, reported in samples.items()}
        self._open = _open_epochs(measured, samples)

    def cuts(self, share: float) -> list[tuple[tuple[Bound, ...], ...]]:
        """Cuts of each group, by worker, at a `share` of its interval after the last.

        They reach back to before the last cut of every group: no failure leads further.
        """
        last: list[list[int]] = []
        steps: list[int] = []
        for number, group in enumerate(self.layout.groups):
            upto = [self.done[worker][number][0] for worker in range(self.layout.workers)]
            often = [cuts_a_second(group, self.rates[worker]) for worker in range(self.layout.workers)]
            epochs = [self.rates[worker].epochs for worker in range(self.layout.workers)]
            waited = [lag(self.rates[worker]) + (share / each if each else 0.0) for worker, each in enumerate(often)]
            late = [round(each * seconds) for each, seconds in zip(epochs, waited)]
            step = max(1, *(round(each / cuts) if cuts else 1 for each, cuts in zip(epochs, often)))
            if group.eager:  # each worker has its own, and whoever goes back needs one that others have
                late = [int(each * seconds) for each, seconds in zip(epochs, waited)]  # what is complete is cut at once
                row = [end if end >= END else max(0, end - ago) // step * step for end, ago in zip(upto, late)]
            else:
                row = [end if (end := min(upto)) >= END else max(0, end - max(late))] * self.layout.workers
            last.append(row)
            steps.append(step)
        saved = {info.group for info in self.layout.processors if info.chain}
        least = min((min(last[number]) for number in saved), default=0)
        return [
            tuple(
                tuple(at_epoch(epoch, group.depth) for epoch in _back_to(least, row[worker], step))
                for group, row, step in zip(self.layout.groups, last, steps)
            )
            for worker in range(self.layout.workers)
        ]

    def fate(self, worker: int, cuts: Cuts) -> Fate:
        """Frontiers if a worker died, with these cuts."""
        return fate(self._reduced, supposed_options(self.layout, self.done, cuts), [worker], self._samples)

    def exposure(self, cuts: Cuts) -> list[Exposure]:
        """Cost of each worker's death, with these cuts, at the rates of the job."""
        options = supposed_options(self.layout, self.done, cuts)
        found = []
        for worker in range(self.layout.workers):
            epochs = fate(self._reduced, options, [worker], self._samples).epochs
            undone = [self._undone(w, of_worker.tolist()) for w, of_worker in enumerate(epochs)]
            each = [self._each(w) for w in range(self.layout.workers)]
            found.append(Exposure(worker, sum(undone), max(n * s for n, s in zip(undone, each))))
        return found

    def danger(self, worker: int, cuts: Cuts) -> Danger:
        """Cost of a worker's death, with these cuts.

        Records are those of the last observations."""
        return danger(worker, self.fate(worker, cuts), self._samples, None)

    def persistence(self) -> dict[int, Persistence]:
        """Cost of persistence, by worker."""
        return {w: persistence(self.layout, self.of, self.measured, rates) for w, rates in self.rates.items()}

    def _safe(self, q: int) -> int:
        lows = [
            self.options.low(self.options.topology.flat(edge.target, worker))
            for edge in self.measured.edges
            if edge.source == q and edge.kept
            for worker in range(self.measured.workers)
        ]
        return min((min(low[0] + any(low[1:]), END) for low in lows), default=0)

    def _each(self, worker: int) -> float:
        reported = self.samples[worker].exposed
        return 0.0 if reported is None or reported.each is None else reported.each

    def _undone(self, worker: int, epochs: Sequence[int]) -> float:
        """Records to be handled again by a worker whose processors go back.

        They go back to these epochs."""
        rates = self.rates[worker]
        if not rates.epochs:
            return 0.0
        found = 0.0
        for info, epoch, q in zip(self.layout.processors, epochs, self.of):
            if epoch < END and q is not None:
                behind = max(0, self.done[worker][info.group][0] - epoch) + self._open[q]
                found += behind * float(rates.taken[q]) / (float(rates.passed[q]) or rates.epochs)
        return found

    def _in_layout(self, reported: Observed) -> Observed:
        """Observation with the columns of this layout."""
        of = np.array([q if q is not None else -1 for q in self.of])

        def moved(table: bytes) -> bytes:
            known = np.frombuffer(table, np.int64).reshape(-1, len(self.measured.processors))
            return np.where(of >= 0, known[:, of], 0).astype(np.int64).tobytes()

        now = {q: p for p, q in enumerate(self.of) if q is not None and self.layout.processors[p].kind != "gate"}
        ends = tuple(replace(each, processor=now[each.processor]) for each in reported.ends if each.processor in now)
        exposed = reported.exposed and replace(reported.exposed, records=moved(reported.exposed.records))
        numbers = np.frombuffer(reported.numbers, np.int64).reshape(len(ROWS), -1).copy()
        kept_from = numbers[_KEPT_FROM]
        kept_from[(kept_from > 0) & (kept_from <= self._let_go)] = 0  # with other cuts it would be there
        return replace(reported, numbers=moved(numbers.tobytes()), exposed=exposed, ends=ends)


def _back_to(least: int, last: int, step: int) -> list[int]:
    """Epochs of cuts from the last one before `least` to `last`, ascending."""
    step = max(step, (last - least) // _MOST_CUTS) if last < END else END
    found = [last]
    while found[0] > least:
        found.insert(0, max(0, found[0] - step))
    return found


def _open_epochs(layout: Layout, samples: Samples) -> list[int]:
    """Number of open epochs at each processor, of those read by its sources.

    Samples are of different moments, so both ends are of one worker: of the one with the most.
    """
    ways = [(edge.source, edge.target) for edge in layout.edges]
    sources = [p for p, info in enumerate(layout.processors) if info.role == "source"]
    fed = [(source, p) for source in sources for p in behind(ways, [source])]
    found = [0] * len(layout.processors)
    for reported in samples.values():
        epochs = np.frombuffer(reported.numbers, np.int64).reshape(len(ROWS), -1)[_EPOCH].tolist()
        for source, p in fed:
            if epochs[source] < END and epochs[p] < END:
                found[p] = max(found[p], epochs[source] - epochs[p])
    return found


def compare(
    changes: Mapping[str, str],
    layout: Layout,
    options: Options,
    samples: Samples,
    rates: Mapping[int, Rates],
    exposure: Sequence[Danger],
) -> dict[str, Any]:
    """Changes by other policies, as JSON for page and terminal.

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
    whole = all(w in rates and w in samples and options.upto[w] is not None for w in range(measured.workers))
    if not whole or not all(each.epochs for each in rates.values()):
        found["unknown"] = [
            "what it costs is not known: that takes some seconds in which all workers run, and sources go from epoch to epoch"
        ]
        return found
    before, after = (Supposed(plan, measured, options, samples, rates) for plan in (measured, layout))
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
    segments = [sum(each.segments for each in known.values()) for known in (old, new)]
    more = segments[1] / segments[0] if segments[0] and written > sizes[0] else 1.0
    found["bytes"] = {  # what the model leaves out is mostly of segments
        "measured": written,
        "before": sizes[0],
        "after": max((written - sizes[0]) * more + sizes[1], sizes[1] / 2),
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
