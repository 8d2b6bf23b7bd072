"""Supposed failures: the fixed point's answer, without a real failure.

A question is a round of rollback that stops before the decision: the living say what they hold, without pausing; the same
solver decides; everybody says what it would have to do. The answer is right for the moment at which it was asked. Like a
round, it needs the whole job: while a worker is being replaced there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from monitor.coordination.effects import Answer, Answered, Effect, Send
from monitor.coordination.options import Options
from recovery.epoch_ends import KnownEnds
from recovery.errors import NoSolutionError, ReportError
from recovery.layout import Layout
from recovery.metadata import Bound
from recovery.place import places
from recovery.protocol import AskCost, AskMemory, Cost, CurrentMemory, InMemory, Unanswered
from timely.errors import FalkirkError

PATIENCE_SECONDS = 5.0
"""Seconds to wait for answers, as workers answer between turns.

One turn may be a long user function.
"""


@dataclass(slots=True)
class _Question:
    options: Options
    failed: tuple[tuple[int, int], ...]
    due: float
    memory: dict[int, tuple[InMemory, ...]] = field(default_factory=dict)
    known: KnownEnds = field(default_factory=KnownEnds)
    bounds: tuple[tuple[Bound | None, ...], ...] | None = None
    supposed: dict[int, Cost] = field(default_factory=dict)


class OpenQuestions:
    """Questions in progress; each method returns the effects to carry out."""

    def __init__(self) -> None:
        self._open: dict[int, _Question] = {}

    def ask(self, number: int, options: Options, failed: Iterable[tuple[int, int]], now: float) -> list[Effect]:
        """Start a question: consequences if processors, as (processor, worker), failed.

        They would lose their memory. It is answered as `number`.
        """
        self._open[number] = _Question(options, tuple(sorted(set(failed))), now + PATIENCE_SECONDS)
        return _to_all(options, AskMemory(number))

    def hear(self, message: CurrentMemory | Cost | Unanswered) -> list[Effect]:
        """Take a worker's answer; errors fail the question only."""
        question = self._open.get(message.question)
        if question is None:
            return []
        try:
            return self._take(question, message)
        except Exception as error:
            return self._answer(message.question, f"the question cannot be answered: {type(error).__name__}: {error}")

    def _take(self, question: _Question, message: CurrentMemory | Cost | Unanswered) -> list[Effect]:
        if isinstance(message, Unanswered):
            return self._answer(message.question, f"{message.place} cannot answer: {message.reason}")
        workers = question.options.layout.workers
        if isinstance(message, CurrentMemory):
            try:
                question.options.memory(message.place.worker, message.memory, message.ends)
            except ReportError as error:
                return self._answer(message.question, f"{message.place} does not answer as it should: {error}")
            question.memory[message.place.worker] = message.memory
            for each in message.ends:
                question.known.hear(each)
            if len(question.memory) == workers and question.bounds is None:
                return self._solve(message.question, question)
        elif question.bounds is not None:
            question.supposed[message.place.worker] = message
            if len(question.supposed) == workers:
                reported = [question.supposed[worker] for worker in range(workers)]
                resent = tuple(each.resent for each in reported)
                redone = tuple(each.redone for each in reported)
                return self._answer(message.question, Answer(question.failed, question.bounds, resent, redone))
        return []

    def tick(self, now: float) -> list[Effect]:
        """Give up overdue questions."""
        effects: list[Effect] = []
        for number, question in list(self._open.items()):
            if now >= question.due:
                there = question.memory if question.bounds is None else question.supposed
                silent = ", ".join(str(w) for w in range(question.options.layout.workers) if w not in there)
                text = f"worker {silent} is busy with a long step, and does not answer: ask again"
                effects += self._answer(number, text)
        return effects

    def give_up(self, reason: str) -> list[Effect]:
        """Give up all questions: the job they are about has ended or changed."""
        return [effect for number in list(self._open) for effect in self._answer(number, reason)]

    def _solve(self, number: int, question: _Question) -> list[Effect]:
        try:
            question.bounds = question.options.decide(question.memory, question.failed, question.known)
        except NoSolutionError as error:
            return self._answer(number, str(error))
        failed: list[list[int]] = [[] for _ in range(question.options.layout.workers)]
        for processor, worker in question.failed:
            failed[worker].append(processor)
        return _to_all(question.options, AskCost(number, question.bounds, tuple(map(tuple, failed))))

    def _answer(self, number: int, answer: Answer | str) -> list[Effect]:
        del self._open[number]
        return [Answered(number, answer)]


def _to_all(options: Options, message: AskMemory | AskCost) -> list[Effect]:
    return [Send(place, message) for place in places(options.layout.workers)]


def restart(options: Options) -> Answer:
    """Rollback frontiers of a restart of an ended job, from its stores.

    Raises NoSolutionError if what was promised to be kept cannot be.
    """
    layout = options.layout
    everything = tuple((p, w) for p in range(len(layout.processors)) for w in range(layout.workers))
    return Answer(everything, options.decide({}))


def targets(layout: Layout, names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Processors named by a question, as (processor, worker).

    `worker:1` is all of worker 1; `count@1` operator "count" there, and `count` that operator on every worker. What comes after
    `operator:` is the name of one, whatever stands in it; so is a name that one has.

    Raises FalkirkError for a name that is nothing of this job.
    """
    found: set[tuple[int, int]] = set()
    named: dict[str, list[int]] = {}
    for p, info in enumerate(layout.processors):
        named.setdefault(info.name, []).append(p)
    for name in names:
        exact = name.removeprefix("operator:")
        if exact in named and (exact != name or not name.startswith("worker:")):
            found.update((p, w) for p in named[exact] for w in range(layout.workers))
            continue
        kind, _, number = name.partition(":")
        operator, at, worker = name.rpartition("@")
        if kind == "worker" and number:
            found.update((p, _worker(layout, number, name)) for p in range(len(layout.processors)))
            continue
        workers: Iterable[int] = range(layout.workers)
        if at and _is_number(worker):
            workers = [_worker(layout, worker, name)]
        else:
            operator = name
        processors = named.get(operator.removeprefix("operator:"), [])
        if not processors:
            known = ", ".join(info.name for info in layout.processors)
            raise FalkirkError(
                f"{name!r} is neither a worker (worker:1) nor an operator of this job; those are: {known}"
            )
        found.update((p, w) for p in processors for w in workers)
    return tuple(sorted(found))


def _worker(layout: Layout, number: str, name: str) -> int:
    if not _is_number(number) or int(number) >= layout.workers:
        raise FalkirkError(f"{name!r}: the workers of this job are numbered 0 to {layout.workers - 1}")
    return int(number)


def _is_number(text: str) -> bool:
    """True if this is the number of a worker, in ASCII digits."""
    return text.isascii() and text.isdigit() and len(text) < 10
