"""The environment that make gives to all commands, and its command for tests."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_processes_that_make_starts_keep_what_they_compile() -> None:
    """Python may keep compiled modules: else each of hundreds of processes compiles all that it imports."""
    command = ["make", "--eval", "environment: ; @env", "environment"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "KEPT": "1"}
    said = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    assert "KEPT=1" in said.splitlines()
    assert "PYTHONDONTWRITEBYTECODE" not in said


@pytest.mark.check
def test_process_of_tests_that_dies_fails_the_run_and_its_test_is_named(tmp_path: Path) -> None:
    """It is not replaced, and the run does not wait for it."""
    tests = [f"def test_{number}(): {'os._exit(1)' if number == 3 else 'pass'}" for number in range(9)]
    (tmp_path / "test_made.py").write_text("\n".join(["import os", *tests]))
    command = ["make", "--eval", "command: ; @echo $(PYTEST)", "command"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    python, *options = shlex.split(said)
    run = [ROOT / python, *options, "--rootdir", tmp_path, "-p", "no:cacheprovider", tmp_path / "test_made.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crashed while running 'test_made.py::test_3'" in done.stdout
