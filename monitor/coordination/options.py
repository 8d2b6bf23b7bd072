"""Options of every processor (F*, M̄, N̄, D̄), and the low-watermarks W from them.

A chain processor can be restored to what it has persisted. An any-processor can be restored to every bound that its
worker reported as complete in this generation; that is known here alone, so W, which rests on it, is journaled before
it is announced. A new decision cuts all of this: what lay outside it belongs to a history that is no more, and what was
reported about that history proves nothing about the new one (section 3.6 of *Falkirk Wheel*: F*'(p)).

Reports are checked as they come in: ReportError for one that no correct worker sends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from monitor.coordination.topology import Topology
from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.errors import NoSolutionError, ReportError
from recovery.fixed_point.incremental import Report, WatermarkSolver
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, Live, PhysicalEdge, Restorable, solve
from recovery.incomplete import Gap, at_outputs
from recovery.layout import Layout
from recovery.memory.kept_messages import Suppression
from recovery.metadata import (
    MORE,
    NEVER,
    Bound,
    Xi,
    at_cut,
    cut_within,
    everything,
    image,
    meet,
    nothing,
    of_steps,
    prefix,
    steps,
    union,
    within,
)
from recovery.protocol import InMemory
from timely.time import FINITE

Option = tuple[Bound, tuple[Bound, ...]]
"""Option: a bound to restore, and D̄ of each output port there."""


@dataclass(frozen=True, slots=True)
class OptionsRecord:
    """Options of every processor at one moment.

    By flat index; `upto` by worker and group.
    """

    low: tuple[Bound, ...]
    completed: tuple[Bound, ...]
    chains: tuple[tuple[Option, ...], ...]
    upto: tuple[tuple[Bound, ...] | None, ...]


class Options:
    """Options of every processor, from reports and decisions.

    Args:
        watermarks: W as journaled, `[worker][processor]`; None at the start of a job.
        decided: the last decision, in the same form.
    """

    def __init__(
        self,
        layout: Layout,
        watermarks: Sequence[Sequence[Bound]] | None = None,
        decided: Sequence[Sequence[Bound | None]] | None = None,
    ) -> None:
        self.topology = topology = Topology(layout)
        self.layout = layout
        flats = range(topology.count)
        self._low: list[Bound] = [topology.info(flat).nothing for flat in flats]
        if watermarks is not None:
            self._low = [watermarks[flat % layout.workers][flat // layout.workers] for flat in flats]
        self.chains: list[list[Option]] = [[] for _ in flats]
        self._in_memory: list[set[Bound]] = [set() for _ in flats]
        """Bounds in memory only, by flat index: W does not count them."""
        self._mates = [False] * layout.workers
        """Workers with a complete mate: W₁ counts theirs."""
        self._standby = any(group.durable is not None for group in layout.groups)
        self._memory_solver: WatermarkSolver | None = None
        """Incremental solver of W₁; None to rebuild it."""
        self._memory_news: list[Report] = []
        self.upto: list[tuple[Bound, ...] | None] = [None] * layout.workers
        """Completed cuts of each worker in this generation, by group."""
        self._completed: list[Bound] = list(self._low)
        """Completed bounds of any-processors, at least W.

        They are known by this generation's reports and the decision.
        """
        self._solver: WatermarkSolver | None = None
        """Incremental solver of W; None to rebuild it from `_low` and all options."""
        self.version = 0
        """Version of the options, another after each change."""
        self._new_options: list[Report] = []
        self._new_completed: dict[int, None] = {}
        if decided is not None:
            self._cut_completed(decided)

    @classmethod
    def of_record(cls, layout: Layout, record: OptionsRecord) -> Options:
        """Options of a record.

        Raises ReportError if it does not fit the layout.
        """
        found = cls(layout)
        count, groups = found.topology.count, len(layout.groups)
        if {len(record.low), len(record.completed), len(record.chains)} != {count} or len(
            record.upto
        ) != layout.workers:
            raise ReportError("options of another number of processors than the plan has")
        for flat, (low, done, chain) in enumerate(zip(record.low, record.completed, record.chains)):
            info, name = found.topology.info(flat), found.topology.name(flat)
            for bound in (low, done, *(bound for bound, _ in chain)):
                _check_bound(name, bound, info.depth)
            ports = found.topology.outgoing[flat // layout.workers]
            for _, discards in chain:
                if len(discards) != len(ports):
                    raise ReportError(f"{name}: discards on {len(discards)} ports, where there are {len(ports)}")
                for index, bound in zip(ports, discards):
                    _check_bound(name, bound, layout.edges[index].summary.result_depth)
        for upto in record.upto:
            if upto is not None and len(upto) != groups:
                raise ReportError("completed cuts of another number of groups than the plan has")
            for group, cut in zip(layout.groups, upto or ()):
                _check_bound("a group", cut, group.depth)
        found._low, found._completed = list(record.low), list(record.completed)
        found.chains = [list(chain) for chain in record.chains]
        found.upto = list(record.upto)
        return found

    def record(self) -> OptionsRecord:
        """Options of this moment."""
        return OptionsRecord(tuple(self._low), tuple(self._completed), tuple(map(tuple, self.chains)), tuple(self.upto))

    @property
    def watermarks(self) -> tuple[tuple[Bound, ...], ...]:
        """Low-watermarks W, `[worker][processor]`."""
        return self.topology.by_worker(self._low)

    def low(self, flat: int) -> Bound:
        """W of one processor."""
        return self._low[flat]

    def in_memory(self, flat: int, bound: Bound) -> bool:
        """True if a checkpoint is in memory only."""
        return bound in self._in_memory[flat]

    def completed(self, flat: int) -> Bound:
        """Known completed bound of an any-processor."""
        return self._completed[flat]

    # ------------------------------------------------------------------------------------------ reports

    def _read(self, worker: int, xis: Iterable[Xi]) -> dict[int, list[Option]]:
        """Check reported checkpoints; return rollback options by processor, ascending."""
        found: dict[int, list[Option]] = {}
        for xi in sorted(set(xis), key=lambda xi: (xi.processor, xi.bound, xi.discards)):
            if not 0 <= xi.processor < len(self.layout.processors):
                raise ReportError(f"a checkpoint of processor {xi.processor}, which is not there")
            flat = self.topology.flat(xi.processor, worker)
            option = self._option(flat, xi)
            chain = found.setdefault(flat, [])
            if chain and not _follows(option, chain[-1]):
                raise ReportError(
                    f"{self.topology.name(flat)}: its checkpoint at {xi.bound} does not hold an earlier one, has discarded "
                    "less than at that, or is told twice"
                )
            if any(xi.bound):
                chain.append(option)
        return found

    def join(self, worker: int, xis: Iterable[Xi], held: Iterable[Xi] = (), mate: bool = False) -> str | None:
        """Take all options in a worker's store; return the error if it lost some.

        They are those that it had acknowledged.

        Args:
            held: further ones, in memory only.
            mate: its mate has all of `held`.
        """
        found = self._read(worker, xis)
        both = self._read(worker, [*xis, *held])
        for processor, info in enumerate(self.layout.processors):
            flat = self.topology.flat(processor, worker)
            chain = found.get(flat, [])
            low = self._low[flat]
            if info.chain and low > info.nothing and all(bound != low for bound, _ in chain):
                if chain and chain[0][0] > low:  # nobody collects below what the monitor's journal said was safe
                    return (
                        "the journal of the monitor (the folder monitor of the store) has lost its end, or is an older copy: "
                        f"by it {self.topology.name(flat)} on worker {worker} may go back to {low}, and that worker had been "
                        f"told that it never will, and has kept nothing below {chain[0][0]}. The journal of the worker is as "
                        "it was, and nothing that was published is lost. Bring the folder of the monitor back as it was, or "
                        "start anew with an empty store"
                    )
                there = f"what is there ends at {chain[-1][0]}" if chain else "there is none"
                return (
                    f"the store of worker {worker} has lost data that was acknowledged: {self.topology.name(flat)} needs its "
                    f"checkpoint at {low}, and {there}. Bring the store of that worker back as it was, or start anew with "
                    "an empty store"
                )
            self.chains[flat] = both.get(flat, [])
            self._in_memory[flat] = {bound for bound, _ in self.chains[flat]} - {bound for bound, _ in chain}
        self._mates[worker] = mate
        self._solver = self._memory_solver = None
        self.version += 1
        return None

    def mate(self, worker: int, there: bool) -> None:
        """Record a worker's mate as complete, or as gone."""
        self._mates[worker] = there
        self._memory_solver = None
        self.version += 1

    def flushed(self, worker: int, xis: Iterable[Xi]) -> None:
        """Record known checkpoints as durable, in memory only before."""
        for flat, options in self._read(worker, xis).items():
            for option in options:
                if option[0] in self._in_memory[flat] and option in self.chains[flat]:
                    self._made_durable(flat, option)

    def _made_durable(self, flat: int, option: Option) -> None:
        self._in_memory[flat].discard(option[0])
        self._new_options.append((flat, *option))
        if not self._mates[flat % self.layout.workers]:
            self._memory_news.append((flat, *option))
        self.version += 1

    def complete(self, worker: int, upto: tuple[Bound, ...]) -> None:
        """Record the completed cut of each group, on one worker."""
        groups = self.layout.groups
        before = self.upto[worker] or tuple(nothing(group.depth) for group in groups)
        if len(upto) != len(before) or not all(
            _is_bound(new, group.depth) and within(old, new) for old, new, group in zip(before, upto, groups)
        ):
            raise ReportError(f"completed {upto}, after {before}")
        self.upto[worker] = upto
        self.version += 1
        for processor, info in enumerate(self.layout.processors):
            if not info.chain:
                flat = self.topology.flat(processor, worker)
                self._complete(flat, at_cut(upto[info.group], info.depth))

    def durable(self, worker: int, group: int, at: Bound, xis: Iterable[Xi], held: bool = False) -> None:
        """Record a cut persisted by one worker, or `held` in memory by its mate."""
        groups = self.layout.groups
        if not (0 <= group < len(groups) and _is_bound(at, groups[group].depth) and any(at)):
            raise ReportError(f"a cut of group {group} at {at}, which cannot be")
        found = self._read(worker, xis)
        self.version += 1
        members = self.layout.members(group)
        chains = {self.topology.flat(p, worker) for p in members if self.layout.processors[p].chain}
        wanted = {flat: at_cut(at, self.topology.info(flat).depth) for flat in chains}
        ahead = {flat for flat in chains if self.chains[flat] and within(wanted[flat], self.chains[flat][-1][0])}
        if not chains - ahead <= found.keys() <= chains:
            wrong = ", ".join(self.topology.name(flat) for flat in sorted(found.keys() ^ chains))
            raise ReportError(f"a cut with a checkpoint too many or too few: {wrong}")
        for flat, options in found.items():
            if len(options) != 1 or options[0][0] != wanted[flat]:
                raise ReportError(f"{self.topology.name(flat)}: a cut at {at} with another bound: {options}")
            chain = self.chains[flat]
            last = chain[-1] if chain else None
            if last is None or _follows(options[0], last):
                chain += options
                if held:
                    self._in_memory[flat].add(options[0][0])
                else:
                    self._new_options.append((flat, *options[0]))
                if self._mates[worker] or not held:
                    self._memory_news.append((flat, *options[0]))
            elif options[0] in chain:
                if not held and options[0][0] in self._in_memory[flat]:
                    self._made_durable(flat, options[0])
            else:
                raise ReportError(f"{self.topology.name(flat)}: a checkpoint at {options[0]} after one at {last}")
        for p in members:
            info = self.layout.processors[p]
            if not info.chain:
                flat = self.topology.flat(p, worker)
                self._complete(flat, at_cut(at, info.depth))

    def _complete(self, flat: int, bound: Bound) -> None:
        bound = prefix(bound)  # what keeps nothing can be restored to prefixes only
        if bound > self._completed[flat]:
            self._completed[flat] = bound
            self._new_completed[flat] = None
            self._memory_news.append((flat, bound, ()))

    def memory(self, worker: int, memory: Sequence[InMemory], ends: Iterable[EpochEnds] = ()) -> None:
        """Check a drained worker's memory and known ends of epochs."""
        infos = self.layout.processors
        for each in ends:
            known = 0 <= each.worker < self.layout.workers and 0 <= each.processor < len(infos)
            if not known or infos[each.processor].role != "source" or not 0 <= each.begin <= each.upto <= NEVER:
                raise ReportError(f"ends of epochs that cannot be: {each}")
        if len(memory) != len(self.layout.processors):
            raise ReportError(f"the memory of {len(memory)} processors, where there are {len(self.layout.processors)}")
        for processor, (info, held) in enumerate(zip(self.layout.processors, memory)):
            flat = self.topology.flat(processor, worker)
            into = self.topology.incoming[flat]
            out = self.topology.outgoing[processor]
            places = 1 + max((place for _, place in into), default=-1)
            _check_bound(self.topology.name(flat), held.upto, info.depth)
            _check_bound(self.topology.name(flat), held.notified, info.depth)
            if len(held.delivered) != places or len(held.discards) != len(out):
                raise ReportError(f"{self.topology.name(flat)}: its memory does not fit its edges")
            for bound in held.delivered:
                _check_bound(self.topology.name(flat), bound, info.depth)
            for index, bound in zip(out, held.discards):
                _check_bound(self.topology.name(flat), bound, self.layout.edges[index].summary.result_depth)
            edges = [self.layout.edges[index] for index in out if self.layout.edges[index].kept]
            if [len(bounds) for bounds in held.kept] != [self.layout.workers] * len(edges):
                raise ReportError(f"{self.topology.name(flat)}: the messages that it keeps do not fit its edges")
            for edge, bounds in zip(edges, held.kept):
                for bound in bounds:
                    _check_bound(self.topology.name(flat), bound, edge.summary.result_depth)
            if not within(self._low[flat], held.upto):
                raise ReportError(
                    f"{self.topology.name(flat)}: it has completed {held.upto}, less than it has persisted"
                )

    def _option(self, flat: int, xi: Xi) -> Option:
        info = self.topology.info(flat)
        name = self.topology.name(flat)
        if not info.chain:
            raise ReportError(f"{name}: a checkpoint of a processor that has none")
        _check_bound(name, xi.bound, info.depth)
        ports = self.topology.outgoing[xi.processor]
        if len(xi.discards) != len(ports):
            raise ReportError(f"{name}: discards on {len(xi.discards)} ports, where there are {len(ports)}")
        discards = []
        for index, lost in zip(ports, xi.discards):
            edge = self.layout.edges[index]
            _check_bound(name, lost, edge.summary.result_depth)
            if edge.logged and lost > nothing(len(lost)):
                raise ReportError(f"{name}: it says that it discarded what it has to log")
            # A live processor that drops to the same bound offers ↓σ(bound) here. What it has persisted must not offer
            # more, or W could rest on something that a round cannot choose. Over-estimates of D̄ are safe.
            if edge.lossy:
                discards.append(nothing(len(lost)))  # nobody asks for it
            else:
                discards.append(lost if edge.logged else union(lost, image(edge.discarding, xi.bound)))
        return xi.bound, tuple(discards)

    # ------------------------------------------------------------------------------------------ answers

    def minimum(self) -> list[Bound]:
        """Cut of each group completed on every worker."""
        known = [upto for upto in self.upto if upto is not None]
        if len(known) < self.layout.workers:
            return [nothing(group.depth) for group in self.layout.groups]
        return [reduce(meet, each) for each in zip(*known)]

    @property
    def ended(self) -> bool:
        """True if every worker has completed everything."""
        groups = self.layout.groups
        return all(bound == everything(group.depth) for group, bound in zip(groups, self.minimum()))

    def last_cuts(self) -> list[list[Bound]]:
        """Newest cut by group and worker with a checkpoint, or later, of all chains."""
        groups = self.layout.groups
        last = [[everything(group.depth)] * self.layout.workers for group in groups]
        for flat, chain in enumerate(self.chains):
            info = self.topology.info(flat)
            if info.chain:
                bound = chain[-1][0] if chain else self._low[flat]
                of, worker = last[info.group], flat % self.layout.workers
                of[worker] = meet(of[worker], cut_within(bound, groups[info.group].depth))
        return last

    def saved_cuts(self) -> list[list[Bound]]:
        """Last checkpoints of the processors in each group's loop, as cuts."""
        found: list[set[Bound]] = [set() for _ in self.layout.groups]
        for flat, chain in enumerate(self.chains):
            info = self.topology.info(flat)
            if chain and min(info.depth, depth := self.layout.groups[info.group].depth) > 1:
                found[info.group].add(cut_within(chain[-1][0], depth))
        return [sorted(each) for each in found]

    def beyond_cuts(self, decided: Sequence[Sequence[Bound | None]]) -> list[set[tuple[int, Bound]]]:
        """Bounds of survivors beyond their last checkpoints, with their depths, by group.

        A survivor may have come back there with all of its state as one run: nothing between can be saved of it.

        Args:
            decided: bounds of all decisions so far, the last of each processor, by worker and processor.
        """
        found: list[set[tuple[int, Bound]]] = [set() for _ in self.layout.groups]
        for flat, chain in enumerate(self.chains):
            info = self.topology.info(flat)
            processor, worker = divmod(flat, self.layout.workers)
            bound = decided[worker][processor]
            if info.chain and bound is not None and not within(bound, chain[-1][0] if chain else self._low[flat]):
                found[info.group].add((info.depth, bound))
        return found

    def reached(self, cuts: Sequence[Sequence[Bound]]) -> bool:
        """True if every worker has completed at least `cuts[group][worker]`.

        That is in this generation.

        Groups that keep nothing have no cuts: those must have come as far as the furthest of the others.
        """
        keep = {info.group for info in self.layout.processors if info.chain}
        for worker, upto in enumerate(self.upto):
            furthest = max((at_cut(cuts[group][worker], 1) for group in keep), default=nothing(1))
            if upto is None or not all(
                within(cuts[group][worker] if group in keep else furthest, done) for group, done in enumerate(upto)
            ):
                return False
        return True

    def raise_watermarks(self) -> bool:
        """Raise W to the greatest solution of all reports; True if it rose.

        Only for when every worker is there: it takes for granted that what W rests on still is.
        """
        if self._solver is None:
            infos = [self.topology.info(flat) for flat in range(self.topology.count)]
            kinds = [(info.depth, info.chain) for info in infos]
            self._solver = WatermarkSolver(kinds, self.topology.edges, self._low)
            reports: list[Report] = []
            for flat, info in enumerate(infos):
                if info.chain:
                    reports += [
                        (flat, *option)
                        for option in self.chains[flat]
                        if not within(option[0], self._low[flat]) and option[0] not in self._in_memory[flat]
                    ]
                else:
                    reports.append((flat, self._completed[flat], ()))
        else:
            reports = [*self._new_options, *((flat, self._completed[flat], ()) for flat in self._new_completed)]
        self._new_options.clear()
        self._new_completed.clear()
        risen = self._solver.tick(reports)
        self.version += bool(risen)
        for flat, bound in risen:
            self._low[flat] = bound
        return bool(risen)

    def raise_memory(self) -> list[tuple[int, Bound]]:
        """Raise W₁, with memory of mates; return risen (flat, bound).

        It may be less than it was before, once a mate is gone. As `raise_watermarks`, only for when every worker is there.
        """
        news, self._memory_news = self._memory_news, []
        if not self._standby:
            return []
        if self._memory_solver is None:
            infos = [self.topology.info(flat) for flat in range(self.topology.count)]
            kinds = [(info.depth, info.chain) for info in infos]
            self._memory_solver = WatermarkSolver(kinds, self.topology.edges, self._low)
            news = []
            for flat, (_, chain) in enumerate(kinds):
                options = self._options(flat, mates=True)
                news += [(flat, *option) for option in options if option[0] != self._low[flat]]
                if not chain:
                    news.append((flat, self._completed[flat], ()))
        return self._memory_solver.tick(news)

    def common(self) -> tuple[Bound, ...]:
        """Largest consistent bound of each operator, one for all workers, none alive.

        The W of every worker lies within it, so what was promised is never needed again.

        Raises NoSolutionError where there is none: one worker has promised what another has not persisted.
        """
        processors = [
            CheckpointChain(self._options(flat), info.depth) if info.chain else AnyFrontier(self._completed[flat])
            for flat in range(self.topology.count)
            for info in (self.topology.info(flat),)
        ]
        bounds = solve([*self.topology.edges, *self.topology.same()], processors)
        found = [bound for bound in bounds[:: self.layout.workers] if bound is not None]
        for flat, low in enumerate(self._low):
            if not within(low, found[flat // self.layout.workers]):
                raise NoSolutionError(f"{self.topology.name(flat)} has persisted more than the others")
        return tuple(found)

    def decide(
        self,
        memory: Mapping[int, Sequence[InMemory]],
        failed: Collection[tuple[int, int]] = (),
        known: KnownEnds | None = None,
    ) -> tuple[tuple[Bound | None, ...], ...]:
        """Decision of a round, `[worker][processor]`: bounds to restore, or None for ⊤.

        Args:
            memory: what the living workers hold. All others have failed.
            failed: processors that have failed on a living worker, as (processor, worker): for questions only.
            known: the ends of epochs that the living know of.

        Raises NoSolutionError if what was promised to be kept cannot be.
        """
        processors: list[Restorable] = []
        edges = self.topology.renewed if self.current_epoch(memory, failed) else self.topology.edges
        repeats = None if not memory or self.topology.repeats is None else list(self.topology.repeats)
        for flat in range(self.topology.count):
            processor, worker = divmod(flat, self.layout.workers)
            info = self.layout.processors[processor]
            if worker in memory and (processor, worker) not in failed:
                held = memory[worker][processor]
                delivered = {index: held.delivered[place] for index, place in self.topology.incoming[flat]}
                logs = self.topology.logs[processor]
                low = self._low[flat]
                kept = {index: held.kept[place][to] for index, place, to in self.topology.kept[flat]}
                processors.append(Live(held.upto, delivered, held.notified, held.discards, logs, low, kept))
            elif info.chain:
                # For a question: what the mate of the worker lacks would be gone.
                processors.append(CheckpointChain(self._options(flat, mates=worker in memory), info.depth))
            else:
                processors.append(AnyFrontier(self._completed[flat]))
            if repeats is not None and known is not None and info.role == "source":
                gone = not isinstance(processors[-1], Live)
                repeated = known.repeats((worker, processor), self._low[flat][0], gone)
                repeats[flat] = max(repeats[flat], (repeated,))
        while True:
            bounds = self._solve(edges, processors, repeats)
            stuck = [
                flat
                for flat, bound in enumerate(bounds)
                if bound and isinstance(processors[flat], Live) and self._between(flat, bound, memory)
            ]
            if not stuck:
                return self.topology.by_worker(bounds)
            for flat in stuck:  # its memory does not reach so far, so for this round it has its checkpoints only
                processors[flat] = CheckpointChain(self._options(flat), self.topology.info(flat).depth)

    def gaps(
        self, decided: Sequence[Sequence[Bound | None]], memory: Mapping[int, Sequence[InMemory]]
    ) -> tuple[Gap, ...]:
        """Incomplete epochs of the outputs by a decision; arguments as of `decide`.

        What comes back empty lacks its state from there on. On a lossy edge a receiver lacks what it has not, and its sender
        does not make again: because it has failed, or because that lies before its low-watermark.
        """
        layout, lacking = self.layout, list[Gap]()
        held_at = [decided[flat % layout.workers][flat // layout.workers] for flat in range(self.topology.count)]
        for flat, bound in enumerate(held_at):
            processor, worker = divmod(flat, layout.workers)
            lost = worker not in memory or (bound is not None and not within(memory[worker][processor].since, bound))
            if layout.processors[processor].comes_back_empty and bound is not None and any(bound) and lost:
                lacking.append(Gap(processor, bound[0]))
        kept = {index: (place, to) for ways in self.topology.kept for index, place, to in ways}
        for index, edge in enumerate(self.topology.edges):
            bound = held_at[edge.target]
            (sender, at), (target, there) = (divmod(flat, layout.workers) for flat in (edge.source, edge.target))
            if not edge.lossy:
                continue
            lives = at in memory
            if lives and bound is not None:
                place, to = kept.get(index, (None, 0))
                if place is None or not within(memory[at][sender].kept[place][to], bound):
                    lacking.append(Gap(target, bound[0], self._low[edge.source][0]))
            elif not lives:
                received = bound if bound is not None else memory[there][target].upto
                gone = held_at[edge.source]
                assert gone is not None  # who has failed does not stay
                lacking.append(Gap(target, received[0], gone[0]))
        return at_outputs(layout, lacking)

    def current_epoch(self, memory: Mapping[int, Sequence[InMemory]], failed: Collection[tuple[int, int]] = ()) -> int:
        """Epoch for sources under AtLeastOnce to go on in after a rollback.

        Nobody behind has completed it.

        0 if there are none, or if the end of all input is complete somewhere behind: then they send what they sent, where they
        sent it. Arguments as for `decide`.
        """
        epoch = 0
        for flat in self.topology.after_anew:
            processor, worker = divmod(flat, self.layout.workers)
            if worker in memory and (processor, worker) not in failed:
                held = memory[worker][processor]
                epoch = max(epoch, _first_after(held.upto), _first_after(held.notified))
            else:
                last = self.chains[flat][-1][0] if self.chains[flat] else self._low[flat]
                epoch = max(epoch, _first_after(last), _first_after(self._completed[flat]))
        return epoch if epoch < FINITE else 0

    def _between(self, flat: int, bound: Bound, memory: Mapping[int, Sequence[InMemory]]) -> bool:
        """True if a living processor would go below its restored bound, to no checkpoint."""
        processor, worker = divmod(flat, self.layout.workers)
        return (
            self.topology.info(flat).chain
            and any(bound)
            and not within(memory[worker][processor].since, bound)
            and all(option[0] != bound for option in self._options(flat))
        )

    def held(
        self, decided: Sequence[Sequence[Bound | None]], before: Sequence[Sequence[Bound]]
    ) -> tuple[tuple[Bound, ...], ...]:
        """Bounds of messages held by receivers after a decision; () if none are kept.

        Processors have all that others send before these.
        """
        if self.topology.repeats is None:
            return ()
        nothing_held = [[info.nothing for info in self.layout.processors]] * self.layout.workers
        suppression = Suppression(before or nothing_held)
        suppression.decided(decided)
        return tuple(map(tuple, suppression.bounds))

    def _solve(
        self, edges: Sequence[PhysicalEdge], processors: Sequence[Restorable], repeats: Sequence[Bound] | None
    ) -> list[Bound | None]:
        try:
            return solve(edges, processors, self._low, repeats)
        except NoSolutionError as error:  # the solver knows numbers only
            name = self.topology.name
            raise NoSolutionError(
                re.sub(r"\bprocessor (\d+)", lambda found: name(int(found[1])), str(error))
            ) from error

    def _options(self, flat: int, mates: bool = False) -> list[Option]:
        """Options from W up, as lower checkpoints may have been collected in part.

        With `mates` only those that its worker's mate would have.
        """
        gone = set() if not mates or self._mates[flat % self.layout.workers] else self._in_memory[flat]
        return [option for option in self.chains[flat] if within(self._low[flat], option[0]) and option[0] not in gone]

    # ------------------------------------------------------------------------------------------ generations

    def cut(self, decided: Sequence[Sequence[Bound | None]]) -> None:
        """Apply a binding decision: drop options outside it and earlier reports."""
        for flat in range(self.topology.count):
            bound = decided[flat % self.layout.workers][flat // self.layout.workers]
            if bound is not None:
                self.chains[flat] = [option for option in self.chains[flat] if within(option[0], bound)]
                self._in_memory[flat] &= {bound for bound, _ in self.chains[flat]}
        self.upto = [None] * self.layout.workers
        self._cut_completed(decided)
        self._solver = self._memory_solver = None
        self.version += 1

    def cut_worker(self, worker: int, decided: Sequence[Bound | None]) -> None:
        """Apply a decision to one worker's checkpoints, before the worker does."""
        for processor, bound in enumerate(decided):
            flat = self.topology.flat(processor, worker)
            if bound is not None:
                self.chains[flat] = [option for option in self.chains[flat] if within(option[0], bound)]
                self._in_memory[flat] &= {bound for bound, _ in self.chains[flat]}

    def _cut_completed(self, decided: Sequence[Sequence[Bound | None]]) -> None:
        """Reset completed bounds to the restored ones.

        Processors that stayed as they were have to report again.
        """
        for flat, low in enumerate(self._low):
            bound = decided[flat % self.layout.workers][flat // self.layout.workers]
            self._completed[flat] = low if bound is None else max(low, prefix(bound))


def _check_bound(name: str, bound: Bound, depth: int) -> None:
    if not _is_bound(bound, depth):
        raise ReportError(f"{name}: {bound} is no bound of times with {depth} coordinate(s)")


def _is_bound(bound: Bound, depth: int) -> bool:
    if MORE in bound[:depth] or bound > everything(depth):
        return False
    each = steps(bound)
    fits = all(len(step) == depth and min(step) >= 0 for step in each) and of_steps(each) == bound
    return fits and all(step[1:] <= before[1:] for before, step in pairwise(each))


def _first_after(bound: Bound) -> int:
    """First epoch entirely outside `bound`."""
    return at_cut(bound, 1)[0]


def _follows(later: Option, earlier: Option) -> bool:
    """True if an option holds more than another, and discarded no less."""
    (bound, discards), (before, less) = later, earlier
    return bound != before and within(before, bound) and all(map(within, less, discards))
