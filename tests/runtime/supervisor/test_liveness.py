"""Processes that count as hung: those that neither beat nor compute, and none because this process was stopped itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime.supervisor.liveness import MOST_PATIENCE, START_SECONDS, Evidence, Liveness, Pulse, evidence, excuse

NOBODY = 2**22 + 1
"""No process has this number: what it computes is not told."""


def test_who_beats_in_time_has_not_hung_and_who_does_not_has() -> None:
    liveness, pulse = Liveness(10.0, 0.0), Pulse(NOBODY, 0.0, 0.0)
    received = 0
    for now in range(1, 40):
        received += 5
        assert liveness.hung([(pulse, received)], float(now)) == []
    found = [now for now in range(40, 55) if liveness.hung([(pulse, received)], float(now))]
    assert found[0] == 49  # ten seconds after the last that was heard


def test_a_process_that_starts_has_longer() -> None:
    liveness, pulse = Liveness(1.0, 0.0), Pulse(NOBODY, 0.0, 0.0)
    times = [quarter / 4 for quarter in range(1, 4 * 70)]
    assert next(now for now in times if liveness.hung([(pulse, 0)], now)) == START_SECONDS


def test_when_the_supervisor_itself_was_stopped_nobody_is_blamed() -> None:
    liveness, pulse = Liveness(10.0, 0.0), Pulse(NOBODY, 0.0, 0.0)
    assert liveness.hung([(pulse, 1)], 1.0) == []
    assert liveness.hung([(pulse, 1)], 100.0) == []  # what was said meanwhile may not have been read yet
    assert liveness.hung([(pulse, 1)], 104.0) == []
    assert [liveness.hung([(pulse, 1)], now) for now in (106.0, 108.0, 110.0)] == [[], [], [pulse]]


MS = 1_000_000


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (Evidence(), None),
        (Evidence(computed=1), "computes"),
        (Evidence(waited=10 * MS), "waits for a processor"),
        (Evidence(waited=9 * MS), None),
        (Evidence(ready=True), "waits for a processor"),
        (Evidence(computed=3, waited=20 * MS), "computes"),
        (Evidence(computed=2, waited=500 * MS), "waits for a processor"),
        (Evidence(fetched=1), "waits for memory"),
        (Evidence(disk=True), "waits for a disk"),
    ],
)
def test_who_is_slow_leaves_traces_and_who_hangs_does_not(now: Evidence, why: str | None) -> None:
    found = excuse(Evidence(), now)
    assert found is None if why is None else found is not None and found.startswith(why)
    later = Evidence(now.computed + 7, now.waited + 70 * MS, now.fetched + 7)
    assert excuse(later, later) is None, "what lies behind is no excuse"


class Watching:
    """A supervisor of one process, that looks at it four times a second. The test is the process, and the system."""

    def __init__(self, patience: float = 1.0) -> None:
        self.known = Evidence()
        self.liveness = Liveness(10.0, 0.0, lambda pid: self.known)
        self.pulse = Pulse(1, 0.0, 0.0, patience)
        self.now, self.received = 0.0, 0
        self.beat()

    def beat(self) -> None:
        self.received += 5
        assert self.look() is False

    def look(self) -> bool:
        self.now += 0.25
        return self.liveness.hung([(self.pulse, self.received)], self.now) == [self.pulse]

    def silence(self, **each: int) -> float:
        """Seconds of silence until it is given up, or a hundred; in each of them it leaves so many traces."""
        began = self.now
        for quarter in range(400):
            if quarter % 4 == 0:
                known = self.known
                self.known = Evidence(
                    known.computed + each.get("computed", 0),
                    known.waited + each.get("waited", 0),
                    known.fetched + each.get("fetched", 0),
                    bool(each.get("ready", 0)),
                    bool(each.get("disk", 0)),
                )
            if self.look():
                break
        return self.now - began


@pytest.mark.parametrize("traces", [{"computed": 1}, {"waited": 10 * MS}, {"fetched": 1}, {"ready": 1}])
def test_a_process_that_leaves_traces_is_never_given_up_and_one_that_does_not_is(traces: dict[str, int]) -> None:
    watching = Watching()
    assert watching.silence(**traces) == 100.0
    assert watching.pulse.excuse
    assert 9.0 <= watching.silence() <= 15.0, "from when it was last seen to leave any"
    watching = Watching()
    assert watching.silence() == 10.0
    assert not watching.pulse.excuse


def test_a_process_that_waits_for_a_disk_is_given_up_in_the_end() -> None:
    assert 80.0 <= Watching().silence(disk=1) <= 95.0


@pytest.mark.parametrize("patience", [1.0, 3.0])
def test_each_false_alarm_doubles_the_limit_up_to_a_bound(patience: float) -> None:
    """Nothing is known of it but what it says: on another host, whose processors have too much to do."""
    limit, limits = 10.0 * patience, []
    for _ in range(6):
        watching = Watching(patience)
        for _ in limits:  # it beats, late, but before it is given up
            while watching.now - watching.pulse.last_message < watching.pulse.limit(10.0) / 2:
                assert not watching.look()
            watching.beat()
        began, given_up = watching.now, False
        while not given_up:
            given_up = watching.look()
        limits.append(watching.now - began)
    assert limits == [limit * grown for grown in (1, 2, 4, 8, 8, 8)]
    assert MOST_PATIENCE == 8


def test_a_process_that_beats_in_time_gets_no_more_patience() -> None:
    watching = Watching()
    for _ in range(100):
        for _ in range(18):
            assert not watching.look()
        watching.beat()
    assert watching.silence() == 10.0


@contextmanager
def spinning(idle: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A process that always has something to compute; `idle`: another one is always served before it, on its only processor."""
    first = min(os.sched_getaffinity(0))
    pin = f"import os; os.sched_setaffinity(0, [{first}])\n" if idle else ""
    lowest = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n" if idle else ""
    spin = "print(flush=True)\nwhile True: pass"
    texts = [pin + spin] * idle + [pin + lowest + spin]
    processes = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) for text in texts]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it runs
        yield processes[-1]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def given_up(process: subprocess.Popen[bytes], looks: int) -> int | None:
    """The look at which a process is given up, of so many, a quarter of a second apart by a clock that does not wait for it."""
    liveness, pulse = Liveness(1.0, 0.0), Pulse(process.pid, 0.0, 0.0)
    for look in range(1, looks):
        if liveness.hung([(pulse, 1)], look / 4):
            return look
    return None


@pytest.mark.parametrize("idle", [False, True])
def test_who_computes_or_waits_for_its_turn_has_not_hung_until_it_is_stopped(idle: bool) -> None:
    """However slow the machine is: by the clock of the test it may have been given no processor at all."""
    with spinning(idle) as process:
        assert given_up(process, 2_000) is None
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert given_up(process, 2_000) == 5


def test_traces_of_a_process_are_those_of_all_its_threads() -> None:
    with spinning() as process:
        before = evidence(process.pid)
        assert before.ready
        while (now := evidence(process.pid)).computed == before.computed:
            time.sleep(0.01)
        assert now.waited >= before.waited
    assert evidence(NOBODY) == Evidence()


def test_a_long_turn_is_told_of_and_again_after_twice_as_long() -> None:
    liveness, pulse = Liveness(10.0, 0.0), Pulse(NOBODY, 0.0, 0.0)
    assert [busy for busy in range(0, 300, 5) if liveness.worth_telling(pulse, float(busy))] == [30, 60, 120, 240]
    assert [busy for busy in range(0, 100, 5) if liveness.worth_telling(pulse, float(busy))] == [30, 60]
