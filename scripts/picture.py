"""Make docs/page.png: the page of a real run of examples/mixed_policies.py, with one worker killed, as a browser shows it.

    .venv/bin/python scripts/picture.py [--dark] [FILE.png]

Needs Chromium, and the packages of the tests.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.monitor.web.browser import browser, find_browser  # noqa: E402

WIDE, HIGH = 1440, 900


def main() -> int:
    """Run the job, wait until there is something to see, and take the picture."""
    arguments = [each for each in sys.argv[1:] if each != "--dark"]
    target = Path(arguments[0]) if arguments else ROOT / "docs" / "page.png"
    found = find_browser()
    if found is None:
        print("picture: there is no Chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [
            sys.executable,
            "-m",
            "falkirk",
            "run",
            "examples/mixed_policies.py",
            "-w",
            "4",
            "--ui",
            "--ui-port",
            "0",
        ]
        command += ["--store", f"{folder}/job", "--arg", "days=100000", "--arg", f"folder={folder}/circles"]
        command += ["--arg", "per_second=4000"]
        job = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            assert job.stderr is not None
            address = next(match[0] for line in job.stderr if (match := re.search(r"http://\S+", line)))
            with browser(found) as tab:
                tab.size(WIDE, HIGH, dark="--dark" in sys.argv, scale=1.5)
                tab.go(f"{address}#sel=least-name&worker=1")
                tab.wait("document.querySelector('#phase')?.textContent.startsWith('running')", 120)
                time.sleep(25)
                os.kill(worker_of(job.pid), signal.SIGKILL)
                tab.wait("!/generation 1$/.test(document.querySelector('#phase').textContent)", 60)
                time.sleep(25)
                tab.run("document.querySelector('#panel').scrollTop = 0")
                tab.picture(target)
        finally:
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()
    print(f"wrote {target}")
    return 0


def worker_of(supervisor: int) -> int:
    """The process of one of the workers."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    workers = [pid for pid, command in sorted(commands.items()) if b"runtime.processes.worker" in command]
    return workers[1]


if __name__ == "__main__":
    sys.exit(main())
