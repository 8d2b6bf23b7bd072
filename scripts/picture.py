"""Make the pictures of docs/: pages of real runs of examples, with one worker killed, as a browser shows them.

    .venv/bin/python scripts/picture.py [--dark] [page | policies | rollback]

`page` is docs/page.png, of examples/mixed_policies.py; `policies` is docs/policies.png, and
`rollback` docs/rollback.png, of examples/payments.py. Without a name all are made. Needs Chromium, and
the packages of the tests.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.monitor.web.browser import browser, find_browser  # noqa: E402
from tests.support.processes import descendants  # noqa: E402

WIDE, HIGH = 1440, 900


@dataclass(frozen=True)
class Subject:
    """A job to be taken a picture of."""

    program: str
    workers: int
    arguments: tuple[str, ...]
    """Arguments of `build`, besides the folder of its output."""
    shown: str
    """Name of the operator with an open panel, at worker 1; empty for the card of the rollback."""


SUBJECTS = {
    "page": Subject("mixed_policies", 4, ("days=100000", "per_second=4000"), "least-name"),
    "policies": Subject("payments", 2, ("payments=1000000", "per_second=1000", "per_epoch=50"), "best"),
    "rollback": Subject("payments", 2, ("payments=1000000", "per_second=1000", "per_epoch=50"), ""),
}


def main() -> int:
    """Take the pictures that are asked for."""
    names = [each for each in sys.argv[1:] if each != "--dark"] or list(SUBJECTS)
    found = find_browser()
    if found is None:
        print("picture: there is no Chromium", file=sys.stderr)
        return 1
    for name in names:
        target = ROOT / "docs" / f"{name}.png"
        take(SUBJECTS[name], target, found, dark="--dark" in sys.argv)
        print(f"wrote {target}")
    return 0


def take(subject: Subject, target: Path, chromium: str, dark: bool) -> None:
    """Run the job, wait until there is something to see, kill a worker, and take the picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "falkirk", "run", f"examples/{subject.program}.py", "--ui", "--ui-port", "0"]
        command += ["-w", str(subject.workers), "--store", f"{folder}/job", "--arg", f"folder={folder}/output"]
        command += [word for argument in subject.arguments for word in ("--arg", argument)]
        job = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            assert job.stderr is not None
            address = next(match[0] for line in job.stderr if (match := re.search(r"http://\S+", line)))
            with browser(chromium) as tab:
                tab.size(WIDE, HIGH, dark=dark, scale=1.5)
                tab.go(f"{address}#sel={subject.shown}&worker=1" if subject.shown else address)
                tab.wait("document.querySelector('#phase')?.textContent.startsWith('running')", 120)
                time.sleep(25)
                os.kill(worker_of(job.pid), signal.SIGKILL)
                tab.wait("!/generation 1$/.test(document.querySelector('#phase').textContent)", 60)
                time.sleep(25)
                if not subject.shown:
                    tab.click(".rollbacks button")
                    tab.wait("document.querySelector('.steps')")
                tab.run("document.querySelector('#panel').scrollTop = 0")
                tab.picture(target)
        finally:
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()


def worker_of(supervisor: int) -> int:
    """The process of one of the workers."""
    processes = sorted(descendants(supervisor))
    return [pid for pid in processes if Path(f"/proc/{pid}/comm").read_text().strip() == "worker"][1]


if __name__ == "__main__":
    sys.exit(main())
