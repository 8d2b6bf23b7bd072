"""Reasons against another number of workers, found in the program.

What is in flight, and each entry of state, has to have a place among the new workers that would be the right one had there
always been so many. What cannot be shown to have one is refused, with the operator and its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recovery.guarantees.classes import Operators
from recovery.layout import Layout, ProcessorInfo
from recovery.policy.chosen import policy_of
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.operators.base import Operator
from timely.operators.channels import PIPELINE, Broadcast, Exchange, Gather
from timely.state import Parts, State, is_transient
from timely.state.moving import Mergeable, Split, is_everywhere

MOST_REASONS = 8
"""Most reasons in an error."""


class CannotMove(FalkirkError):
    """Refusal of another number of workers, with the reasons."""

    def __init__(self, before: int, after: int, reasons: Sequence[str]) -> None:
        self.before = before
        """Number of workers of the store."""
        lines = [*reasons[:MOST_REASONS]]
        if len(reasons) > len(lines):
            lines.append(f"and {len(reasons) - len(lines)} more")
        super().__init__(
            "\n  ".join([f"the store is of {before} worker(s), and the job cannot go on with {after}:", *lines])
            + f"\nRun it with {before} worker(s) (-w {before}), or choose another store"
        )


class HalfWritten(CannotMove):
    """Refusal for former workers at different epochs.

    Some have persisted more than others. After a savepoint all are at one.
    """


_PLACES = ("name", "kind", "region", "policy", "depth", "chain", "group", "role", "history", "state", "bare")


def check_alike(before: Layout, after: Layout) -> str | None:
    """Reason against a move between layouts of one program: other plans."""
    for old, new in zip(before.processors, after.processors):
        if any(getattr(old, field) != getattr(new, field) for field in _PLACES):
            return f"{_named(new)} is laid out in another way for {after.workers} worker(s) than for {before.workers}"
    ends = [[(e.edge, e.source, e.target, e.logged, e.ahead) for e in of.edges] for of in (before, after)]
    if len(before.processors) != len(after.processors) or ends[0] != ends[1]:
        return f"its plan for {after.workers} worker(s) has other parts than for {before.workers}"
    return None


def refusals(plan: Plan, layout: Layout, operators: Operators) -> list[str]:
    """Reasons against another number of workers, in order of the operators."""
    found: list[str] = []
    for processor, info in zip(plan.processors, layout.processors):
        operator = operators.get(processor.node.index)
        found += [f"{_named(info)} {why}" for why in _reasons(plan, layout, processor.node, info, operator)]
    return found


def _named(info: ProcessorInfo) -> str:
    return f"{info.kind} {info.name!r} ({info.site})"


def _reasons(plan: Plan, layout: Layout, node: Node, info: ProcessorInfo, operator: Operator | None) -> Iterator[str]:
    if layout.groups[info.group].eager:
        yield "is Eager, so that each worker has committed epochs of its own: there is no one epoch for all"
    elif policy_of(node).saved_together:
        yield f"is in a region with {info.policy}, which cannot change workers yet"
    elif info.bare:
        yield f"is {info.policy}, and nobody knows which of its records were under way"
    if info.depth > 1:
        yield "is in a loop or another scope, which cannot change workers yet"
    elif node.kind == "gate":
        yield "waits at a gate for commits of its own worker"
    if node.reads:
        yield "reads the state of another operator"
    if operator is not None:
        if operator.stays:
            yield operator.stays
        elif info.history and operator.state is None:
            yield "keeps what it knows in attributes, which no other worker could be given: keep it in `state`"
        else:
            yield from _state_reasons(plan, node, operator)


def _state_reasons(plan: Plan, node: Node, operator: Operator) -> Iterator[str]:
    kept = [part for part in parts_of(operator.state).values() if not is_transient(part) and not is_everywhere(part)]
    without_keys = [type(part).__name__ for part in kept if not isinstance(part, Mergeable)]
    if not without_keys:
        return
    if not operator.moves_by_key:
        yield (
            f"keeps a {without_keys[0]}, and does not say where its entries belong: if each key of it is where the exchange "
            "in front sends that key, say moves_by_key = True in its class, or give its state a method merge(former, worker, "
            "workers)"
        )
    elif not any(by_key(edge.channel) for edge in plan.graph.incoming()[node.index]):
        yield f"keeps a {without_keys[0]} by key, with no exchange by key in front of it"


def by_key(channel: object) -> bool:
    """True for an exchange by key."""
    return isinstance(channel, Exchange) and not isinstance(channel, Gather)


def parts_of(state: State | None) -> dict[int | str, State]:
    """States of an operator by the part that their runs name."""
    if state is None:
        return {}
    return dict(state.named) if isinstance(state, Parts) else {0: state}


def split_of(plan: Plan, node: Node) -> Split | None:
    """Division of columns by the exchanges in front of an operator, or None.

    None if they do not go by columns, or differ."""
    channels = [edge.channel for edge in plan.graph.incoming()[node.index]]
    found = {channel.columns: channel for channel in channels if isinstance(channel, Exchange) and channel.columns}
    if len(found) != 1:
        return None
    (channel,) = found.values()
    return lambda batch, workers: [*channel.route(batch, workers)]


def may_go_anywhere(plan: Plan, processor: int) -> str | None:
    """Operator behind `processor` in need of messages at a certain worker, or None.

    What only passes by, up to the next exchange, may go to any worker.
    """
    todo, seen = [processor], {processor}
    while todo:
        found = plan.processors[todo.pop()]
        node = found.node
        if not node.stages and node.sink is None and node.kind != "capture":
            return str(node)
        for route in (route for routes in found.routes for route in routes):
            if not plan.spreads(route.edge) and route.processor not in seen:
                seen.add(route.processor)
                todo.append(route.processor)
    return None


def goes_everywhere(channel: object) -> bool:
    """True for a channel to all workers."""
    return channel != PIPELINE and isinstance(channel, Broadcast)
