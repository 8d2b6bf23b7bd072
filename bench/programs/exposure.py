"""Expected and actual cost of killing each worker of a job in turn.

    python bench/programs/exposure.py KILLS FOLDER

For each death a line: expected and actual seconds until all was as before, expected records, and those of the living.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.runtime.job_under_test import build

WORKERS = 2


def main(kills: int, folder: Path) -> None:
    """Run the job, kill, and print."""
    accounts: list[dict[str, Any]] = []
    caught: list[float] = []

    def hear(kind: str, at: float, data: dict[str, Any]) -> None:
        if kind == "restored" and "rollback" in data:
            accounts.append(data["rollback"])
        if kind == "caught_up":
            caught.append(data["seconds"])

    arguments = {"folder": str(folder), "records": 10**8, "per_second": 20_000, "every": 0.5}
    job = Job(Program(flow=build, args=arguments), WORKERS, folder / "store", None, hear, lambda text: None, 10.0)
    threading.Thread(target=job.run, daemon=True).start()
    for kill in range(kills):
        while len(caught) < kill or len(job.pids) < WORKERS:
            time.sleep(0.01)
        time.sleep(4.0 + 0.13 * kill)
        os.kill(job.pids[kill % WORKERS], signal.SIGKILL)
    while len(caught) < kills:
        time.sleep(0.01)
    errors = []
    for account, seconds in zip(accounts, caught):
        expected, actual = account["expected"] or {}, sum(account["phases"].values()) + seconds
        living = sum(part["records"] for part in account["redone"])
        said = {name: expected.get(name) for name in ("records", "redo", "restore", "seconds")}
        print(json.dumps({**said, "actual": round(actual, 3), "caught_up": round(seconds, 3), "living": living}))
        if expected.get("seconds") is not None:
            errors.append(expected["seconds"] - actual)
    print(json.dumps({"deaths": len(errors), "median_error": median(errors), "worst": max(errors, key=abs)}))
    sys.stdout.flush()
    os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    os.setpgid(0, 0)
    main(int(sys.argv[1]), Path(sys.argv[2]))
