"""Rollback fixed point as a differential dataflow, maintained as reports arrive.

The authors of *Falkirk Wheel* had their monitor run it so (section 4.2, Figure 6). Here it stands beside the monitor's own
solver, `recovery.fixed_point`, and says the same. In each iteration a processor tells its neighbours what its frontier allows
them, and takes the largest of what it can be restored to that its neighbours allow, until nothing changes. A new report costs
what it changes.

Frontiers are bounds (lexicographic prefixes), as there. Where a cycle pushes a bound down by one an iteration, that takes an
iteration each: the monitor's solver jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from libraries.differential.collection import LIMIT, Collection
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, PhysicalEdge, Restorable
from recovery.metadata import Bound, everything, inverse, nothing, project

Form = tuple[Any, ...]
"""Restorable frontier of a processor, or a set of them, as a record's value."""


def forms(processor: Restorable, depth: int) -> list[Form]:
    """Values of a processor's records: one for each checkpoint of a chain, else one.

    A chain includes the empty frontier ∅.

    Args:
        processor: a processor that failed, or is alive.
        depth: coordinates of its times.
    """
    if isinstance(processor, CheckpointChain):
        return [("chain", nothing(depth), ()), *(("chain", bound, discards) for bound, discards in processor.options)]
    if isinstance(processor, AnyFrontier):
        return [("any", processor.upto)]
    delivered, kept = tuple(sorted(processor.delivered.items())), tuple(sorted(processor.kept.items()))
    return [("live", processor.upto, processor.notified, delivered, processor.discards, processor.logs, kept)]


def frontiers(
    processors: Collection, edges: Sequence[PhysicalEdge], limit: int = LIMIT, name: str | None = None
) -> Collection:
    """Largest consistent bound of each processor, as (processor, (bound, live)).

    `live` is True if the processor stays at ⊤.

    No processor is taken to repeat what it does again, so nothing is suppressed.

    Args:
        processors: pairs (processor, form) with the `forms` of each processor; those that failed, or are taken to have
            failed, are chains and such as can be restored to any frontier.
        edges: between processors, by the numbers that are their keys.
        limit: iterations.
    """
    outgoing: dict[int, list[int]] = {}
    incoming: dict[int, list[int]] = {}
    for index, edge in enumerate(edges):
        outgoing.setdefault(edge.source, []).append(index)
        incoming.setdefault(edge.target, []).append(index)

    def tell(state: tuple[int, tuple[Bound, bool, Bound]]) -> Iterable[tuple[int, Form]]:
        """Messages to the neighbours: φ of the processor's bound, and its held inputs."""
        p, (bound, live, held) = state
        for index in outgoing.get(p, ()):
            if edges[index].anew:  # what is done again takes nothing back: φ is ⊤
                continue
            yield edges[index].target, ("within", index, project(edges[index].summary, bound), live)
        for index in incoming.get(p, ()):
            yield edges[index].source, ("held", index, held, live)

    def largest(p: int, group: Sequence[tuple[Form, int]]) -> list[tuple[Bound, bool, Bound]]:
        return [_largest([form for form, _ in group], edges)]

    chosen = processors.reduce(largest).iterate(
        lambda now: processors.concat(now.flat_map(tell)).reduce(largest), limit, name
    )
    return chosen.map(lambda pair: (pair[0], pair[1][:2]))


def _largest(group: Sequence[Form], edges: Sequence[PhysicalEdge]) -> tuple[Bound, bool, Bound]:
    """f'(p) of Figure 6: bound of f_n, True if f is ⊤, and the held inputs C(d)."""
    own = [form for form in group if form[0] in _KINDS]
    within = [form[1:] for form in group if form[0] == "within"]
    held = [form[1:] for form in group if form[0] == "held"]
    most = min((bound for _, bound, _ in within), default=everything(len(own[0][1])))
    return _KINDS[own[0][0]](own, most, within, held, edges)


def _of_chain(
    own: Sequence[Form], most: Bound, within: Sequence[Form], held: Sequence[Form], edges: Sequence[PhysicalEdge]
) -> tuple[Bound, bool, Bound]:
    bound = max(
        bound
        for _, bound, discards in own
        if bound <= most and not any(discards and at < discards[edges[index].port] for index, at, _ in held)
    )
    return bound, False, bound


def _of_any(
    own: Sequence[Form], most: Bound, within: Sequence[Form], held: Sequence[Form], edges: Sequence[PhysicalEdge]
) -> tuple[Bound, bool, Bound]:
    ((_, upto),) = own
    bound = min(upto, most, *(inverse(edges[index].backwards, at) for index, at, _ in held))
    return bound, False, bound


def _of_live(
    own: Sequence[Form], most: Bound, within: Sequence[Form], held: Sequence[Form], edges: Sequence[PhysicalEdge]
) -> tuple[Bound, bool, Bound]:
    ((_, upto, notified, delivered, discards, logs, kept),) = own
    came, keeps = dict(delivered), dict(kept)
    # What a living receiver has of a living sender is not taken back from either.
    lacking = [(index, at) for index, at, live in held if not live and not (index in keeps and keeps[index] <= at)]
    stays = (
        notified <= most
        and all(live or index not in came or came[index] <= bound for index, bound, live in within)
        and all(discards[edges[index].port] <= at for index, at in lacking)
    )
    if stays:
        return most, True, upto
    sent = (inverse(edges[index].backwards, at) for index, at in lacking if not logs[edges[index].port])
    bound = min(upto, most, *sent)
    return bound, False, bound


_KINDS: dict[str, Callable[..., tuple[Bound, bool, Bound]]] = {"chain": _of_chain, "any": _of_any, "live": _of_live}
