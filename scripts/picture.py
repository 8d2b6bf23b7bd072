"""Make the pictures of docs/: pages of real runs, most with one worker killed, as a browser shows them.

    .venv/bin/python scripts/picture.py [--dark] [NAME]

Without a name of `SUBJECTS` all are made. Needs Chromium, and the packages of the tests.
"""

from __future__ import annotations

import base64
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

from tests.monitor.web.browser import Tab, browser, find_browser  # noqa: E402
from tests.support.processes import descendants  # noqa: E402

WIDE, HIGH = 1440, 900
RESTORED = (
    "fetch('api/timeline').then((answer) => answer.json())"
    ".then(({ events }) => events.some((event) => event.kind === 'restored' && !event.start))"
)
FIGURES = "tests/monitor/web/paper_figures"
OUTPUT = ("folder={folder}/output",)
PAYMENTS = (*OUTPUT, "payments=1000000", "per_second=400", "per_epoch=20")


@dataclass(frozen=True)
class Subject:
    """A job to be taken a picture of."""

    program: str
    workers: int
    arguments: tuple[str, ...]
    """Arguments of `build`."""
    shown: str = ""
    """Fragment of the address."""
    card: bool = False
    """True to open the card of the rollback."""
    kill: bool = True
    phases: bool = False
    """True for the drawing at each step of the card, below each other."""
    seconds: float = 25.0
    """Time before and after the failure."""
    high: int = HIGH


SUBJECTS = {
    "page": Subject(
        "examples/mixed_policies", 4, (*OUTPUT, "days=100000", "per_second=4000"), "sel=least-name&worker=1"
    ),
    "policies": Subject("examples/payments", 2, PAYMENTS, "sel=best&worker=1"),
    "rollback": Subject("examples/payments", 2, PAYMENTS, card=True),
    "phases": Subject("examples/payments", 2, PAYMENTS, card=True, phases=True),
    "spacetime": Subject("examples/payments", 2, PAYMENTS, "view=spacetime"),
    "figure-3": Subject(FIGURES, 1, ("figure=3",), "view=spacetime", card=True, seconds=4.0, high=520),
    "figure-7b": Subject(
        FIGURES, 1, ("figure=7b",), "view=spacetime&ask=operator:y", kill=False, seconds=4.0, high=520
    ),
    "figure-7c": Subject(
        FIGURES, 1, ("figure=7c",), "view=spacetime&unfold=auto&ask=operator:y", kill=False, seconds=25.0, high=640
    ),
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
        command = [sys.executable, "-m", "falkirk", "run", f"{subject.program}.py", "--ui", "--ui-port", "0"]
        command += ["-w", str(subject.workers), "--store", f"{folder}/job"]
        command += [word for argument in subject.arguments for word in ("--arg", argument.format(folder=folder))]
        job = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            assert job.stderr is not None
            address = next(match[0] for line in job.stderr if (match := re.search(r"http://\S+", line)))
            with browser(chromium) as tab:
                tab.size(WIDE, subject.high, dark=dark, scale=1.5)
                tab.go(f"{address}#{subject.shown}")
                tab.wait("document.querySelector('#phase')?.textContent.startsWith('running')", 120)
                time.sleep(subject.seconds)
                if subject.kill:
                    os.kill(worker_of(job.pid, min(1, subject.workers - 1)), signal.SIGKILL)
                    while not tab.run(RESTORED):  # a promise, which `wait` would take for true
                        time.sleep(0.5)
                    time.sleep(subject.seconds)
                if subject.card:
                    tab.run("document.querySelector('.rollbacks button').click()")
                    tab.wait("document.querySelector('.steps')")
                    time.sleep(1.5)  # until what moves stands
                if "ask=" in subject.shown:
                    tab.wait("document.querySelector('#panel .big')", 60)
                tab.run("document.querySelector('#panel').scrollTop = 0")
                if subject.phases:
                    take_phases(tab, target)
                else:
                    tab.picture(target)
        finally:
            os.killpg(job.pid, signal.SIGTERM)
            job.wait()


def take_phases(tab: Tab, target: Path) -> None:
    """Take the drawing at each step of an open card, and the steps with their times, below each other."""
    count = tab.run("document.querySelectorAll('.steps button').length")
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for step in range(count):
            tab.run(f"document.querySelectorAll('.steps button')[{step}].click()")
            time.sleep(1.0)
            tab.run("document.activeElement.blur()")
            words = tab.run(
                f"[...document.querySelectorAll('.steps button')[{step}].children, document.querySelector('.meaning')]"
                ".map((each) => each.textContent).join(' · ')"
            )
            place = "document.querySelector('#stage').getBoundingClientRect()"
            x, y, width, height = tab.run(f"[{place}.x, {place}.y, {place}.width, {place}.height]")
            top, low = tab.run(
                "(() => { const all = [...document.querySelectorAll('#camera .node')]"
                ".map((each) => each.getBoundingClientRect());"
                "return [Math.min(...all.map((each) => each.top)), Math.max(...all.map((each) => each.bottom))] })()"
            )
            top, low = max(y, top - 60), min(y + height, low + 24)
            clip = {"x": x, "y": top, "width": width, "height": low - top, "scale": 1}
            (Path(folder) / f"{step}.png").write_bytes(
                base64.b64decode(tab.call("Page.captureScreenshot", format="png", clip=clip)["data"])
            )
            parts.append(f"<p>{step + 1}. {words}</p><img src='{step}.png' width='1000'>")
        style = "<style>html{overflow:hidden}"
        style += (
            "body{margin:8px;font:600 14px system-ui;background:#fff}p{margin:10px 0 4px}img{display:block}</style>"
        )
        (Path(folder) / "all.html").write_text(f"<meta charset=utf-8>{style}{''.join(parts)}")
        tab.go(f"file://{folder}/all.html")
        tab.wait("document.images.length && [...document.images].every((one) => one.complete)")
        tab.size(1016, int(tab.run("document.documentElement.scrollHeight")) + 8, scale=1.5)
        tab.picture(target)


def worker_of(supervisor: int, number: int) -> int:
    """The process of a worker; spares have begun later."""
    processes = sorted(descendants(supervisor))
    return [pid for pid in processes if Path(f"/proc/{pid}/comm").read_text().strip() == "worker"][number]


if __name__ == "__main__":
    sys.exit(main())
