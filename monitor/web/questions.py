"""The questions that a page asks about single processors, and about failures that have not happened.

They are answered where the job's state is, in the monitor's own thread between two messages (`Ask`); what is expensive there
is only copied there, and computed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from monitor.available import Available
from monitor.effects import Answer
from monitor.web.detail import operator_detail, processor_detail
from monitor.web.view import Observation
from monitor.why import plain_bound, why_progress, why_rollback
from recovery.protocol import Observed
from timely.errors import FalkirkError

T = TypeVar("T")

Done = Callable[[Answer | str], None]

_PATIENCE_SECONDS = 15.0


class JobState(Protocol):
    """What can be known of a job, running or not."""

    @property
    def available(self) -> Available | None:
        """What every processor can be restored to; None as long as no worker has joined."""

    @property
    def told(self) -> dict[int, tuple[float, Observed]]:
        """What each worker has said last of how it is doing, and when."""

    def observe(self) -> Observation | None:
        """The job as it is now; None as long as no worker has joined."""

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """What would happen if these failed? `done` is called with the answer, or with why there is none."""


class Ask(Protocol):
    """Has a question answered where the job's state is."""

    def __call__(self, question: Callable[[JobState], T]) -> Awaitable[T]:
        """The answer. Raises what the question raises."""


class WrongQuestion(FalkirkError):
    """There is no such processor, or nothing is known yet. `status` is that of HTTP."""

    def __init__(self, text: str, status: int = 404) -> None:
        super().__init__(text)
        self.status = status


class Questions:
    """See the module."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def observation(self) -> Observation | None:
        """The job as it is now."""
        return await self._ask(lambda job: job.observe())

    async def operator(self, operator: int) -> dict[str, Any]:
        """One operator on all workers."""
        return await self._ask(lambda job: operator_detail(_known(job, operator, 0), job.told, operator))

    async def processor(self, operator: int, worker: int) -> dict[str, Any]:
        """One processor: F*(p), Ξ, what it holds."""
        return await self._ask(lambda job: processor_detail(_known(job, operator, worker), job.told, operator, worker))

    async def why(self, operator: int, worker: int) -> dict[str, Any]:
        """What holds its two frontiers back."""

        def answer(job: JobState) -> dict[str, Any]:
            available = _known(job, operator, worker)
            flat = available.topology.flat(operator, worker)
            reports = {index: told for index, (_, told) in job.told.items()}
            return {
                "rollback": why_rollback(available, flat).as_json(available.topology),
                "progress": why_progress(available.topology, reports, flat),
            }

        return await self._ask(answer)

    async def whatif(self, failed: Sequence[str]) -> dict[str, Any]:
        """Where everything would roll back to."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer | str] = loop.create_future()

        def done(answer: Answer | str) -> None:
            loop.call_soon_threadsafe(_settle, future, answer)

        try:
            await self._ask(lambda job: job.what_if(failed, done))
        except WrongQuestion:
            raise
        except FalkirkError as error:
            raise WrongQuestion(str(error), 400) from error
        answer = await asyncio.wait_for(future, _PATIENCE_SECONDS)
        if isinstance(answer, str):
            raise WrongQuestion(answer, 503)
        return await asyncio.to_thread(answer_as_json, answer)


def _known(job: JobState, operator: int, worker: int) -> Available:
    available = job.available
    if available is None:
        raise WrongQuestion("no worker has joined yet", 503)
    layout = available.layout
    if not 0 <= operator < len(layout.processors) or not 0 <= worker < layout.workers:
        raise WrongQuestion(
            f"there is no operator {operator} on worker {worker}: there are {len(layout.processors)} operators, from 0 on, on "
            f"{layout.workers} worker(s)"
        )
    return available


def _settle(future: asyncio.Future[Answer | str], answer: Answer | str) -> None:
    if not future.done():
        future.set_result(answer)


def answer_as_json(answer: Answer) -> dict[str, Any]:
    """What a failure would do, as the page and the command line get it."""
    redone = None
    if answer.redone is not None:
        parts = [part for of_worker in answer.redone for part in of_worker]
        redone = {
            "records": sum(part.records for part in parts),
            "seconds": sum(part.seconds for part in parts),
            "epochs": max((part.epochs for part in parts), default=0),
        }
    return {
        "processors": [
            {"operator": p, "worker": w, "to": None if bound is None else plain_bound(bound), "keeps": bound is None}
            for w, bounds in enumerate(answer.bounds)
            for p, bound in enumerate(bounds)
        ],
        "resent": [
            {"edge": part.edge, "from": w, "to": part.receiver, "messages": part.messages, "bytes": part.bytes}
            for w, parts in enumerate(answer.resent)
            for part in parts
        ],
        "redone": redone,
    }
