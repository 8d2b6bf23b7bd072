"""The walks of docs/architecture.md: every file and every place that they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from timely.errors import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"^\| `([\w/]+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)


def test_the_walks_are_read() -> None:
    assert len(STEPS) > 40


@pytest.mark.parametrize(("file", "place"), STEPS)
def test_every_place_of_a_walk_exists(file: str, place: str) -> None:
    body = ast.parse((ROOT / f"{file}.py").read_text()).body
    for name in place.split("."):
        found = [node for node in body if getattr(node, "name", None) == name]
        assert found, f"{file}.py has no {place}"
        body = getattr(found[0], "body", [])


def test_every_file_named_in_the_page_exists() -> None:
    for name in re.findall(r"`((?:\w+/)+\w+)`", PAGE):
        if name.split("/")[0] in PACKAGES:
            assert (ROOT / f"{name}.py").exists() or (ROOT / name).is_dir(), f"there is no {name}"
