"""Each decision has a head, and the index is made of the heads."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "decisions_index.py"
SPEC = importlib.util.spec_from_file_location("decisions_index", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
made = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = made
SPEC.loader.exec_module(made)

GOOD = "# 002. A title\n\nStatus: accepted. Topic: time.\n"


def test_index_is_up_to_date() -> None:
    assert made.index() == made.INDEX.read_text(), "run scripts/decisions_index.py"
    assert subprocess.run([sys.executable, SCRIPT, "--check"]).returncode == 0


def test_titles_are_unique() -> None:
    titles = [made.head(path).title for path in made.FOLDER.glob("[0-9]*.md")]
    assert len(titles) > 100
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# 2. A title\n\nStatus: accepted. Topic: time.\n", "first line"),
        ("# 003. A title\n\nStatus: accepted. Topic: time.\n", "first line"),
        ("", "first line"),
        ("# 002. A title\n\nStatus: done.\n", "third line"),
        ("# 002. A title\nStatus: accepted. Topic: time.\n\n", "third line"),
        ("# 002. A title\n\nStatus: accepted. Topic: cheese.\n", "topic"),
        ("# 002. A title\n\nStatus: amended by 003. Topic: time.\n", "linked"),
        ("# 002. A title\n\nStatus: amended by [003](003-absent.md). Topic: time.\n", "linked"),
        ("# 002. A title\n\nStatus: superseded by [001](001-early.md). Topic: time.\n", "linked"),
    ],
)
def test_other_heads_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "001-early.md").write_text("# 001. Early\n\nStatus: accepted. Topic: time.\n")
    path = tmp_path / "002-title.md"
    path.write_text(text)
    with pytest.raises(made.HeadError, match=message):
        made.index(tmp_path)


def test_each_head_is_in_the_index(tmp_path: Path) -> None:
    (tmp_path / "002-title.md").write_text(GOOD)
    (tmp_path / "003-later.md").write_text("# 003. Later\n\nStatus: accepted. Topic: tests.\n")
    (tmp_path / "001-early.md").write_text("# 001. Early\n\nStatus: amended by [003](003-later.md). Topic: time.\n")
    text = made.index(tmp_path)
    assert (
        "| [001](001-early.md) | Early | amended by [003](003-later.md) |\n| [002](002-title.md) | A title | accepted |"
        in text
    )
    assert text.index("## Time") < text.index("## Tests")
    assert "## Engine" not in text


def test_two_decisions_of_one_number_are_refused(tmp_path: Path) -> None:
    (tmp_path / "002-title.md").write_text(GOOD)
    (tmp_path / "002-other.md").write_text(GOOD)
    with pytest.raises(made.HeadError, match="002"):
        made.index(tmp_path)
