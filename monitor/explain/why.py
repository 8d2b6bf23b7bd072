"""Causes of a frontier's place, in words, with the culprits.

For the rollback frontier: W(p) is the greatest solution over what can be restored (`recovery.fixed_point`). That p be at its
next bound asks for something of its neighbours: of each sender a frontier whose projection holds it (M̄(d, f) ⊆ φ(d)(f(src)))
and of each receiver one that holds what p has discarded by then (D̄(e, f) ⊆ f(dst)). Where the neighbour is not that far, it
asks for something in turn. Whoever is asked for more than it can be restored to is a *culprit*: the frontier of p rises to
the next bound when all culprits can do what they are asked for, and not before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.coordination.options import Options
from monitor.coordination.topology import Topology
from recovery.metadata import (
    MORE,
    NEVER,
    Bound,
    after,
    at_cut,
    at_epoch,
    depth_of,
    image,
    inverse,
    of_steps,
    project,
    steps,
    within,
)
from recovery.protocol import Closely, Observed, ObservedHold
from timely.time import INF, Summary, Time

SENDER = "M̄(d, f) ⊆ φ(d)(f(src))"
RECEIVER = "D̄(e, f) ⊆ f(dst)"
OWN = "f ∈ F*(p)"

_MOST_EDGES = 20_000
"""Most edges searched, as the monitor has other work to do."""

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Need:
    """Requirement on `flat` to be at `bound`, by `constraint` with the asker.

    The asker is None if nobody asked.
    """

    flat: int
    bound: Bound
    constraint: str
    asker: Need | None = None

    def path(self) -> list[Need]:
        """Needs from the processor in question to this one."""
        return [*(self.asker.path() if self.asker is not None else []), self]


@dataclass(frozen=True, slots=True)
class RollbackCauses:
    """Causes of W of processor `flat` being `low`.

    For `next`, all of `culprits` are asked for what they cannot do.
    """

    flat: int
    low: Bound
    next: Bound | None
    """Next bound; None if W is at its end."""
    culprits: tuple[Need, ...]
    text: str
    complete: bool = False
    """True if the first culprit lacks only a checkpoint, not completion.

    It has completed what it is asked for.
    """
    whole: bool = True
    """False if the search was given up; there may be more culprits."""

    def as_json(self, topology: Topology) -> dict[str, Any]:
        """JSON form, for the page."""
        first = self.culprits[0] if self.culprits else None
        path = first.path() if first is not None else []
        binding = next(iter(path[1:] or path), None)
        return {
            "low": plain_bound(self.low),
            "next": None if self.next is None else plain_bound(self.next),
            "text": self.text,
            "constraint": binding.constraint if binding is not None else None,
            "culprit": None if first is None else _place(topology, first.flat),
            "path": [{**_place(topology, n.flat), "bound": plain_bound(n.bound), "by": n.constraint} for n in path],
            "culprits": [
                {**_place(topology, need.flat), "bound": plain_bound(need.bound)}
                for need in self.culprits[:_MOST_NAMED]
            ],
            "more": max(0, len(self.culprits) - _MOST_NAMED),
            "complete": self.complete,
            "whole": self.whole,
        }


def why_rollback(options: Options, flat: int, epoch: int | None = None) -> RollbackCauses:
    """Constraints holding back W of one processor.

    `epoch`: one that W is to hold; None for the next bound.
    """
    topology = options.topology
    low = options.low(flat)
    info = topology.info(flat)
    if low >= info.everything:
        return RollbackCauses(flat, low, None, (), "It is done for good: nothing of it will ever be rolled back.")
    first = _next(options, flat, low) if epoch is None else at_epoch(epoch + 1, info.depth)
    if within(first, low):
        return RollbackCauses(flat, low, None, (), f"Epoch {epoch} of it is safe: no failure will ever take it back.")
    seen: dict[int, Bound] = {}
    culprits: dict[int, Need] = {}
    todo = deque([Need(flat, first, OWN)])
    looked = 0
    while todo and looked < _MOST_EDGES:
        need = todo.popleft()
        p = need.flat
        option = _option(options, p, need.bound)
        bound, discards = option if option is not None else (need.bound, None)
        if p in seen and within(bound, seen[p]):
            continue
        seen[p] = bound
        if option is None:
            culprits[p] = Need(p, bound, need.constraint, need.asker)  # again if more is asked of it; in its old place
        for index, _ in topology.incoming[p]:
            edge = topology.edges[index]
            asked = least_source(edge.summary, bound)
            if not within(asked, options.low(edge.source)):
                todo.append(Need(edge.source, asked, SENDER, need))
        for index in topology.leaving[p]:
            edge = topology.edges[index]
            if discards is not None:
                asked = discards[edge.port]
            elif topology.logs[p // topology.workers][edge.port]:
                continue
            else:
                asked = least_target(edge.backwards, bound, options.layout.groups[topology.info(p).group].depth)
            if not within(asked, options.low(edge.target)):
                todo.append(Need(edge.target, asked, RECEIVER, need))
        looked += len(topology.incoming[p]) + len(topology.leaving[p])
    found = tuple(culprits.values())
    complete = bool(found) and _has_completed(options, found[0])
    return RollbackCauses(flat, low, first, found, _in_words(options, flat, first, found, not todo), complete, not todo)


def least_source(summary: Summary, bound: Bound) -> Bound:
    """Minimal bound of a sender with `bound` in its projection.

    >>> least_source(Summary.egress(2), (3,)), least_source(Summary.ingress(1), (3, 1))
    ((3, 0), (4,))
    >>> least_source(Summary.feedback(2), (3, 8, MORE, 6)), least_source(Summary.feedback(2), (3, 8, MORE, 1))
    ((3, 7, -1, 5), (3, 7, -1, 1))
    """
    least = inverse(summary, bound)
    if within(bound, project(summary, least)):
        return least
    # φ of a feedback has nothing of epochs that a sender's bound does not name: it is asked to name all that `bound` does.
    return of_steps([max(inverse(summary, step), after(at_epoch(step[0], summary.depth))) for step in steps(bound)])


def least_target(summary: Summary, bound: Bound, cuts: int = 1) -> Bound:
    """Least bound of a receiver with all messages of a sender at `bound`: ↓σ.

    `cuts`: the depth of its group.

    >>> least_target(Summary.feedback(2), (3, 0)), least_target(Summary.feedback(2), (3, 1))
    ((3, 0), (3, 2))
    >>> least_target(Summary.ingress(1), (3,)), least_target(Summary.ingress(1), (3,), cuts=2)
    ((3, 0), (2, 1))
    >>> least_target(Summary.ingress(2), (3, 7), cuts=2), least_target(Summary.feedback(3), (3, 7, 0), cuts=2)
    ((3, 7, 0), (3, 7, 0))
    """
    if len(bound) == 1 < cuts and bound[0]:  # the last of it came to the loop's first iteration
        return after(summary((bound[0] - 1,)))
    return image(summary, bound)


def _next(options: Options, flat: int, low: Bound) -> Bound:
    """Next bound for W of a processor."""
    if options.topology.info(flat).chain:
        chain = options.chains[flat]
        at = bisect_right(chain, low, key=lambda option: option[0])
        if at < len(chain):
            return chain[at][0]
    return at_epoch(low[0] + 1, depth_of(low))


def _option(options: Options, flat: int, bound: Bound) -> tuple[Bound, tuple[Bound, ...] | None] | None:
    """First option of a processor from `bound` on, with D̄ if reported."""
    if options.topology.info(flat).chain:
        chain = options.chains[flat]
        at = bisect_left(chain, bound, key=lambda option: option[0])
        return next((option for option in chain[at:] if within(bound, option[0])), None)
    return (bound, None) if within(bound, options.completed(flat)) else None


def _has_completed(options: Options, need: Need) -> bool:
    """True if a processor has completed the bound needed of it."""
    info = options.topology.info(need.flat)
    upto = options.upto[need.flat % options.topology.workers]
    return upto is not None and within(need.bound, at_cut(upto[info.group], info.depth))


def _in_words(options: Options, flat: int, first: Bound, culprits: tuple[Need, ...], whole: bool) -> str:
    if not culprits and not whole:
        return f"What holds it back is more than {_MOST_EDGES:,} edges away: the search was given up."
    if not culprits:
        return "Everything that it needs is there: it rises as soon as the monitor has written that down."
    topology = options.topology
    nearest = culprits[0]
    own = nearest.flat == flat
    who = "It" if own else _name(topology, nearest.flat)
    info = topology.info(nearest.flat)
    complete = _has_completed(options, nearest)
    if not info.chain:
        done = options.completed(nearest.flat)
        text = f"{who} keeps nothing, and has completed only {epoch_text(done)}"
    elif complete:
        group = options.layout.groups[info.group]
        when = f"every {group.epochs} epochs" if group.epochs is not None else f"every {group.seconds} s"
        when = "at once" if group.eager else when
        text = f"{who} has completed {epoch_text(nearest.bound)}, and has no checkpoint there yet: one is made {when}"
    else:
        chain = options.chains[nearest.flat]
        last = f"its newest is at {epoch_text(chain[-1][0])}" if chain else "it has none"
        text = f"{who} has not completed {epoch_text(nearest.bound)} yet, and has no checkpoint that far ({last})"
    more = f"; so it is with {'at least ' * (not whole)}{len(culprits) - 1} more" if len(culprits) > 1 else ""
    if own:
        return f"{text}{more}."
    asked = f"To keep {epoch_text(first)}, it needs {who} to keep {epoch_text(nearest.bound)}"
    path = nearest.path()
    via = [_name(topology, need.flat) for need in path[1:-1]]
    through = f", by way of {' and '.join(via[:2])}{' and others' if len(via) > 2 else ''}" if via else ""
    return f"{asked}{through}. {text}{more}."


# ---------------------------------------------------------------------------------------------- progress


def why_progress(topology: Topology, samples: Mapping[int, Observed], flat: int) -> dict[str, Any]:
    """Holders of a processor's progress frontier, from detailed observations."""
    processor, worker = divmod(flat, topology.workers)
    mine = _closely(samples.get(worker), processor)
    if mine is None:
        return {"text": "Its worker has not said yet.", "frontier": None, "culprit": None, "holds": []}
    if not mine.frontier:
        return {"text": "Nothing can reach it any more.", "frontier": [], "culprit": None, "holds": []}
    # What it waits for is known at its own worker; whose it is, each of the others knows of itself.
    owners: dict[tuple[str, int], dict[int, set[Time]]] = {}
    for index in samples:
        seen = _closely(samples[index], processor)
        for hold in seen.holds if seen is not None else ():
            if hold.here:
                owners.setdefault((hold.what, hold.processor), {}).setdefault(index, set()).add(hold.time)
    listed = []
    for hold in sorted(mine.holds, key=lambda hold: hold.time):
        known = owners.get((hold.what, hold.processor), {})
        if hold.what == "batch" or (hold.what == "notification" and hold.processor == processor and hold.here):
            known = {worker: {hold.time}}
        # Workers do not look at the same moment: who has one at another time by now may well have had this one.
        workers = sorted(index for index, times in known.items() if hold.time in times) or sorted(known)
        listed.append({**_hold(topology, hold), "workers": workers})
    if not listed:
        return {"text": "It is on its way.", "frontier": _times(mine.frontier), "culprit": None, "holds": []}
    least = listed[0]
    where = f" on worker {least['workers'][0]}" if len(least["workers"]) == 1 else ""
    return {
        "text": f"{_WORDS[least['what']].format(name=least['name'])}{where} is at {time_text(tuple(least['time']))}.",
        "frontier": _times(mine.frontier),
        "culprit": {"operator": least["operator"], "worker": (least["workers"] or [worker])[0]},
        "holds": listed,
    }


