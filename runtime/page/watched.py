"""Observations of a job in its monitor, for page and history.

Part of the monitor, beside the coordinator. While no page is open workers are asked for samples only, once a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Answer, Answered
from monitor.coordination.events import Asked
from monitor.coordination.options import Options
from monitor.coordination.records import KeptEvent
from monitor.coordination.supervision import Busy, MateView
from monitor.coordination.workers import JobPhase
from monitor.explain.exposure import Danger
from monitor.explain.mates import take_overs
from monitor.explain.measured import Window
from monitor.explain.policy import compare
from monitor.explain.verdict import OVER
from monitor.explain.what_if import targets
from monitor.web.questions import ACTS, Done, WrongQuestion
from monitor.web.view import Gone, Observation, WorkerView, counted
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import Observe, Observed, ToWorker
from runtime.page.exposing import Exposing

EVERY_SECONDS = 0.25
"""Distance of observations for an open page, in seconds."""
SECOND = 1.0
EXPOSED_SECONDS = 0.618
"""Distance of looks at exposure, in seconds.

At one second all of them would meet cuts of one second in the same state.
"""
_ASK_SECONDS = 1.0
_LEASE_SECONDS = 3.0
"""Duration of a worker's observations after one request, in seconds.

A monitor that has died sends no more requests.
"""


class WatchedJob:
    """See `monitor.web.questions.JobState`.

    Args:
        coordinator: of the job.
        ask: passes a question on to it.
        send: passes a message on to the process at a place.
        clock: gives seconds since 1970, and does not go back.
        before: events that earlier monitors have noted.
        settings: effective options of the job.
        acts: carries out an order, by its name, and says so in words.
        propose: asks for the layout of the program with other policies, by number; `proposed` gets it.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        ask: Callable[[Asked], None],
        send: Callable[[Place, ToWorker], None],
        clock: Callable[[], float],
        before: Iterable[KeptEvent] = (),
        settings: dict[str, str] | None = None,
        acts: Mapping[str, Callable[[Place], str]] | None = None,
        propose: Callable[[int, dict[str, str]], None] | None = None,
    ) -> None:
        self.settings = settings or {}
        self._acts = acts or {}
        self._propose = propose
        self._proposals: dict[int, Callable[[Layout | str], None]] = {}
        self._window = Window(coordinator.layout)
        self.coordinator = coordinator
        self.clock = clock
        self._ask = ask
        self._send = send
        self._questions: dict[int, Done] = {}
        self._asked_so_far = 0
        self._samples: dict[int, tuple[float, Observed]] = {}
        self._gone: dict[int, Gone] = {}
        self.exposing = Exposing(coordinator, before)
        self._exposure: tuple[Danger, ...] = ()
        self._exposed_at = clock()
        self._busy: dict[int, Busy] = {}
        self.mates: tuple[MateView, ...] = ()
        """Mates as last reported by the supervisor."""
        self._ask_due = float("-inf")
        self._asked: tuple[bool, tuple[int, ...]] = True, ()

    def hear(self, message: Observed) -> None:
        """Store a worker's observation, unless its process was replaced.

        One with tables of other sizes is left out, and that of a copy, which does the same work once more.
        """
        if not message.fits(len(self.coordinator.layout.processors)) or not message.place.at_work:
            return
        worker, before = message.place.worker, self._samples.get(message.place.worker)
        if before is not None and message.incarnation < before[1].incarnation:
            return
        if before is not None and message.incarnation > before[1].incarnation:
            last, gone = before[1], self._gone.get(worker, Gone(0, 0, bytes(counted(before[1].numbers).nbytes)))
            records = np.frombuffer(gone.records, np.int64) + counted(last.numbers).ravel()
            self._gone[worker] = Gone(gone.read + last.read, gone.written + last.written, records.tobytes())
        self._samples[worker] = self.clock(), message
        self._window.take({worker: self._samples[worker]})

    def expose(self) -> tuple[Danger, ...]:
        """Compute the exposure anew."""
        now = self.clock()
        followed = {mate.worker for mate in self.mates if mate.state == "follows"}
        paces = self._window.paces(now)
        self._exposure = self.exposing.look(self._samples, now - self._exposed_at, paces, followed)
        self._exposed_at = now
        return self._exposure

    def hear_busy(self, message: Busy) -> None:
        """Take the last known numbers of a worker in a long turn."""
        if message.place.at_work:
            self._busy[message.place.worker] = message

    def look(self, now: float, sampled: bool, closely: Sequence[int] = ()) -> None:
        """Ask workers for observations, in detail for those in `closely`.

        `sampled` where no page is open.
        """
        wanted = sampled, tuple(dict.fromkeys((*closely, *self.coordinator.standstill.closely)))
        if now >= self._ask_due or wanted != self._asked:
            self._ask_due, self._asked = now + _ASK_SECONDS, wanted
            every = SECOND if sampled else EVERY_SECONDS
            for status in self.coordinator.workers.at_work():
                self._send(status.place, Observe(every, _LEASE_SECONDS, wanted[1], sampled))

    def answered(self, effect: Answered) -> None:
        """Deliver the coordinator's answer to a question."""
        done = self._questions.pop(effect.number, None)
        if done is not None:
            done(effect.answer if isinstance(effect.answer, str) else self._with_mates(effect.answer))

    def _with_mates(self, answer: Answer) -> Answer:
        times, whole = self.exposing.times, len(self.coordinator.layout.processors)
        lost = Counter(worker for _, worker in answer.failed)
        failed = {worker for worker, count in lost.items() if count == whole}
        measured = times.of_takeover, times.of_other
        return replace(answer, mates=take_overs(self.mates, failed, answer.redone, *measured))

    # For questions (`monitor.web.questions.JobState`)

    @property
    def options(self) -> Options:
        return self.coordinator.options

    @property
    def samples(self) -> dict[int, tuple[float, Observed]]:
        return self._samples

    def observe(self) -> Observation:
        """Observation of the job at this moment."""
        coordinator, now = self.coordinator, self.clock()
        verdict = coordinator.judge.verdict(True, now)
        gone = "gone" if verdict.state in OVER else None
        return Observation(
            at=now,
            phase=coordinator.phase.value,
            generation=coordinator.generation,
            low=coordinator.low_watermarks,
            completed=tuple(
                None if upto is None else tuple(cut[0] for cut in upto) for upto in coordinator.options.upto
            ),
            workers=tuple(
                WorkerView(gone or status.presence.value, status.incarnation, status.failures)
                for status in coordinator.workers
            ),
            samples=dict(self._samples),
            verdict=verdict,
            read={w: (each.read, each.newest) for w, each in self._busy.items() if each.known},
            exposure=self._exposure if coordinator.phase is JobPhase.RUNNING else (),
            gone=dict(self._gone),
            mates=self.mates,
        )

    def act(self, what: str, place: Place) -> str:
        """Carry out an order of a reader."""
        act = self._acts.get(what)
        if act is None:
            raise WrongQuestion(f"an order is one of {', '.join(ACTS)}", 400)
        return act(place)

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """Ask for the consequences of failures; `done` gets the answer later."""
        places = targets(self.coordinator.layout, failed)
        self._asked_so_far += 1
        self._questions[self._asked_so_far] = done
        self._ask(Asked(self._asked_so_far, places))

    def if_policies(self, policies: Mapping[str, str], done: Callable[[Layout | str], None]) -> None:
        """Ask the process with the program; `done` gets the answer later."""
        if self._propose is None:
            raise WrongQuestion("nobody here has the program", 503)
        self._asked_so_far += 1
        self._proposals[self._asked_so_far] = done
        self._propose(self._asked_so_far, dict(policies))

    def proposed(self, number: int, found: Layout | str) -> None:
        """Deliver a layout, or why there is none."""
        done = self._proposals.pop(number, None)
        if done is not None:
            done(found)

    def compared(self, policies: Mapping[str, str], layout: Layout) -> dict[str, Any]:
        """Changes by these policies, by rates of the last half minute."""
        leads = self.coordinator
        samples = {w: sample for w, (_, sample) in self._samples.items() if sample.generation == leads.generation}
        return compare(policies, layout, leads.options, samples, self._window.rates(), self._exposure)
