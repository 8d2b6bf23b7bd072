"""Invariants of the coordinator, true between any two steps, whatever fails.

Each is a predicate that gives None, or what is wrong, and names the rule that it stands for: of docs/theory.md,
or of *Falkirk Wheel*, by section. The simulator checks all of them after every step.
"""

from __future__ import annotations

from itertools import pairwise

from monitor.coordination.records import KeptDecision, KeptWatermarks
from monitor.coordination.state import JobState
from monitor.coordination.workers import JobPhase, Presence
from recovery.metadata import Bound, inverse, project, within
from recovery.protocol import LIVE


def numbers_of_rounds_are_reserved(job: JobState) -> str | None:
    """Numbers of rounds are durably reserved before use.

    No two monitors use one number for two rounds.
    """
    if not job.generation <= job.round <= job.reserved:
        return f"generation {job.generation}, round {job.round}, reserved up to {job.reserved}"
    return None


def decisions_are_durable_first(job: JobState) -> str | None:
    """A decision is durable before anyone restores.

    Until then it is on its way, and the job waits for it.
    """
    under_way = [record.generation for record in job.commit.unwritten if isinstance(record, KeptDecision)]
    if under_way != ([job.round] if job.phase is JobPhase.DECIDING else []):
        return f"{job.phase.value}, in round {job.round}, with decisions {under_way} on their way to the journal"
    if (0 if job.decision is None else job.decision.generation) != job.generation:
        return f"generation {job.generation} without its decision"
    return None


def who_has_failed_does_not_stay(job: JobState) -> str | None:
    """⊤ is for processes with their memory (section 4.4).

    A process that has failed is restored to what is persisted.
    """
    for decision in _decisions(job):
        for worker in decision.failed:
            if LIVE in decision.bounds[worker]:
                return f"decision {decision.generation} lets worker {worker} stay as it is, which has failed"
    return None


def decisions_keep_what_was_promised(job: JobState) -> str | None:
    """No failure takes a processor below W (section 4.2)."""
    if job.phase not in (JobPhase.DECIDING, JobPhase.RESTORING):
        return None
    for decision in _decisions(job)[-1:]:
        for w, bounds in enumerate(decision.bounds):
            for p, bound in enumerate(bounds):
                low = job.options.low(job.options.topology.flat(p, w))
                if bound is not None and not within(low, bound):
                    return f"decision {decision.generation} takes processor {p} of worker {w} to {bound}, below {low}"
    return None


def watermarks_are_durable_first(job: JobState) -> str | None:
    """W is journaled before it is announced.

    What stateless processors reported lives nowhere else.
    """
    for record in job.commit.unwritten:
        if isinstance(record, KeptWatermarks) and not _rises(job.low_watermarks, record.bounds):
            return f"{record.bounds} is on its way to the journal, and announced already"
    if job.low_watermarks != job.options.watermarks and not any(
        isinstance(record, KeptWatermarks) and record.bounds == job.options.watermarks
        for record in job.commit.unwritten
    ):
        return f"W is {job.options.watermarks}, announced as {job.low_watermarks}, and not on its way to the journal"
    return None


def watermarks_can_be_restored(job: JobState) -> str | None:
    """W(p) is in F*(p), once all workers are there (section 4.2).

    What is within it may be collected.
    """
    if job.phase is not JobPhase.RUNNING:
        return None
    for flat, chain in enumerate(job.options.chains):
        info, low = job.options.topology.info(flat), job.options.low(flat)
        if info.chain and low > info.nothing and all(bound != low for bound, _ in chain):
            return f"{job.options.topology.name(flat)} has no checkpoint at {low}"
        if job.options.in_memory(flat, low):
            return f"{job.options.topology.name(flat)} has its checkpoint at {low} in memory only"
        if not info.chain and not within(low, job.options.completed(flat)):
            return f"{job.options.topology.name(flat)} has completed {job.options.completed(flat)}, less than {low}"
    return None


def watermarks_are_consistent(job: JobState) -> str | None:
    """W is a solution on every edge (section 3.5).

    D̄(e, f(src)) ⊆ f(dst), and M̄(e, f(dst)) = f(dst) ⊆ φ(e)(f(src)).
    """
    if job.phase is not JobPhase.RUNNING:
        return None
    options = job.options
    for edge in options.topology.edges:
        source, target = options.low(edge.source), options.low(edge.target)
        lost = next((discards[edge.port] for bound, discards in options.chains[edge.source] if bound == source), None)
        # What keeps nothing has discarded all that it sent: ↓σ(f) ⊆ f(dst), which is f ⊆ σ⁻¹(f(dst)).
        room = source if edge.lossy else inverse(edge.backwards, target) if lost is None else target
        if not within(source if lost is None else lost, room) or not within(target, project(edge.summary, source)):
            names = options.topology.name(edge.source), options.topology.name(edge.target)
            return f"{names[0]} at {source}, with D̄ {lost}, and {names[1]} at {target}"
    return None


