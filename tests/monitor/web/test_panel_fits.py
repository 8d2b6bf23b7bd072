"""Tables and forms of the panel: none is wider than it, with numbers as large as jobs have them, in a real browser."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from monitor.explain.exposure import Danger
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import serving
from tests.monitor.web.test_legible import SIZES
from tests.monitor.web.test_other_policies import standing
from tests.monitor.web.test_page import go

pytestmark = test_page.pytestmark

WIDER = """(() => {
  const panel = document.querySelector('#panel');
  const right = panel.getBoundingClientRect().left + panel.clientWidth + 1;
  return [...panel.querySelectorAll('table, form, dl, p, h2, h3, button, td, th')]
    .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > right)
    .map((one) => `${one.tagName} ${one.textContent.slice(0, 60)}`);
})()"""

PANELS = {
    "overview": "",
    "operator": "#sel=sums&worker=0",
    "policies": "#policy=sums=LogHistory(every=1.0)",
    "what if": "#ask=worker%3A0",
}


@pytest.mark.parametrize("width", SIZES)
def test_nothing_of_the_panel_is_cut_off(tab: Tab, width: int) -> None:
    job = standing()
    at, sample = job.samples[0]
    large = replace(sample, read=98_765_432, newest=None, furthest=None)  # no source is open any more
    job.samples[0] = at, large
    job.exposure = (Danger(0, 98_765, 43.21, 12.3), Danger(-1, 0, 0.0, None))
    with serving(job, moves=False) as url:
        tab.size(width, SIZES[width])
        for name, fragment in PANELS.items():
            go(tab, url, fragment)
            tab.wait("document.querySelector('#panel table')")
            if name == "policies":
                tab.wait("document.querySelector('#policy-answer')")
                assert tab.run("document.querySelectorAll('#policy-answer th').length") == 4
            if name == "overview":
                tab.wait("document.querySelector('#panel').textContent.includes('no open source')")
            assert tab.run(WIDER) == [], name
