"""Cost of a layout's persistence for one worker, by measured rates. Pure.

State is written with each cut: of keys that come at random, those that came since the cut before. Logs and histories are
written as records pass. A layout is that of the job, or one that its program would have with other policies: then its
processors are those of the job by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import expm1

from monitor.explain.measured import Rates
from recovery.checkpoint.checkpoints import MOST_EVENTS
from recovery.layout import GroupInfo, Layout
from recovery.store.journal import PLACE

HEAD_BYTES = 48
"""Bytes of a logged message or an event, beside its batch and its place."""

_CHECKPOINT_BYTES = 200.0
_CHECKPOINT_SECONDS, _SEGMENT_SECONDS, _BYTE_SECONDS = 50e-6, 300e-6, 5e-9
"""Processor seconds of a checkpoint, a segment and a byte, by default.

They are used until some were measured."""
_DURABLE_SECONDS = 0.02
_MOST_CUTS = 200.0


@dataclass
class Persistence:
    """Cost of one worker a second: bytes by kind, checkpoints and segments.

    `unknown`: what could not be known, in words.
    """

    heads: float = 0.0
    state: float = 0.0
    logs: float = 0.0
    events: float = 0.0
    checkpoints: float = 0.0
    segments: float = 0.0
    unknown: set[str] = field(default_factory=set)

    @property
    def size(self) -> float:
        """Bytes of all kinds."""
        return self.heads + self.state + self.logs + self.events

    def seconds(self, rates: Rates) -> float:
        """Processor seconds a second, by the measured rates."""
        each = _BYTE_SECONDS if rates.encoding is None else rates.encoding
        made = float(rates.written["checkpoints"].sum())
        written = sum(float(rates.written[kind].sum()) for kind in ("state", "logs", "events"))
        checkpoint = max((rates.saving - each * written) / made, 0.0) if made else _CHECKPOINT_SECONDS
        segment = rates.storing / rates.segments if rates.segments else _SEGMENT_SECONDS
        return each * (self.size - self.heads) + checkpoint * self.checkpoints + segment * self.segments


def places(layout: Layout, measured: Layout) -> list[int | None]:
    """Place of each processor of `layout` in the `measured` one; None: it is new.

    A gate that the job has not is what comes behind it.
    """
    known = {name: p for p, info in enumerate(measured.processors) for name in (info.name, *info.members)}
    found = [
        None
        if info.kind == "gate"
        else next((known[name] for name in (info.name, *info.members) if name in known), None)
        for info in layout.processors
    ]
    for edge in reversed(layout.edges):
        if layout.processors[edge.source].kind == "gate":
            found[edge.source] = found[edge.target]
    return found


def cuts_a_second(group: GroupInfo, rates: Rates) -> float:
    """Cuts of a group a second."""
    if group.eager:
        return min(rates.epochs, 1 / max(lag(rates), 1 / _MOST_CUTS))
    found = [1 / group.seconds] if group.seconds is not None else []
    if group.epochs is not None:
        found.append(rates.epochs / group.epochs)
    return min(max(found, default=0.0), rates.epochs or _MOST_CUTS, _MOST_CUTS)


def lag(rates: Rates) -> float:
    """Seconds from a cut until it is durable."""
    return _DURABLE_SECONDS if rates.durable is None else rates.durable


def persistence(layout: Layout, of: Sequence[int | None], measured: Layout, rates: Rates) -> Persistence:
    """Cost of `layout` for a worker of the measured job.

    `of`: as by `places`.
    """
    return _Priced(layout, of, measured, rates).cost()


class _Priced:
    def __init__(self, layout: Layout, of: Sequence[int | None], measured: Layout, rates: Rates) -> None:
        self.layout, self.of, self.measured, self.rates = layout, of, measured, rates
        self.found = Persistence()
        self.logged = [_logged(plan) for plan in (layout, measured)]

    def cost(self) -> Persistence:
        rates, found = self.rates, self.found
        made = float(rates.written["checkpoints"].sum())
        head = float(rates.written["heads"].sum()) / made if made else _CHECKPOINT_BYTES
        cuts = [cuts_a_second(group, rates) for group in self.layout.groups]
        used = set()
        for p, info in enumerate(self.layout.processors):
            if info.chain and cuts[info.group]:
                used.add(info.group)
                found.checkpoints += cuts[info.group]
                found.heads += head * cuts[info.group]
                found.state += self._state(p, cuts[info.group])
            if info.history:
                found.events += self._events(p)
            found.logs += self._logs(p)
        found.segments = min(sum(cuts[group] for group in used), 1 / max(lag(rates), 1 / _MOST_CUTS))
        return found

    def _state(self, p: int, cuts: float) -> float:
        """Bytes of state a second, with so many cuts."""
        info, q, rates = self.layout.processors[p], self.of[p], self.rates
        if q is None or info.kind == "gate":
            return 0.0
        taken, rows = float(rates.taken[q]), float(rates.rows[q])
        made, written = float(rates.written["checkpoints"][q]), float(rates.written["state"][q])
        each = float(rates.sizes[q]) / rows if rows else 0.0
        samples = made > 0 and not self.measured.processors[q].history
        if samples:
            each = written / (_touched(1 / made, taken, rows, info.role) * made)
        if info.history:  # state takes the place of so many events
            return each * rows * float(rates.written["batches"][q]) / MOST_EVENTS
        if not samples and (not info.state or info.role != "operator"):
            return 0.0
        return each * _touched(1 / cuts, taken, rows, info.role) * cuts

    def _logs(self, p: int) -> float:
        """Bytes of logs a second, of a processor's output."""
        q, rates = self.of[p], self.rates
        (mine, theirs) = self.logged
        if q is None or not mine[p]:
            return 0.0
        known = float(rates.written["logs"][q])
        if known and len(mine[p]) == len(theirs[q]) and self.layout.processors[p].kind != "gate":
            return known
        return sum(self._passing(source, port, spread) for source, port, spread in self._behind(p, mine[p]))

    def _behind(self, p: int, ports: Sequence[tuple[int, bool]]) -> list[tuple[int | None, int, bool]]:
        """Measured port of each logged edge: of a gate that of what it holds."""
        if self.layout.processors[p].kind != "gate":
            return [(self.of[p], port, spread) for port, spread in ports]
        into = next((edge for edge in self.layout.edges if edge.target == p), None)
        return [] if into is None else [(self.of[into.source], into.port, spread) for _, spread in ports]

    def _passing(self, q: int | None, port: int, spread: bool) -> float:
        """Bytes a second of a port's records, in the form of a log."""
        if q is None:
            return 0.0
        records, batches, size = self.rates.sent.get((q, port), (0.0, 0.0, None))
        if size is None:
            if records:
                self.found.unknown.add(
                    f"the size of what {self.measured.processors[q].name!r} sends is not measured yet"
                )
            return 0.0
        if size < 0:
            self.found.unknown.add(
                f"what {self.measured.processors[q].name!r} sends cannot be saved: the job would fail"
            )
            return 0.0
        messages = min(records, batches * self.layout.workers) if spread else batches
        return records * size + messages * (HEAD_BYTES + PLACE)

    def _events(self, p: int) -> float:
        """Bytes of a history a second."""
        q, rates = self.of[p], self.rates
        if q is None:
            return 0.0
        if known := float(rates.written["events"][q]):
            return known
        into = [edge for edge in self.layout.edges if edge.target == p]
        passing = sum(self._passing(self.of[edge.source], edge.port, edge.spread) for edge in into)
        return passing + rates.epochs * (HEAD_BYTES + PLACE)


def _logged(layout: Layout) -> list[list[tuple[int, bool]]]:
    """Ports of each processor's logged edges, with whether they lead to all workers."""
    found: list[list[tuple[int, bool]]] = [[] for _ in layout.processors]
    for edge in layout.edges:
        if edge.logged:
            found[edge.source].append((edge.port, edge.spread and layout.workers > 1))
    return found


def _touched(seconds: float, taken: float, rows: float, role: str) -> float:
    """Rows changed within `seconds`, for randomly arriving keys.

    What a sink holds is new each time.
    """
    if role != "operator" or not rows:
        return max(taken * seconds, 1e-9)
    return max(-rows * expm1(-taken * seconds / rows), 1e-9)
