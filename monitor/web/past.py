"""Job at a moment of its history: the answers of a page about the past. Pure.

A moment is known in one of two ways. Of the last minutes there are full observations: then its view is what the page showed.
Else there is its frame: the least frontiers, rates and sizes of each operator over all workers, and totals of each worker.
Whatever neither has is None: unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from monitor.coordination.options import Options
from monitor.explain.measured import Window
from monitor.explain.policy import compare
from monitor.explain.verdict import OVER, Occurrence
from monitor.explain.what_if import restart, targets
from monitor.history.archive import NEAR, Archive, Gone, Moment
from monitor.history.frames import OPERATOR, PRESENCES, WORKER, Frame
from monitor.history.scales import COUNT, ENDED, RATE, SHARE, SIZE, UNKNOWN
from monitor.web.fold import Folding
from monitor.web.questions import OVER_POLICIES, Done, Question, WhatIf, Why, WrongQuestion, answer_at_once, why
from monitor.web.recent_events import MOST_EVENTS, ROUTINE
from monitor.web.view import Observation, Row, View
from recovery.errors import NoSolutionError
from recovery.layout import Layout
from recovery.metadata import NEVER
from recovery.place import Place
from recovery.protocol import END, Observed

Table = npt.NDArray[np.int64]

RESTART_ONLY = (
    "Of a moment of the past only the options are recorded, not what workers held in memory. So this is the answer for a "
    "restart of all workers at that moment, whichever are marked; survivors could have kept more."
)
"""Limit of supposed failures in the past, in words."""

COMPARED = ("progress", "low", "lag", "unsafe", "rate", "busy", "bytes")
"""Fields of an operator in a comparison of two moments.

