"""Monitor process: `python -m runtime.processes.monitor`, run by the supervisor.

Also run by `runtime.processes.standalone_monitor`. It is the coordinator with a clock, a disk and sockets. It may die
at any moment: a new one reads the journal, and workers connect to it by themselves.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import sys
import threading
import time

from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.effects import Answered, Fail, Finished, Persist, Send
from monitor.coordination.events import Began, Event, Expected, FromWorker, Hurried, Restarting, Stored, Ticked
from monitor.coordination.supervision import (
    Busy,
    Fence,
    Happened,
    Lost,
    Mates,
    Note,
    Noted,
    ProgramFailed,
    Respawn,
    Saving,
    Stopping,
    TimelineEvent,
)
from monitor.coordination.workers import JobPhase
from monitor.web.questions import WrongQuestion
from recovery.layout import Layout
from recovery.place import Place
from recovery.protocol import Observed, Watermarks
from runtime.control import (
    TO_CHILD,
    Control,
    Over,
    Propose,
    Proposed,
    ToChild,
    Watch,
    end_with,
)
from runtime.folders.store_folder import StoreFolder
from runtime.page.live import LivePage
from runtime.page.recorder import HistoryRecorder, versions
from runtime.page.watched import EXPOSED_SECONDS, SECOND, WatchedJob
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from runtime.processes.monitor_connections import WorkerConnections
from runtime.processes.monitor_journal import MonitorJournal
from runtime.processes.stack_door import open_door
from runtime.recovery.store_client import opened_again
from timely.data.codec.typed import Typed
from timely.io.waiting import wait_readable

LONG_SECONDS = 600.0
"""Time limit, in seconds, on the silence of a worker.

The end of a process is noticed at once, without that; and one turn of a worker lasts as long as a user's function
does.
"""

LAYOUT: Typed[Layout] = Typed("the layout of a job", Layout)

_SHORTEST_TICK, _LONGEST_TICK = 0.02, 0.25

_STUCK_BEATS = 30
"""Number of beats without progress before a search for what holds the job.

Three times the time-out of heartbeats."""

_LAST_WORDS_SECONDS = 1.0
"""Longest wait, in seconds, for the reason of the job's end to be journaled."""


