"""Figure 6 of *Falkirk Wheel*, transcribed: any time domains, any frontiers, slow and obviously right.

The production solvers are held to this one by property tests. Constraints have names, so that tests can leave one out
and see that it was needed; `violations` checks a choice against section 3.5 independently of how it was found.

Beyond the figure it has what a real system needs: ⊤ for live processors, for whom all that they have ever done counts;
C(d), what a live receiver surely holds, in place of its ⊤ on edges whose sender failed; and φ of a frontier that is none
of a history-dependent processor's own, which is φ of the largest of them within.

And it lets survivors keep what they have. Living senders hold what they sent in memory, so D̄ is what they hold no more. A
receiver that comes back may be ahead of what its sender comes back to, if its sender does not send it twice what it has.
That needs a second life like the first: f_n(p) is no longer within f(p), but within what p did or will do the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.recovery.fixed_point.times import MaximalTimes, SequenceFrontier, maximal_times, projection
from timely.time import Frontier, Summary

TimeSet: TypeAlias = Frontier | SequenceFrontier
"""The range of f and f_n; None stands for ⊤ of a live processor."""

Met: TypeAlias = Frontier | MaximalTimes | SequenceFrontier
"""M̄, N̄ or D̄."""

DISCARDED = "D̄(e, f(p)) ⊆ f(dst(e))"
HELD = "D̄(e, f(p)) ⊆ C(e) where p failed and dst(e) is live"
DELIVERED = "M̄(d, f(p)) ⊆ φ(d)(f(src(d)))"
NOTIFIED = "N̄(p, f(p)) ⊆ f_n(p)"
WITHIN = "f_n(p) ⊆ f(p)"
PROJECTED = "f_n(p) ⊆ φ(d)(f_n(src(d)))"
ALL = frozenset({DISCARDED, HELD, DELIVERED, NOTIFIED, WITHIN, PROJECTED})


@dataclass(frozen=True, slots=True)
class Option:
    """A member of F*(p), with what was recorded for it (Table 1). Edges are numbered as in the system."""

    frontier: TimeSet | None
    """None: ⊤, which a live processor offers."""
    notified: Met
    """N̄(p, f)."""
    delivered: Mapping[int, Met] = field(default_factory=dict)
    """M̄(d, f) for each in-edge on which anything was delivered."""
    discarded: Mapping[int, Met] = field(default_factory=dict)
    """D̄(e, f) for each out-edge on which anything was discarded, in the receiver's domain."""
    projected: Mapping[int, TimeSet] = field(default_factory=dict)
    """φ(e)(f) for each out-edge without a path summary."""


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor by its options, ascending and without repetitions."""

    options: Sequence[Option]
    everything: TimeSet
    """All times of its domain."""
    failed: bool = True
    held: Mapping[int, Met] = field(default_factory=dict)
    """C(d) of each in-edge of a live processor."""
    gone: Mapping[int, MaximalTimes] = field(default_factory=dict)
    """Of each out-edge on which a live processor keeps what it sent: the times of which it keeps nothing any more."""
    repeats: TimeSet | None = None
    """The times at which it will do the same again, given the same; None: ∅."""


@dataclass(frozen=True, slots=True)
class Edge:
    """From one processor to another; φ is that of the summary, or else the one that the options of the source tell."""

    source: int
    target: int
    summary: Summary | None = None
    suppressed: bool = False
    """The source does not send twice what a target that came back has."""
    anew: bool = False
    """The source sends what it does again at times that are new to the target: φ is ⊤, whatever comes back."""


@dataclass(frozen=True, slots=True)
class System:
    """All that has to be known for a decision."""

    processors: Sequence[Processor]
    edges: Sequence[Edge]
    fixed: Callable[[Summary, Frontier], Frontier] = projection
    """φ of a summary: this, or less."""

    def incoming(self, p: int) -> Iterator[tuple[int, Edge]]:
        """In_e(p)."""
        return ((d, edge) for d, edge in enumerate(self.edges) if edge.target == p)

    def outgoing(self, p: int) -> Iterator[tuple[int, Edge]]:
        """Out_e(p)."""
        return ((e, edge) for e, edge in enumerate(self.edges) if edge.source == p)

    def project(self, d: int, x: TimeSet | None) -> TimeSet:
        """φ(d)(x), for any x in the domain of the source.

        Raises ValueError if φ depends on history and no option lies within x: ∅ is always one.
        """
        edge = self.edges[d]
        if edge.anew:
            return self.processors[edge.target].everything
        if edge.summary is not None:
            if x is None:
                return self.processors[edge.target].everything
            assert isinstance(x, Frontier)
            return self.fixed(edge.summary, x)
        found: TimeSet | None = None
        for option in self.processors[edge.source].options:
            # Nothing that a processor at ⊤ sent, or will send, is taken back.
            if option.frontier is None:
                if x is None or x == self.processors[edge.source].everything:
                    found = option.projected.get(d, self.processors[edge.target].everything)
            elif within(option.frontier, x):
                found = option.projected[d]
        if found is None:
            raise ValueError(f"processor {edge.source} has no option within {x}: ∅ must be one")
        return found


@dataclass(frozen=True, slots=True)
class Choice:
    """A frontier and a notification frontier for every processor."""

    frontiers: list[TimeSet | None]
    notifications: list[TimeSet]


def within(a: Met | None, b: Met | None) -> bool:
    """True if a ⊆ b, None being ⊤."""
    if b is None:
        return True
    if a is None:
        return False
    return a <= b  # type: ignore[operator]  # sets of one domain


def both(a: TimeSet, b: TimeSet | None) -> TimeSet:
    """a ∩ b."""
    return a if b is None else a & b  # type: ignore[operator]


def fixed_with(processor: Processor, f: TimeSet) -> TimeSet:
    """The times at which nothing is ever different, if it comes back to f: those that it keeps, and does the same again."""
    return f if processor.repeats is None else f | processor.repeats  # type: ignore[operator, return-value]  # one domain


def greatest(system: System, constraints: frozenset[str] = ALL) -> Choice:
    """Figure 6: start from the largest options, and lower until nothing changes.

    `constraints` are those that are kept, for tests that leave one out. Raises ValueError if no option fits, which
    cannot be when ∅ is one of every processor.
    """
    at = [processor.options[-1] for processor in system.processors]
    notifications = [
        processor.everything if option.frontier is None else fixed_with(processor, option.frontier)
        for option, processor in zip(at, system.processors)
    ]
    if WITHIN not in constraints:
        notifications = [processor.everything for processor in system.processors]
    while True:
        frontiers = [option.frontier for option in at]
        choice = Choice(frontiers, notifications)
        new = [_largest_option(system, choice, p, constraints) for p in range(len(at))]
        new_notifications = [_largest_notification(system, choice, p, new[p], constraints) for p in range(len(at))]
        if new == at and new_notifications == notifications:
            return choice
        at, notifications = new, new_notifications


def _largest_option(system: System, now: Choice, p: int, constraints: frozenset[str]) -> Option:
    """f'(p)."""

    def fits(g: Option) -> bool:
        if not within(g.frontier, now.frontiers[p]):
            return False
        for e, edge in system.outgoing(p):
            # What p itself keeps, where the edge leads back to it, is g.
            kept = g.frontier if edge.target == p else now.frontiers[edge.target]
            if not _discards_fit(system, e, g, kept, constraints):
                return False
        for d, edge in system.incoming(p):
            has_more = DELIVERED in constraints and d in g.delivered
            if has_more and not within(g.delivered[d], _fixed_on(system, d, g, now, p)):
                return False
            heeds = constraints >= {NOTIFIED, PROJECTED}
            if heeds and not within(g.notified, system.project(d, now.notifications[edge.source])):
                return False
        return True

    fitting = [option for option in system.processors[p].options if fits(option)]
    if not fitting:
        raise ValueError(f"processor {p} has no option that fits: ∅ must be one")
    return fitting[-1]