Epochs, -1 for the end and -2 for unknown; epochs behind the newest; records a second; share of one worker's time; bytes.
"""

MOST_SECONDS = 600
"""Most seconds searched for holders of an epoch."""

_PAST = {name: number for number, name in enumerate(OPERATOR)}
_OF_WORKER = {name: number for number, name in enumerate(WORKER)}
_NOT_KNOWN = -2
_MOVES = frozenset(("moves", "stuck", "failure", "restored", *OVER, "began", "error", "finished"))
"""Kinds of events at the end of a standstill."""


def epochs(frame: Frame, field: str) -> Table:
    """Epoch of each operator by `lag` (progress) or `unsafe` (low-watermark).

    END: nothing comes any more; -2: unknown.
    """
    codes = frame.operators[_PAST[field]]
    top = frame.number("top") or 0
    found = np.where(codes >= ENDED, 0, COUNT.decode(np.minimum(codes, ENDED - 1))).astype(np.int64)
    return np.where(codes == ENDED, END, np.where(codes == UNKNOWN, _NOT_KNOWN, np.maximum(top - found, 0)))


def furthest_behind(layout: Layout, progress: Table) -> list[int]:
    """Operators holding the job: furthest behind, with inputs further ahead.

    Args:
        progress: epoch of each operator; END where nothing comes any more, negative where unknown.
    """
    known = progress[(progress >= 0) & (progress < END)]
    if not known.size or int(known.min()) >= int(progress.max()):
        return []
    least = progress == known.min()
    held = np.zeros_like(least)
    for edge in layout.edges:
        if least[edge.source] and not edge.feedback:
            held[edge.target] = True
    first = np.flatnonzero(least & ~held)
    return [int(p) for p in (first if first.size else np.flatnonzero(least))]


def halts(events: Sequence[Occurrence]) -> list[tuple[float, float, int]]:
    """Standstills of a timeline: beginning, end, processor; times in seconds.

    A standstill begins before it is noticed, as its event says.
    """
    found: list[tuple[float, float, int]] = []
    for event in events:
        if found and found[-1][1] == inf and event.kind in _MOVES:
            found[-1] = found[-1][0], event.at, found[-1][2]
        if event.kind == "stuck":
            found.append((event.at - event.data["seconds"], inf, event.data["processor"]))
    return [halt for halt in found if halt[2] >= 0]


def holders(layout: Layout, frame: Frame, known: Sequence[tuple[float, float, int]]) -> list[int]:
    """Operators holding the job in a second: of a standstill, else furthest behind."""
    halted = [processor for since, until, processor in known if since <= frame.at / 1000 < until]
    return halted or furthest_behind(layout, epochs(frame, "lag"))


def totals_of(frame: Frame) -> dict[str, Any]:
    """Totals of the job by its frame; see `View.totals`."""
    number, of = frame.number, frame.workers
    scaled = {name: number(name) for name in ("p50", "p99", "covered")}
    ages = of[_OF_WORKER["age"]]
    return {
        **{name: number(name) for name in ("newest", "slowest", "open", "low", "read", "written", "rate")},
        "p50": None if scaled["p50"] is None else scaled["p50"] / 10_000,
        "p99": None if scaled["p99"] is None else scaled["p99"] / 10_000,
        "covered": None if scaled["covered"] is None else scaled["covered"] / 1000,
        **{name: int(SIZE.decode(of[_OF_WORKER[name]]).sum()) for name in ("state", "logged", "kept")},
        "age": None if (ages == UNKNOWN).any() or not ages.size else float(COUNT.decode(ages).max()),
    }


class PastJob:
    """Job at a moment; see `monitor.web.questions.JobState`.

    Args:
        moment: of its history.
        seen: full observations until then; none if they are deleted.
    """

    def __init__(self, moment: Moment, seen: Sequence[Observation] = ()) -> None:
        self.moment = moment
        self.layout = moment.layout
        self.frame = moment.frame
        self.verdict = moment.verdict()
        self._view: View | None = None
        self._window = Window(self.layout)
        for each in seen:
            self._window.take(each.samples)
        if seen and abs(seen[-1].at * 1000 - self.frame.at) < NEAR:
            self._view = View(self.layout)
            for each in seen:
                self._view.update(each)
        self.samples: dict[int, tuple[float, Observed]] = dict(seen[-1].samples) if self._view is not None else {}

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the job: not recorded."""
        return {}

    @property
    def options(self) -> Options | None:
        """Options of the moment. Raises WrongQuestion if they are not recorded."""
        if self.moment.options is None:
            raise WrongQuestion("what could be restored at that moment is not recorded, or is damaged")
        return self.moment.options

    def observe(self) -> Observation | None:
        """Observation of the second, if it is kept in full."""
        return None if self._view is None else self._view.observation

    def what_if(self, failed: Sequence[str], done: Done) -> None:
        """Rollback frontiers of a restart at the moment.

        All workers are without memory, whichever are named.
        """
        targets(self.layout, failed)
        options = self.options
        assert options is not None
        try:
            done(restart(options))
        except NoSolutionError as error:
            raise WrongQuestion(str(error), 409) from error

    def if_policies(self, policies: Mapping[str, str], done: Callable[[Layout | str], None]) -> None:
        """Refuse the question: the page asks the running job for the layout."""
        raise WrongQuestion(OVER_POLICIES, 503)

    def compared(self, policies: Mapping[str, str], layout: Layout) -> dict[str, Any]:
        """Changes by these policies then, by rates of the half minute before."""
        options = self.options
        assert options is not None
        samples = {w: reported for w, (_, reported) in self.samples.items()}
        seen = self.observe()
        return compare(
            policies, layout, options, samples, self._window.rates(), seen.exposure if seen is not None else ()
        )

    # ------------------------------------------------------------------------------------------ what is shown

    @property
    def holds(self) -> list[int]:
        """Operators holding the job then; see `holders`."""
        if not self.moment.running:
            return []
        return holders(self.layout, self.frame, halts(self.moment.events))

    def totals(self) -> dict[str, Any]:
        """Totals of the job then; see `View.totals`."""
        found = totals_of(self.frame)
        if self._view is not None:
            found = self._view.totals() | {"read": found["read"], "written": found["written"]}
        if not self.moment.running:
            found |= dict.fromkeys(("rate", "p50", "p99", "state", "kept", "covered", "age"))
        return found

    def workers(self) -> list[list[Any]]:
        """Row for each place; see `View.workers`."""
        if self._view is not None and self.moment.running:
            return self._view.workers()
        of, top = self.frame.workers, self.frame.number("top") or 0
        lag, rate = COUNT.decode(of[_OF_WORKER["lag"]]), RATE.decode(of[_OF_WORKER["rate"]])
        busy, age = SHARE.decode(of[_OF_WORKER["busy"]]), COUNT.decode(of[_OF_WORKER["age"]])
        found = []
        for w in range(of.shape[1]):
            presence, code = int(of[_OF_WORKER["presence"], w]), int(of[_OF_WORKER["lag"], w])
            running = self.moment.running
            known = running and w < self.layout.workers  # copies have no numbers of their own
            found.append(
                [
                    "gone" if not running else PRESENCES[presence] if presence < len(PRESENCES) else "unknown",
                    int(of[_OF_WORKER["incarnation"], w]) + 256 * int(of[_OF_WORKER["incarnation_high"], w]),
                    int(of[_OF_WORKER["failures"], w]),
                    -1 if code == ENDED else None if code == UNKNOWN else max(0, top - int(lag[w])),
                    _number(rate[w]) if known else None,
                    _number(busy[w], 2) if known else None,
                    _number(age[w]) if known else None,
                ]
            )
        return found

    def rows(self, folding: Folding, bars: str) -> list[tuple[Any, ...]]:
        """Row for each drawn node; see `monitor.web.view.FIELDS`.

        None, and no bars: unknown.
        """
        if self._view is not None and self.moment.running:
            found: list[Row] = self._view.rows(folding, bars)
            return list(found)
        progress, low, inner = epochs(self.frame, "lag"), *self._lows()
        fields = self._fields()
        made = []
        for members in folding.nodes:
            at = list(members)
            least = int(low[at].min())
            of = [fields[name][at].sum() if self.moment.running else None for name in ("rate", "busy", "bytes")]
            rate, busy, size = (None if each is None or np.isnan(each) else float(each) for each in of)
            made.append(
                (
                    *(_epoch(int(progress[at].min())), 0),
                    *(_epoch(least), int(inner[at[0]]) if len(at) == 1 and 0 <= least < END else 0),
                    *(rate, None, None if busy is None else round(busy, 2)),
                    *(None, None, None, None, None if size is None else int(size), None, -2, ""),
                )
            )
        return made

    def operators(self) -> list[list[float | None]]:
        """Numbers of each operator over all workers, by COMPARED."""
        progress, (low, _), fields = epochs(self.frame, "lag"), self._lows(), self._fields()
        top = self.frame.number("top") or 0
        behind = [_behind(values, top) for values in (progress, low)]
        columns: list[list[float | None]] = [
            *behind,
            *([_number(each, 3) for each in fields[name]] for name in ("rate", "busy", "bytes")),
        ]
        epochs_of = [(_epoch(int(reached)), _epoch(int(safe))) for reached, safe in zip(progress, low)]
        return [[*both, *row] for both, row in zip(epochs_of, zip(*columns))]

    def _fields(self) -> dict[str, npt.NDArray[np.float64]]:
        of = self.frame.operators
        return {
            "rate": RATE.decode(of[_PAST["rate"]]),
            "busy": SHARE.decode(of[_PAST["busy"]]) * self.layout.workers,
            "bytes": SIZE.decode(of[_PAST["state"]]),
        }

    def _lows(self) -> tuple[Table, Table]:
        """Least low-watermark of each operator, with its second coordinate.

        Exact where options are known.
        """
        options = self.moment.options
        if options is None:
            low = epochs(self.frame, "unsafe")
            return low, np.zeros_like(low)
        least = [
            min(options.low(options.topology.flat(p, w)) for w in range(self.layout.workers))
            for p in range(len(self.layout.processors))
        ]
        low = np.array([END if bound[0] >= NEVER else bound[0] for bound in least], np.int64)
        inner = [0 if len(bound) < 2 or bound[1] >= NEVER else bound[1] for bound in least]
        return low, np.array(inner, np.int64)

    @property
    def unknown(self) -> list[str]:
        """Unknown things of the moment, in words."""
        found = []
        if not self.moment.running:
            found.append(f"the job was not running; what is shown is its last second, {_ago(self.moment.age)} before")
        elif self._view is None:
            found.append(
                "numbers of operators on each worker, and what holds their progress, are kept in full for ten minutes only; "
                "counts above 64 are exact to 4 %"
            )
        if self.moment.options is None:
            found.append("what could be restored is not recorded")
        return found

    def as_json(self, folding: Folding, bars: str) -> dict[str, Any]:
        """Message for the page, as of its stream, with age and unknown things."""
        moment, since = self.moment, self.moment.options_at
        names = [info.name for info in self.layout.processors]
        return {
            "asked": moment.at / 1000,
            "at": self.frame.at / 1000,
            "age": moment.age / 1000,
            "options_age": None if since is None else (moment.at - since) / 1000,
            "full": self._view is not None,
            "running": moment.running,
            "unknown": self.unknown,
            "holds": [{"operator": p, "name": names[p]} for p in self.holds],
            "live": moment.running,
            "generation": self.frame.number("generation"),
            "verdict": self.verdict.as_json(),
            "totals": self.totals(),
            "rows": dict(enumerate(self.rows(folding, bars))),
            "workers": self.workers(),
            "events": self.events(),
        }

    def events(self) -> list[dict[str, Any]]:
        """Newest events of the timeline until then, numbered from 1."""
        events = list(enumerate(self.moment.events, start=1))[-MOST_EVENTS:]
        return [
            {**event.data, "n": n, "kind": event.kind, "at": round(event.at, 3), "routine": event.kind in ROUTINE}
            for n, event in events
        ]

    def act(self, what: str, place: Place) -> str:
        """Refuse an order."""
        raise WrongQuestion("a moment of the past takes no orders", 400)

    def answer(self, question: Question) -> bytes:
        """Answer to a question about the moment, as JSON. Raises WrongQuestion."""
        if isinstance(question, Why):
            return msgspec.json.encode(self._why(question))
        found = answer_at_once(self, question)
        if isinstance(question, WhatIf):
            return msgspec.json.encode(msgspec.json.decode(found) | {"note": RESTART_ONLY})
        return found

    def _why(self, question: Why) -> dict[str, Any]:
        found = why(self, question.operator, question.worker, question.epoch)
        if found["progress"]["frontier"] is None:
            text = (
                "What held its progress was not recorded: holds are kept for ten minutes, and only of operators that somebody "
                "looked at, or that held up the job."
            )
            culprit = None
            holds = self.holds
            if holds:
                name = self.layout.processors[holds[0]].name
                text += f" The job was held by {name!r}."
                culprit = {"operator": holds[0], "worker": self._slowest(holds[0], question.worker)}
            found["progress"] = {"text": text, "frontier": None, "culprit": culprit, "holds": []}
        return found

    def _slowest(self, operator: int, otherwise: int) -> int:
        """Worker with the least completed cut of an operator's group."""
        options, group = self.moment.options, self.layout.processors[operator].group
        done = options.upto if options is not None else []
        known = [(upto[group], worker) for worker, upto in enumerate(done) if upto is not None]
        return min(known)[1] if known else otherwise


