"""The recipes name files that exist, and what is set up around the repository calls what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from timely.errors import PACKAGES

yaml = pytest.importorskip("yaml")  # comes with the documents' builder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = "|".join((*PACKAGES, "tests", "docs", "scripts", "bench", "examples"))
RECIPES = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(rf"`((?:{FOLDERS})/[\w/.-]+)(?:#[\w-]+)?`", PAGE)) - {"docs/decisions/NNN-title.md"})
)
def test_each_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_there_is_a_recipe_for_each_kind_of_part() -> None:
    titles = [recipe.split("\n", 1)[0] for recipe in RECIPES]
    assert titles == ["A policy", "A store", "A link", "A placement", "A verb over columns", "A source", "A sink"]
    for recipe in RECIPES:
        assert "tests/" in recipe, recipe


def test_hosted_tests_run_what_decides() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = workflow["jobs"]["tests"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_hooks_run_what_is_there() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        program, *arguments = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        for path in (each for each in arguments if "/" in each):
            assert (ROOT / path).exists()


def test_forms_can_be_read() -> None:
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        read = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= read.keys()
        assert all(part["type"] == "textarea" and part["attributes"]["label"] for part in read["body"])


def test_container_makes_an_environment_that_the_makefile_knows() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).exists()
    target = container["postCreateCommand"].removeprefix("make ")
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
