"""What can be read on the page at 1440 by 900: sizes of letters and contrasts, light and dark, in each panel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import serving
from tests.monitor.web.test_page import go
from tests.monitor.web.test_rollback_card import standing

pytestmark = test_page.pytestmark

PANELS = {"": "", "operator": "#sel=by-carrier&worker=0", "what if": "#ask=worker%3A1", "card": "#card=2"}

FAINT = """(() => {
  const parse = (text) => {
    const all = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith('color(srgb') ? 255 : 1;
    return [...all.slice(0, 3).map((each) => each * scale), all[3] ?? 1];
  };
  const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const over = (low, top) => low.map((v, n) => v * (1 - top[3]) + top[n] * top[3]);
  const under = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] >= 1) break;
    }
    return layers.reverse().reduce(over, [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || element.closest('svg, noscript, script, option, [hidden]')) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(style.color)), light(under(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (parseFloat(style.fontSize) >= 11 && contrast >= 4.5) continue;
    found.push(`${text.data.trim().slice(0, 30)}: ${style.fontSize}, ${contrast.toFixed(2)}`);
  }
  return [found, walker.root.innerText.length];
})()"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("panel", PANELS)
def test_words_are_at_least_11_pixels_high_and_stand_out(tab: Tab, panel: str, dark: bool) -> None:
    try:
        tab.size(1440, 900, dark=dark)
        with serving(standing(), moves=False) as url:
            go(tab, url, PANELS[panel])
            tab.wait("document.querySelector('#panel h2')")
            tab.wait("document.querySelector('#totals dd')")
            tab.wait(f"document.documentElement.dataset.theme === {json.dumps('dark' if dark else 'light')}")
            found: Any = tab.run(FAINT)
        assert found[1] > 200
        assert not found[0], found[0]
    finally:
        tab.size(1500, 950)


UNREACHED = """[...document.querySelectorAll('#panel *, #legend *, #top *, #tools *')].filter((one) => {
  const focusable = 'button, a[href], input, select, [tabindex="0"]';
  const row = one.closest('tr');
  const before = row?.previousElementSibling;
  return one.onclick && !one.matches(focusable) && !one.querySelector(focusable) && !before?.querySelector(focusable);
}).map((one) => one.textContent)"""


@pytest.mark.parametrize("panel", PANELS)
def test_whatever_can_be_clicked_is_reached_by_tab_too(tab: Tab, panel: str) -> None:
    with serving(standing(), moves=False) as url:
        go(tab, url, PANELS[panel])
        tab.wait("document.querySelector('#panel h2') && document.querySelector('#panel table')")
        assert tab.run(UNREACHED) == []
        expected = tab.run(
            "[...document.querySelectorAll('button, a[href], input, select')]"
            ".filter((one) => one.getClientRects().length).length"
        )
        tab.run("document.activeElement.blur()")
        tab.run(
            "window.reached = new Set(); document.addEventListener('focusin', (event) => reached.add(event.target))"
        )
        for _ in range(expected + 20):
            tab.key("Tab")
        reached = tab.run("[...reached].filter((one) => one.matches('button, a[href], input, select')).length")
        assert reached >= expected > 5
        outlined = "getComputedStyle(document.activeElement).outlineStyle"
        tab.run("document.querySelector('#ask').focus({focusVisible: true})")
        assert tab.run(outlined) != "none"
