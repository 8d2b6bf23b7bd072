"""The questions that a page asks about single processors, and about failures that have not happened.

They are answered where the job's state is, in the monitor's own thread between two messages (`Ask`); what is expensive there
is only copied there, and computed here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from monitor.available import Available
from monitor.web.detail import operator_detail, processor_detail
from monitor.web.view import Observation
from monitor.why import why_progress, why_rollback
from recovery.protocol import Observed
from timely.errors import FalkirkError

T = TypeVar("T")


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

    def what_if(self, failed: Sequence[str]) -> Callable[[], dict[str, Any]]:
        """The answer to what would happen if these failed, to be computed elsewhere."""


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
        import asyncio

        try:
            compute = await self._ask(lambda job: job.what_if(failed))
            return await asyncio.to_thread(compute)
        except FalkirkError as error:
            raise WrongQuestion(str(error), 400) from error


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
