"""The front door has all that users need: examples and the documents for users import no room behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = "timely|recovery|monitor|runtime|libraries"
BEHIND = re.compile(rf"^\s*(?:from|import) (?:{ROOMS})\b.*$|`(?:{ROOMS})\.[\w.]+", re.M)
# They drive a whole job from outside, ask its monitor and kill its workers: no program of a user's does that.
DEMO = {"flights_check.py", "flights_demo.py", "flights_failure.py", "flights_report.py"}
# They explain how the inside works, with its own names.
INSIDE = {"architecture.md", "engine.md", "limits.md", "recovery.md", "simulation.md", "status.md", "theory.md"}
FOR_USERS = [
    *(path for path in sorted(ROOT.glob("examples/*.py")) if path.name not in DEMO),
    *(path for path in sorted(ROOT.glob("docs/*.md")) if path.name not in INSIDE),
    ROOT / "README.md",
]


@pytest.mark.parametrize("path", FOR_USERS, ids=lambda path: path.name)
def test_users_are_shown_nothing_behind_the_front_door(path: Path) -> None:
    found = [match.group(0).strip() for match in BEHIND.finditer(path.read_text())]
    assert not found, f"{path.name} names what only the inside needs: {found}; let falkirk offer it"


def test_there_are_examples_and_documents() -> None:
    assert len(FOR_USERS) > 10
