"""The table of docs/status.md names what exists, and docs/limits.md has a line for each limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from falkirk.bench.registry import BENCHES

ROOT = Path(__file__).resolve().parents[2]
STATUS = (ROOT / "docs" / "status.md").read_text()
ROWS = [line for line in STATUS.splitlines() if line.startswith("| ")][1:]
LIMITS = (ROOT / "docs" / "limits.md").read_text().splitlines()
LONGEST = 165


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_row_is_shown_by_something(row: str) -> None:
    shown = row.split("|", 3)[3]
    assert "`" in shown or "](" in shown


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|examples)/[\w/.]+)`", STATUS))))
def test_each_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ([\w.]+)", STATUS))))
def test_each_module_can_be_run(module: str) -> None:
    assert "__main__" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


def test_each_benchmark_is_there() -> None:
    named = {name for names in re.findall(r"falkirk bench ([\w |]+)", STATUS) for name in names.split(" | ")}
    assert len(named) > 3
    assert named <= set(BENCHES)


def test_limits_are_of_one_line() -> None:
    assert [line for line in LIMITS if line.startswith(" ") or (line.startswith("- ") and len(line) > LONGEST)] == []
