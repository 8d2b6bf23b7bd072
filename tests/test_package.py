"""The package holds every file that its code needs."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_a_wheel_holds_all_files_of_all_packages() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("only a checkout of the repository knows which files belong to it")
    tops = [pattern.removesuffix("*") for pattern in TOOL["packages"]["find"]["include"]]
    folders = {
        file.parent: ".".join(file.parent.relative_to(ROOT).parts)
        for top in tops
        for file in (ROOT / top).rglob("__init__.py")
    }
    packed = {file for folder in folders for file in folder.glob("*.py")}
    for package, globs in TOOL["package-data"].items():
        for folder, name in folders.items():
            if package in ("*", name):
                packed.update(file for glob in globs for file in folder.glob(glob))
    ours = {ROOT / file for file in listed.stdout.split("\0") if file.split("/")[0] in tops and (ROOT / file).is_file()}
    assert ROOT / "monitor/web/page/main.js" in ours
    assert sorted(ours - packed) == []
