"""Make docs/states.png: the page in each state of a job, as a browser shows it, below each other.

    .venv/bin/python scripts/state_pictures.py

The jobs are those of `tests/monitor/web/test_states.py`, which holds what is said against what is so. Needs Chromium, and the
packages of the tests.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from falkirk.status_view import status_of  # noqa: E402
from recovery.store.address import StoreAddress  # noqa: E402
from runtime.page.followed import FollowedJob  # noqa: E402
from runtime.supervisor.stop import stop_job  # noqa: E402
from tests.monitor.web.browser import Tab, browser, find_browser  # noqa: E402
from tests.monitor.web.serving import MadeUp, serving_all  # noqa: E402
from tests.monitor.web.standing import StandingJob  # noqa: E402
from tests.monitor.web.test_page import READY  # noqa: E402
from tests.monitor.web.test_states import STATES, made_of  # noqa: E402

WIDE, HIGH, SHOWN = 1280, 900, 112


def jobs(*made: StandingJob) -> Callable[[], list[MadeUp]]:
    """Maker of the jobs of a page."""

    def make() -> list[MadeUp]:
        found = [MadeUp(job, moves=False) for job in made]
        for number, job in enumerate(found):
            job.shown = replace(job.shown, key=f"job-{number}", store=f"/stores/{number}")
        return found

    return make


def main() -> int:
    """Take all pictures, and put them together."""
    executable = find_browser()
    if executable is None:
        print("state_pictures: there is no Chromium", file=sys.stderr)
        return 1
    shots: list[tuple[str, str]] = []
    with browser(executable) as tab, tempfile.TemporaryDirectory() as folder:
        tab.size(WIDE, HIGH)

        def shoot(name: str, high: int = SHOWN) -> None:
            clip = {"x": 0, "y": 0, "width": WIDE, "height": high, "scale": 1}
            shots.append((name, tab.call("Page.captureScreenshot", format="png", clip=clip)["data"]))

        for name in STATES:
            with serving_all(jobs(made_of(name))) as url:
                opened(tab, url)
                shoot(name)
        store = Path(folder) / "store"
        run_for(store, 12.0)
        with serving_all(lambda: [FollowedJob(StoreAddress.of(store))]) as url:
            opened(tab, url)
            shoot("store only: the page of a job that was stopped, from its store")
        kept: list[MadeUp] = []
        with ExitStack() as page:

            def one() -> list[MadeUp]:
                kept.extend(jobs(made_of("running"))())
                return kept

            url = page.enter_context(serving_all(one))
            opened(tab, url)
            kept[0].hub.lose(True)
            tab.wait("!document.querySelector('#banner').hidden")
            shoot("monitor away")
            kept[0].hub.lose(False)
            tab.wait("document.querySelector('#banner').hidden")
            page.close()
            tab.wait("!document.querySelector('#banner').hidden")
            shoot("page away")
        with serving_all(jobs(made_of("running"), made_of("failed"))) as url:
            tab.go(url)
            tab.wait(f"{READY} && document.querySelectorAll('#list tbody tr').length === 2")
            shoot("two jobs", 200)
        for number, (_, data) in enumerate(shots):
            (Path(folder) / f"{number}.png").write_bytes(base64.b64decode(data))
        figures = "".join(
            f"<p>{name}</p><img src='{number}.png' width='1000'>" for number, (name, _) in enumerate(shots)
        )
        style = "<style>html{overflow:hidden}"
        style += "body{margin:8px;font:600 13px system-ui;background:#fff}p{margin:9px 0 3px}img{display:block}</style>"
        (Path(folder) / "all.html").write_text(f"<meta charset=utf-8>{style}{figures}")
        tab.go(f"file://{folder}/all.html")
        tab.wait("document.images.length && [...document.images].every((one) => one.complete)")
        tab.size(1016, int(tab.run("document.documentElement.scrollHeight")))
        tab.picture(ROOT / "docs" / "states.png")
    print(f"wrote {ROOT / 'docs' / 'states.png'}")
    return 0


def run_for(store: Path, seconds: float) -> None:
    """Run an example for some seconds from when it has something to lose, and stop it."""
    command = [sys.executable, "-m", "falkirk", "run", "examples/mixed_policies.py", "-w", "2", "--store", str(store)]
    for argument in (f"folder={store.parent}/output", "days=100000", "per_second=4000"):
        command += ["--arg", argument]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            while status_of(store).code != 0 or not status_of(store).text.startswith("running"):
                time.sleep(0.5)
            time.sleep(seconds)
            stop_job(store)
        finally:
            job.wait(120)


def opened(tab: Tab, url: str) -> None:
    """Open a page, and wait until it says how the job is."""
    tab.go("about:blank")
    tab.go(url)
    tab.wait(READY)
    tab.run("localStorage.setItem('falkirk.tour', 'seen')")
    tab.go("about:blank")
    tab.go(url)
    tab.wait(f"{READY} && document.querySelector('#totals dd') && document.querySelector('#phase').textContent")


if __name__ == "__main__":
    sys.exit(main())
