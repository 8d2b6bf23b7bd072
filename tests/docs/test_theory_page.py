"""docs/theory.md names each invariant and rule of the models; whatever it and docs/papers.md name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from formal.check import RULES
from monitor.coordination.invariants import INVARIANTS as OF_THE_COORDINATOR
from recovery.agent.invariants import INVARIANTS as OF_THE_AGENT
from timely.errors import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text()
NAMED = set(re.findall(r"`([^`\n]+)`", PAGE))
PAPERS = set(re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "papers.md").read_text()))


@pytest.mark.parametrize("name", sorted({each.__name__ for each in (*OF_THE_AGENT, *OF_THE_COORDINATOR)}))
def test_each_invariant_stands_for_a_rule(name: str) -> None:
    assert name in NAMED


@pytest.mark.parametrize("name", sorted({str(case.dropped) for case in RULES}))
def test_each_rule_of_the_models_is_named(name: str) -> None:
    assert name in NAMED


def test_other_names_in_capitals_are_none() -> None:
    rules = {case.dropped for case in RULES}
    assert {name for name in NAMED if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", name)} <= rules


@pytest.mark.parametrize("path", sorted(name for name in NAMED | PAPERS if re.fullmatch(r"(\w+/)+(\w+(\.py)?)?", name)))
def test_each_path_exists(path: str) -> None:
    under_tests = path.rpartition("/")[2].startswith("test_")
    here = ROOT / ("tests" if under_tests else "") / path
    assert here.exists() or here.with_suffix(".py").exists()


@pytest.mark.parametrize(
    ("file", "places"), re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/]+\.py)` ((?:`[\w.]+`(?:, )?)+)", PAGE)
)
def test_each_place_of_a_file_is_there(file: str, places: str) -> None:
    for place in re.findall(r"`([\w.]+)`", places):
        body = ast.parse((ROOT / file).read_text()).body
        for name in place.split("."):
            found = [node for node in body if name in _names(node)]
            assert found, f"{file} has no {place}"
            body = getattr(found[0], "body", [])


def test_each_part_of_a_class_is_there() -> None:
    places = [name.split(".") for name in sorted(NAMED) if re.fullmatch(r"[A-Z]\w+\.\w+", name)]
    classes = _classes({kind for kind, _ in places})
    assert not [(kind, part) for kind, part in places if not re.search(rf"\b{part}\b", classes.get(kind, ""))]


def _classes(names: set[str]) -> dict[str, str]:
    """Source of each class of these names."""
    begins = re.compile(rf"^class ({'|'.join(names)})\b", re.MULTILINE)
    return {
        node.name: ast.unparse(node)
        for package in ("timely", "recovery", "monitor", "falkirk")
        for file in sorted((ROOT / package).rglob("*.py"))
        if begins.search(source := file.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.AnnAssign | ast.Assign):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
        return {each.id for each in targets if isinstance(each, ast.Name)}
    return {getattr(node, "name", "")}
