"""Take-overs by mates, predicted and past, in words and as data. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from monitor.coordination.supervision import MateView
from recovery.protocol import Redone


class TakeOver(msgspec.Struct, frozen=True):
    """Predicted take-over of a worker by its mate.

    Attributes:
        worker: that would die.
        pid: process of the mate.
        epoch: first epoch that the mate's loaded state leaves out; -1: none, None: unknown.
        left: bytes in the store that it would still read.
        seconds: until all is as before, work done again included; None: not measured yet.
        without: the same if there were no mate.
        measured: False if `without` is estimated: with the mate, and the time that the mate took to load the state.
    """

    worker: int
    pid: int
    epoch: int | None
    left: int
    seconds: float | None
    without: float | None
    measured: bool

    @property
    def text(self) -> str:
        """Prediction in words.

        >>> TakeOver(1, 4711, 12, 20_000, 0.21, 1.93, True).text
        'the mate of worker 1 takes over, and reads 20 kB more: about 210 ms, and 1,930 ms without it'
        >>> TakeOver(0, 4711, None, 0, None, None, False).text
        'the mate of worker 0 takes over, and reads 0 kB more: how long that takes was not measured yet'
        """
        about = f"the mate of worker {self.worker} takes over, and reads {self.left / 1000:,.0f} kB more"
        if self.seconds is None:
            return f"{about}: how long that takes was not measured yet"
        if self.without is None:
            return f"{about}: about {self.seconds * 1000:,.0f} ms"
        other = f"{'' if self.measured else 'some '}{self.without * 1000:,.0f} ms without it"
        return f"{about}: about {self.seconds * 1000:,.0f} ms, and {other}"

    def as_json(self) -> dict[str, Any]:
        """JSON form, for the page and the command line."""
        return {**msgspec.structs.asdict(self), "text": self.text}


def take_overs(
    mates: Sequence[MateView],
    failed: Collection[int],
    redone: Sequence[Sequence[Redone]] | None,
    with_mate: float | None,
    without: float | None,
) -> tuple[TakeOver, ...]:
    """Take-overs if the workers `failed` died, of those whose mates follow them.

    Args:
        mates: as they are now.
        failed: workers that would lose all.
        redone: work of each worker done again, as answered; None: unknown.
        with_mate, without: measured seconds from a failure until all run again, by mates, and by other processes.
    """
    again = max((sum(part.seconds for part in parts) for parts in redone or ()), default=0.0)
    found = []
    for mate in mates:
        if mate.worker in failed and mate.state == "follows":
            seconds = None if with_mate is None else with_mate + again
            other = None if without is None else without + again
            if other is None and seconds is not None and mate.seconds is not None:
                other = seconds + mate.seconds
            facts = mate.worker, mate.pid, mate.epoch, mate.left
            found.append(TakeOver(*facts, seconds, other, without is not None))
    return tuple(found)


def mate_text(mate: MateView) -> str:
    """Sentence about a mate.

    >>> mate_text(MateView(1, "follows", 4711, 90_000_000, 12, 1, 20_000, 2))
    'mate of worker 1: follows up to epoch 12, 1 checkpoint behind; process 4711, 90 MB, the 2nd'
    >>> mate_text(MateView(0, "none", begun=5))
    'mate of worker 0: none, after 5 that failed: the worker goes on without'
    >>> mate_text(MateView(0, "begins"))
    'mate of worker 0: begins'
    """
    name = f"mate of worker {mate.worker}"
    if mate.state == "none":
        return f"{name}: none, after {mate.begun} that failed: the worker goes on without"
    if not mate.pid:
        return f"{name}: {mate.state}"
    upto = "" if mate.epoch is None else " the end" if mate.epoch < 0 else f" epoch {mate.epoch}"
    behind = f"{mate.behind:,} {'checkpoint' if mate.behind == 1 else 'checkpoints'} behind"
    parts = f"{mate.state}{f' up to{upto}' if upto else ''}, {behind}; process {mate.pid}, {mate.memory / 1e6:,.0f} MB"
    return f"{name}: {parts}, the {_ordinal(mate.begun)}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def taken_over(mates: Sequence[Sequence[int]]) -> str:
    """Sentence about the take-overs of a rollback.

    `mates`: (worker, operators from memory, pieces read) of each.

    >>> taken_over([(1, 8, 3)])
    'the mate of worker 1 took over: 8 operators from memory, 3 pieces read'
    >>> taken_over([])
    ''
    """
    return "; ".join(
        f"the mate of worker {worker} took over: {operators:,} {'operator' if operators == 1 else 'operators'} from memory, "
        f"{pieces:,} {'piece' if pieces == 1 else 'pieces'} read"
        for worker, operators, pieces in mates
    )
