"""Questions of a page about single processors and supposed failures.

They are answered where the job's state is, between two messages of the job, and travel there as data: what asks, and serves
strangers, is another process. An answer is JSON, made there. A question that fails is answered too; nothing else fails by it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from monitor.coordination.effects import Answer
from monitor.coordination.options import Options
from monitor.explain.why import plain_bound, why_progress, why_rollback
from monitor.web.detail import operator_detail, processes, processor_detail
from monitor.web.spacetime import kept_times, restart_now
from monitor.web.view import Observation
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import Observed
from timely.errors import FalkirkError

Done = Callable[[Answer | str], None]


class OfJob(msgspec.Struct, tag=True, frozen=True):
    """Question: publish the job as it is now; the answer is empty."""


class OfOperator(msgspec.Struct, tag=True, frozen=True):
    """Question: one operator on all workers."""

    operator: int


class OfProcessor(msgspec.Struct, tag=True, frozen=True):
    """Question: one processor, with F*(p), Ξ and its numbers."""

    operator: int
    worker: int


class Why(msgspec.Struct, tag=True, frozen=True):
    """Question: holders of a processor's two frontiers.

    `epoch`: one that is to be kept for good; None for the next bound.
    """

    operator: int
    worker: int
    epoch: int | None = None


class WhatIf(msgspec.Struct, tag=True, frozen=True):
    """Question: rollback frontiers of everything, if these failed."""

    failed: tuple[str, ...]


class IfPolicies(msgspec.Struct, tag=True, frozen=True):
    """Question: exposure and cost of the job with other policies, by region.

    The answer is JSON; with `plan` it is the layout, as MessagePack.
    """

    policies: dict[str, str]
    plan: bool = False


class OfTimes(msgspec.Struct, tag=True, frozen=True):
    """Question: kept times of every processor, as `KeptTimes`."""


class OfRestart(msgspec.Struct, tag=True, frozen=True):
    """Question: rollback frontiers of a restart now, as `Restart`."""


class OfProcesses(msgspec.Struct, tag=True, frozen=True):
    """Question: processes of the workers, and settings of the job."""


class Act(msgspec.Struct, tag=True, frozen=True):
    """Order of a reader: one of `ACTS`; `worker` and `copy` for a restart."""

    what: str
    worker: int = -1
    copy: int = 0


OVER_POLICIES = (
    "the job does not run, so nobody has its program: ask what another policy would change while it runs, of that moment or of "
    "one before"
)

ACTS = ("stop", "checkpoint", "restart")

Question: TypeAlias = (
    OfJob | OfOperator | OfProcessor | Why | WhatIf | IfPolicies | OfTimes | OfRestart | OfProcesses | Act
)


class JobState(Protocol):
    """Job seen by its page, running or not."""

    @property
    def options(self) -> Options | None:
        """Options of every processor; None as long as no worker has joined."""

    @property
    def samples(self) -> dict[int, tuple[float, Observed]]:
        """Last observation of each worker, and its time."""

    def observe(self) -> Observation | None:
        """Job as it is now; None as long as no worker has joined."""

    @property
    def settings(self) -> dict[str, str]:
        """Effective options of the job, without secrets."""

    def act(self, what: str, place: Place) -> str:
        """Carry out an order; returns the outcome in words, or raises WrongQuestion."""

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """Ask for the consequences if these failed.

        `done` is called with the answer, or with why there is none.
        """

    def if_policies(self, policies: Mapping[str, str], done: Callable[[Layout | str], None]) -> None:
        """Ask for the layout of the program with other policies, by region.

        `done` is called with it, or with why there is none. Raises WrongQuestion.
        """

    def compared(self, policies: Mapping[str, str], layout: Layout) -> dict[str, Any]:
        """Changes by these policies, by the layout that they give."""


class WrongQuestion(FalkirkError):
    """Question about an unknown processor or job; `status` is that of HTTP."""

    def __init__(self, text: str, status: int = 404) -> None:
        super().__init__(text)
        self.status = status


Reply = Callable[["bytes | WrongQuestion"], None]
"""Receiver of the answer, called once; perhaps later than the question was put."""


class Ask(Protocol):
    """Sends a question to the place of the job's state, and returns the answer."""

    def __call__(self, question: Question) -> Awaitable[bytes]:
        """Answer to the question; raise WrongQuestion."""


def answer_at_once(job: JobState, question: Question) -> bytes:
    """Answer of a job at rest, publishing nothing; raises WrongQuestion."""
    found: list[bytes | WrongQuestion] = []
    answer(job, question, found.append, lambda _: None)
    (reply,) = found
    if isinstance(reply, WrongQuestion):
        raise reply
    return reply


