"""Samples of the members of fused chains: records taken and time spent by each.

Two readings of the clock a member and batch are dear where batches are small. So chains under close observation are measured in
one of `_PARTS` parts of the time, and each sample stands for the gap before it, too. Others are not measured at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from recovery.protocol import Member
from timely.operators.stateless import Measured, Stateless
from timely.worker.worker import Worker

_SECONDS, _PARTS = 0.03, 10
"""Length of a sample in seconds, and how many of them would be without gaps."""


class MemberSamples:
    """Samples of one worker's chains; `clock` in seconds."""

    def __init__(self, worker: Worker, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._clock = clock
        self._now: dict[int, list[Measured]] = {}
        """Chains measured at present, by processor."""
        self._past: dict[int, list[list[float]]] = {}
        """Estimates of past samples: records and seconds of each member."""
        self._wanted: frozenset[int] = frozenset()
        self._from = self._due = 0.0
        """Beginning of the gap before the present or next sample, and next change."""
        self._began = 0.0

    def want(self, processors: Collection[int]) -> None:
        """Measure the chains among `processors` from now on, and no others."""
        runtimes = self._worker.runtimes
        wanted = frozenset(p for p in processors if 0 <= p < len(runtimes) and len(runtimes[p].processor.nodes) > 1)
        if wanted != self._wanted:
            now = self._clock()
            self._end(now)
            self._wanted = frozenset(p for p in wanted if isinstance(runtimes[p].operator, Stateless))
            self._past = {p: past for p, past in self._past.items() if p in self._wanted}
            self._from = now
            self._begin(now)

    def turn(self) -> None:
        """Begin or end a sample after a turn of the worker, if that is due."""
        if self._wanted and (now := self._clock()) >= self._due:
            if self._now:
                self._end(now)
                self._from, self._due = now, now + (_PARTS - 1) * _SECONDS
            else:
                self._begin(now)

    def members(self, processor: int) -> tuple[Member, ...]:
        """Members of a chain, with estimates of all that they did while it was wanted."""
        chain = self._worker.runtimes[processor].operator
        names = chain.steps if isinstance(chain, Stateless) else ()
        return tuple(
            Member(processor, ", ".join(stage.name for stage in stages), round(taken), round(seconds * 1e6))
            for stages, (taken, seconds) in zip(names, self._past.get(processor, ()))
        )

    def _begin(self, now: float) -> None:
        self._began, self._due = now, now + _SECONDS
        for p in self._wanted:
            operator = self._worker.runtimes[p].operator
            if isinstance(operator, Stateless):
                self._now[p] = operator.measure(self._clock)

    def _end(self, now: float) -> None:
        stands_for = (now - self._from) / max(now - self._began, 1e-6)
        for p, steps in self._now.items():
            operator = self._worker.runtimes[p].operator
            if isinstance(operator, Stateless):
                operator.measure(None)
            past = self._past.setdefault(p, [[0.0, 0.0] for _ in steps])
            for sums, step in zip(past, steps):
                sums[0] += step.taken * stands_for
                sums[1] += step.seconds * stands_for
        self._now.clear()