_WORDS = {
    "position": "The source {name!r}",
    "message": "A message on its way to {name!r}",
    "capability": "A capability that {name!r} keeps",
    "notification": "A notification that {name!r} waits for",
    "batch": "A batch that waits for {name!r}",
    "commit": "What waits at {name!r} to be durable",
}


def _closely(sample: Observed | None, processor: int) -> Closely | None:
    return next((each for each in sample.closely if each.processor == processor), None) if sample is not None else None


def _hold(topology: Topology, hold: ObservedHold) -> dict[str, Any]:
    return {
        "what": hold.what,
        "operator": hold.processor,
        "name": topology.layout.processors[hold.processor].name,
        "time": [plain(at) for at in hold.time],
        "count": hold.count,
    }


def _times(frontier: tuple[Time, ...]) -> list[list[int]]:
    return [[plain(at) for at in time] for time in frontier]


def plain(coordinate: int) -> int:
    """Coordinate for JSON: -1 for those above all numbers."""
    return -1 if coordinate >= INF - 1 else coordinate


def plain_bound(bound: Bound) -> list[int]:
    """Bound for JSON: [-1] is everything.

    After -2 comes how far the next epoch is kept.

    >>> plain_bound((3, 7, MORE, 5))
    [3, 7, -2, 5]
    """
    return [-1] if bound[0] >= NEVER else [-2 if at == MORE else plain(at) for at in bound]