def answer(job: JobState, question: Question, reply: Reply, publish: Callable[[Observation], None]) -> None:
    """Answer a question about `job`; raise nothing."""
    try:
        match question:
            case OfJob():
                observation = job.observe()
                if observation is not None:
                    publish(observation)
                reply(b"null")
            case OfOperator(operator):
                reply(_json(operator_detail(_known(job, operator, 0), job.samples, operator)))
            case OfProcessor(operator, worker):
                reply(_json(processor_detail(_known(job, operator, worker), job.samples, operator, worker)))
            case Why(operator, worker, epoch):
                reply(_json(why(job, operator, worker, epoch)))
            case OfProcesses():
                reply(_json({"processes": processes(job.samples), "mates": mates(job), "settings": job.settings}))
            case Act(what, worker, copy):
                reply(_json({"text": job.act(what, Place(worker, copy))}))
            case WhatIf(failed):
                job.what_if(failed, lambda found: reply(_of_failure(found)))
            case IfPolicies(policies, plan):
                job.if_policies(policies, lambda found: reply(_of_policies(job, policies, found, plan)))
            case OfTimes():
                reply(_json(kept_times(_known(job, 0, 0))))
            case OfRestart():
                reply(_json(restart_now(_known(job, 0, 0))))
    except WrongQuestion as error:
        reply(error)
    except FalkirkError as error:
        reply(WrongQuestion(str(error), 400))
    except Exception as error:
        reply(WrongQuestion(f"this cannot be answered: {type(error).__name__}: {error}", 500))


def mates(job: JobState) -> list[dict[str, Any]]:
    """Mates of the workers as JSON; none of a job that does not run."""
    seen = job.observe()
    return [msgspec.structs.asdict(mate) for mate in seen.mates] if seen is not None and seen.live else []


def why(job: JobState, operator: int, worker: int, epoch: int | None) -> dict[str, Any]:
    """Holders of a processor's two frontiers, in words and by name."""
    options = _known(job, operator, worker)
    flat = options.topology.flat(operator, worker)
    reports = {index: samples for index, (_, samples) in job.samples.items()}
    rollback, progress = (
        why_rollback(options, flat, epoch).as_json(options.topology),
        why_progress(options.topology, reports, flat),
    )
    asker, holder = {"operator": operator, "worker": worker}, progress["culprit"]
    blamed = rollback["culprit"] and {name: rollback["culprit"][name] for name in asker}
    if blamed == asker and holder not in (None, asker) and not rollback["complete"]:
        # It has not completed what it is asked for, because of another one: that is to blame.
        rollback |= {"culprit": holder | {"name": options.layout.processors[holder["operator"]].name}}
        rollback["text"] = f"{rollback['text']} {progress['text']}"
    return {"rollback": rollback, "progress": progress}


def _of_failure(found: Answer | str) -> bytes | WrongQuestion:
    return WrongQuestion(found, 503) if isinstance(found, str) else _json(answer_as_json(found))


def _of_policies(job: JobState, policies: Mapping[str, str], found: Layout | str, plan: bool) -> bytes | WrongQuestion:
    if isinstance(found, str):
        return WrongQuestion(found, 409)
    try:
        return msgspec.msgpack.encode(found) if plan else _json(job.compared(policies, found))
    except WrongQuestion as error:
        return error
    except Exception as error:
        return WrongQuestion(f"this cannot be answered: {type(error).__name__}: {error}", 500)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _known(job: JobState, operator: int, worker: int) -> Options:
    options = job.options
    if options is None:
        raise WrongQuestion("no worker has joined yet", 503)
    layout = options.layout
    if not 0 <= operator < len(layout.processors) or not 0 <= worker < layout.workers:
        raise WrongQuestion(
            f"there is no operator {operator} on worker {worker}: there are {len(layout.processors)} operators, from 0 on, on "
            f"{layout.workers} worker(s)"
        )
    return options


def _order(bound: list[int]) -> list[float]:
    """Key of a plain bound: -1 is above all numbers."""
    return [math.inf if at == -1 else at for at in bound]


def answer_as_json(answer: Answer) -> dict[str, Any]:
    """Answer to a supposed failure as JSON, for the page and the command line.

    What is said of a worker is the least of what is said of its processors.
    """
    redone = None
    if answer.redone is not None:
        parts = [part for of_worker in answer.redone for part in of_worker]
        redone = {
            "records": sum(part.records for part in parts),
            "seconds": sum(part.seconds for part in parts),
            "epochs": max((part.epochs for part in parts), default=0),
        }
    lost = set(answer.failed)
    plain = [[None if bound is None else plain_bound(bound) for bound in bounds] for bounds in answer.bounds]
    return {
        "workers": [
            {
                "worker": w,
                "keeps": all(bound is None for bound in bounds),
                "to": min((bound for bound in bounds if bound is not None), key=_order, default=None),
                "failed": bool(bounds) and all((p, w) in lost for p in range(len(bounds))),
            }
            for w, bounds in enumerate(plain)
        ],
        "processors": [
            {"operator": p, "worker": w, "to": bound, "keeps": bound is None}
            for w, bounds in enumerate(plain)
            for p, bound in enumerate(bounds)
        ],
        "resent": [
            {"edge": part.edge, "from": w, "to": part.receiver, "messages": part.messages, "bytes": part.bytes}
            for w, parts in enumerate(answer.resent)
            for part in parts
        ],
        "redone": redone,
        "mates": [each.as_json() for each in answer.mates],
    }
