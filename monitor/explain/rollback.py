"""Account of a rollback: causes, phases, frontiers, and cost. Pure.

It is filled by the coordinator while the rollback goes on, and ends as one event of the timeline, so the journal has it for
the page of a job that has ended. Frontiers are grouped: processors that came from one bound and went back to one bound are
one row, so a large job needs few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from monitor.explain.exposure import Danger, Fate
from monitor.explain.why import plain_bound
from recovery.layout import Layout
from recovery.metadata import Bound, at_cut, nothing
from recovery.protocol import InMemory, Redone, Resent, Restored

MOST_ROWS = 2000
"""Most rows of frontiers, of resent messages and of redone work in one account."""

Place: TypeAlias = tuple[Bound, Bound | None]
"""Frontiers of a processor before and after; None: it stayed as it was."""


class NoAccount:
    """Account of nothing: while there is no rollback, or a job begins."""

    def failed(self, worker: int, reason: str, words: str, now: float, output: str = "") -> None:
        """Add a failure.

        `words`: the last note of the worker, if any; `output`: its last lines on standard error.
        """

    def taken_over(self, worker: int) -> None:
        """Note the take-over of a worker by its mate."""

    def began(self) -> None:
        """Start a round; reports of the one before are void."""

    def drained(self, worker: int, now: float) -> None:
        """Note the drained links of a living worker."""

    def joined(self, worker: int, now: float) -> None:
        """Note a new process in place of a dead one."""

    def gathered(self, memory: Mapping[int, Sequence[InMemory]], now: float) -> None:
        """Note the end of gathering: all have reported, and the solver has decided."""

    def decided(
        self, generation: int, bounds: tuple[tuple[Bound | None, ...], ...], failed: tuple[int, ...], now: float
    ) -> None:
        """Note the durable decision."""

    def restored(self, message: Restored, now: float) -> None:
        """Take a worker's cost."""

    def finish(self, now: float) -> dict[str, Any] | None:
        """Event of the timeline: all workers run again; None without an account."""
        return None

    def caught_up(self, upto: Sequence[tuple[Bound, ...] | None], now: float) -> dict[str, Any] | None:
        """Event of the timeline once all have completed what they had before; else None.

        `upto`: completed bounds by worker and group, now.
        """
        return None


