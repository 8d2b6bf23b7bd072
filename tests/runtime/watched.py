"""Jobs with a store as real processes, for tests that kill them: in this process, and by the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recovery.store.address import Where
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import build
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid, wait_for

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 3000  # 60 epochs in 1.2 s


class Watched:
    """A job, what has happened to it, and a thread that does something to it meanwhile."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        heartbeat_timeout: float = 10.0,
        monitor: Where | None = None,
        store: Where | None = None,
        mates: int = 0,
        **arguments: Any,
    ) -> None:
        self.folder = folder
        self.workers = workers
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.notes: list[str] = []
        program = Program(flow=build, args={"folder": str(folder), "records": RECORDS, **arguments})
        where = store or folder / "store"
        how = self.hear, self.notes.append, heartbeat_timeout, monitor
        self.job = Job(program, workers, where, None, *how, mates=mates)

    def hear(self, kind: str, at: float, data: dict[str, Any]) -> None:
        self.events.append((kind, data))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == kind]

    def run(self, disturb: Callable[[], None]) -> Any:
        return run_beside(self.job.run, disturb)

    def kill_worker_and_monitor(self, worker: int) -> None:
        """Kill a worker, and the monitor once the job runs again."""
        os.kill(self.job.pids[worker], signal.SIGKILL)
        wait_for(lambda: self.of("restored"))
        monitor = monitor_pid(self.job)
        assert monitor is not None
        os.kill(monitor, signal.SIGKILL)

    def until(self, files: int) -> None:
        """Wait until so many epochs are written, and all is well."""
        deadline = time.monotonic() + 120
        while len(list((self.folder / "files").glob("epoch-*"))) < files or len(self.job.pids) < self.workers:
            assert time.monotonic() < deadline, "no output"
            time.sleep(0.01)


APP = """
from tests.runtime.job_under_test import build
"""


def command(folder: Path, *arguments: str) -> list[str]:
    app = folder / "app.py"
    app.write_text(APP)
    store = str(folder / "store")
    settings = ["--arg", f"folder={folder}", "--arg", f"records={RECORDS}"]
    return [sys.executable, "-m", "falkirk", "run", str(app), "--store", store, *settings, *arguments]


def run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
    return done.returncode, done.stdout + done.stderr
