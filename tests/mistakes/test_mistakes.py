"""Every mistake of the table gives exactly its message; and each message is of use."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.mistakes.table import PAGE, ROOT, Mistake, read, told

MISTAKES = read()


def test_there_are_two_hundred_different_ones() -> None:
    assert len(MISTAKES) >= 200
    for seen in (Counter((m.chapter, m.title) for m in MISTAKES), Counter(m.program for m in MISTAKES)):
        assert [each for each, count in seen.items() if count > 1] == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_message_is_that_of_the_table(mistake: Mistake) -> None:
    assert told(mistake) == mistake.message


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_message_names_the_line_and_hides_the_machinery(mistake: Mistake) -> None:
    assert mistake.message
    assert len(mistake.message) < 1200
    assert not re.search(
        r"Traceback|inside Falkirk|922337203685|object at 0x|<locals>|/timely/|/recovery/|/monitor/", mistake.message
    )
    if mistake.command is None:
        lines = len(mistake.program.splitlines())
        found = [int(line) for line in re.findall(r"app\.py:(\d+)", mistake.message)]
        assert found or "(prelude.py:" in mistake.message, "no line of the user's is named"
        assert all(1 <= line <= lines for line in found)


def test_page_is_that_of_the_table() -> None:
    script = ROOT / "scripts" / "mistakes_page.py"
    made = subprocess.run(
        [sys.executable, str(script), "--print"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert made.stdout == PAGE.read_text(), "run scripts/mistakes_page.py"