class RollbackAccount(NoAccount):
    """Account of one rollback, from the first failure until all have caught up.

    Args:
        layout: of the job.
        upto: completed bounds by worker and group, at the failure.
        now: time of the first failure, in seconds.
        expected: cost and fate that were expected of the death of each worker.
    """

    def __init__(
        self,
        layout: Layout,
        upto: Sequence[tuple[Bound, ...] | None],
        now: float,
        expected: Mapping[int, tuple[Danger, Fate]] | None = None,
    ) -> None:
        self._expected = expected or {}
        self._layout = layout
        self._upto = tuple(upto)
        self._at = now
        self._causes: list[dict[str, Any]] = []
        self._rounds = 0
        self._drained: dict[int, float] = {}
        self._joined: dict[int, float] = {}
        self._gathered = self._decided = self._restored = now
        self._generation = 0
        self._failed: tuple[int, ...] = ()
        self._memory: dict[int, tuple[Bound, ...]] = {}
        self._bounds: tuple[tuple[Bound | None, ...], ...] = ()
        self._resent: dict[int, tuple[Resent, ...]] = {}
        self._redone: dict[int, tuple[Redone, ...]] = {}
        self._reported: dict[int, float] = {}
        self._taken: set[int] = set()
        """Failed workers, taken over by their mates."""
        self._ahead: dict[int, tuple[int, int]] = {}
        """Operators from memory loaded ahead, and pieces read, by worker."""

    def failed(self, worker: int, reason: str, words: str, now: float, output: str = "") -> None:
        """Add a failure.

        `words`: the last note of the worker, if any; `output`: its last lines on standard error.
        """
        cause = {"worker": worker, "reason": reason, "words": words, "after": now - self._at, "output": output}
        self._causes.append(cause)
        self._taken.discard(worker)

    def taken_over(self, worker: int) -> None:
        """Note the take-over of a worker by its mate."""
        self._taken.add(worker)

    def began(self) -> None:
        """Start a round; reports of the one before are void."""
        self._rounds += 1
        self._drained.clear()

    def drained(self, worker: int, now: float) -> None:
        """Note the drained links of a living worker."""
        self._drained[worker] = now - self._at

    def joined(self, worker: int, now: float) -> None:
        """Note a new process in place of a dead one."""
        self._joined[worker] = now - self._at

    def gathered(self, memory: Mapping[int, Sequence[InMemory]], now: float) -> None:
        """Note the end of gathering: all have reported, and the solver has decided."""
        self._gathered = now
        self._memory = {worker: tuple(each.upto for each in held) for worker, held in memory.items()}

    def decided(
        self, generation: int, bounds: tuple[tuple[Bound | None, ...], ...], failed: tuple[int, ...], now: float
    ) -> None:
        """Note the durable decision."""
        self._generation, self._bounds, self._failed, self._decided = generation, bounds, failed, now
        self._resent.clear()
        self._redone.clear()
        self._reported.clear()
        self._ahead.clear()

    def restored(self, message: Restored, now: float) -> None:
        """Take a worker's cost."""
        self._reported[message.place.worker] = now - self._at
        self._resent[message.place.worker] = message.resent
        self._redone[message.place.worker] = message.redone
        self._ahead[message.place.worker] = message.ahead, message.pieces

    def finish(self, now: float) -> dict[str, Any]:
        """Event of the timeline: all workers run again."""
        self._restored = now
        resent = [
            {"edge": part.edge, "from": worker, "to": part.receiver, "messages": part.messages, "bytes": part.bytes}
            for worker, parts in sorted(self._resent.items())
            for part in parts
        ]
        redone = [
            {
                "operator": part.processor,
                "worker": worker,
                "records": part.records,
                "epochs": part.epochs,
                "seconds": part.seconds,
            }
            for worker, parts in sorted(self._redone.items())
            for part in parts
        ]
        rows = grouped(self._places())
        return {
            "generation": self._generation,
            "failed": list(self._failed),
            "since": self._at,
            "causes": self._causes,
            "rounds": self._rounds,
            "phases": {
                "drain": self._gathered - self._at,
                "decide": self._decided - self._gathered,
                "restore": self._restored - self._decided,
            },
            "drained": [[worker, seconds] for worker, seconds in sorted(self._drained.items())],
            "joined": [[worker, seconds] for worker, seconds in sorted(self._joined.items())],
            "restored": [[worker, seconds] for worker, seconds in sorted(self._reported.items())],
            "mates": [[worker, *self._ahead[worker]] for worker in sorted(self._taken & self._ahead.keys())],
            "expected": self._foreseen(),
            "places": rows[:MOST_ROWS],
            "resent": resent[:MOST_ROWS],
            "redone": redone[:MOST_ROWS],
            "left_off": sum(max(0, len(rows) - MOST_ROWS) for rows in (rows, resent, redone)),
        }

    def caught_up(self, upto: Sequence[tuple[Bound, ...] | None], now: float) -> dict[str, Any] | None:
        """Event of the timeline once all have completed what they had before; else None.

        `upto`: completed bounds by worker and group, now.
        """
        for before, after in zip(self._upto, upto):
            if before is not None and (after is None or any(new < old for old, new in zip(before, after))):
                return None
        return {"generation": self._generation, "seconds": now - self._restored}

    def _foreseen(self) -> dict[str, Any] | None:
        """Expectation of this rollback; None if unknown, or of several deaths."""
        found = self._expected.get(self._failed[0]) if len(self._failed) == 1 else None
        return None if found is None else {**found[0].as_json(), "places": destinations(found[1].bounds)}

    def _places(self) -> list[list[Place]]:
        """Frontiers before and after, `[worker][processor]`."""
        found: list[list[Place]] = []
        for worker, bounds in enumerate(self._bounds):
            before = self._memory.get(worker) or self._known(worker)
            found.append(list(zip(before, bounds)))
        return found

    def _known(self, worker: int) -> tuple[Bound, ...]:
        """Last reported frontiers of a dead worker."""
        upto = self._upto[worker]
        if upto is None:
            return tuple(nothing(info.depth) for info in self._layout.processors)
        return tuple(at_cut(upto[info.group], info.depth) for info in self._layout.processors)


def grouped(places: Sequence[Sequence[Place]]) -> list[dict[str, Any]]:
    """Rows of equal frontiers: workers, and ranges of operators, ends included.

    >>> rows = grouped([[((3,), (1,)), ((3,), (1,)), ((2,), None)]] * 2)
    >>> [(row["from"], row["to"], row["workers"], row["operators"]) for row in rows]
    [([3], [1], [0, 1], [[0, 1]]), ([2], None, [0, 1], [[2, 2]])]
    """
    found: dict[tuple[Place, tuple[tuple[int, int], ...]], list[int]] = {}
    for worker, of_worker in enumerate(places):
        same: dict[Place, list[int]] = {}
        for processor, place in enumerate(of_worker):
            same.setdefault(place, []).append(processor)
        for place, processors in same.items():
            found.setdefault((place, ranges(processors)), []).append(worker)
    return [
        {
            "from": plain_bound(before),
            "to": None if after is None else plain_bound(after),
            "workers": workers,
            "operators": [list(each) for each in operators],
        }
        for ((before, after), operators), workers in found.items()
    ]


def destinations(bounds: Sequence[Sequence[Bound | None]]) -> list[dict[str, Any]]:
    """Rows of equal bounds `[worker][processor]`, as `grouped`, without those before.

    >>> destinations([[(1,), (1,), None]])
    [{'to': [1], 'workers': [0], 'operators': [[0, 1]]}, {'to': None, 'workers': [0], 'operators': [[2, 2]]}]
    """
    rows = grouped([[((0,), bound) for bound in of_worker] for of_worker in bounds])
    return [{name: row[name] for name in ("to", "workers", "operators")} for row in rows[:MOST_ROWS]]


def ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ranges of ascending numbers, ends included.

    >>> ranges([0, 1, 2, 5, 7, 8])
    ((0, 2), (5, 5), (7, 8))
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)