def _fixed_on(system: System, d: int, g: Option, now: Choice, p: int) -> TimeSet:
    """The times of d that what comes back of its source fixes, or, where p may be ahead of that, what it does again."""
    edge = system.edges[d]
    if edge.suppressed and g.frontier is not None:
        return system.project(d, now.notifications[edge.source])
    return system.project(d, g.frontier if edge.source == p else now.frontiers[edge.source])


def _discards_fit(system: System, e: int, g: Option, kept: TimeSet | None, constraints: frozenset[str]) -> bool:
    if e not in g.discarded:
        return True
    edge = system.edges[e]
    if kept is None and system.processors[edge.source].failed:
        return HELD not in constraints or within(g.discarded[e], system.processors[edge.target].held[e])
    return DISCARDED not in constraints or within(lost(system, e, g), kept)


def lost(system: System, e: int, g: Option) -> Met:
    """D̄(e, g), without what a live source holds in memory, whatever it comes back to."""
    gone = system.processors[system.edges[e].source].gone
    if e not in gone:
        return g.discarded[e]
    found = g.discarded[e]
    assert not isinstance(found, SequenceFrontier)
    return gone[e] & (maximal_times(found) if isinstance(found, Frontier) else found)


def _largest_notification(system: System, now: Choice, p: int, chosen: Option, constraints: frozenset[str]) -> TimeSet:
    """f'_n(p): an intersection of frontiers is one, so the largest is that of all that it must lie within."""
    found = now.notifications[p]
    if WITHIN in constraints and chosen.frontier is not None:
        found = both(found, fixed_with(system.processors[p], chosen.frontier))
    if PROJECTED in constraints:
        for d, edge in system.incoming(p):
            found = both(found, system.project(d, now.notifications[edge.source]))
    return found


def violations(system: System, choice: Choice) -> list[str]:
    """Every constraint of section 3.5 that the choice breaks, by name, with the processor or edge. Empty: consistent."""
    found: list[str] = []
    for p, processor in enumerate(system.processors):
        f, f_n = choice.frontiers[p], choice.notifications[p]
        option = next((each for each in processor.options if each.frontier == f), None)
        if option is None:
            found.append(f"f(p) ∈ F*(p): processor {p}")
            continue
        for e, edge in system.outgoing(p):
            if e not in option.discarded:
                continue
            kept = choice.frontiers[edge.target]
            if kept is None and processor.failed:
                if not within(option.discarded[e], system.processors[edge.target].held[e]):
                    found.append(f"{HELD}: edge {e}")
            elif not within(lost(system, e, option), kept):
                found.append(f"{DISCARDED}: edge {e}")
        for d, edge in system.incoming(p):
            if d in option.delivered and not within(option.delivered[d], _fixed_on(system, d, option, choice, p)):
                found.append(f"{DELIVERED}: edge {d}")
            if not within(f_n, system.project(d, choice.notifications[edge.source])):
                found.append(f"{PROJECTED}: edge {d}")
        if f is not None and not within(f_n, fixed_with(processor, f)):
            found.append(f"{WITHIN}: processor {p}")
        if not within(option.notified, f_n):
            found.append(f"{NOTIFIED}: processor {p}")
    return found