class MonitorProcess:
    """One incarnation of the monitor."""

    def __init__(
        self, control: Control[ToChild], voice: SupervisorChannel, listener: socket.socket, watch: Watch
    ) -> None:
        self._control = control
        self._tell = voice.tell
        self._greet_seconds = watch.beat_seconds
        self.layout = LAYOUT.decode(watch.layout)
        self._over = False
        self._journal = MonitorJournal(*opened_again(watch.store), watch.incarnation)
        for warning in self._journal.warnings:
            self._tell(Note(warning))
        # Seconds since 1970, for people, that never go back, for the coordinator.
        self._offset = time.time() - time.monotonic()
        saved = self._journal.saved
        self._before = saved.finished
        settings = Settings(
            copies=watch.copies,
            awaited=watch.awaited,
            join_seconds=LONG_SECONDS,
            pause_seconds=LONG_SECONDS,
            restore_seconds=LONG_SECONDS,
            heartbeat_seconds=LONG_SECONDS,
            accept=watch.accept,
            stuck_seconds=watch.beat_seconds * _STUCK_BEATS or math.inf,
            instead=watch.instead,
        )
        shortest = min((group.seconds for group in self.layout.groups if group.seconds is not None), default=1.0)
        self._tick = min(max(shortest / 10, _SHORTEST_TICK), _LONGEST_TICK)
        self._coordinator = Coordinator(self.layout, saved, settings, self._now())
        self._events: list[Event] = [Began()]
        """Events since the last step."""
        self._selector = selectors.DefaultSelector()
        self._workers = WorkerConnections(
            self._selector,
            listener,
            watch.token,
            self.layout.workers * watch.copies,
            lambda text: self._tell(Note(text)),
        )
        folder, behind = StoreFolder(watch.store), versions()
        options = {
            "store": str(watch.store),
            "workers": str(self.layout.workers),
            "heartbeat": f"{watch.beat_seconds:g} s" if watch.beat_seconds else "none",
            "accepted functions": ", ".join(watch.accept) or "none",
            **behind,
        }
        acts = {"stop": self._act_stop, "checkpoint": self._act_checkpoint, "restart": self._act_restart}
        self._stop_request = folder.stop_request
        self._watched = WatchedJob(
            self._coordinator,
            self._events.append,
            self._workers.send,
            self._now,
            saved.events,
            options,
            acts,
            lambda number, policies: self._tell(Propose(number, policies)),
        )
        self._history = HistoryRecorder(folder.history, self.layout, behind, lambda text: self._tell(Note(text)))
        self._recorded: tuple[object, int] | None = None
        """Low-watermarks and generation as last recorded."""
        self._second = self._exposed = 0.0
        self._selector.register(control.sock, selectors.EVENT_READ, None)
        for file in self._journal.files():
            self._selector.register(file, selectors.EVENT_READ, None)
        (door,) = self._control.files(1)
        self._page = LivePage(
            self._selector, door, self.layout, self._watched, lambda text: self._tell(Note(text)), saved.events
        )

    def _act_stop(self, _: Place) -> str:
        self._must_run("stop")
        self._stop_request.touch(0o600)
        return "the job has been asked to stop, as by falkirk stop"

    def _act_checkpoint(self, _: Place) -> str:
        self._must_run("make a checkpoint")
        self._events.append(Hurried())
        return "each group is cut as soon as something new is complete: the table of checkpoints shows it"

    def _act_restart(self, place: Place) -> str:
        self._must_run("restart a worker")
        if place not in self._coordinator.workers:
            raise WrongQuestion(f"there is no {place}: the job has {self.layout.workers}", 404)
        self._events.append(Restarting(place, "was restarted from the page"))
        return f"{place} is ended, and another process takes its place, as after a failure"

    def _must_run(self, what: str) -> None:
        """Refuse an order while the job does not run."""
        if self._over or self._coordinator.phase is not JobPhase.RUNNING:
            raise WrongQuestion(f"the job cannot {what} now: it is {self._coordinator.phase.value}", 503)

    def run(self, from_parent: list[ToChild]) -> None:
        """Coordinate the job until the supervisor is gone.

        `from_parent`: its messages after the first.
        """
        due = greeting = 0.0
        while not self._control.ended:
            for message in from_parent:
                if isinstance(message, Busy):
                    self._watched.hear_busy(message)
                if isinstance(message, Mates):
                    self._watched.mates = message.mates
                if isinstance(message, Proposed):
                    self._watched.proposed(message.number, message.error or LAYOUT.decode(message.layout))
                if isinstance(message, Lost | Noted | ProgramFailed | Stopping | Saving | Busy | Happened):
                    self._events.append(message)
            self._step()
            ready = self._selector.select(max(0.0, due - time.monotonic()) if not self._over else None)
            from_parent = self._control.read()
            for ticket in self._journal.written():
                self._events.append(Stored(ticket))
            for key, events in ready:
                if key.data is not None:
                    for message, incarnation in key.data(events):
                        self._events.append(FromWorker(message, incarnation))
                        if isinstance(message, Observed):
                            self._watched.hear(message)
            if time.monotonic() >= due:
                due = time.monotonic() + self._tick
                self._events.append(Ticked())
                self._workers.tick()
            self._page.turn()
            self._expose()
            self._record()
            if time.monotonic() >= greeting:
                greeting = time.monotonic() + self._greet_seconds
                self._workers.send_all(Watermarks(()))  # nothing has risen, but somebody is there

    def _step(self) -> None:
        """Pass events to the coordinator, and carry out its effects."""
        events = list(self._events)
        self._events.clear()
        failure: Fail | None = None
        for effect in [] if self._over else self._coordinator.step(self._now(), *events):
            match effect:
                case Send(place, message):
                    self._workers.send(place, message)
                case Persist(ticket, records):
                    self._journal.write(ticket, records)
                case Respawn() | Fence() | Note():
                    self._tell(effect)
                case TimelineEvent():
                    self._tell(effect)
                    self._page.happened(effect)
                    self._record_event(effect)
                case Answered():
                    self._watched.answered(effect)
                case Finished():
                    self._end(None)
                case Fail():
                    failure = effect
        caught_up = self._coordinator.take_caught_up()
        if caught_up is not None:
            self._events.append(Happened("caught_up", caught_up))
        if failure is not None:
            self._write_last_words()
            self._end(failure.reason, failure.lost)

    def _expose(self) -> None:
        """Compute the cost of each death now, out of step with cuts."""
        now = time.monotonic()
        if now >= self._exposed and not self._over:
            self._exposed = now + EXPOSED_SECONDS
            self._events.append(Expected(self._watched.exposing.expected(self._watched.expose())))

    def _record(self, at_once: bool = False) -> None:
        """Have the history record this second, if the last one is over."""
        now = time.monotonic()
        if (now < self._second or self._over) and not at_once:
            return
        self._second = now + SECOND
        if not self._page.viewers:
            self._watched.look(self._now(), sampled=True)
        low, generation = known = self._coordinator.low_watermarks, self._coordinator.generation
        new = self._recorded is None or low is not self._recorded[0] or generation != self._recorded[1]
        self._recorded = known
        self._history.second(self._watched.observe(), self._coordinator.options.record() if new else None)

    def _record_event(self, event: TimelineEvent) -> None:
        self._watched.exposing.times.take(event)
        self._history.happened(event)
        if event.kind == "decided" and self._coordinator.decision is not None:
            self._history.decided(event.at, self._coordinator.decision)

    def _write_last_words(self) -> None:
        """Let the journal hear why the job ends, if it can."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while (left := deadline - time.monotonic()) > 0 and self._coordinator.commit.unwritten:
            for ticket in self._journal.written():
                for effect in self._coordinator.step(self._now(), Stored(ticket)):
                    if isinstance(effect, Persist):
                        self._journal.write(effect.ticket, effect.records)
            if self._coordinator.commit.unwritten:
                wait_readable(self._journal.files(), left)

    def _end(self, reason: str | None, lost: bool = False) -> None:
        if not self._over:
            self._over = True
            self._page.finish()
            self._record(at_once=True)
            self._history.close()
            self._tell(Over(reason, self._before, lost))

    def close(self) -> None:
        """Finish pending writes, and close the connections of workers."""
        self._page.close()
        self._history.close()
        self._workers.close()
        self._selector.close()
        self._journal.close()

    def _now(self) -> float:
        return self._offset + time.monotonic()


def main() -> int:
    """Entry point of the monitor process; exit code 0 unless it failed."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(sock, sys.argv[3]), name="falkirk-end", daemon=True).start()
    voice = SupervisorChannel(sock)
    control: Control[ToChild] = Control(sock, TO_CHILD)
    try:
        from_parent = control.read(wait=True)
        if from_parent and isinstance(watch := from_parent[0], Watch):  # nothing is said if the supervisor is gone
            Heartbeat(voice, watch.beat_seconds)
            open_door(sys.argv[3], "monitor")
            MonitorProcess(control, voice, control.files(1)[0], watch).run(from_parent[1:])
    except BaseException as error:
        voice.confess(error)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
