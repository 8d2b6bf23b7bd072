"""Verdict on a job: its state in one sentence, from the timeline. Pure.

The timeline says it all: a verdict is what is left when its events are taken one after the other. So the monitor that
leads a job, the page of one that has ended, and `falkirk status` say the same of the same job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol

import msgspec

State = Literal["starting", "running", "stuck", "rolling back", "failed", "stopped", "killed", "ended"]

ALARMS: frozenset[State] = frozenset(("stuck", "failed", "killed"))
"""States in need of somebody's attention."""

OVER: frozenset[State] = frozenset(("failed", "stopped", "killed", "ended"))
"""States of an ended job."""


class Occurrence(Protocol):
    """Event of the timeline."""

    @property
    def kind(self) -> str:
        """Kind of the event."""

    @property
    def at(self) -> float:
        """Time of the event, in seconds."""

    @property
    def data(self) -> dict[str, Any]:
        """Further data, by kind."""


class Verdict(msgspec.Struct, frozen=True):
    """Verdict on a job; `text` is a sentence that starts with the state.

    `processor` and `worker` say where the job is stuck or has failed, if that is anywhere (else -1); `since` is when the
    state began, in seconds since 1970; `trace` is Python's, of an error.
    """

    state: State
    text: str
    since: float
    processor: int = -1
    worker: int = -1
    trace: str = ""
    name: str = ""
    """Operator concerned, one of several in a fused chain."""

    @property
    def alarm(self) -> bool:
        """True if the job calls for somebody's attention."""
        return self.state in ALARMS

    def as_json(self) -> dict[str, Any]:
        """JSON form, for the page."""
        return {**msgspec.structs.asdict(self), "alarm": self.alarm, "over": self.state in OVER}


UNJUDGED = Verdict("starting", "starting", 0.0)
"""Verdict before any event."""


class Judge:
    """Fold of a timeline's events into a verdict, available at any time."""

    def __init__(self, events: Iterable[Occurrence] = ()) -> None:
        self._now = UNJUDGED
        self._halt: dict[str, Any] | None = None
        self._halted = 0.0
        self._cause = ""
        """Failure behind the present rollback."""
        self.last = 0.0
        """Time of the last event."""
        for event in events:
            self.take(event)

    def take(self, event: Occurrence) -> None:
        """Apply the next event."""
        at, data = event.at, event.data
        self.last = max(self.last, at)
        before = self._now
        if before.state in OVER and event.kind != "began":
            return
        match event.kind:
            case "began":
                self._now, self._halt = Verdict("starting", "starting", at), None
            case "restored" | "resumed":
                self._now, self._halt = Verdict("running", "running", at), None
            case "failure" if before.state != "starting" and not data.get("copy"):  # a copy's takes nothing back
                self._cause = f"worker {data['worker']} failed ({data['reason']})"
                since = before.since if before.state == "rolling back" else at
                text = f"rolling back: {self._cause}"
                self._now, self._halt = Verdict("rolling back", text, since, -1, data["worker"]), None
            case "takeover" if before.state == "rolling back":
                self._cause = f"{self._cause}; its mate takes over"
                self._now = msgspec.structs.replace(before, text=f"{before.text}; its mate takes over")
            case "round" | "decided" if before.state == "rolling back":
                phase = "draining" if event.kind == "round" else "restoring"
                self._now = msgspec.structs.replace(before, text=f"rolling back: {phase}: {self._cause}")
            case "stuck":
                self._halt, self._halted = data, at - data["seconds"]
            case "moves":
                self._halt = None
            case "error":
                self._now = Verdict(
                    *("failed", f"failed: {data['text']}", at, data.get("processor", -1), data["worker"]),
                    data.get("trace", ""),
                )
            case "failed":
                self._now = Verdict("failed", f"failed: {data['reason']}", at)
            case "stopped":
                saved = f": all before epoch {data['epoch']} is saved and published" if data.get("savepoint") else ""
                self._now = Verdict("stopped", f"stopped by {data['by']}{saved}", at)
            case "killed":
                self._now = _killed(at)
            case "finished":
                self._now = Verdict("ended", "ended: all is done", at)

    def verdict(self, live: bool, now: float) -> Verdict:
        """Verdict at `now`; `live` if the job's processes exist."""
        found = self._now
        if found.state in OVER:
            return found
        if not live:
            return _killed(self.last)
        if found.state == "running" and self._halt is not None:
            halt, seconds = self._halt, max(0.0, now - self._halted)
            place = f"{halt['name']}@{halt['worker']}" if halt["name"] else f"worker {halt['worker']}"
            text = f"stuck for {seconds:.0f} s in {place}, waiting for {halt['what']}"
            return Verdict("stuck", text, self._halted, halt["processor"], halt["worker"], name=halt["name"])
        return found


def _killed(at: float) -> Verdict:
    return Verdict("killed", "killed: its processes are gone, and nothing says why; run it again, and it goes on", at)