def comparison(one: PastJob, other: PastJob) -> dict[str, Any]:
    """Two moments side by side.

    Raises WrongQuestion if the job had other operators at each.
    """
    before, after = ([info.name for info in job.layout.processors] for job in (one, other))
    if before != after or one.layout.workers != other.layout.workers:
        raise WrongQuestion("the program was another one at each of these moments: they cannot be compared", 409)
    return {
        "fields": COMPARED,
        "moments": [
            {
                "asked": job.moment.at / 1000,
                "at": job.frame.at / 1000,
                "age": job.moment.age / 1000,
                "verdict": job.verdict.as_json(),
                "totals": job.totals(),
                "workers": job.workers(),
                "unknown": job.unknown,
            }
            for job in (one, other)
        ],
        "operators": [list(pair) for pair in zip(one.operators(), other.operators())],
    }


def course_of(archive: Archive, epoch: int) -> dict[str, Any]:
    """Course of an epoch: read, complete, safe, and operators holding it open.

    Raises Gone. Times are in seconds since 1970; None: not recorded, or not yet. `held` has the operators that
    held the job while it was open, with seconds of at most the last MOST_SECONDS.
    """
    found = archive.last_within("open", epoch)
    if found is None:
        raise Gone(f"epoch {epoch} was complete before the history of the job begins")
    last, done = found
    if epoch > (last.number("top") or 0) and done is None:
        raise Gone(f"epoch {epoch} was not read yet")
    read, safe = archive.last_within("newest", epoch - 1), archive.last_within("low", epoch)
    began = read[1].at if read is not None and read[1] is not None and read[1].at <= last.at else None
    layout, known = archive.at(last.at).layout, halts(archive.events)
    held: Counter[int] = Counter()
    for frame in archive.frames(last.at - 1000 * MOST_SECONDS, last.at, MOST_SECONDS):
        is_open = (frame.number("open") or 0) <= epoch <= (frame.number("top") or 0)
        if is_open and frame.operators.shape[1] == len(layout.processors):
            held.update(holders(layout, frame, known))
    return {
        "epoch": epoch,
        "at": last.at / 1000,
        "read": None if began is None else began / 1000,
        "complete": None if done is None else done.at / 1000,
        "safe": None if safe is None or safe[1] is None else safe[1].at / 1000,
        "held": [
            {"operator": p, "name": layout.processors[p].name, "seconds": seconds} for p, seconds in held.most_common(5)
        ],
    }


