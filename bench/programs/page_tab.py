"""Cost of the page in a headless Chromium: first screen, main thread, many tabs.

A page's server, with a made-up job of `--size` operators on 4 workers that moves four times a second, as a monitor sends
observations; the browser is on the same machine. `--part first`: from navigation, with nothing in the cache, until the
verdict and all nodes of the drawing have been painted (`performance.now()`); beside it processor seconds of the tab's main
thread and of the server until then. `--part thread`: share of the main thread's time that the tab
works, for 15 s, with nothing chosen, with an operator chosen, and in space-time. `--part tabs`: 20 tabs of one browser, each
looked at in turn; the figure is the time until the last tab that is looked at follows the job, the slowest of the 20.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from common import arguments, report

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.monitor.web.browser import Tab, browser, find_browser
from tests.monitor.web.programs import wide_layout
from tests.monitor.web.serving import MadeUp, serving_all
from tests.monitor.web.standing import StandingJob

SECONDS = 15.0
STARTS = 5
TABS = 20

PAINTED = """
window.firstScreen = null;
const look = () => {
  const verdict = document.querySelector('#phase')?.textContent;
  const nodes = [...document.querySelectorAll('.node:not(.small) .figures:not(.lag)')];
  if (verdict && nodes.length && nodes.every((one) => one.textContent.includes('▸'))) {
    requestAnimationFrame(() => setTimeout(() => (window.firstScreen = performance.now()), 0));
  } else requestAnimationFrame(look);
};
addEventListener('DOMContentLoaded', look);
"""


class Moving(MadeUp):
    """Made-up job with four observations a second."""

    async def run(self) -> None:
        import asyncio

        while True:
            await asyncio.sleep(0.25)
            if self.hub.viewers:
                self.hub.publish(self._job.step())


@contextmanager
def opened(operators: int) -> Iterator[tuple[str, Tab]]:
    """Address of a page, and a tab of a browser that has just been started."""
    job = StandingJob(wide_layout(operators, workers=4))
    job.step()
    chromium = find_browser()
    assert chromium is not None, "there is no Chromium: install the package chromium"
    with serving_all(lambda: [Moving(job, moves=True)]) as url, browser(chromium) as tab:
        tab.size(1440, 900)
        yield url, tab


def first(operators: int) -> None:
    """Time of the first screen, of browsers that have just been started."""
    times, seconds = [], []
    for _ in range(STARTS):
        with opened(operators) as (url, tab):
            tab.call("Performance.enable", timeDomain="threadTicks")
            tab.call("Network.setCacheDisabled", cacheDisabled=True)
            tab.call("Page.addScriptToEvaluateOnNewDocument", source=PAINTED)
            spent = metrics(tab)["TaskDuration"], time.process_time()
            tab.go(url)
            tab.wait("window.firstScreen !== null", 60)
            seconds.append((metrics(tab)["TaskDuration"] - spent[0], time.process_time() - spent[1]))
            times.append(tab.run("window.firstScreen") / 1e3)
    times.sort()
    report(
        times[len(times) // 2],
        system=f"first_screen_{operators}",
        unit="s",
        min=times[0],
        most=times[-1],
        tab_cpu=sorted(one for one, _ in seconds)[len(times) // 2],
        server_cpu=sorted(one for _, one in seconds)[len(times) // 2],
        load=os.getloadavg()[0],
    )


def thread(operators: int) -> None:
    """Share of the main thread, by the open view."""
    cases = {"drawing": "", "chosen": "#sel=region%200&open=%3Aregion%200", "spacetime": "#view=spacetime"}
    with opened(operators) as (url, tab):
        tab.call("Performance.enable", timeDomain="threadTicks")
        for name, fragment in cases.items():
            tab.go("about:blank")
            tab.go(url + fragment)
            tab.wait("document.documentElement.dataset.ready === 'yes' && document.querySelector('#totals dd')")
            if name == "chosen":
                click = "dispatchEvent(new MouseEvent('click', {bubbles: true}))"
                tab.run(f"document.querySelector('.node[data-name]:not(.small)').{click}")
            time.sleep(3)
            before = metrics(tab)
            time.sleep(SECONDS)
            after = metrics(tab)
            report(
                100 * (after["TaskDuration"] - before["TaskDuration"]) / SECONDS,
                system=f"main_thread_{name}_{operators}",
                unit="%",
                script=100 * (after["ScriptDuration"] - before["ScriptDuration"]) / SECONDS,
                nodes=tab.run("document.querySelectorAll('.node').length"),
                load=os.getloadavg()[0],
            )


def metrics(tab: Tab) -> dict[str, float]:
    """Metrics of DevTools; durations are of the thread's own time, so other processes do not count."""
    return {each["name"]: each["value"] for each in tab.call("Performance.getMetrics")["metrics"]}


def tabs(operators: int) -> None:
    """Many tabs of one browser, brought to the front in turn."""
    with opened(operators) as (url, tab):
        place = tab.address.split("/devtools/")[0].replace("ws://", "http://")
        opened_tabs = []
        for _ in range(TABS):
            with urlopen(Request(f"{place}/json/new?{url}", method="PUT"), timeout=60) as answer:
                opened_tabs.append(Tab(json.load(answer)["webSocketDebuggerUrl"]))
        times = []
        for one in opened_tabs:
            begun = time.monotonic()
            one.call("Page.bringToFront")
            one.wait("document.documentElement.dataset.ready === 'yes' && document.querySelector('#totals dd')", 60)
            newest = "document.querySelectorAll('#totals dd')[2].textContent"
            seen = one.run(newest)
            one.wait(f"{newest} !== {json.dumps(seen)}", 60)
            times.append(time.monotonic() - begun)
            assert not one.problems, one.problems
        load, median = os.getloadavg()[0], sorted(times)[TABS // 2]
        report(max(times), system=f"tabs_{TABS}_{operators}", unit="s", median=median, load=load)
        for one in opened_tabs:
            one.close()


def main() -> None:
    args = arguments()
    {"first": first, "thread": thread, "tabs": tabs}[args.part](args.size)


if __name__ == "__main__":
    main()