def options_ascend(job: JobState) -> str | None:
    """F*(p) is a chain, and D̄ is monotone in f (section 3.5).

    Otherwise the fixed point is wrong.
    """
    for flat, chain in enumerate(job.options.chains):
        for (earlier, less), (later, more) in pairwise(
            chain[-3:]
        ):  # those before were looked at when they were the last
            if earlier == later or not within(earlier, later) or not all(map(within, less, more)):
                return f"{job.options.topology.name(flat)}: {earlier} with {less}, then {later} with {more}"
    return None


def cuts_are_at_what_is_complete(job: JobState) -> str | None:
    """Cuts lie within the completed bound (section 3.5, the first constraint).

    Nothing may be restored to f while a message in f is still to come.
    """
    if job.phase is not JobPhase.RUNNING:
        return None
    minimum = job.options.minimum()
    for group, cut in job.cuts.outstanding:
        if not within(cut, minimum[group]):
            return f"group {group} is to be cut at {cut}, and is complete up to {minimum[group]}"
    return None


def nobody_waits_for_ever(job: JobState) -> str | None:
    """Every step has a deadline.

    A worker that misses it is fenced, and counts as failed.
    """
    for status in job.workers:
        joins = status.presence in (Presence.AWAITED, Presence.ABSENT, Presence.BEHIND)
        drains = status.presence is Presence.ALIVE and job.phase is JobPhase.GATHERING and status.memory is None
        restores = status.presence is Presence.ALIVE and job.phase is JobPhase.RESTORING and not status.restored
        if (joins or drains or restores) and status.due is None:
            return f"{status.place} ({status.presence.value}) may take as long as it likes"
    return None


def memory_counts_in_its_round(job: JobState) -> str | None:
    """Ξ(p, ⊤) counts only in the round of its drained links.

    It is what a processor holds when links are drained: after the decision it may hold something else.
    """
    for status in job.workers:
        there = status.presence is Presence.ALIVE and job.phase in (JobPhase.GATHERING, JobPhase.DECIDING)
        if status.memory is not None and not there:
            return f"the memory of {status.place} ({status.presence.value}) counts, and the job is {job.phase.value}"
    return None


def all_are_there_while_it_runs(job: JobState) -> str | None:
    """W rises only while all workers have restored the last decision.

    It rests on what every worker has.
    """
    if job.phase in (JobPhase.RUNNING, JobPhase.CLOSING):
        for status in job.workers:
            if status.takes_part and (status.presence is not Presence.ALIVE or not status.restored):
                return f"the job is {job.phase.value}, and {status.place} is {status.presence.value}"
    return None


def who_is_done_needs_nothing(job: JobState) -> str | None:
    """A worker is released only when W holds everything on it, the job when all are."""
    everything = tuple(info.everything for info in job.layout.processors)
    for status in job.workers.at_work():
        if status.released and (not status.restored or job.low_watermarks[status.worker] != everything):
            return f"worker {status.worker} is done, and W is {job.low_watermarks[status.worker]} there"
        if job.phase is JobPhase.CLOSING and not status.released:
            return f"the job ends, and worker {status.worker} is not done"
    return None


def _decisions(job: JobState) -> list[KeptDecision]:
    """Last durable decision, and the one being journaled, if any."""
    known = [] if job.decision is None else [job.decision]
    return known + [record for record in job.commit.unwritten if isinstance(record, KeptDecision)]


def _rises(before: tuple[tuple[Bound, ...], ...], after: tuple[tuple[Bound, ...], ...]) -> bool:
    return before != after and all(
        within(old, new) for olds, news in zip(before, after) for old, new in zip(olds, news)
    )


INVARIANTS = (
    numbers_of_rounds_are_reserved,
    decisions_are_durable_first,
    who_has_failed_does_not_stay,
    decisions_keep_what_was_promised,
    watermarks_are_durable_first,
    watermarks_can_be_restored,
    watermarks_are_consistent,
    options_ascend,
    cuts_are_at_what_is_complete,
    nobody_waits_for_ever,
    memory_counts_in_its_round,
    all_are_there_while_it_runs,
    who_is_done_needs_nothing,
)