def points_of(archive: Archive, since: int, until: int, most: int) -> list[dict[str, Any]]:
    """Points of the charts in a time, in milliseconds."""
    return [{"at": frame.at / 1000, **totals_of(frame)} for frame in archive.frames(since, until, most)]


_STATES = ("began", "resumed", "stuck", "moves", "slow", "error", "failed", "stopped", "killed", "finished")
MARKS = frozenset((*_STATES, "failure", "restored", "caught_up", "gap", "monitor"))
"""Kinds of events marked beside the moments."""

MOST_MARKS = 2000
CUTS_WITHIN = 3_600_000
"""Longest time with its rises of the low-watermark, in milliseconds."""


def overview(archive: Archive, since: int | None, until: int | None) -> dict[str, Any]:
    """Extent of the history, with its marks.

    `safe` has the rises of the low-watermark in a time of at most an hour.
    `since` and `until` are milliseconds since 1970, as all times of the answer.
    """
    span = archive.span
    first, last = span or (None, None)
    shown = max(first or 0, since or 0), min(last or 0, until if until is not None else last or 0)
    marks = [
        {
            **{name: value for name, value in event.data.items() if name not in ("rollback", "trace")},
            "kind": event.kind,
            "at": round(event.at, 3),
        }
        for event in archive.events
        if event.kind in MARKS
    ]
    return {
        "first": first,
        "last": last,
        "marks": marks[-MOST_MARKS:],
        "safe": archive.rises(*shown) if span and shown[1] - shown[0] <= CUTS_WITHIN else None,
        "problems": sorted(archive.problems.values()),
    }


def _behind(values: Table, top: int) -> list[float | None]:
    return [0.0 if each >= END else None if each < 0 else float(max(0, top - each)) for each in values.tolist()]


def _epoch(epoch: int) -> int:
    return -1 if epoch >= END else epoch


def _number(value: float, digits: int = 0) -> float | None:
    return None if np.isnan(value) else round(float(value), digits)


def _ago(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )
