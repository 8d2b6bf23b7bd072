"""The verdict: of each state what is said, whatever else happened before; and what is true of all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.coordination.supervision import TimelineEvent
from monitor.explain.verdict import ALARMS, OVER, Judge, Verdict

_DATA: dict[str, dict[str, Any]] = {
    "began": {"workers": 2},
    "round": {"round": 1, "alive": [0]},
    "decided": {"generation": 2, "failed": [1], "rolled_back": 4},
    "restored": {"generation": 2, "seconds": 1.5, "start": False},
    "resumed": {"generation": 2},
    "failure": {"worker": 1, "incarnation": 2, "reason": "was killed by SIGKILL"},
    "takeover": {"worker": 1},
    "stuck": {"processor": 3, "worker": 0, "name": "call-service", "what": "map 'x' to return", "seconds": 30.0},
    "moves": {"seconds": 40.0},
    "error": {"worker": 1, "text": "map 'divide' failed", "processor": 2, "trace": "Traceback"},
    "failed": {"reason": "worker 1 has failed 5 times"},
    "stopped": {"by": "falkirk stop"},
    "killed": {"last": 5.0},
    "finished": {},
    "cut": {"group": 0, "epoch": 3},
    "watermarks": {"risen": 4},
    "note": {"worker": 0, "text": "x"},
    "monitor": {"text": "x"},
    "page": {"text": "x"},
}
_ENDS = {"error": "failed", "failed": "failed", "stopped": "stopped", "finished": "ended", "killed": "killed"}


def happened(*kinds: str) -> list[TimelineEvent]:
    return [TimelineEvent(kind, 100.0 + at, _DATA[kind]) for at, kind in enumerate(kinds)]


def verdict(*kinds: str, live: bool = True, now: float = 200.0) -> Verdict:
    return Judge(happened(*kinds)).verdict(live, now)


@pytest.mark.parametrize(
    ("kinds", "live", "text"),
    [
        ((), True, "starting"),
        (("began", "round", "decided"), True, "starting"),
        (("began", "restored"), True, "running"),
        (("began", "restored", "cut", "monitor", "resumed"), True, "running"),
        (
            ("began", "restored", "stuck"),
            True,
            "stuck for 128 s in call-service@0, waiting for map 'x' to return",
        ),
        (("began", "restored", "stuck", "moves"), True, "running"),
        (
            ("began", "restored", "failure"),
            True,
            "rolling back: worker 1 failed (was killed by SIGKILL)",
        ),
        (
            ("began", "restored", "failure", "round", "decided"),
            True,
            "rolling back: restoring: worker 1 failed (was killed by SIGKILL)",
        ),
        (
            ("began", "restored", "failure", "takeover", "round", "decided"),
            True,
            "rolling back: restoring: worker 1 failed (was killed by SIGKILL); its mate takes over",
        ),
        (("began", "restored", "takeover"), True, "running"),
        (("began", "restored", "error"), True, "failed: map 'divide' failed"),
        (("began", "restored", "failed"), False, "failed: worker 1 has failed 5 times"),
        (("began", "restored", "stuck", "stopped"), False, "stopped by falkirk stop"),
        (("began", "restored", "finished"), False, "ended: all is done"),
        (("began", "restored"), False, "killed: its processes are gone"),
        (("began", "restored", "stopped", "began", "restored"), True, "running"),
    ],
)
def test_each_state_is_said_as_it_is(kinds: tuple[str, ...], live: bool, text: str) -> None:
    assert verdict(*kinds, live=live).text.startswith(text)


def test_where_it_failed_and_where_it_is_stuck_are_named() -> None:
    assert (verdict("began", "restored", "error").processor, verdict("began", "restored", "error").worker) == (2, 1)
    assert verdict("began", "restored", "error").trace == "Traceback"
    stuck = verdict("began", "restored", "stuck")
    assert (stuck.processor, stuck.worker, stuck.since) == (3, 0, 72.0)


@given(st.lists(st.sampled_from(sorted(_DATA))), st.booleans(), st.floats(0, 1e6))
def test_whatever_happens_the_verdict_says_what_happened_last(kinds: list[str], live: bool, now: float) -> None:
    found = verdict(*kinds, live=live, now=now)
    last_run = kinds[len(kinds) - kinds[::-1].index("began") :] if "began" in kinds else kinds
    end = next((kind for kind in last_run if kind in _ENDS), None)
    assert found.alarm == (found.state in ALARMS)
    assert found.text.startswith(found.state)
    if end is not None:  # the first end is the end, until the job is run again
        assert found.state == _ENDS[end]
    elif not live:
        assert found.state == "killed"
    else:
        assert found.state not in OVER
    if found.state == "stuck":
        rest = [kind for kind in last_run if kind in ("stuck", "moves", "failure", "restored", "resumed")]
        assert rest[-1] == "stuck" or rest[-1] == "failure"
    if found.state == "rolling back":
        assert "failure" in last_run
