"""Legibility of the page at three sizes of the window and of the program, in a real browser, by computed styles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.serving import serving
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_page import READY, go
from tests.monitor.web.test_states import STATES

pytestmark = test_page.pytestmark

SIZES = {1440: 900, 800: 900, 390: 844}
OPERATORS = (12, 40, 221)

TEXTS = """(() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parse = (text) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text === 'none' ? 'transparent' : text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const over = (low, top) => low.map((v, n) => v * (1 - top[3]) + top[n] * top[3]);
  const colours = (element) => {
    const layers = [];
    const shape = element.closest('.verdict') ? '.verdict rect' : element.closest('.node') ? '.card' : 'rect';
    const group = element instanceof SVGElement && element.closest('.node, .box');
    if (group) layers.push(parse(getComputedStyle(group.querySelector(shape)).fill));
    for (let at = element; at; at = at.parentElement) {
      if (at instanceof SVGElement) continue;
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] >= 1) break;
    }
    return layers.reverse().reduce(over, [255, 255, 255]);
  };
  const found = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || element.closest('title, noscript, script, option, defs, [hidden]')) continue;
    if (!element.getClientRects().length || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const drawn = element instanceof SVGElement;
    const size = parseFloat(style.fontSize) * (drawn ? element.getScreenCTM().a : 1);
    const [a, b] = [light(parse(drawn ? style.fill : style.color)), light(colours(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (size >= 10.95 && contrast >= 4.5) continue;
    found.push(`${text.data.trim().slice(0, 30)}: ${size.toFixed(2)} px, ${contrast.toFixed(2)}`);
  }
  return [found, seen];
})()"""

FRONTIERS = """(() => {
  const stage = document.querySelector('#graph').getBoundingClientRect();
  const laid = [...document.querySelectorAll('#legend, #tools')].map((one) => one.getBoundingClientRect());
  const wrong = [];
  for (const node of document.querySelectorAll('.node:not(.small)')) {
    const text = node.querySelector('.figures');
    const box = text.getBoundingClientRect();
    const inside = box.left >= stage.left && box.right <= stage.right && box.top >= stage.top && box.bottom <= stage.bottom;
    const beside = (one) => box.left >= one.right || one.left >= box.right || box.top >= one.bottom || one.top >= box.bottom;
    const covered = !laid.every(beside);
    const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
    if (inside && !covered && size >= 10.95 && /^▸.*↺/.test(text.textContent)) continue;
    wrong.push([node.dataset.name, text.textContent, inside, covered, size]);
  }
  return wrong;
})()"""


@pytest.fixture(scope="module", params=OPERATORS)
def made(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    job = StandingJob(wide_layout(request.param, workers=4))
    for _ in range(6):
        job.step()
    with serving(job, moves=False) as url:
        yield request.param, url


def shown(tab: Tab, url: str, width: int, dark: bool = False, fragment: str = "") -> None:
    tab.size(width, SIZES[width], dark=dark)
    go(tab, url, fragment)
    tab.wait("document.querySelector('#totals dd') && document.querySelector('#panel table')")
    tab.wait(
        "[...document.querySelectorAll('.node:not(.small) .figures:not(.lag)')].every((one) => one.textContent.includes('▸'))"
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", SIZES)
def test_no_text_is_under_11_pixels_or_faint(tab: Tab, made: tuple[int, str], width: int, dark: bool) -> None:
    operators, url = made
    for fragment in ("", "#sel=map-8&worker=1" if operators < 200 else "#sel=region%200"):
        shown(tab, url, width, dark, fragment)
        for key in ("", "f"):
            if key:
                tab.key(key, key)
            wrong, seen = tab.run(TEXTS)
            assert seen > 60
            assert not wrong, wrong


def test_frontiers_are_visible_after_fit(tab: Tab, made: tuple[int, str]) -> None:
    operators, url = made
    for width in (1440, 800):
        shown(tab, url, width)
        tab.click("#fit")
        assert tab.run("document.querySelectorAll('.node:not(.small)').length") >= min(10, operators)
        assert tab.run(FRONTIERS) == []
    if operators >= 200:
        assert tab.run("document.querySelectorAll('.node .behind').length") >= 5, "regions are folded"


@pytest.mark.parametrize("name", ["payments", "flights", "mixed_policies"])
def test_frontiers_of_examples_are_visible_after_fit_and_regions_are_boxes_where_they_can_be(
    tab: Tab, name: str
) -> None:
    layout = example_layout(name)
    job = StandingJob(layout)
    job.step()
    with serving(job, moves=False) as url:
        shown(tab, url, 1440)
        tab.click("#fit")
        assert tab.run(FRONTIERS) == []
        boxes = set(tab.run("[...document.querySelectorAll('.box > text')].map((one) => one.textContent)"))
    regions = {info.region for info in layout.processors}
    assert {box for box in boxes if box.removeprefix("region ") in regions}, boxes


@pytest.mark.parametrize("width", [1440, 1100, 800, 390])
@pytest.mark.parametrize("state", ["hung", "failed", "killed", "ended"])
def test_the_verdict_is_never_cut_off(tab: Tab, width: int, state: str) -> None:
    job = StandingJob(example_layout("mixed_policies"))
    STATES[state].make(job)
    with serving(job, moves=False) as url:
        tab.size(width, 900)
        go(tab, url)
        tab.wait("document.querySelector('#phase').textContent && document.querySelector('#totals dd')")
        cut = "(() => { const one = document.querySelector('#phase'); return one.scrollWidth - one.clientWidth })()"
        assert tab.run(cut) <= 0
        assert tab.run("document.querySelector('#phase').textContent").startswith(STATES[state].says)
        assert tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize("width", [800, 390])
def test_nothing_is_out_of_reach_on_a_narrow_screen(tab: Tab, made: tuple[int, str], width: int) -> None:
    _, url = made
    shown(tab, url, width)
    assert tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    outside = tab.run(
        "[...document.querySelectorAll('button, a[href], input, select')].filter((one) => {"
        "const box = one.getBoundingClientRect(); return box.width && (box.left < 0 || box.right > innerWidth) })"
        ".map((one) => one.id || one.textContent)"
    )
    assert outside == []
    covered = tab.run(
        "['phase', 'ask', 'times', 'help', 'fit', 'bars', 'panel'].filter((id) => {"
        "const one = document.getElementById(id); one.scrollIntoView({block: 'start'});"
        "const box = one.getBoundingClientRect();"
        "const top = document.elementFromPoint(box.left + Math.min(20, box.width / 2), box.top + Math.min(10, box.height / 2));"
        "return !one.contains(top) })"
    )
    assert covered == []


def nodes_of(tab: Tab) -> list[dict[str, Any]]:
    """Nodes of the browser's accessibility tree that are not ignored."""
    tab.call("Accessibility.enable")
    return [node for node in tab.call("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]


def property_of(node: dict[str, Any], name: str) -> Any:
    found = [each["value"].get("value") for each in node.get("properties", ()) if each["name"] == name]
    return found[0] if found else None


@pytest.mark.parametrize("fragment", ["", "#view=spacetime", "#ask=worker%3A1", "#sel=map-8&worker=1"])
def test_all_that_takes_the_focus_has_a_role_and_a_name(tab: Tab, made: tuple[int, str], fragment: str) -> None:
    operators, url = made
    if operators > 200 and "sel=" in fragment:
        fragment = "#sel=region%200"
    shown(tab, url, 1440, fragment=fragment)
    nodes = nodes_of(tab)
    focusable = [node for node in nodes if property_of(node, "focusable") and node["role"]["value"] != "RootWebArea"]
    assert len(focusable) > 12
    nameless = [
        (node["role"]["value"], node.get("name", {}).get("value"))
        for node in focusable
        if not node.get("name", {}).get("value") or node["role"]["value"] in ("generic", "none")
    ]
    scrollers = [each for each in nameless if each[0] in ("generic", "none")]
    assert [each for each in nameless if each not in scrollers] == []
    roles = {(node["role"]["value"], node.get("name", {}).get("value")) for node in nodes}
    assert ("banner", None) in {(role, None) for role, _ in roles}
    assert {"main", "complementary", "heading", "status"} <= {role for role, _ in roles}
    assert ("complementary", "Details") in roles
    pictures = [node for node in nodes if node["role"]["value"] in ("image", "img", "Canvas")]
    assert all(node.get("name", {}).get("value") for node in pictures), pictures


def test_the_drawing_is_gone_through_by_keys_alone(tab: Tab, made: tuple[int, str]) -> None:
    operators, url = made
    shown(tab, url, 1440)
    focused = "document.activeElement.dataset?.name ?? document.activeElement.id"
    outline = (
        "(() => { const one = document.activeElement, style = getComputedStyle(one),"
        "card = one.querySelector?.('.card');"
        "return style.outlineStyle !== 'none' || card && getComputedStyle(card).strokeDasharray !== 'none' })()"
    )
    tab.run("document.activeElement.blur()")
    order = []
    for _ in range(60):
        tab.key("Tab")
        order.append(tab.run(focused))
        assert tab.run(outline), order
        if order[-1] and tab.run("document.activeElement.matches('.node')"):
            break
    assert tab.run("document.activeElement.matches('.node')"), order
    assert order.index("ask") < len(order) - 1, "the header comes before the drawing"
    visited = set()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        tab.key(key)
        visited.add(tab.run(focused))
        assert tab.run("document.activeElement.matches('.node.chosen')")
        assert tab.run(outline)
    assert len(visited) >= 2
    tab.key("Enter", "\r")
    if operators > 200:
        tab.wait("location.hash.includes('open=')")
    else:
        tab.wait("location.hash.includes('worker=0')")
        tab.wait("document.querySelector('#panel').textContent.includes('F*(p)')")
    tab.key("Escape")
    tab.wait("!location.hash.includes('sel=')")


def test_who_wants_no_motion_has_none(tab: Tab, made: tuple[int, str]) -> None:
    _, url = made
    try:
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        tab.go("about:blank")
        tab.go(url)
        tab.wait(f"{READY} && document.querySelector('.node')")
        moving = tab.run(
            "[...document.querySelectorAll('*')].filter((one) => { const style = getComputedStyle(one);"
            "return style.transitionDuration !== '0s' || style.animationName !== 'none' || style.scrollBehavior === 'smooth' })"
            ".map((one) => one.outerHTML.slice(0, 80))"
        )
        assert moving == []
    finally:
        tab.call("Emulation.setEmulatedMedia", features=[])


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_numbers_have_units_and_times_dates_and_zones(tab: Tab, made: tuple[int, str], zone: str) -> None:
    _, url = made
    try:
        tab.call("Emulation.setTimezoneOverride", timezoneId=zone)
        shown(tab, url, 1440)
        words = {"clock": [0], "seconds": [0.0123, 61.5], "bytes": [2048], "count": [1234567], "dated": [1795847361000]}
        reported = tab.run(
            "(async () => { const all = await import('/page/words.js');"
            f"return Object.entries({words}).flatMap(([name, list]) => list.map((value) => all[name](value))) }})()"
        )
        offset = "GMT+5:30" if zone == "Asia/Kolkata" else "GMT-5"
        assert reported[0].startswith("1 Jan, 05:30:00" if zone == "Asia/Kolkata" else "31 Dec, 19:00:00")
        assert reported[1:5] == ["12.3 ms", "61.5 s", "2 KiB", "1,235k"]
        assert reported[5].startswith("28 Nov 2026")
        assert reported[5].endswith(offset)
        panel = tab.run("document.querySelector('#panel').textContent")
        assert f"What happened ({offset})" in panel
        title = tab.run("document.querySelector('#panel ul.events [title]').title")
        assert "1970" in title or "1969" in title
        assert offset.split("+")[0][:3] in title
    finally:
        tab.call("Emulation.setTimezoneOverride", timezoneId="")