def bound_of(numbers: Sequence[int]) -> Bound:
    """Inverse of `plain_bound`, except for everything.

    >>> bound_of([3, 7, -2, 5]) == (3, 7, MORE, 5)
    True
    """
    return tuple(MORE if at == -2 else at for at in numbers)


def epoch_text(bound: Bound) -> str:
    """Bound in words.

    >>> epoch_text((3,)), epoch_text((3, 2)), epoch_text((0, 0))
    ('all before epoch 3', 'all before (3, 2)', 'nothing')
    >>> epoch_text((3, 7, MORE, 5))
    'all before (3, 7), and of epochs after that all before (4, 5)'
    """
    if not any(bound):
        return "nothing"
    if bound[0] >= NEVER:
        return "everything"
    if MORE in bound:
        first, *later = map(time_text, steps(bound))
        return f"all before {first}, and of epochs after that all before {', '.join(later)}"
    return f"all before {time_text(bound if any(bound[1:]) else bound[:1])}"


def time_text(time: Time) -> str:
    """Time in words."""
    shown = ["∞" if at < 0 or at >= INF - 1 else str(at) for at in time]
    return f"epoch {shown[0]}" if len(shown) == 1 else f"({', '.join(shown)})"


def _name(topology: Topology, flat: int) -> str:
    return f"{topology.info(flat).name!r} on worker {flat % topology.workers}"


def _place(topology: Topology, flat: int) -> dict[str, Any]:
    operator, worker = divmod(flat, topology.workers)
    return {"operator": operator, "worker": worker, "name": topology.info(flat).name}
