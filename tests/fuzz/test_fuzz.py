"""Every decoder and reader, given what no writer of ours wrote: it reads it, or refuses it with an error of ours.

Time and memory are bounded, and nothing crashes.

500 cases of each target, 4,000 in `make check`, and a million with FALKIRK_TEST_PROFILE=soak. FALKIRK_FUZZ_SEED chooses others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.broken import BROKEN
from tests.fuzz.decoders import TARGETS
from tests.fuzz.running import Failure
from tests.support.profile import effort

CASES = effort(500, 4_000, 1_000_000)
SEED = int(os.environ.get("FALKIRK_FUZZ_SEED", "1"))
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    """A process that forks for each request; pytest's own has threads, and must not fork."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.running"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask(runner: subprocess.Popen[str], name: str, first: int, count: int) -> Failure | None:
    """The failure of a case, if there was one."""
    assert runner.stdin is not None
    assert runner.stdout is not None
    runner.stdin.write(json.dumps([name, SEED, first, count]) + "\n")
    runner.stdin.flush()
    said = json.loads(runner.stdout.readline())
    return None if said is None else Failure(**said)


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_it_reads(runner: subprocess.Popen[str], name: str) -> None:
    failure = ask(runner, name, 0, CASES)
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("broken: another error", "KeyError"),
        ("broken: crash", "SIGSEGV"),
        ("broken: memory", "MiB"),
        ("broken: loop", "SIGPROF"),
        ("broken: code", "code 3"),
    ],
)
def test_the_harness_notices(runner: subprocess.Popen[str], name: str, why: str) -> None:
    failure = ask(runner, name, 0, 50)
    assert failure is not None
    assert why in failure.why
    # What is left is the one byte that matters; a loop takes too long to be made smaller.
    assert "loop" in name or bytes.fromhex(failure.smaller) == b"!"
    assert BROKEN[name].case(SEED, failure.index).hex() == failure.data
