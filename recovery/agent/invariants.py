"""Invariants of the agent, true between any two steps, whatever fails.

Each is a predicate that gives None, or what is wrong, and names the rule that it stands for: of docs/theory.md,
or of *Falkirk Wheel*, by section. The simulator checks all of them after every step.
"""

from __future__ import annotations

from recovery.agent.parts import AgentParts
from recovery.agent.state import WorkerPhase
from recovery.metadata import NEVER, holds, within
from recovery.protocol import Durable, Join, Restored


def memory_begins_with_a_decision(agent: AgentParts) -> str | None:
    """A process has memory from the first decision on that it carries out.

    Before, it has not handled anything.
    """
    if agent.alive != (agent.phase != WorkerPhase.JOINING):
        return f"it {agent.phase.value}, and is {'' if agent.alive else 'not '}alive"
    return None


def one_generation(agent: AgentParts) -> str | None:
    """Engine, checkpoints and journal have the last decision's generation.

    That is the last decision that was carried out.
    """
    generation = agent.checkpoints.generation
    if agent.journal.generation != generation or (agent.alive and agent.worker.generation != generation):
        found = agent.worker.generation, agent.journal.generation
        return f"checkpoints are of generation {generation}, worker and journal of {found}"
    if agent.alive and agent.round < generation:
        return f"generation {generation} began before round {agent.round}"
    return None


def reports_wait_for_their_segment(agent: AgentParts) -> str | None:
    """Ξ is announced only after Ξ, S and L are durable.

    What waits for a segment waits while that is being written.
    """
    if agent.reports.sealed and agent.journal.in_flight is None:
        return f"{agent.reports.sealed} wait for a segment, and none is being written"
    for report in agent.reports.sealed + agent.reports.gathered:
        if isinstance(report, Durable) and report.generation > agent.checkpoints.generation:
            return f"{report} is of a generation to come"
    return None


def decisions_are_noted_in_turn(agent: AgentParts) -> str | None:
    """A decision not yet in the store is on its way there, with the report of it."""
    in_reports = {
        report.generation
        for report in agent.reports.gathered + agent.reports.sealed
        if isinstance(report, Restored | Join)
    }
    generation = agent.checkpoints.generation
    if agent.noted != generation and not (agent.noted < generation and generation in in_reports):
        return f"its store has decision {agent.noted}, it has carried out {generation}, and will tell of {in_reports or 'none'}"
    return None


def work_waits_for_the_report(agent: AgentParts) -> str | None:
    """A worker begins a generation only after its report that it is restored.

    Its first turn may take longer than the monitor waits for that report.
    """
    generation = agent.checkpoints.generation
    if agent.alive and agent.noted != generation and not agent.begins:
        return f"it has begun generation {generation}, and the last that it has reported is {agent.noted}"
    return None


def cuts_fall_while_it_runs(agent: AgentParts) -> str | None:
    """Checkpoints fall between activations, and never while links are drained.

    Ξ(p, ⊤) comes after all that was announced.
    """
    if agent.phase != WorkerPhase.RUNNING and (agent.cuts.draft is not None or agent.cuts.due):
        return f"it {agent.phase.value}, and is to make {agent.cuts.draft or agent.cuts.due}"
    return None


def cuts_are_at_what_is_complete(agent: AgentParts) -> str | None:
    """Cuts lie within the completed bound (section 3.5, the first constraint).

    Nothing may be restored to f while a message in f is still to come.
    """
    for cut in agent.cuts.due:
        if agent.completion.reported is None or not within(cut.at, agent.completion.reported[cut.group]):
            return f"group {cut.group} is to be cut at {cut.at}, and is complete up to {agent.completion.reported}"
    return None


def drained_is_durable(agent: AgentParts) -> str | None:
    """A drained worker has no reports left: its `Drained` report is complete.

    Its journal may still be cleaned.
    """
    if agent.phase == WorkerPhase.DRAINED:
        for report in agent.reports.gathered + agent.reports.sealed:
            return f"it has said that it is drained, and {report} waits for the store"
    return None


def early_frames_are_of_a_generation_to_come(agent: AgentParts) -> str | None:
    """Early frames are of a later generation.

    Frames of an old generation are dropped, those of this one are the engine's.
    """
    for frame in agent.rounds.early:
        if agent.alive and frame.generation <= agent.worker.generation:
            return f"a frame of generation {frame.generation} waits, in generation {agent.worker.generation}"
    return None


def what_came_back_is_complete(agent: AgentParts) -> str | None:
    """Restored bounds lie within the bounds complete before this generation.

    A processor was complete, before this generation, at least up to the bound at which it came back from its store.
    """
    for p, (since, before) in enumerate(zip(agent.recorder.since, agent.completion.before)):
        if not within(since, before):
            return f"{agent.layout.processors[p].name} came back at {since}, and was complete up to {before}"
    return None


def watermarks_can_be_restored(agent: AgentParts) -> str | None:
    """Restorable watermarks: saved state behind W(p) is still there (section 4.2)."""
    if not agent.alive:
        return None
    for p, (info, low) in enumerate(zip(agent.layout.processors, agent.low[agent.index])):
        if info.chain and low > info.nothing and agent.checkpoints.at(p, low) is None:
            return f"{info.name} never goes below {low}, and has no checkpoint there"
    return None


def logs_are_collected(agent: AgentParts) -> str | None:
    """Logs within W(dst(e)) are collected: they are never sent again (section 4.2).

    L(e, ·) goes within W(dst(e)).
    """
    targets = {edge.edge: edge.target for edge in agent.layout.edges}
    for (edge, receiver), entries in agent.recorder.logs.items():
        low = agent.low[receiver][targets[edge]]
        if entries and holds(low, entries[0].time):
            return (
                f"edge {edge} keeps a message at {entries[0].time} for worker {receiver}, which never goes below {low}"
            )
    return None


def kept_messages_are_collected(agent: AgentParts) -> str | None:
    """Sent messages are kept while receivers may need them, within a budget.

    Messages to other workers are kept while their receivers can go back before them, and no longer.
    """
    shipments = agent.recorder.shipments
    if shipments.most > shipments.budget:
        return f"it keeps {shipments.most} bytes that it sent, where {shipments.budget} may be"
    for edge in agent.layout.edges if agent.alive else ():
        for receiver in range(agent.layout.workers) if edge.kept else ():
            low, coverage = agent.low[receiver][edge.target], shipments.coverage((edge.edge, receiver))
            if receiver != agent.index and not within(low, coverage):
                return (
                    f"it keeps what it sent on edge {edge.edge} to worker {receiver} from {coverage} on, and W is {low}"
                )
    return None


def who_is_done_needs_nothing(agent: AgentParts) -> str | None:
    """A worker is released only when W holds everything, on all workers.

    And nothing waits.
    """
    if agent.phase == WorkerPhase.RELEASED:
        if any(bound[0] < NEVER for bounds in agent.low for bound in bounds):
            return f"it is done, and W is {agent.low}"
        if not agent.worker.done or agent.reports.gathered:
            return f"it is done, and {agent.reports.gathered or 'its worker'} is not"
    return None


INVARIANTS = (
    memory_begins_with_a_decision,
    one_generation,
    reports_wait_for_their_segment,
    decisions_are_noted_in_turn,
    work_waits_for_the_report,
    cuts_fall_while_it_runs,
    cuts_are_at_what_is_complete,
    drained_is_durable,
    early_frames_are_of_a_generation_to_come,
    what_came_back_is_complete,
    watermarks_can_be_restored,
    logs_are_collected,
    kept_messages_are_collected,
    who_is_done_needs_nothing,
)
