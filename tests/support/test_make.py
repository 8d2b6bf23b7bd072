"""The environment that make gives to all commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_processes_that_make_starts_keep_what_they_compile() -> None:
    """Python may keep compiled modules: else each of hundreds of processes compiles all that it imports."""
    command = ["make", "--eval", "environment: ; @env", "environment"]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "KEPT": "1"}
    said = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    assert "KEPT=1" in said.splitlines()
    assert "PYTHONDONTWRITEBYTECODE" not in said
