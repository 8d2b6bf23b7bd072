"""The package holds every file that its code needs."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[1]
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_a_wheel_holds_all_files_of_all_packages() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("only a checkout of the repository knows which files belong to it")
    include = TOOL["packages"]["find"]["include"]
    folders = {ROOT / name.replace(".", "/"): name for name in find_packages(str(ROOT), include=include)}
    packed = {file for folder in folders for file in folder.glob("*.py")}
    for package, globs in TOOL["package-data"].items():
        for folder, name in folders.items():
            if package in ("*", name):
                packed.update(file for glob in globs for file in folder.glob(glob))
    tops = {name.split(".")[0] for name in folders.values()}
    ours = {ROOT / file for file in listed.stdout.split("\0") if file.split("/")[0] in tops and (ROOT / file).is_file()}
    assert ROOT / "monitor/web/page/main.js" in ours
    assert sorted(ours - packed) == []
