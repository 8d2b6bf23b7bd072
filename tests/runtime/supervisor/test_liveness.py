"""Processes that count as hung: those that neither beat nor compute, and none because this process was stopped itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from runtime.supervisor.liveness import START_SECONDS, Liveness, Pulse, processor_time

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


def spinning() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def test_who_computes_has_not_hung_until_it_is_stopped() -> None:
    with spinning() as process:
        try:
            liveness, pulse = Liveness(1.0, 0.0), Pulse(process.pid, 0.0, 0.0)
            liveness.hung([(pulse, 1)], 0.25)
            clock = 0.25
            for _ in range(12):
                before = processor_time(process.pid)
                while processor_time(process.pid) == before:
                    time.sleep(0.01)
                clock += 0.25
                assert liveness.hung([(pulse, 1)], clock) == []
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            found = []
            while not found and clock < 10:
                clock += 0.25
                found = liveness.hung([(pulse, 1)], clock)
            assert found == [pulse]
            assert clock < 5.0
        finally:
            process.kill()


def test_a_long_turn_is_told_of_and_again_after_twice_as_long() -> None:
    liveness, pulse = Liveness(10.0, 0.0), Pulse(NOBODY, 0.0, 0.0)
    assert [busy for busy in range(0, 300, 5) if liveness.worth_telling(pulse, float(busy))] == [30, 60, 120, 240]
    assert [busy for busy in range(0, 100, 5) if liveness.worth_telling(pulse, float(busy))] == [30, 60]
